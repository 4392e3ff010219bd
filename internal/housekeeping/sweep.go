package housekeeping

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// A Sweep deletes the old runs of all namespaces of a database, in the place of their coordinators: each of these would
// read the key of all namespaces. It has one loop, and no state that a restart loses. See doc_retention.go.
type Sweep struct {
	Pool *pgxpool.Pool
	Log  *slog.Logger
	Keep store.Retention
	// Serves reports whether the runs of the namespace are to be deleted.
	Serves func(namespace string) bool

	skipped time.Time // when the log last reported a run that cannot be deleted
}

// sweepShare is how many times as long as a query that finds nothing the pause after it is. Every process sweeps.
const sweepShare = 100

// Run sweeps until ctx ends.
func (s *Sweep) Run(ctx context.Context) {
	pause := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	for ctx.Err() == nil {
		if err := s.pass(ctx, pause); err != nil && ctx.Err() == nil && !pg.Unavailable(err) && !pg.Locked(err) {
			s.Log.Warn("kagzi: old runs are not deleted now", "error", err)
		}
		pause(scanRest/2 + rand.N(scanRest))
	}
}

// pass reads all runs once, and deletes the old ones.
func (s *Sweep) pass(ctx context.Context, pause func(time.Duration)) error {
	ranges, _, err := store.New(s.Pool, "default").Deletions.RetentionRanges(ctx, s.Keep.Shortest())
	if err != nil {
		return err
	}
	var failed error
	for _, r := range ranges {
		for rest := &r; rest != nil && ctx.Err() == nil; {
			began := time.Now()
			old, next, err := store.ExpiredOfAll(ctx, s.Pool, s.Keep, *rest, readRuns, longSweep)
			if err != nil {
				return err
			}
			took, found := time.Since(began), false
			for namespace, ids := range old {
				if s.Serves(namespace) {
					found = true
					failed = errors.Join(failed, s.delete(ctx, namespace, ids)) // the others go on
				}
			}
			if !found {
				pause(sweepShare * took)
			}
			rest = next
		}
	}
	return failed
}

// longSweep bounds a query. It reads a fixed number of rows, so it is slow only if the server is.
const longSweep = 5 * time.Second

// delete deletes runs of a namespace that are past their retention. It leaves those that others delete, or hold.
func (s *Sweep) delete(ctx context.Context, namespace string, ids []uuid.UUID) error {
	r := retention{cfg: &Config{
		Store: store.New(s.Pool, namespace), Log: s.Log.With("namespace", namespace), Keep: Keep{Runs: s.Keep},
	}}
	r.scan.skipped = s.skipped
	defer func() { s.skipped = r.scan.skipped }()
	for len(ids) > 0 && ctx.Err() == nil {
		n := min(len(ids), max(1, deleteRuns>>r.scan.smaller))
		pruned, late, err := r.delete(ctx, ids[:n], max(1, deleteRows>>r.scan.smaller))
		switch {
		case pg.Locked(err) || pruned.Elsewhere:
			return nil
		case err != nil:
			return err
		case late:
			r.scan.smaller = min(r.scan.smaller+2, maxSmaller)
		}
		again := append(pruned.Long, pruned.Left...)
		if pruned.Deleted == 0 && len(pruned.Left) == n {
			return nil // the next pass tries again
		}
		ids = append(again, ids[n:]...)
	}
	return nil
}
