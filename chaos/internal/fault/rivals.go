package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// meetings are faults that happen in the moment in which a promise depends on one condition of a statement.
func meetings() []Fault {
	return []Fault{
		// F2: a worker is frozen as it is about to write, and goes on when another one holds its run and waits, too,
		// for the run's row.
		{Name: "F2 two workers write to one run", Kind: "F2", Inject: rivals},
		// F2: a worker is frozen as it is about to call a step, and goes on when another one has had the time to record
		// that step.
		{Name: "F2 freeze a worker before a step", Kind: "F2", Inject: freezeBeforeStep},
		// F2: a worker is frozen as it is about to end a run, and goes on when a client has cancelled its runs.
		{Name: "F2 cancel the runs of a worker that ends one", Kind: "F2", Inject: cancelAtEnd},
		// F11: the statement by which a schedule starts runs does not reach the server, and the connection ends.
		{Name: "F11 lost request of a schedule", Kind: "F11", Inject: unfired},
	}
}

// Locks the runs that others hold by now, under other leases than the zombie's.
const lockTaken = `
SELECT r.run_id FROM unnest($1::uuid[], $2::uuid[]) u (run_id, lease)
JOIN kagzi.workflow_runs r ON r.run_id = u.run_id AND r.status = 'RUNNING' AND r.lease <> u.lease
FOR UPDATE OF r SKIP LOCKED`

// rivals counts the zombies that went on while another worker held a run of theirs. The note says which of them were
// seen to wait for it.
func rivals(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	return w.zombies(ctx, r, d, "before flush", 6, func(zombie *fleet.Process, nth int) (int, string, error) {
		held, waited, err := w.meet(ctx, zombie, 2*w.Times.silence()+patience)
		if err != nil || !held {
			return 0, "", err
		}
		return 1, fmt.Sprintf("worker %s, flush %d, waited: %v; ", zombie.Spec.Name, nth, waited), nil
	})
}

// silence is how long a worker must be silent until others take its runs, whatever the configuration.
func (t Times) silence() time.Duration {
	return min(max(t.Stale, min(t.Lease, longestFreeze)), longestFreeze)
}

// zombies has new processes of a place freeze themselves when their code comes to a point for the nth time, nth being
// at most most. It does so for d, and longer until there was an effect. Each time it calls meet, which returns the
// effect, and lets the zombie go on.
func (w *World) zombies(ctx context.Context, r *rand.Rand, d time.Duration, point string, most int,
	meet func(zombie *fleet.Process, nth int) (int, string, error),
) (effect int, note string, err error) {
	place, release, err := w.take(ctx, r, nil)
	if err != nil {
		return 0, "", err
	}
	defer release()
	for end, tries := time.Now().Add(d), 0; ctx.Err() == nil &&
		(time.Now().Before(end) || effect == 0 && tries < 8); tries++ {
		nth := 1 + r.IntN(most)
		zombie, err := w.replace(ctx, place, func(s *fleet.Spec) {
			s.Point, s.Nth, s.Signal = point, nth, syscall.SIGSTOP
		})
		if err != nil {
			return effect, note, err
		}
		if !until(ctx, slice(w)+patience, func() bool { return state(zombie.PID()) == 'T' || !zombie.Alive() }) ||
			!zombie.Alive() {
			zombie.Kill() // else it would freeze later, and nothing would wake it
			<-zombie.Done()
			continue
		}
		n, met, err := meet(zombie, nth)
		_ = zombie.Signal(syscall.SIGCONT)
		effect, note = effect+n, note+met
		if err != nil {
			return effect, note, err
		}
	}
	return effect, note, ctx.Err()
}

