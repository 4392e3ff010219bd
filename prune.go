package kagzi

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// The sizes of a pass. A look touches as many rows as it must to find much at once when all is old, and still answers
// within milliseconds when nothing is; a transaction is short enough that nobody notices it.
const (
	pruneLook = 4000 // runs that are looked at together
	pruneRuns = 500  // runs that are deleted together
	pruneRows = 5000 // steps and signals that are deleted together

	keepWorkers = 7 * 24 * time.Hour // after they ended

	pruneRest  = time.Minute // between two walks, for each worker of the namespace
	pruneShare = 20          // looking in vain takes the database one part in so many
)

// A pruneWalk is where the coordinator stands in its walk over the runs, from the oldest ID to the newest. It lies in
// memory: another process walks by itself, and one that begins anew finds what is left.
type pruneWalk struct {
	ranges  []store.Range // still to be looked at
	old     []uuid.UUID   // found, and to be deleted
	workers int           // of the namespace when the walk began: about as many coordinators share the work
	smaller int           // transactions are smaller by so many powers of two, because they took too long
	deleted int           // runs, since that was logged
	logged  time.Time
}

// log tells how many runs were deleted, about once a minute.
func (w *pruneWalk) log(l *slog.Logger) {
	if w.deleted > 0 && time.Since(w.logged) > pruneRest {
		l.Info("kagzi: runs past their retention are deleted", "runs", w.deleted)
		w.deleted, w.logged = 0, time.Now()
	}
}

// prune deletes some of the runs that are past their retention. It returns no pause while there are more.
func (k *Coordinator) prune(ctx context.Context) (time.Duration, error) {
	w := &k.walk
	switch {
	case k.cfg.KeepForever:
		return k.pruneRest(), k.pruneWorkers(ctx)
	case len(w.old) > 0:
		return k.pruneOld(ctx)
	case len(w.ranges) > 0:
		return k.lookForOld(ctx)
	}
	w.log(k.client.cfg.Logger)
	if err := k.pruneWorkers(ctx); err != nil {
		return 0, err
	}
	var err error
	w.ranges, w.workers, err = k.client.store.BeginWalk(ctx, k.cfg.retention().Shortest())
	if !k.hosted { // it is alone, as far as it knows
		w.workers = 1
	}
	return 0, err
}

// pruneWorkers deletes the rows of workers that ended more than a week ago.
func (k *Coordinator) pruneWorkers(ctx context.Context) error {
	for ctx.Err() == nil {
		n, err := k.client.store.PruneWorkers(ctx, keepWorkers, pruneRuns)
		if err != nil || n < pruneRuns {
			return err
		}
	}
	return ctx.Err()
}

// lookForOld takes the walk's next step. If it finds nothing, it rests for a multiple of the time that took, so that
// a million runs asleep, which every walk passes again, are not felt.
func (k *Coordinator) lookForOld(ctx context.Context) (time.Duration, error) {
	w := &k.walk
	began := time.Now()
	old, left, err := k.client.store.Old(ctx, k.cfg.retention(), w.ranges[0], pruneLook)
	if err != nil {
		return 0, err
	}
	w.old = old
	if left != nil {
		w.ranges[0] = *left
	} else {
		w.ranges = w.ranges[1:]
	}
	switch {
	case len(old) > 0:
		return 0, nil
	case len(w.ranges) == 0:
		return k.pruneRest(), nil
	default:
		return k.inVain(began), nil
	}
}

// inVain is the pause after a look that began then and brought nothing.
func (k *Coordinator) inVain(began time.Time) time.Duration {
	return time.Since(began) * time.Duration(pruneShare*max(1, k.walk.workers))
}

// pruneOld deletes the first of the runs that were found.
func (k *Coordinator) pruneOld(ctx context.Context) (time.Duration, error) {
	w, s, began := &k.walk, k.client.store, time.Now()
	n := min(len(w.old), max(1, pruneRuns>>w.smaller))
	rows := max(1, pruneRows>>w.smaller)
	pruned, err := s.Prune(ctx, k.cfg.retention(), w.old[:n], rows)
	for _, id := range pruned.Long {
		for more := 1; more > 0 && err == nil && ctx.Err() == nil; {
			more, err = s.PruneSteps(ctx, id, rows)
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded): // their payloads are large: less at once
		w.smaller = min(w.smaller+2, 16)
		return 0, err
	case err == nil:
		w.smaller = max(0, w.smaller-1)
	}
	switch {
	case store.Locked(err), pruned.Elsewhere: // by a migration, by another coordinator: they are in each other's way
		w.ranges, w.old = nil, nil
		return k.pruneRest(), nil
	case err != nil:
		return 0, err
	}
	w.deleted += pruned.Deleted
	w.log(k.client.cfg.Logger)
	again := append(pruned.Long, pruned.Left...)
	w.old = append(again, w.old[n:]...)
	switch {
	case len(w.old) == 0 && len(w.ranges) == 0:
		return k.pruneRest(), nil
	case pruned.Deleted == 0 && len(again) == 0: // children whose parents are there, or runs that are locked
		return k.inVain(began), nil
	default:
		return 0, nil
	}
}

// pruneRest is the time between two walks of this coordinator. Those of a fleet should not all walk at once, nor more
// often together than one would alone.
func (k *Coordinator) pruneRest() time.Duration {
	rest := pruneRest * time.Duration(max(1, k.walk.workers))
	return rest/2 + rand.N(rest)
}
