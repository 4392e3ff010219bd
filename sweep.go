package kagzi

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// sweep declares silent workers dead and frees their runs. It must have seen their silence itself for a third of
// StaleAfter, beginning at two thirds: what was silent while it could not look, was perhaps not able to report either.
func (k *Coordinator) sweep(ctx context.Context) (time.Duration, error) {
	c, w, threshold := k.client, &k.silent, k.cfg.StaleAfter
	pause := min(k.cfg.Interval, threshold/3)
	silent, err := c.store.SilentWorkers(ctx)
	if err != nil {
		w.gone = nil
		return 0, err
	}
	now := time.Now()
	if gap := now.Sub(w.last); !w.last.IsZero() && gap > pause+time.Second {
		w.gone = nil
		if len(silent) > 0 {
			c.cfg.Logger.Info("kagzi: silent workers are given time to report: the coordinator could not look",
				"namespace", c.cfg.Namespace, "workers", len(silent), "for", threshold/3, "not_looked_for", gap.Round(time.Millisecond))
		}
	}
	unchanged, _ := w.judge(silent, now, threshold/3)
	dead := slices.DeleteFunc(unchanged, func(w store.Suspect) bool { return !w.Silent })
	lost, err := c.store.ReleaseSuspects(ctx, dead, "no heartbeat")
	left, err2 := c.store.ReleaseLeft(ctx)
	for _, w := range left {
		if w.Released > 0 {
			lost = append(lost, w)
		} else {
			k.refused(w)
		}
	}
	k.released(ctx, lost, "no heartbeat")
	w.last = time.Now()
	for _, w := range lost {
		if w.Left > 0 {
			pause = min(pause, time.Second) // somebody had locked them, and may not any more
		}
	}
	return pause, errors.Join(err, err2)
}

// released tells of workers that were lost, and wakes who may execute their runs.
func (k *Coordinator) released(ctx context.Context, lost []store.LostWorker, why string) {
	for _, w := range lost {
		k.client.cfg.Logger.Warn("kagzi: worker is lost", "worker", w.ID, "queue", w.Queue, "runs", w.Released, "because", why)
		if w.Released > 0 {
			_ = k.client.hints.Due(ctx, nil, store.Woken{Queue: w.Queue}) // fails only in a transaction
		}
		_ = k.client.hints.Changed(ctx, nil, w.ID) // should it live, it learns of it at once
		k.refused(w)
	}
}

// refused notes that the database does not free one of the lost worker's runs. Others are free.
func (k *Coordinator) refused(w store.LostWorker) {
	if w.Refused != nil {
		k.failing.Note(k.client.cfg.Logger, "free a run of a dead worker", w.Refused)
	}
}

// A watch is what a coordinator remembers of workers whose heartbeats or connections are gone: for how long is known to
// whoever looks again.
type watch struct {
	gone  map[suspected]time.Time // since when, as far as this coordinator knows
	last  time.Time               // look that succeeded
	quiet time.Time               // until then nothing is concluded
}

// A suspected worker is another one as soon as it has sent a heartbeat, over whatever connection.
type suspected struct {
	id        uuid.UUID
	heartbeat int64
	backend   int32
}

const (
	watchEvery = time.Second
	// watchersPerSecond is how many hosted coordinators look at connections within a second. More workers would learn
	// of a death no sooner, and each look costs the server.
	watchersPerSecond = 20
)

// watchConnections declares workers dead whose connection the server has not had for Grace, if there was no heartbeat
// since. One whose connection was merely lost has another by then. After an outage of its own, in which the connections
// of all were lost, it forgets what it saw, and gives them a while.
func (k *Coordinator) watchConnections(ctx context.Context) (time.Duration, error) {
	w, now := &k.watch, time.Now()
	gone, watched, err := k.client.store.GoneWorkers(ctx)
	if store.Forbidden(err) {
		k.client.cfg.Logger.Warn("kagzi: pg_stat_activity cannot be read: a crash is noticed when a worker is silent for too long", "error", err)
		return time.Hour, nil
	}
	if err != nil {
		w.gone, w.quiet = nil, time.Now().Add(k.cfg.StaleAfter/3)
		return 0, err
	}
	pause := k.watchPause(watched)
	if !w.last.IsZero() && now.Sub(w.last) > k.cfg.Interval+k.cfg.Grace+watchEvery {
		w.gone, w.quiet = nil, now.Add(k.cfg.StaleAfter/3) // this process was held up, or the database was
	}
	w.last = now
	if now.Before(w.quiet) {
		return pause, nil
	}
	dead, next := w.judge(gone, now, k.cfg.Grace)
	lost, err := k.client.store.ReleaseSuspects(ctx, dead, "connection gone")
	k.released(ctx, lost, "connection gone")
	return min(pause, next), err
}

// judge returns those of the gone workers that have been so for grace, and when the next will have been.
func (w *watch) judge(gone []store.Suspect, now time.Time, grace time.Duration) (dead []store.Suspect, next time.Duration) {
	seen := make(map[suspected]time.Time, len(gone))
	next = grace
	for _, g := range gone {
		key := suspected{g.ID, g.HeartbeatAt.UnixMicro(), g.Backend}
		since, known := w.gone[key]
		if !known {
			since = now
		}
		seen[key] = since
		if left := grace - now.Sub(since); left > 0 {
			next = min(next, left)
		} else {
			dead = append(dead, g)
		}
	}
	w.gone = seen
	return dead, next
}

// watchPause is the time to the next look. In a large fleet whose workers all host coordinators each looks less often:
// it is enough that somebody does, and who has seen something looks again in time.
func (k *Coordinator) watchPause(workers int) time.Duration {
	pause := min(watchEvery, k.cfg.Grace)
	if k.hosted {
		pause = max(pause, min(k.cfg.Interval, watchEvery*time.Duration(workers)/watchersPerSecond))
	}
	return pause - rand.N(pause/4+1)
}
