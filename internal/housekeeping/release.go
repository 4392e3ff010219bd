package housekeeping

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

const (
	checkConnectionsEvery = time.Second

	// checksPerSecond is how many hosted coordinators check the connections within a second. More of them would notice a
	// death no sooner, and each check costs the server.
	checksPerSecond = 20
)

// CheckHeartbeats declares workers dead that send no heartbeats, and releases their runs. The coordinator must itself have
// seen a worker unresponsive for a third of StaleAfter, which begins at two thirds: a worker that was unresponsive while the
// coordinator could not check was perhaps not able to report either.
func (k *Coordinator) CheckHeartbeats(ctx context.Context) (time.Duration, error) {
	d, patience := &k.heartbeats, k.cfg.StaleAfter/3
	pause := min(k.cfg.Interval, patience)
	unresponsive, err := k.cfg.Store.SilentWorkers(ctx)
	if err != nil {
		d.since = nil
		return 0, err
	}
	now := k.cfg.Now()
	if gap := now.Sub(d.checked); !d.checked.IsZero() && gap > pause+time.Second {
		d.since = nil
		if len(unresponsive) > 0 {
			k.cfg.Log.Info("kagzi: silent workers are given time to report: the coordinator could not look",
				"namespace", k.cfg.Store.Namespace(), "workers", len(unresponsive), "for", patience, "not_looked_for", gap.Round(time.Millisecond))
		}
	}
	dead, _ := d.dead(unresponsive, now, patience)
	dead = slices.DeleteFunc(dead, func(w store.UnresponsiveWorker) bool { return !w.Silent })
	lost, err := k.cfg.Store.ReleaseUnresponsive(ctx, dead, "no heartbeat")
	left, err2 := k.cfg.Store.ReleaseRemaining(ctx)
	for _, w := range left {
		if w.Released > 0 {
			lost = append(lost, w)
		} else {
			k.noteRefused(w)
		}
	}
	k.announceLost(ctx, lost, "no heartbeat")
	d.checked = k.cfg.Now()
	for _, w := range lost {
		if w.Left > 0 {
			pause = min(pause, time.Second) // somebody had locked them, and may not any more
		}
	}
	return pause, errors.Join(err, err2)
}

// CheckConnections declares workers dead whose connection the server has not had for Grace, if they have sent no heartbeat
// since, and releases their runs. A worker that merely lost its connection has another by then. After an outage of the
// database, in which all workers lost their connections, the detector starts again and declares nobody dead for a while.
func (k *Coordinator) CheckConnections(ctx context.Context) (time.Duration, error) {
	d, now := &k.connections, k.cfg.Now()
	unresponsive, watched, err := k.cfg.Store.DisconnectedWorkers(ctx)
	if store.Forbidden(err) {
		k.cfg.Log.Warn("kagzi: pg_stat_activity cannot be read: a crash is noticed when a worker is silent for too long", "error", err)
		return time.Hour, nil
	}
	if err != nil {
		d.since, d.quiet = nil, k.cfg.Now().Add(k.cfg.StaleAfter/3)
		return 0, err
	}
	pause := k.connectionsPause(watched)
	if !d.checked.IsZero() && now.Sub(d.checked) > k.cfg.Interval+k.cfg.Grace+checkConnectionsEvery {
		d.since, d.quiet = nil, now.Add(k.cfg.StaleAfter/3) // this process was held up, or the database was
	}
	d.checked = now
	if now.Before(d.quiet) {
		return pause, nil
	}
	dead, next := d.dead(unresponsive, now, k.cfg.Grace)
	lost, err := k.cfg.Store.ReleaseUnresponsive(ctx, dead, "connection gone")
	k.announceLost(ctx, lost, "connection gone")
	return min(pause, next), err
}

// connectionsPause is the pause until the connections are checked again. In a large fleet whose workers all host coordinators
// each of these checks less often: one check is enough, and a coordinator that has seen an unresponsive worker comes back in
// time.
func (k *Coordinator) connectionsPause(workers int) time.Duration {
	pause := min(checkConnectionsEvery, k.cfg.Grace)
	if k.cfg.Hosted {
		pause = max(pause, min(k.cfg.Interval, checkConnectionsEvery*time.Duration(workers)/checksPerSecond))
	}
	return pause - rand.N(pause/4+1)
}

// announceLost logs workers that were declared dead, and wakes the workers that may execute their runs.
func (k *Coordinator) announceLost(ctx context.Context, lost []store.LostWorker, why string) {
	for _, w := range lost {
		k.cfg.Log.Warn("kagzi: worker is lost", "worker", w.ID, "queue", w.Queue, "runs", w.Released, "because", why)
		if w.Released > 0 {
			_ = k.cfg.Hints.Due(ctx, nil, store.DueRun{Queue: w.Queue}) // fails only in a transaction
		}
		_ = k.cfg.Hints.Changed(ctx, nil, w.ID) // if it lives, it learns at once that it was declared dead
		k.noteRefused(w)
	}
}

// noteRefused notes that the database refuses to release one of the dead worker's runs. The others are released.
func (k *Coordinator) noteRefused(w store.LostWorker) {
	if w.Refused != nil {
		k.failing.Note(k.cfg.Log, "free a run of a dead worker", w.Refused)
	}
}

// A failureDetector remembers since when a coordinator has seen workers unresponsive: without heartbeats, or without their
// connection. Only the loop that checks them uses it.
type failureDetector struct {
	since   map[unresponsive]time.Time // when a check first saw each of them; nil after a time without checks: it begins anew
	checked time.Time                  // when the last check succeeded
	quiet   time.Time                  // of connections: nobody is declared dead before, because an outage has just ended
}

// An unresponsive worker counts as another one as soon as it has sent a heartbeat, over whatever connection.
type unresponsive struct {
	id        uuid.UUID
	heartbeat int64
	backend   int32
}

// dead returns those of the unresponsive workers that have been so for patience, and in how long the next one will have been.
func (d *failureDetector) dead(workers []store.UnresponsiveWorker, now time.Time, patience time.Duration) (dead []store.UnresponsiveWorker, next time.Duration) {
	seen := make(map[unresponsive]time.Time, len(workers))
	next = patience
	for _, w := range workers {
		key := unresponsive{w.ID, w.HeartbeatAt.UnixMicro(), w.Backend}
		since, known := d.since[key]
		if !known {
			since = now
		}
		seen[key] = since
		if left := patience - now.Sub(since); left > 0 {
			next = min(next, left)
		} else {
			dead = append(dead, w)
		}
	}
	d.since = seen
	return dead, next
}
