package housekeeping

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// The sizes of a pass. A query reads enough rows to find many runs at once if all are old, and still answers within
// milliseconds if none is. A transaction is too short to disturb others.
const (
	readRuns   = 4000 // runs that one query reads
	deleteRuns = 500  // runs that are deleted together
	deleteRows = 5000 // steps, signals and items that are deleted together

	keepWorkers = 7 * 24 * time.Hour // after they ended
	keepWindows = 10 * time.Minute   // after they closed: longer than a start repeats itself

	scanShare = 20   // queries that find nothing use 1/scanShare of the database's time, for all namespaces together
	maxShared = 1000 // a namespace uses at least 1/maxShared of that, however few runs it has

	maxSmaller = 16 // the most powers of two by which transactions shrink
)

// A retention deletes old rows. It belongs to one loop of a Coordinator.
type retention struct {
	cfg        *Config
	leadership *leadership
	scan       scan
}

// DeleteOld deletes a batch of the runs past their retention, or searches for some. It returns no pause while it finds
// more. It does not search while the leader deletes by the same rules.
func (r *retention) DeleteOld(ctx context.Context) (time.Duration, error) {
	s := &r.scan
	switch {
	case len(s.old) > 0:
		return r.deleteFound(ctx)
	case r.leadership.leavesDeletion():
		s.ranges = nil
		return scanRest/2 + rand.N(scanRest), nil
	case len(s.ranges) > 0:
		return r.findOld(ctx)
	case r.cfg.Keep.Forever || r.cfg.Keep.Elsewhere:
		return r.scanRest(), r.deleteRegistered(ctx)
	}
	s.logDeleted(r.cfg.Log)
	if err := r.deleteRegistered(ctx); err != nil {
		return 0, err
	}
	return 0, r.beginScan(ctx)
}

// retentionID identifies the rules of the retention.
func (c *Config) retentionID() string {
	if c.Keep.Forever {
		return "forever"
	}
	rules, _ := json.Marshal(c.Keep.Runs) // with the workflows in order; durations always encode
	sum := sha256.Sum256(rules)
	return hex.EncodeToString(sum[:8])
}

// deleteRegistered deletes the rows of workers that ended more than a week ago, of windows that closed some time ago,
// and of changes that were made long ago.
func (r *retention) deleteRegistered(ctx context.Context) error {
	return errors.Join(
		deleteAll(ctx, func() (int64, error) { return r.cfg.Store.Workers.Prune(ctx, keepWorkers, deleteRuns) }),
		deleteAll(ctx, func() (int64, error) { return r.cfg.Store.Starts.PruneWindows(ctx, keepWindows, deleteRuns) }),
		r.deleteRecords(ctx),
	)
}

// deleteRecords deletes the events that say who deleted a run, once they are as old as failed runs get, and old entries
// of the audit log.
func (r *retention) deleteRecords(ctx context.Context) error {
	if r.cfg.Keep.Forever {
		return nil
	}
	return errors.Join(
		deleteAll(ctx, func() (int64, error) {
			return r.cfg.Store.Deletions.PruneEvents(ctx, r.cfg.Keep.Runs.Failed, deleteRuns)
		}),
		deleteAll(ctx,
			func() (int64, error) { return r.cfg.Store.Deletions.PruneAudit(ctx, r.cfg.Keep.Audit, deleteRuns) }),
	)
}

// deleteAll calls del until it deletes fewer than deleteRuns rows.
func deleteAll(ctx context.Context, del func() (int64, error)) error {
	for ctx.Err() == nil {
		n, err := del()
		if err != nil || n < deleteRuns {
			return err
		}
	}
	return ctx.Err()
}

// beginScan begins a scan over all runs.
func (r *retention) beginScan(ctx context.Context) error {
	s := &r.scan
	share, bounds, err := r.cfg.Store.Deletions.KeyStatistics(ctx)
	if err != nil {
		return err
	}
	s.shared = int(1 / max(share, 1./maxShared))
	if len(s.cuts) == 0 {
		s.cuts = bounds
	}
	s.ranges, s.workers, err = r.cfg.Store.Deletions.RetentionRanges(ctx, r.cfg.Keep.Runs.Shortest())
	if !r.cfg.Hosted { // it knows of no other coordinator
		s.workers = 1
	}
	return err
}

