package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/fleet"
)

// longestFreeze bounds thresholds that are long in some configurations, such as a lease of minutes.
const longestFreeze = 12 * time.Second

// A threshold is a time after which others treat a silent worker differently.
type threshold struct {
	name  string
	of    func(Times) time.Duration
	loses bool // others take the worker's runs then
}

var thresholds = []threshold{
	{"half the lease", func(t Times) time.Duration { return t.Lease / 2 }, false},
	{"the lease", func(t Times) time.Duration { return t.Lease }, true},
	{"two thirds of the time to be stale", func(t Times) time.Duration { return t.Stale * 2 / 3 }, false},
	{"the time to be stale", func(t Times) time.Duration { return t.Stale }, true},
	{"the grace", func(t Times) time.Duration { return t.Grace }, false},
}

// freezeFaults: F2, SIGSTOP until a worker has been silent for longer than a threshold, and SIGCONT.
func freezeFaults() (all []Fault) {
	for _, t := range thresholds {
		all = append(all, Fault{Name: "F2 freeze a worker past " + t.name, Kind: "F2", Inject: freezePast(t)})
	}
	return append(all, Fault{Name: "F2 freeze a worker at a point of its code", Kind: "F2", Inject: freezeAtPoint})
}

// A victim is a worker process that is about to be frozen, and the runs that it has.
type victim struct {
	process *fleet.Process
	runs    []uuid.UUID
	leases  []uuid.UUID
	log     int64 // the size of its log
	ledger  int64 // … and of its ledger
}

// runsOf selects the runs that a process executes. A worker that was declared dead has several IDs.
const runsOf = `
SELECT coalesce(array_agg(r.run_id), '{}'), coalesce(array_agg(r.lease), '{}') FROM kagzi.workflow_runs r
WHERE r.status = 'RUNNING' AND r.locked_by IN (SELECT w.worker_id FROM kagzi.workers w WHERE w.pid = $1)`

// takenFrom counts the runs that are no more under their lease, and that no write under that lease has ended or
// suspended.
const takenFrom = `
SELECT count(*) FROM unnest($1::uuid[], $2::uuid[]) u (run_id, lease)
JOIN kagzi.workflow_runs r ON r.run_id = u.run_id AND (r.lease IS DISTINCT FROM u.lease OR r.status = 'PENDING')`

func logOf(p *fleet.Process) string { return strings.TrimSuffix(p.Spec.Ledger, ".ledger") + ".log" }

// freeze stops the process of a place, one that has runs if possible.
func (w *World) freeze(ctx context.Context, place *fleet.Place) (v victim, resume func(), err error) {
	v.process = place.Process()
	if resume, err = stop(ctx, v.process); err != nil {
		return v, nil, err
	}
	_, v.log = said(logOf(v.process), 0)
	_, v.ledger = said(v.process.Spec.Ledger, 0)
	conn, err := w.connect(ctx)
	if err == nil {
		err = conn.QueryRow(ctx, runsOf, v.process.PID()).Scan(&v.runs, &v.leases)
		closeSession(conn)
	}
	if err != nil {
		resume()
		return v, nil, fmt.Errorf("look at the runs of a frozen worker: %w", err)
	}
	return v, resume, nil
}

// busy reports whether a place's worker executes something.
func (w *World) busy(ctx context.Context, p *fleet.Place) bool {
	process := p.Process()
	if process == nil {
		return false
	}
	n, err := ask[int](ctx, w, `SELECT count(*) FROM kagzi.workflow_runs r WHERE r.status = 'RUNNING'
		AND r.locked_by IN (SELECT w.worker_id FROM kagzi.workers w WHERE w.pid = $1)`, process.PID())
	return err == nil && n > 0
}

// lost returns how many of the victim's runs others have taken.
func (w *World) lost(ctx context.Context, v victim) int {
	n, err := ask[int](ctx, w, takenFrom, v.runs, v.leases)
	if err != nil {
		return 0
	}
	return n
}

// noticed returns how often the victim has said since it was frozen that it lost something, or that a write of it was
// refused.
func (v victim) noticed() int {
	inLog, _ := said(logOf(v.process), v.log, "another worker may hold", "giving up", "declared dead",
		"claiming no runs", "lease lost")
	inLedger, _ := said(v.process.Spec.Ledger, v.ledger, "\t"+evidence.Refused+"\t")
	return inLog + inLedger
}

// thaw lets the victim go on and waits until it has noticed that it lost runs, if it did.
func (v victim) thaw(ctx context.Context, resume func(), lost int) (noticed int) {
	resume()
	if lost > 0 {
		until(ctx, patience, func() bool { return v.noticed() > 0 || !v.process.Alive() })
	}
	return v.noticed()
}

func freezePast(t threshold) Injection {
	return func(ctx context.Context, w *World, r *rand.Rand, _ time.Duration) (int, string, error) {
		past := min(t.of(w.Times), longestFreeze)
		place, release, err := w.take(ctx, r, func(p *fleet.Place) bool { return w.busy(ctx, p) })
		if err != nil {
			return 0, "", err
		}
		defer release()
		v, resume, err := w.freeze(ctx, place)
		if err != nil {
			return 0, "", err
		}
		defer resume()
		begun := time.Now()
		pause(ctx, past+past/10)
		lost := 0
		if t.loses && len(v.runs) > 0 { // the others find out a little later
			until(ctx, 2*past+patience, func() bool { lost = w.lost(ctx, v); return lost > 0 })
		}
		took := time.Since(begun)
		noticed := v.thaw(ctx, resume, lost)
		note := fmt.Sprintf("worker %s stood still for %v with %d runs; others took %d; it said %d times that it "+
			"lost something",
			v.process.Spec.Name, took.Round(time.Millisecond), len(v.runs), lost, noticed)
		if t.loses {
			return lost + noticed, note, ctx.Err()
		}
		return 1, note, ctx.Err()
	}
}

// freezeAtPoint has a new process freeze itself at a point of the code, and lets it go on past a threshold.
func freezeAtPoint(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	place, release, err := w.take(ctx, r, nil)
	if err != nil {
		return 0, "", err
	}
	defer release()
	t := thresholds[r.IntN(len(thresholds))]
	for deadline := time.Now().Add(max(d, patience)); effect == 0 && time.Now().Before(deadline) && ctx.Err() == nil; {
		point := points[r.IntN(len(points))]
		process, err := w.replace(ctx, place, func(s *fleet.Spec) {
			s.Point, s.Nth, s.Signal = point, 1+r.IntN(4), syscall.SIGSTOP
		})
		if err != nil {
			return effect, note, err
		}
		if until(ctx, slice(w), func() bool { return state(process.PID()) == 'T' || !process.Alive() }) &&
			process.Alive() {
			effect++
			note += fmt.Sprintf("worker %s stood still at %q past %s; ", process.Spec.Name, point, t.name)
			pause(ctx, min(t.of(w.Times), longestFreeze)*11/10)
			_ = process.Signal(syscall.SIGCONT)
			continue
		}
		process.Kill() // else it would freeze later, and nothing would wake it
		<-process.Done()
	}
	return effect, note, ctx.Err()
}
