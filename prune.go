package kagzi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
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
	pruneShare = 20          // looking in vain takes the database one part in so many, for all namespaces together
	mostShared = 1000        // of which a namespace takes at least one part in so many, however few runs it has

	lookLong = 50 * time.Millisecond  // a look that takes longer is divided by the next walk
	lookMost = 200 * time.Millisecond // a look that takes longer is cut off, and divided
	mostCuts = 100_000

	mostSmaller = 16 // powers of two by which transactions become smaller

	leftOutReminder = time.Hour // that some runs cannot be deleted is logged so often
)

// A pruneWalk is where the coordinator stands in its walk over the runs, from the oldest ID to the newest. It lies in
// memory: another process walks by itself, and one that begins anew finds what is left.
//
// A look finds runs of one namespace, and reads the key of all. So where others have many, the key is divided by cuts: a
// look goes to the next one at the most. They are kept from walk to walk. The first are the planner's; what takes long
// is divided again, and two parts that are quickly read become one.
type pruneWalk struct {
	ranges  []store.Range // still to be looked at
	old     []uuid.UUID   // found, and to be deleted
	workers int           // of the namespace when the walk began: about as many coordinators share the work
	shared  int           // the namespace has one in so many of all runs, and takes as much of pruneShare
	cuts    []uuid.UUID   // in order
	joined  bool          // the last part that was read is joined with the one before: it stays as it is in this walk
	most    time.Duration // instead of lookMost, for tests
	smaller int           // transactions are smaller by so many powers of two, because they took too long
	deleted int           // runs, since that was logged
	logged  time.Time
	leftOut time.Time // when it was last told that something is left out
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
	return 0, k.beginWalk(ctx)
}

