package kagzi

import (
	"context"
	"time"
)

// sweep declares silent workers dead and frees their runs. After an outage in which it could not look, it waits
// until the others had time to report: their silence was the database's.
func (k *Coordinator) sweep(ctx context.Context) (time.Duration, error) {
	c, threshold := k.client, k.cfg.StaleAfter
	pause := min(k.cfg.Interval, threshold/3)
	if !k.swept.IsZero() && time.Since(k.swept) > max(threshold, 3*k.cfg.Interval) {
		c.cfg.Logger.Info("kagzi: not judging workers after an outage", "for", threshold)
		k.swept = time.Now().Add(threshold)
	}
	if time.Now().Before(k.swept) {
		return pause, nil
	}
	lost, err := c.store.ReleaseLost(ctx, c.store.Pool())
	if err != nil {
		return 0, err
	}
	k.swept = time.Now()
	for _, w := range lost {
		c.cfg.Logger.Warn("kagzi: worker is lost", "worker", w.ID, "queue", w.Queue, "runs", w.Released)
		if w.Released > 0 {
			c.wakeWork(ctx, w.Queue, "", 0, 1)
		}
	}
	return pause, nil
}
