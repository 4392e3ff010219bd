package alerts

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi/health"
)

// watchOutages looks whether the client can work, until ctx ends. It sends its alerts from this process.
func (w *watcher) watchOutages(ctx context.Context) {
	queues := map[string]chan Alert{} // by notifier
	var sending sync.WaitGroup
	defer sending.Wait()
	for name, to := range w.senders {
		queue := make(chan Alert, 100)
		defer close(queue)
		queues[name] = queue
		sending.Go(func() {
			for a := range queue {
				to.insist(ctx, a, w.log)
			}
		})
	}
	for s := (state{}); ctx.Err() == nil; pause(ctx, w.cfg.Every) {
		seen, err := w.lookForOutage(ctx, s)
		if err != nil {
			continue
		}
		var changed []Alert
		s, changed = s.learn(seen, w.cfg)
		for _, a := range changed {
			for name := range queues {
				select {
				case queues[name] <- w.complete(a):
				default: // the notifier has been away for a hundred alerts
				}
			}
		}
	}
}

// lookForOutage looks at what keeps the watch from going on. s is what was known before.
func (w *watcher) lookForOutage(ctx context.Context, s state) (l look, err error) {
	report, err := w.admin.Health(ctx)
	if err != nil {
		return l, err
	}
	if mine, err := w.ownAdmin.Health(ctx); err == nil {
		if c := mine.Check("work"); c.Status != health.Healthy { // of the watch's own worker
			report.Checks = append(report.Checks, c)
		}
	}
	l = look{At: time.Now(), Checks: bad(report, func(name string) bool {
		return w.cfg.keeps(name) && slices.Contains(outages, name)
	})}
	if report.Check("database").Status == health.Unhealthy {
		l.Checks = append(l.Checks, s.unseen(l.Checks)...) // nothing else was looked at
	}
	return l, nil
}

// unseen returns the troubles that are none of the checks, as checks.
func (s state) unseen(checks []health.Check) (all []health.Check) {
	for _, t := range s.Troubles {
		seen := slices.ContainsFunc(checks, func(c health.Check) bool { return c.Name == t.Check })
		if t.Well.IsZero() && !seen {
			all = append(all, health.Check{Name: t.Check, Status: t.Status, Detail: t.Detail})
		}
	}
	return all
}
