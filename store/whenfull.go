package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Policies for a start whose key has no free slot. With none, its run waits for one.
const (
	RejectNew    = "reject_new"    // the oldest runs stay: the start is refused
	CancelOldest = "cancel_oldest" // the newest runs stay: older ones are cancelled
)

// ErrKeyFull reports that a policy refuses the start because its key has no free slot.
var ErrKeyFull = errors.New("the key is full")

// A KeyFull is an ErrKeyFull with the state of the key.
type KeyFull struct {
	Key     Key
	Queue   string
	Limit   int
	Running int // runs that hold a slot; at most Limit are counted
	Waiting int // runs that are due and wait for one; at most Limit are counted
	Starts  int // of the call
}

func (e *KeyFull) Error() string {
	what, raise := fmt.Sprintf("key %q of queue %q", e.Key.Name, e.Queue),
		", or raise the limit with admin.Keys.Set"
	if e.Key.Group {
		what, raise = fmt.Sprintf("group %q", e.Key.Name), ""
	}
	if e.Starts > e.Limit {
		return fmt.Sprintf("%s has a limit of %d: %d runs started at once do not fit, so nothing was started: start "+
			"fewer%s", what, e.Limit, e.Starts, raise)
	}
	return fmt.Sprintf("%s is full, so nothing was started: of a limit of %d, %d hold a slot and %d wait for one, "+
		"each counted up to the limit: start again later%s", what, e.Limit, e.Running, e.Waiting, raise)
}

func (e *KeyFull) Unwrap() error { return ErrKeyFull }

func anyWhenFull(runs []NewRun) bool {
	for i := range runs {
		if runs[i].WhenFull != "" {
			return true
		}
	}
	return false
}

// lockFullKeys locks the keys of the runs with a WhenFull against other such starts, until tx ends. The lock is a row
// of its own, because claims must not wait for a caller's transaction. It is no advisory lock: on distributed tables,
// each node has its own of those.
//
// A transaction locks keys before windows and runs.
func (s Starts) lockFullKeys(ctx context.Context, tx pgx.Tx, runs []NewRun) error {
	var locked []NewRun
	for _, r := range runs {
		if r.WhenFull != "" {
			r.Window = &Window{Policy: whenFull, Key: r.Key.Name}
			locked = append(locked, r)
		}
	}
	if locked == nil {
		return nil
	}
	return pg.Ask(ctx, tx, lockWindows, windowColumns.args(s.namespace, planWindows(locked).windows), nil)
}

// The limit of the key u. The columns of the CTE or the function u are key_scope and run_key.
const limitOfKey = `(
	SELECT CASE WHEN u.key_scope = '' THEN 1 ELSE coalesce(
		(SELECT k.max_running FROM kagzi.run_keys k WHERE k.key_scope = u.key_scope AND k.run_key = u.run_key
			AND k.namespace_id = $1),
		(SELECT q.key_max_running FROM kagzi.queues q WHERE q.task_queue = u.key_scope AND q.namespace_id = $1)) END
			AS most
	OFFSET 0
)`

// The runs that compete with a start for the slots of the key u: those that hold one, and those that are due and wait
// for one. The runs that the call has just inserted ($4) are left out: they may be due some microseconds later. What
// follows waitersOfKey limits the runs of a priority, and closes two brackets.
const (
	holdersOfKey = `(
		SELECT x.run_id, x.created_at, x.outcome IS NOT NULL OR x.cancel_requested_at IS NOT NULL AS leaving
			FROM kagzi.workflow_runs x
		WHERE u.key_scope <> '' AND x.task_queue = u.key_scope AND x.namespace_id = $1 AND x.run_key = u.run_key
			AND ` + clause.Holds + ` AND x.key_scope <> ''
		UNION ALL
		SELECT x.run_id, x.created_at, x.outcome IS NOT NULL OR x.cancel_requested_at IS NOT NULL
			FROM kagzi.workflow_runs x
		WHERE u.key_scope = '' AND x.run_key = u.run_key AND x.namespace_id = $1 AND ` + clause.HoldsGroup + `
	)`

	waitersOfKey = `(
		SELECT y.run_id, y.created_at
		FROM generate_series(1, 4) AS p (priority)
		CROSS JOIN LATERAL (
			SELECT x.run_id, x.created_at FROM kagzi.workflow_runs x
			WHERE x.key_scope = u.key_scope AND x.namespace_id = $1 AND x.run_key = u.run_key
				AND x.priority = p.priority
				AND ` +
		clause.Waits + ` AND x.available_at <= statement_timestamp() AND x.outcome IS NULL
			AND x.run_id <> ALL ($4::uuid[])
			ORDER BY x.available_at, x.run_id`
)

// How full the keys are that have a limit, by their places in the arguments.
const fullKeys = `
SELECT u.place, l.most, h.running, w.waiting
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS u (key_scope, run_key, place)
CROSS JOIN LATERAL ` + limitOfKey + ` l
CROSS JOIN LATERAL (
	SELECT count(*) AS running FROM (
		SELECT FROM ` + holdersOfKey + ` c LIMIT l.most
	) c
) h
CROSS JOIN LATERAL (
	SELECT count(*) AS waiting FROM (
		SELECT FROM ` + waitersOfKey + ` LIMIT l.most) y) c LIMIT l.most
	) c
) w
WHERE l.most > 0`

