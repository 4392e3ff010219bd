package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/notify"
)

// leader returns the place whose process hosts the coordinator that leads, nil if none was heard. Leaders say so about
// once a second.
func (w *World) leader(ctx context.Context) (leader *fleet.Place, err error) {
	err = w.with(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "LISTEN "+notify.LeadChannel); err != nil {
			return err
		}
		hearing, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		for {
			n, err := conn.WaitForNotification(hearing)
			if hearing.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return err
			}
			for _, p := range w.Places {
				pids, err := w.backendsOf(ctx, p.Proxy, nil)
				if err != nil {
					return err
				}
				for _, pid := range pids {
					if pid == int32(n.PID) {
						leader = p
						return nil
					}
				}
			}
		}
	})
	return leader, err
}

// beheading kills or freezes the process whose coordinator leads, every three seconds.
func beheading(kill bool) Injection {
	const every, frozen = 3 * time.Second, 2 * time.Second
	return func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
		for end := time.Now().Add(d); ; {
			next := time.Now().Add(every)
			leader, err := w.leader(ctx)
			if err != nil {
				return effect, note, err
			}
			var want func(*fleet.Place) bool
			if leader != nil {
				want = func(p *fleet.Place) bool { return p == leader }
			}
			place, release, err := w.take(ctx, r, want)
			if err != nil {
				return effect, note, err
			}
			process := place.Process()
			if kill {
				process.Kill()
				<-process.Done()
			} else {
				resume, err := stop(ctx, process)
				if err != nil {
					release()
					return effect, note, err
				}
				pause(ctx, frozen)
				resume()
			}
			release()
			if leader != nil && (!kill || process.Killed()) {
				effect++
			}
			note += fmt.Sprintf("worker %s (led: %v); ", process.Spec.Name, leader != nil)
			if ctx.Err() != nil || next.After(end) {
				return effect, note, ctx.Err()
			}
			pause(ctx, time.Until(next))
		}
	}
}
