package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/fleet"
)

func workerFaults() []Fault {
	return slices.Concat(
		// F1: a new process kills itself when its code comes to a point for the nth time.
		[]Fault{{Name: "F1 kill a worker at a point of its code", Kind: "F1", Inject: killAtPoint}},
		// F1: SIGKILL at any moment.
		[]Fault{{Name: "F1 kill a worker at random", Kind: "F1", Inject: killAtRandom, Local: true}},
		freezeFaults(),
		starvationFaults(),
		[]Fault{
			// F21: a rolling deploy: the next version of the code beside the present one, and then everywhere.
			{Name: "F21 deploy the next version", Kind: "F21", Inject: deploy},
			// F25: the process whose coordinator leads is killed, every three seconds.
			{Name: "F25 kill the coordinator", Kind: "F25", Inject: beheading(true)},
			// F25: the process whose coordinator leads is frozen for two seconds, every three.
			{Name: "F25 freeze the coordinator", Kind: "F25", Inject: beheading(false)},
			// F26: SIGTERM: the worker drains and ends with success in time.
			{Name: "F26 SIGTERM", Kind: "F26", Inject: terminate},
		},
	)
}

// points are the points of the engine's code at which Hooks.Point is called.
var points = []string{
	"before step", "after step", "after record", "before flush", "after flush", "after claim", "after start",
	"after limit", "after intent", "suspend", "finish", "losers stopped",
}

// slice is how long a fault waits for a process to come to its point, before it tries another point.
func slice(w *World) time.Duration { return 2*time.Second + w.Times.Poll }

// replace kills the place's process, if it lives, and starts another one. The driver may start one, too, as soon as
// there is none.
func (w *World) replace(ctx context.Context, place *fleet.Place, change func(*fleet.Spec)) (*fleet.Process, error) {
	for {
		if old := place.Process(); old != nil {
			old.Kill()
			<-old.Done()
		}
		process, err := place.Start(change)
		if err == nil || ctx.Err() != nil {
			return process, err
		}
		if old := place.Process(); old == nil || !old.Alive() {
			return nil, err
		}
	}
}

func killAtPoint(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	place, release, err := w.take(ctx, r, nil)
	if err != nil {
		return 0, "", err
	}
	defer release()
	begun := time.Now()
	for ctx.Err() == nil && (time.Since(begun) < d || effect == 0 && time.Since(begun) < d+2*patience) {
		point, nth := points[r.IntN(len(points))], 1+r.IntN(6)
		process, err := w.replace(ctx, place, func(s *fleet.Spec) {
			s.Point, s.Nth, s.Signal = point, nth, syscall.SIGKILL
		})
		if err != nil {
			return effect, note, err
		}
		until(ctx, slice(w), func() bool { return !process.Alive() })
		if process.Killed() {
			effect++
			note += fmt.Sprintf("worker %s at %q, number %d; ", process.Spec.Name, point, nth)
			continue
		}
		process.Kill() // else it would die when the fault is over
		<-process.Done()
	}
	return effect, note, ctx.Err()
}

func killAtRandom(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	for end := time.Now().Add(d); ; {
		place, release, err := w.take(ctx, r, nil)
		if err != nil {
			return effect, note, err
		}
		process := place.Process()
		process.Kill()
		<-process.Done()
		release()
		if process.Killed() {
			effect++
			note += fmt.Sprintf("worker %s; ", process.Spec.Name)
		}
		if next := time.Duration(r.Int64N(int64(2 * time.Second))); time.Until(end) > next {
			pause(ctx, next)
			continue
		}
		return effect, note, ctx.Err()
	}
}

// drainTime is how long a worker may take to end, with a margin for a busy machine.
func (t Times) drainTime() time.Duration {
	const margin = 15 * time.Second
	if t.Drain > 0 {
		return t.Drain + margin
	}
	return 5*time.Second + margin
}

func terminate(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	pause(ctx, time.Duration(r.Int64N(int64(d)+1)))
	for range 5 {
		place, release, err := w.take(ctx, r, nil)
		if err != nil {
			return 0, note, err
		}
		process := place.Process()
		begun := time.Now()
		ended, err := w.drain(process)
		release()
		switch {
		case err != nil:
			return 1, note, err
		case ended:
			return 1, fmt.Sprintf("%sworker %s ended after %v", note, process.Spec.Name,
				time.Since(begun).Round(time.Millisecond)), nil
		}
		note += fmt.Sprintf("worker %s died of something else (%v); ", process.Spec.Name, process.Err())
	}
	return 0, note, errors.New("all workers died before they had drained")
}

// drain sends SIGTERM, and reports whether the process has ended with success. It returns a Violation if the process
// goes on, or has ended with an error.
func (w *World) drain(process *fleet.Process) (ended bool, err error) {
	begun := time.Now()
	err = process.Drain(w.Times.drainTime())
	if err == nil {
		return true, nil
	}
	if process.Alive() {
		process.Kill()
		return false, &Violation{fmt.Sprintf("worker %s goes on %v after SIGTERM", process.Spec.Name,
			time.Since(begun).Round(time.Millisecond))}
	}
	if failed, _ := said(process.Spec.Ledger, 0, "\t"+evidence.Stopped+"\t\t\t0\t\terror: "); failed > 0 {
		return false, &Violation{fmt.Sprintf("worker %s ended with an error after SIGTERM: %v", process.Spec.Name, err)}
	}
	return false, nil
}

// deploy starts the next version of the code in some places, lets it run beside the present one, and then starts it in
// all others. It stays: runs that it has begun need it.
func deploy(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	order := r.Perm(len(w.Places))
	first := max(1, len(order)/2)
	from := 0
	for _, i := range order {
		from = max(from, w.Places[i].Base().Version)
	}
	to := from + 1
	upgrade := func(ctx context.Context, i int) error {
		place := w.Places[i]
		_, release, err := w.take(ctx, r, func(p *fleet.Place) bool { return p == place })
		if err == nil {
			defer release()
		}
		place.SetBase(func(s *fleet.Spec) { s.Version = max(s.Version, to) })
		if old := place.Process(); old != nil && old.Alive() && old.Spec.Version < to {
			if err := old.Drain(w.Times.drainTime()); err != nil {
				old.Kill()
				<-old.Done()
			}
		}
		return place.Ensure()
	}
	for _, i := range order[:first] {
		err = errors.Join(err, upgrade(ctx, i))
	}
	effect = w.beside(from, to)
	pause(ctx, d)
	mend, cancel := mending(ctx)
	defer cancel()
	for _, i := range order[first:] {
		err = errors.Join(err, upgrade(mend, i))
	}
	began, lookErr := ask[int](mend, w, `SELECT count(*) FROM kagzi.workflow_runs WHERE version = $1`, to)
	return effect, fmt.Sprintf("version %d beside %d in %d places; it began %d runs", to, from, effect, began),
		errors.Join(err, lookErr, ctx.Err())
}

// beside returns how many processes run the new version while others run the old one; zero if none do.
func (w *World) beside(from, to int) (n int) {
	old := 0
	for _, p := range w.Places {
		if process := p.Process(); process != nil && process.Alive() {
			switch process.Spec.Version {
			case to:
				n++
			case from:
				old++
			}
		}
	}
	if old == 0 {
		return 0
	}
	return n
}