// The oldest runs of the keys, so many that those of the call ($5) fit. A run that has been cancelled already will
// leave its slot by itself. Of a longer line, the statement takes only the first runs.
const oldestOfKeys = `
SELECT v.run_id
FROM unnest($2::text[], $3::text[], $5::int[]) AS u (key_scope, run_key, starts)
CROSS JOIN LATERAL ` + limitOfKey + ` l
CROSS JOIN LATERAL (
	SELECT c.run_id
	FROM (
		SELECT h.run_id, h.created_at FROM ` + holdersOfKey + ` h WHERE NOT h.leaving
		UNION ALL
		SELECT w.run_id, w.created_at FROM ` + waitersOfKey + ` LIMIT $6) y LIMIT $6) w
	) c
	ORDER BY c.created_at DESC, c.run_id DESC
	OFFSET GREATEST(0, l.most - u.starts)
) v
WHERE l.most > 0`

// mostCancelled is how many waiting runs a start with CancelOldest cancels.
const mostCancelled = 1000

// keyStarts are the runs of a call that have the same key, and were inserted.
type keyStarts struct {
	key    Key
	queue  string
	policy string
	own    []uuid.UUID
	first  int // the index of one with a policy
}

// keysToAdmit returns the keys of the runs with a WhenFull among those that were just inserted, with all runs of the
// call that have been inserted and have these keys. If several of a key have a policy, RejectNew decides.
func keysToAdmit(out []StartedRun, runs []NewRun, inserted map[uuid.UUID]bool) (keys []*keyStarts) {
	byKey := map[[2]string]*keyStarts{}
	id := func(r *NewRun) [2]string { return [2]string{r.Key.scope(r.Queue), r.Key.Name} }
	for i := range runs {
		r := &runs[i]
		if r.WhenFull == "" || !inserted[r.RunID] {
			continue
		}
		k := byKey[id(r)]
		if k == nil {
			k = &keyStarts{key: r.Key, queue: r.Queue, policy: r.WhenFull, first: i}
			byKey[id(r)], keys = k, append(keys, k)
		}
		if r.WhenFull == RejectNew {
			k.policy = RejectNew
		}
	}
	for i := range runs {
		r := &runs[i]
		if k := byKey[id(r)]; k != nil && (inserted[r.RunID] || out[i].RunID == r.RunID) {
			k.own = append(k.own, r.RunID)
		}
	}
	return keys
}

// admit applies the policies of the runs that were just inserted, in a transaction that holds the locks of
// lockFullKeys. The statements come after the lock, so they see what all earlier starts with a policy have inserted.
// They come after the insert, because only that decides whether a start begins a run of its own or returns one that
// exists.
func (s Starts) admit(ctx context.Context, db pg.DB, out []StartedRun, runs []NewRun,
	inserted map[uuid.UUID]bool,
) error {
	keys := keysToAdmit(out, runs, inserted)
	if keys == nil {
		return nil
	}
	scopes, names, own, starts := make([]string, len(keys)), make([]string, len(keys)), []uuid.UUID{},
		make([]int32, len(keys))
	for i, k := range keys {
		scopes[i], names[i], starts[i] = k.key.scope(k.queue), k.key.Name, int32(len(k.own))
		own = append(own, k.own...)
	}
	over := false
	err := pg.Ask(ctx, db, fullKeys, []any{s.namespace, scopes, names, array(own)}, func(rows pgx.Rows) error {
		var place, limit, running, waiting int
		_, err := pgx.ForEachRow(rows, []any{&place, &limit, &running, &waiting}, func() error {
			k := keys[place-1]
			n := len(k.own)
			if n > limit || k.policy == RejectNew && n+running+waiting > limit {
				return &KeyFull{k.key, k.queue, limit, running, waiting, n}
			}
			over = over || n+running+waiting > limit
			return nil
		})
		return err
	})
	if err != nil || !over {
		return err
	}
	var oldest []uuid.UUID
	err = pg.Ask(ctx, db, oldestOfKeys, []any{s.namespace, scopes, names, array(own), starts, mostCancelled},
		pg.Collect(&oldest, pgx.RowTo[uuid.UUID]))
	if err != nil || len(oldest) == 0 {
		return err
	}
	return s.cancelOldest(ctx, db.(pgx.Tx), &out[keys[0].first], oldest) // a start with this policy has a transaction
}

// cancelOldest cancels the runs as Cancel does, and adds their ends to started.
func (s Starts) cancelOldest(ctx context.Context, tx pgx.Tx, started *StartedRun, ids []uuid.UUID) error {
	const reason = "a newer start of its key has taken its place"
	ended, err := Ends(s).cancelAll(ctx, tx, ids, cancellation{text: withReason(wasCancelled, reason)})
	if err != nil {
		return err
	}
	var events []RunEvent
	for _, id := range ids {
		if ended.has(id) {
			events = append(events, newEvent(id, EventCancelled, Why{Reason: reason}))
		}
	}
	if started.Ended != nil {
		ended.add(started.Ended)
	}
	started.Ended = ended
	return s.writeOwnEvents(ctx, tx, events...)
}