// meet waits until another worker has one of the zombie's runs, locks it, lets the zombie go on, and unlocks the run as
// soon as the zombie waits for it. It reports whether it locked one, and whether the zombie was seen to wait.
func (w *World) meet(ctx context.Context, zombie *fleet.Process, limit time.Duration) (locked, waited bool, err error) {
	err = w.with(ctx, func(conn *pgx.Conn) error {
		var runs, leases []uuid.UUID
		if err := conn.QueryRow(ctx, runsOf, zombie.PID()).Scan(&runs, &leases); err != nil || len(runs) == 0 {
			return err
		}
		watch, err := w.connect(ctx)
		if err != nil {
			return err
		}
		defer closeSession(watch)
		waits := func() bool { // the zombie does so for a tenth of a second at a time
			var n int
			err := watch.QueryRow(ctx, waiters+` AND application_name = $2`, []uint32{conn.PgConn().PID()},
				zombie.Spec.Name).Scan(&n)
			waited = n > 0
			return waited || err != nil || !zombie.Alive()
		}
		var failed error
		until(ctx, limit, func() bool {
			locked, failed = lockBetween(ctx, conn, runs, leases, func() {
				_ = zombie.Signal(syscall.SIGCONT)
				until(ctx, 3*time.Second, waits)
			})
			return locked || failed != nil
		})
		return failed
	})
	return locked, waited, err
}

// lockBetween locks the runs that others hold by now, and calls do. It returns false if there is none.
func lockBetween(ctx context.Context, conn *pgx.Conn, runs, leases []uuid.UUID, do func()) (locked bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, lockTaken, runs, leases)
		if locked = tag.RowsAffected() > 0; locked {
			do()
		}
		return err
	})
	return locked, err
}

// freezeBeforeStep counts the runs that others took from workers that were about to call a step.
func freezeBeforeStep(ctx context.Context, w *World, r *rand.Rand,
	d time.Duration,
) (effect int, note string, err error) {
	return w.zombies(ctx, r, d, "before step", 4, func(zombie *fleet.Process, nth int) (int, string, error) {
		v, err := w.runs(ctx, zombie)
		taken := w.awaitTaken(ctx, v)
		if taken == 0 {
			return 0, "", err
		}
		return taken, fmt.Sprintf("worker %s before step %d, others took %d; ", zombie.Spec.Name, nth, taken), err
	})
}

// runs returns the runs that a process has, as a victim.
func (w *World) runs(ctx context.Context, process *fleet.Process) (v victim, err error) {
	v.process = process
	err = w.with(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, runsOf, process.PID()).Scan(&v.runs, &v.leases)
	})
	return v, err
}

// awaitTaken waits until others have taken some of a victim's runs, and have had the time to record a step. It returns
// how many.
func (w *World) awaitTaken(ctx context.Context, v victim) (taken int) {
	limit := 2*w.Times.silence() + patience
	if len(v.runs) > 0 && until(ctx, limit, func() bool { taken = w.lost(ctx, v); return taken > 0 }) {
		pause(ctx, time.Second)
	}
	return taken
}

// cancelAtEnd counts the runs that were cancelled while their worker stood still, as it was about to end one of them.
func cancelAtEnd(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	return w.zombies(ctx, r, d, "finish", 6, func(zombie *fleet.Process, nth int) (n int, _ string, err error) {
		v, err := w.runs(ctx, zombie)
		for _, run := range v.runs {
			if err == nil && w.cancel(ctx, run) {
				n++
			}
		}
		return n, fmt.Sprintf("worker %s at end %d, %d runs were cancelled; ", zombie.Spec.Name, nth, n), err
	})
}

// fire is the statement by which schedules start runs. It is not among the statements that other faults choose from:
// only the worker whose coordinator leads sends it.
var fire = statement{"a fire of schedules", "CASE WHEN given.queued THEN 'infinity'", "kagzi.schedules"}

// unfired counts the requests that were lost.
func unfired(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	for end := time.Now().Add(d); ctx.Err() == nil &&
		(time.Now().Before(end) || effect == 0 && time.Since(end) < patience); {
		var drops []*pgproxy.Drop
		for _, p := range w.Places { // one of them leads
			drops = append(drops, p.Proxy.DropRequest(fire.match(1+r.IntN(3))))
		}
		until(ctx, slice(w), func() bool {
			for _, drop := range drops {
				select {
				case <-drop.Done():
					effect++
					return true
				default:
				}
			}
			return false
		})
		for _, drop := range drops {
			drop.Cancel()
		}
	}
	return effect, fmt.Sprintf("%d requests", effect), ctx.Err()
}
