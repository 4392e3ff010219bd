package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// An UnresponsiveWorker is a worker that may be dead.
type UnresponsiveWorker struct {
	ID          uuid.UUID
	HeartbeatAt time.Time // the last heartbeat that was read: if the worker has sent another one since, it is alive
	Backend     int32     // CheckFleet sets it: the process ID of the backend that has ended
	// Workers.Silent sets it: no heartbeat for all of its StaleAfter, not only for two thirds of it
	Silent bool
}

const silentWorkers = `
SELECT w.worker_id, w.heartbeat_at, w.heartbeat_at < clock_timestamp() - w.stale_after
FROM kagzi.workers w
WHERE w.namespace_id = $1 AND w.status <> 'OFFLINE' AND w.heartbeat_at < clock_timestamp() - w.stale_after * 2 / 3
ORDER BY w.worker_id`

// Silent returns the workers that have sent no heartbeat for two thirds of their StaleAfter.
func (s Workers) Silent(ctx context.Context) (silent []UnresponsiveWorker, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		silent = nil
		return pg.Ask(ctx, s.pool, silentWorkers, []any{s.namespace},
			pg.Collect(&silent, func(row pgx.CollectableRow) (w UnresponsiveWorker, err error) {
				return w, row.Scan(&w.ID, pg.UTC(&w.HeartbeatAt), &w.Silent)
			}))
	})
	return silent, pg.Wrap("find silent workers", err)
}

// Forbidden reports whether err says that the user lacks a right.
func Forbidden(err error) bool { return pg.Code(err) == "42501" }

// A LostWorker is a worker that was declared dead, and the result of releasing its runs.
type LostWorker struct {
	ID           uuid.UUID
	Queues       []string // of which it may hold runs
	Types        []string
	LeaseTimeout time.Duration
	RecheckKeys  bool // it may have ended runs without handing on their slots
	Released     int  // runs that Release made due
	// runs that Release left, because others had locked them or the database refused the change
	Left    int
	Refused error // why the database refused to change one of them; nil if it refused none
}

// Due names the queues in which runs of the worker have become due.
func (w *LostWorker) Due() (due []DueRun) {
	for _, q := range w.Queues {
		due = append(due, DueRun{Queue: q})
	}
	return due
}

const lostColumns = `w.worker_id, w.task_queues || w.left_queues, w.workflow_types,
	(extract(epoch FROM w.lease_timeout) * 1000000)::bigint, w.recheck_keys`

func readLost(row pgx.CollectableRow) (w LostWorker, err error) {
	var leaseTimeout int64
	err = row.Scan(&w.ID, &w.Queues, &w.Types, &leaseTimeout, &w.RecheckKeys)
	w.LeaseTimeout = time.Duration(leaseTimeout) * time.Microsecond
	return w, err
}

// A coordinator that releases a worker's runs has releaseLease for it, in which no other one tries. LateClaims is how
// long after its worker was declared dead a claim may still commit that was under way, or whose answer was lost.
const (
	releaseLease = time.Second
	LateClaims   = bulkTimeout + 5*time.Second
)

const declareDead = `
WITH locked AS MATERIALIZED (
	SELECT w.worker_id, now() AS now, now() + $4::bigint * interval '1 microsecond' AS release_at
	FROM kagzi.workers w
	WHERE w.worker_id = $2 AND w.namespace_id = $1 AND w.status <> 'OFFLINE'
		AND w.heartbeat_at = timestamptz 'epoch' + $3::bigint * interval '1 microsecond'
	FOR UPDATE SKIP LOCKED
)
UPDATE kagzi.workers w
SET status = 'OFFLINE', stopped_at = locked.now, active_count = 0, release_at = locked.release_at, recheck_keys = true
FROM locked
WHERE w.worker_id = locked.worker_id AND w.namespace_id = $1
RETURNING ` + lostColumns

// DeclareDead sets the worker OFFLINE, and returns it, for the caller to release its runs. It does nothing, and returns
// nil, if the worker has sent a heartbeat since w was read, or if another transaction has locked its row.
func (s Workers) DeclareDead(ctx context.Context, w UnresponsiveWorker, detail string) (lost *LostWorker, err error) {
	event := uuid.New()
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Transact(ctx, s.pool, pg.Brief, func(tx pgx.Tx) error {
			lost = nil
			var dead []LostWorker
			err := pg.Ask(ctx, tx, declareDead, []any{
				s.namespace, w.ID, pg.Epoch(w.HeartbeatAt),
				pg.Micros(releaseLease),
			},
				pg.Collect(&dead, readLost))
			if err != nil || len(dead) == 0 {
				return err
			}
			lost = &dead[0]
			return pg.Ask(ctx, tx, workerEvent, []any{s.namespace, w.ID, event, "LOST", detail}, nil)
		})
	})
	if err != nil {
		return nil, pg.Wrap("declare worker lost", err)
	}
	return lost, nil
}