// findOld makes the next query of the scan. If it finds nothing, the pause is a multiple of the query's duration, so
// that a million sleeping runs, which every scan reads again, do not load the database.
func (r *retention) findOld(ctx context.Context) (time.Duration, error) {
	s := &r.scan
	began, part := time.Now(), s.next()
	old, left, err := r.cfg.Store.Deletions.Expired(ctx, r.cfg.Keep.Runs, part, readRuns, cmp.Or(s.longest, maxQuery))
	switch {
	case pg.Locked(err): // by a migration
		return r.cfg.Interval, nil
	case errors.Is(err, store.ErrTooLong), store.MayBeRowError(err) && r.canRead(ctx):
		// a row of this part cannot be read
		if !s.cut(part) { // it cannot be divided: skip it, the next scan tries again
			s.passed(part.End)
			if store.MayBeRowError(err) {
				s.logSkipped(r.cfg.Log, "kagzi: a run cannot be read to see whether it is past its retention", "after",
					part.After, "up_to", part.End, "error", err)
			}
		}
		return r.foundNothing(began), nil
	case err != nil:
		return 0, err
	}
	s.old = old
	switch took := time.Since(began); {
	case left != nil:
		s.ranges[0].After = left.After
	default:
		s.passed(part.End)
		s.fit(part, took)
	}
	switch {
	case len(old) > 0:
		return 0, nil
	case len(s.ranges) == 0:
		return r.scanRest(), nil
	default:
		return r.foundNothing(began), nil
	}
}

// canRead reports whether a query that reads no rows succeeds.
func (r *retention) canRead(ctx context.Context) bool {
	_, _, err := r.cfg.Store.Deletions.Expired(ctx, r.cfg.Keep.Runs, store.Range{}, 1, cmp.Or(r.scan.longest, maxQuery))
	return err == nil
}

// foundNothing returns the pause after a query that began at began and found nothing.
func (r *retention) foundNothing(began time.Time) time.Duration {
	return time.Since(began) * time.Duration(scanShare*r.scanners()*max(1, r.scan.shared))
}

// scanners returns how many coordinators probably scan: all of the fleet, unless this one leads.
func (r *retention) scanners() int {
	if r.leadership.leading.Load() {
		return 1
	}
	return max(1, r.scan.workers)
}

// deleteFound deletes the first of the runs that were found.
func (r *retention) deleteFound(ctx context.Context) (time.Duration, error) {
	s, began := &r.scan, time.Now()
	n := min(len(s.old), max(1, deleteRuns>>s.smaller))
	pruned, late, err := r.delete(ctx, s.old[:n], max(1, deleteRows>>s.smaller))
	switch {
	case late: // the payloads are large: delete fewer at once
		s.smaller = min(s.smaller+2, maxSmaller)
	case err == nil:
		s.smaller = max(0, s.smaller-1)
	}
	switch {
	case pg.Locked(err), pruned.Elsewhere:
		// a migration has the table, or another coordinator deletes: leave it to that one
		s.ranges, s.old = nil, nil
		return r.scanRest(), nil
	case err != nil:
		return 0, err
	}
	s.deleted += pruned.Deleted
	s.logDeleted(r.cfg.Log)
	again := append(pruned.Long, pruned.Left...)
	s.old = append(again, s.old[n:]...)
	switch {
	case len(s.old) == 0 && len(s.ranges) == 0:
		return r.scanRest(), nil
	case pruned.Deleted == 0 && len(again) == 0: // children whose parents still exist, or locked runs
		return r.foundNothing(began), nil
	default:
		return 0, nil
	}
}

// delete deletes runs with at most rows rows in a transaction. Of a run that has more rows it deletes the steps first,
// and returns the run in all.Long. It skips a run that cannot be deleted; the next scan tries again. late says that a
// transaction took too long.
func (r *retention) delete(ctx context.Context, ids []uuid.UUID, rows int) (all store.Pruned, late bool, err error) {
	skip := func(id uuid.UUID, err error) {
		if pg.Classify(err) == pg.ClassLate && r.scan.smaller < maxSmaller {
			all.Left = append(all.Left, id)
			return
		}
		r.scan.logSkipped(r.cfg.Log, "kagzi: a run past its retention cannot be deleted; others are", "run", id,
			"error", err)
	}
	err = store.Isolate(ids, func(ids []uuid.UUID) error {
		pruned, err := r.cfg.Store.Deletions.Prune(ctx, r.cfg.Keep.Runs, ids, rows)
		late = late || pg.Classify(err) == pg.ClassLate
		if err == nil {
			all.Elsewhere = all.Elsewhere || pruned.Elsewhere
			all.Deleted += pruned.Deleted
			all.Left, all.Long = append(all.Left, pruned.Left...), append(all.Long, pruned.Long...)
		}
		return err
	}, skip)
	all.Long = slices.DeleteFunc(all.Long, func(id uuid.UUID) bool {
		var failure error
		for more := 1; more > 0 && err == nil && failure == nil && ctx.Err() == nil; {
			more, failure = r.cfg.Store.Deletions.PruneSteps(ctx, id, rows)
		}
		late = late || pg.Classify(failure) == pg.ClassLate
		switch {
		case failure == nil:
			return false
		case pg.Locked(failure): // another process deletes it
			return true
		case store.MayBeRowError(failure):
			skip(id, failure)
			return true
		}
		err = failure
		return false
	})
	return all, late, err
}

// scanRest returns the pause between two scans of this coordinator. The coordinators of a fleet do not all scan at
// once, and together scan no more often than one would alone.
func (r *retention) scanRest() time.Duration {
	rest := scanRest * time.Duration(r.scanners())
	return rest/2 + rand.N(rest)
}