// beginWalk begins a walk over all runs.
func (k *Coordinator) beginWalk(ctx context.Context) error {
	w, s := &k.walk, k.client.store
	share, bounds, err := s.KeyStatistics(ctx)
	if err != nil {
		return err
	}
	w.shared = int(1 / max(share, 1./mostShared))
	if len(w.cuts) == 0 {
		w.cuts = bounds
	}
	w.ranges, w.workers, err = s.BeginWalk(ctx, k.cfg.retention().Shortest())
	if !k.hosted { // it is alone, as far as it knows
		w.workers = 1
	}
	return err
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
	began, look := time.Now(), w.next()
	old, left, err := k.client.store.Old(ctx, k.cfg.retention(), look, pruneLook, cmp.Or(w.most, lookMost))
	switch {
	case store.Locked(err): // by a migration
		return k.cfg.Interval, nil
	case errors.Is(err, store.ErrTooLong), store.MayBeOfOne(err) && k.canLook(ctx): // a row in there cannot be read
		if !w.cut(look) { // there is nothing to divide: it comes again with the next walk
			w.passed(look.End)
			if store.MayBeOfOne(err) {
				w.tellLeftOut(k.client.cfg.Logger, "kagzi: a run cannot be read to see whether it is past its retention", "after", look.After, "up_to", look.End, "error", err)
			}
		}
		return k.inVain(began), nil
	case err != nil:
		return 0, err
	}
	w.old = old
	switch took := time.Since(began); {
	case left != nil:
		w.ranges[0].After = left.After
	default:
		w.passed(look.End)
		w.fit(look, took)
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

// canLook reports whether a look at no rows succeeds.
func (k *Coordinator) canLook(ctx context.Context) bool {
	_, _, err := k.client.store.Old(ctx, k.cfg.retention(), store.Range{}, 1, cmp.Or(k.walk.most, lookMost))
	return err == nil
}

// inVain is the pause after a look that began then and brought nothing.
func (k *Coordinator) inVain(began time.Time) time.Duration {
	return time.Since(began) * time.Duration(pruneShare*max(1, k.walk.workers)*max(1, k.walk.shared))
}

// next is what the next look is to read: up to the next cut.
func (w *pruneWalk) next() store.Range {
	r := w.ranges[0]
	i, at := w.find(r.After)
	if at {
		i++
	}
	if i < len(w.cuts) && bytes.Compare(w.cuts[i][:], r.End[:]) < 0 {
		r.End = w.cuts[i]
	}
	return r
}

// passed notes that everything up to end was looked at.
func (w *pruneWalk) passed(end uuid.UUID) {
	if w.ranges[0].After = end; end == w.ranges[0].End {
		w.ranges = w.ranges[1:]
	}
}

// find returns the place of an ID among the cuts, and whether it is one.
func (w *pruneWalk) find(id uuid.UUID) (i int, at bool) {
	return slices.BinarySearchFunc(w.cuts, id, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
}

// cut divides the part that was looked at. It returns false if it cannot be divided.
func (w *pruneWalk) cut(look store.Range) bool {
	middle, ok := look.Middle()
	i, at := w.find(middle)
	if !ok || at || len(w.cuts) >= mostCuts {
		return false
	}
	w.cuts = slices.Insert(w.cuts, i, middle)
	return true
}

// fit makes the part that was read smaller for the next walk, if that took long, and joins it with the next one if it was
// quick: not with all that follow, which together may take long again.
func (w *pruneWalk) fit(look store.Range, took time.Duration) {
	i, at := w.find(look.End)
	switch {
	case took > lookLong:
		w.cut(look)
	case took > lookLong/8 || !at || w.joined:
		w.joined = false
	default:
		w.cuts, w.joined = slices.Delete(w.cuts, i, i+1), true
	}
}

// pruneOld deletes the first of the runs that were found.
func (k *Coordinator) pruneOld(ctx context.Context) (time.Duration, error) {
	w, began := &k.walk, time.Now()
	n := min(len(w.old), max(1, pruneRuns>>w.smaller))
	pruned, late, err := k.pruneRuns(ctx, w.old[:n], max(1, pruneRows>>w.smaller))
	switch {
	case late: // their payloads are large: less at once
		w.smaller = min(w.smaller+2, mostSmaller)
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

// pruneRuns deletes runs, rows rows in a transaction, and the first rows of those that have more. A run that cannot be
// deleted is left out: the next walk comes to it again. late says that a transaction took too long.
func (k *Coordinator) pruneRuns(ctx context.Context, ids []uuid.UUID, rows int) (all store.Pruned, late bool, err error) {
	s := k.client.store
	leftOut := func(id uuid.UUID, err error) {
		if store.Classify(err) == store.ClassLate && k.walk.smaller < mostSmaller {
			all.Left = append(all.Left, id)
			return
		}
		k.walk.tellLeftOut(k.client.cfg.Logger, "kagzi: a run past its retention cannot be deleted; others are", "run", id, "error", err)
	}
	err = store.Apart(ids, func(ids []uuid.UUID) error {
		pruned, err := s.Prune(ctx, k.cfg.retention(), ids, rows)
		late = late || store.Classify(err) == store.ClassLate
		if err == nil {
			all.Elsewhere = all.Elsewhere || pruned.Elsewhere
			all.Deleted += pruned.Deleted
			all.Left, all.Long = append(all.Left, pruned.Left...), append(all.Long, pruned.Long...)
		}
		return err
	}, leftOut)
	all.Long = slices.DeleteFunc(all.Long, func(id uuid.UUID) bool {
		var failure error
		for more := 1; more > 0 && err == nil && failure == nil && ctx.Err() == nil; {
			more, failure = s.PruneSteps(ctx, id, rows)
		}
		late = late || store.Classify(failure) == store.ClassLate
		switch {
		case failure == nil:
			return false
		case store.MayBeOfOne(failure):
			leftOut(id, failure)
			return true
		}
		err = failure
		return false
	})
	return all, late, err
}

// tellLeftOut logs that the walk leaves something out, now and then: each walk comes to it again.
func (w *pruneWalk) tellLeftOut(l *slog.Logger, text string, args ...any) {
	if w.leftOut.IsZero() || time.Since(w.leftOut) > leftOutReminder {
		l.Warn(text, args...)
		w.leftOut = time.Now()
	}
}

// pruneRest is the time between two walks of this coordinator. Those of a fleet should not all walk at once, nor more
// often together than one would alone.
func (k *Coordinator) pruneRest() time.Duration {
	rest := pruneRest * time.Duration(max(1, k.walk.workers))
	return rest/2 + rand.N(rest)
}