const unreleased = `
WITH locked AS MATERIALIZED (
	SELECT w.worker_id, now() + $2::bigint * interval '1 microsecond' AS release_at
	FROM kagzi.workers w
	WHERE w.release_at <= now() AND w.namespace_id = $1 AND w.status = 'OFFLINE'
	ORDER BY w.release_at
	LIMIT $3
	FOR UPDATE SKIP LOCKED
)
UPDATE kagzi.workers w
SET release_at = locked.release_at
FROM locked
WHERE w.worker_id = locked.worker_id AND w.namespace_id = $1
RETURNING ` + lostColumns

// Unreleased returns up to n lost workers for the caller to release: none has released them yet, another transaction
// had locked one of their runs, or they may have had a claim under way.
func (s Workers) Unreleased(ctx context.Context, n int) (lost []LostWorker, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		return pg.Ask(ctx, s.pool, unreleased, []any{s.namespace, pg.Micros(releaseLease), n}, pg.Collect(&lost,
			readLost))
	})
	return lost, pg.Wrap("find lost workers that hold runs", err)
}

// The dead worker's runs are in a known part of the claim's index: their leases end within one lease timeout, and two
// cover a clock that was set back. IS TRUE keeps the planner from searching the primary key for all runs above $6.
const runsOfWorker = `
SELECT q.run_id
FROM (
	SELECT * FROM unnest($3::text[]) AS q (task_queue) CROSS JOIN unnest($4::text[]) AS t (workflow_type)
		CROSS JOIN generate_series(1, 4) AS p (priority) OFFSET 0
) w
CROSS JOIN LATERAL (
	SELECT k.run_id
	FROM kagzi.workflow_runs k
	WHERE k.namespace_id = $1 AND k.task_queue = w.task_queue AND k.workflow_type = w.workflow_type
		AND k.priority = w.priority
		AND ` +
	clause.Claimable + ` AND k.available_at > now() AND k.available_at <= now() + $5::bigint * interval '2 microseconds'
		AND k.status = 'RUNNING' AND k.locked_by = $2 AND (k.run_id > $6) IS TRUE
	ORDER BY k.available_at
) q
ORDER BY 1
LIMIT $7`

const releaseRuns = `
WITH locked AS MATERIALIZED (
	SELECT r.run_id, now() AS now
	FROM (SELECT u.run_id FROM unnest($3::uuid[]) AS u (run_id) ORDER BY 1) u
	CROSS JOIN LATERAL (
		SELECT k.run_id
		FROM kagzi.workflow_runs k
		WHERE k.run_id = u.run_id AND k.namespace_id = $1 AND k.status = 'RUNNING' AND k.locked_by = $2
		FOR UPDATE SKIP LOCKED
	) r
)
UPDATE kagzi.workflow_runs r
SET available_at = locked.now
FROM locked
WHERE r.run_id = locked.run_id AND r.namespace_id = $1`

// releaseBatch is how many runs one transaction makes due: it holds their locks.
const releaseBatch = 500

// release_at becomes: in a second if some runs were locked; else after LateClaims, once; else NULL. It also becomes
// NULL once the leases have ended, because the runs are due by themselves then.
const setReleaseAt = `
WITH times AS MATERIALIZED (
	SELECT v.worker_id, CASE
		WHEN v.stopped_at IS NULL OR v.stopped_at < now() - v.lease_timeout - $4::bigint * interval '1 microsecond'
			THEN NULL
		WHEN $3::bool THEN now() + interval '1 second'
		WHEN v.stopped_at > now() - $4::bigint * interval '1 microsecond'
			THEN v.stopped_at + ($4::bigint + 1) * interval '1 microsecond'
	END AS next
	FROM kagzi.workers v
	WHERE v.worker_id = $2 AND v.namespace_id = $1
)
UPDATE kagzi.workers w
SET release_at = times.next
FROM times
WHERE w.worker_id = times.worker_id AND w.namespace_id = $1 AND w.status = 'OFFLINE'`

