package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// A KeysRequest is the part of a ClaimRequest for a queue that has keys or limits.
type KeysRequest struct {
	Plain  int       // how many of the runs may have no key
	Only   bool      // take none without a key, and do not say when the next of these is due
	Keyed  int       // how many may have one
	Line   time.Time // keys with an earlier place in the line are left out; zero: none are
	Change int64     // changes with a lower ID are left out
	Most   int       // how many changes to read
	// there are probably consumers among the keys: read with the first statements what only they need
	Consumers bool
	// keys of which the worker has given up slots since its last claim; the zero key stands for the queue
	Freed []FreedKey
}

// Keys is the part of a Claim about keys.
type Keys struct {
	Only       bool       // the answer to such a request: Next and Reached of the claim are not set
	Taken      int        // how many of the runs have taken a slot of their key
	Looked     int        // keys in the line that the claim looked at
	Last       time.Time  // the place of the last of these
	Read       int        // changes that were read
	LastChange int64      // the highest ID of these
	Busy       []FreedKey // of the freed keys, those that others had locked
	Consumers  bool       // some of the keys that the claim looked at have consumers
	locked     *lockedKeys
	Announce   []string // queues of keys that have become due with room, of which the claim took nothing

	// What there is after the claim.
	Next   time.Time // the first place in the line; zero if no key has one
	Now    time.Time // by the database's clock
	Change int64     // the lowest ID of a change; zero if there is none
	RateAt time.Time // when the queue's rate allows the next start; zero if it has none
}

// What is left in the line, and of the changes. After claimKeys the statement sees what that has written.
const nextKeys = `
SELECT now(), (
		SELECT min(n.available_at)
		FROM unnest(ARRAY[$2::text, '']) AS s (key_scope)
		CROSS JOIN LATERAL (
			SELECT x.available_at
			FROM kagzi.run_keys x
			WHERE x.key_scope = s.key_scope AND x.namespace_id = $1 AND x.available_at < 'infinity'
				AND x.available_at >= timestamptz 'epoch' + $3::bigint * interval '1 microsecond'
			ORDER BY x.available_at
			LIMIT 1
		) n
	), coalesce((
		SELECT min(n.change_id)
		FROM unnest(ARRAY[$2::text, '']) AS s (key_scope)
		CROSS JOIN LATERAL (
			SELECT x.change_id
			FROM kagzi.key_changes x
			WHERE x.key_scope = s.key_scope AND x.namespace_id = $1 AND x.change_id >= $4
			ORDER BY x.change_id
			LIMIT 1
		) n
	), 0), (
		SELECT c.rate_at FROM kagzi.queues c WHERE c.task_queue = $2 AND c.namespace_id = $1 AND c.rate_interval > 0
	)`

// claimKeyed is Claim for a queue that has keys or limits. It repeats a claim that inserts a second row of a key.
func (s Claims) claimKeyed(ctx context.Context, req ClaimRequest) (claim Claim, err error) {
	for range pg.MaxTries {
		if claim, err = s.claimKeyedOnce(ctx, req); !isSecondRow(err) {
			break
		}
	}
	return claim, err
}

// claimKeyedOnce is one transaction and two round trips: the first locks what the second counts, and takes runs without
// keys. Its commit waits for the disk: a claim that a crash of the server undoes would leave executions that no limit
// counts.
func (s Claims) claimKeyedOnce(ctx context.Context, req ClaimRequest) (claim Claim, err error) {
	var locked lockedKeys
	plain, keyed := req, req
	plain.Limit = min(req.Keys.Plain, req.Limit)
	asked := time.Now()
	scopes, keys, ended := keyArrays(req.Keys.Freed, req.Queue)
	first, then := &pgx.Batch{}, &pgx.Batch{}
	first.Queue(lockQueue, s.namespace, req.Queue)
	first.Queue(lockKeys, s.namespace, req.Queue, req.Keys.Keyed, scopes, keys, pg.Epoch(req.Keys.Line),
		req.Keys.Change, req.Keys.Most, ended)
	firstReads := []func(pgx.Rows) error{func(rows pgx.Rows) error {
		claim = Claim{Asked: asked, Limited: rows.Next()}
		rows.Close()
		return rows.Err()
	}, locked.read}
	state, start := Consumers(s).consumersLook(req.consumers())
	if req.Keys.Consumers {
		first.QueuedQueries, firstReads = append(first.QueuedQueries, state.Batch.QueuedQueries...),
			append(firstReads, state.Reads...)
	}
	if !req.Keys.Only {
		first.Queue(claimLimited, s.claimArgs(plain)...)
		firstReads = append(firstReads, plain.reads(&claim, asked))
	}
	finish := func() pg.Step {
		var reads []func(pgx.Rows) error
		if len(locked.inserted[0]) > 0 {
			then.Queue(refuseSecondRows, s.namespace, locked.inserted[0], locked.inserted[1])
			reads = append(reads, nil)
		}
		if len(locked.names) > 0 {
			keyed.Limit = min(req.Keys.Keyed, req.Limit-len(claim.Runs))
			then.Queue(claimKeys, s.keyedArgs(keyed, &locked)...)
			reads = append(reads, func(rows pgx.Rows) error {
				var room int
				runs, err := readClaimed(rows, &req, asked, &claim.Now, &room, &claim.Keys.Announce)
				claim.Room = room
				claim.Keys.Taken, claim.Runs = len(runs), append(runs, claim.Runs...)
				return err
			})
		}
		then.Queue(nextKeys, s.nextKeysArgs(req)...)
		return pg.Step{Batch: then, Reads: append(reads, claim.Keys.readNext)}
	}
	err = pg.Converse(ctx, s.pool, req.mode(pg.Brief), pg.Step{
		Batch: first, Reads: firstReads,
		Then: func() pg.Step {
			claim.Keys = locked.Keys
			claim.Keys.Only, claim.Keys.locked = req.Keys.Only, &locked
			claim.Keys.Busy = locked.missing(req.Keys.Freed, req.Queue)
			if claim.Keys.Consumers = len(locked.consuming) > 0; !claim.Keys.Consumers {
				return finish()
			}
			state.Then = func() pg.Step {
				start(then, locked.consuming)
				last := finish()
				last.Reads = pg.PadReads(last.Reads, 1, 0)
				return last
			}
			if req.Keys.Consumers {
				return state.Then()
			}
			return state
		},
	})
	if claim.Now.IsZero() {
		claim.Now = claim.Keys.Now
	}
	return claim, err
}

// nextKeysArgs returns the arguments of nextKeys.
func (s Claims) nextKeysArgs(req ClaimRequest) []any {
	var line time.Time
	var change int64
	if req.Keys != nil {
		line, change = req.Keys.Line, req.Keys.Change
	}
	return []any{s.namespace, req.Queue, pg.Epoch(line), change}
}

// readNext reads the answer of nextKeys.
func (k *Keys) readNext(rows pgx.Rows) error {
	_, err := pgx.ForEachRow(rows, []any{pg.UTC(&k.Now), pg.UTC(&k.Next), &k.Change, pg.UTC(&k.RateAt)}, func() error {
		return nil
	})
	return err
}
