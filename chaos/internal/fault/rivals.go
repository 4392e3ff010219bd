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
		// F2: a worker is frozen as it is about to write, and goes on when another one holds its run and waits, too, for the run's row.
		{Name: "F2 two workers write to one run", Kind: "F2", Inject: rivals},
		// F2: a worker is frozen as it is about to call a step, and goes on when another one has had the time to record that step.
		{Name: "F2 freeze a worker before a step", Kind: "F2", Inject: freezeBeforeStep},
		// F11: the statement by which a schedule starts runs does not reach the server, and the connection ends.
		{Name: "F11 lost request of a schedule", Kind: "F11", Inject: unfired},
	}
}

// Locks the runs that others hold by now, under other leases than the zombie's.
const lockTaken = `
SELECT r.run_id FROM unnest($1::uuid[], $2::uuid[]) u (run_id, lease)
JOIN kagzi.workflow_runs r ON r.run_id = u.run_id AND r.status = 'RUNNING' AND r.lease <> u.lease
FOR UPDATE OF r SKIP LOCKED`

// rivals counts the zombies that went on while another worker held a run of theirs. The note says which of them were seen to wait for it.
func rivals(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	place, release, err := w.take(ctx, r, nil)
	if err != nil {
		return 0, "", err
	}
	defer release()
	past := min(max(w.Times.Stale, min(w.Times.Lease, longestFreeze)), longestFreeze)
	for end, tries := time.Now().Add(d), 0; ctx.Err() == nil && (time.Now().Before(end) || effect == 0 && tries < 8); tries++ {
		nth := 1 + r.IntN(6)
		zombie, err := w.replace(ctx, place, func(s *fleet.Spec) { s.Point, s.Nth, s.Signal = "before flush", nth, syscall.SIGSTOP })
		if err != nil {
			return effect, note, err
		}
		if !until(ctx, slice(w)+patience, func() bool { return state(zombie.PID()) == 'T' || !zombie.Alive() }) || !zombie.Alive() {
			zombie.Kill() // else it would freeze later, and nobody would wake it
			<-zombie.Done()
			continue
		}
		held, waited, err := w.meet(ctx, zombie, 2*past+patience)
		_ = zombie.Signal(syscall.SIGCONT)
		if err != nil {
			return effect, note, err
		}
		if held {
			effect++
			note += fmt.Sprintf("worker %s, flush %d, waited: %v; ", zombie.Spec.Name, nth, waited)
		}
	}
	return effect, note, ctx.Err()
}

// meet waits until another worker has one of the zombie's runs, locks it, lets the zombie go on, and unlocks the run as soon as the
// zombie waits for it. It reports whether it locked one, and whether the zombie was seen to wait.
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
			err := watch.QueryRow(ctx, waiters+` AND application_name = $2`, []uint32{conn.PgConn().PID()}, zombie.Spec.Name).Scan(&n)
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
func freezeBeforeStep(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	place, release, err := w.take(ctx, r, nil)
	if err != nil {
		return 0, "", err
	}
	defer release()
	past := min(max(w.Times.Stale, min(w.Times.Lease, longestFreeze)), longestFreeze)
	for end, tries := time.Now().Add(d), 0; ctx.Err() == nil && (time.Now().Before(end) || effect == 0 && tries < 8); tries++ {
		nth := 1 + r.IntN(4)
		zombie, err := w.replace(ctx, place, func(s *fleet.Spec) { s.Point, s.Nth, s.Signal = "before step", nth, syscall.SIGSTOP })
		if err != nil {
			return effect, note, err
		}
		if !until(ctx, slice(w)+patience, func() bool { return state(zombie.PID()) == 'T' || !zombie.Alive() }) || !zombie.Alive() {
			zombie.Kill() // else it would freeze later, and nobody would wake it
			<-zombie.Done()
			continue
		}
		v := victim{process: zombie}
		err = w.with(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, runsOf, zombie.PID()).Scan(&v.runs, &v.leases)
		})
		taken := 0
		if err == nil && len(v.runs) > 0 && until(ctx, 2*past+patience, func() bool { taken = w.lost(ctx, v); return taken > 0 }) {
			pause(ctx, time.Second) // so that the others record the step
			effect += taken
			note += fmt.Sprintf("worker %s before step %d, others took %d; ", zombie.Spec.Name, nth, taken)
		}
		_ = zombie.Signal(syscall.SIGCONT)
		if err != nil {
			return effect, note, err
		}
	}
	return effect, note, ctx.Err()
}

// fire is the statement by which schedules start runs. It is not among the statements that other faults choose from: only the worker whose
// coordinator leads sends it.
var fire = statement{"a fire of schedules", "CASE WHEN u.queued THEN 'previous run' END", "kagzi.schedules"}

// unfired counts the requests that were lost.
func unfired(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	for end := time.Now().Add(d); ctx.Err() == nil && (time.Now().Before(end) || effect == 0 && time.Since(end) < patience); {
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