// Release makes due the runs that the lost worker holds, in order of run_id, in batches, each in a transaction of its
// own. It waits for no lock. It leaves runs that others have locked, or that the database refuses to change, to a later
// call, and writes to release_at when that is to happen.
func (s Workers) Release(ctx context.Context, w *LostWorker) error {
	err := s.releaseAll(ctx, s.pool, w)
	if err == nil {
		err = pg.Do(ctx, func(ctx context.Context) error { return s.setReleaseAt(ctx, s.pool, w.ID, w.Left > 0) })
	}
	return pg.Wrap("release a lost worker's runs", err)
}

// releaseAll releases the runs, and leaves changes of the keys of whose runs the worker may have ended one without
// handing on the slot: it may end one until its late writes can commit no more.
func (s Workers) releaseAll(ctx context.Context, db pg.DB, w *LostWorker) error {
	err := s.releaseRuns(ctx, db, w)
	if w.RecheckKeys {
		for _, scope := range append(w.Queues[:len(w.Queues):len(w.Queues)], groupScope) {
			if err == nil {
				err = Limits(s).recheckKeys(ctx, db, scope)
			}
		}
	}
	return err
}

// releaseRuns releases the runs in batches. Each batch is a transaction, or a part of db if that is one.
func (s Workers) releaseRuns(ctx context.Context, db pg.DB, w *LostWorker) error {
	w.Released, w.Left, w.Refused = 0, 0, nil
	var after uuid.UUID
	for {
		var found []uuid.UUID
		err := pg.Do(ctx, func(ctx context.Context) error {
			return pg.Ask(ctx, db, runsOfWorker, []any{
				s.namespace, w.ID, w.Queues, w.Types, pg.Micros(w.LeaseTimeout),
				after.String(), releaseBatch,
			}, pg.Collect(&found, pgx.RowTo[uuid.UUID]))
		})
		if err != nil || len(found) == 0 {
			return err
		}
		before := w.Released
		if err := s.makeDue(ctx, db, w, found); err != nil {
			return err
		}
		w.Left += len(found) - (w.Released - before)
		if len(found) < releaseBatch {
			return nil
		}
		after = found[len(found)-1]
	}
}

// makeDue makes runs of the lost worker due. A run that the database refuses to change does not hold up the others.
func (s Workers) makeDue(ctx context.Context, db pg.DB, w *LostWorker, runs []uuid.UUID) error {
	return Isolate(runs, func(some []uuid.UUID) error {
		released := 0
		err := pg.Do(ctx, func(ctx context.Context) error {
			return pg.Ask(ctx, db, releaseRuns, []any{s.namespace, w.ID, array(some)}, func(rows pgx.Rows) error {
				rows.Close()
				released = int(rows.CommandTag().RowsAffected())
				return rows.Err()
			})
		})
		if err == nil {
			w.Released += released
		}
		return err
	}, func(id uuid.UUID, err error) {
		w.Refused = fmt.Errorf("worker %s, run %s: %w", w.ID, id, err)
	})
}

// setReleaseAt writes when to look again for runs that the lost worker holds; left says that some were left.
func (s Workers) setReleaseAt(ctx context.Context, db pg.DB, id uuid.UUID, left bool) error {
	return pg.Ask(ctx, db, setReleaseAt, []any{s.namespace, id, left, pg.Micros(LateClaims)}, nil)
}

// ReleaseUnresponsive declares each of the workers dead, and releases its runs.
func (s Workers) ReleaseUnresponsive(ctx context.Context, suspects []UnresponsiveWorker,
	detail string,
) (lost []LostWorker, err error) {
	for _, suspect := range suspects {
		if ctx.Err() != nil {
			break // another coordinator goes on
		}
		w, e := s.DeclareDead(ctx, suspect, detail)
		if w != nil {
			e = s.Release(ctx, w)
			lost = append(lost, *w)
		}
		if err = errors.Join(err, e); pg.Unavailable(e) || pg.Closed(e) {
			return lost, err
		}
	}
	return lost, err
}

// maxUnreleased is how many lost workers one pass of ReleaseRemaining releases.
const maxUnreleased = 100

// ReleaseRemaining releases runs of lost workers that were left before. It returns the workers of which it released
// runs, or of which the database refused to change one.
func (s Workers) ReleaseRemaining(ctx context.Context) (freed []LostWorker, err error) {
	left, err := s.Unreleased(ctx, maxUnreleased)
	for i := range left {
		w := &left[i]
		if err = errors.Join(err, s.Release(ctx, w)); pg.Unavailable(err) || pg.Closed(err) {
			return freed, err
		}
		if w.Released > 0 || w.Refused != nil {
			freed = append(freed, *w)
		}
	}
	return freed, err
}
