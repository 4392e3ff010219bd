package housekeeping

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kagzi/kagzi/store"
)

const (
	checkConnectionsEvery = time.Second

	// checksPerSecond is how many of the hosted coordinators together check the connections within a second. More
	// checks would find a death no sooner, and each of them costs the server.
	checksPerSecond = 20
)

// CheckHeartbeats declares workers dead that send no heartbeats, and releases their runs. The store reports a worker
// after two thirds of its StaleAfter, and this coordinator must then see it silent for the last third: a worker that
// was silent while the coordinator could not check may itself have been unable to report.
func (k *Coordinator) CheckHeartbeats(ctx context.Context) (time.Duration, error) {
	d, timeout := &k.heartbeats, k.cfg.StaleAfter/3
	pause := k.heartbeatsPause()
	silent, err := k.cfg.Store.Workers.Silent(ctx)
	if err != nil {
		d.restart(time.Time{})
		return 0, err
	}
	now := k.cfg.Now()
	if gap := now.Sub(d.checked); !d.checked.IsZero() && gap > k.heartbeatsGap() {
		d.restart(time.Time{})
		if len(silent) > 0 {
			k.cfg.Log.Info("kagzi: workers without a recent heartbeat get time to send one: the coordinator could "+
				"not check heartbeats",
				"namespace", k.cfg.Store.Namespace(), "workers", len(silent), "for", timeout, "unchecked_for",
				gap.Round(time.Millisecond))
		}
	}
	dead, _ := d.dead(silent, now, timeout)
	dead = slices.DeleteFunc(dead, func(w store.UnresponsiveWorker) bool { return !w.Silent })
	lost, err := k.cfg.Store.Workers.ReleaseUnresponsive(ctx, dead, "no heartbeat")
	left, err2 := k.cfg.Store.Workers.ReleaseRemaining(ctx)
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
			pause = min(pause, time.Second) // another transaction had locked those runs, and may have ended by then
		}
	}
	return pause, errors.Join(err, err2)
}

// CheckConnections declares workers dead whose connection the server has not had for Grace, if they have sent no
// heartbeat since, and releases their runs. A worker that has only lost its connection opens another before. After an
// outage of the database, in which all workers lose their connections, the detector starts again and declares no worker
// dead for a while.
func (k *Coordinator) CheckConnections(ctx context.Context) (time.Duration, error) {
	d, now := &k.connections, k.cfg.Now()
	fleet, err := k.cfg.Store.Workers.CheckFleet(ctx)
	if store.Forbidden(err) {
		k.cfg.Log.Warn("kagzi: the server's backends cannot be read: the crash of a worker is found only when its "+
			"heartbeats are overdue", "error", err)
		return time.Hour, nil
	}
	if err != nil {
		d.restart(k.cfg.Now().Add(k.cfg.StaleAfter / 3))
		return 0, err
	}
	if !d.checked.IsZero() && now.Sub(d.checked) > k.connectionsGap() {
		d.restart(now.Add(k.cfg.StaleAfter / 3)) // this process was held up, or the database was
	}
	d.checked = now
	if now.Before(d.holdOff) {
		k.leadership.leading.Store(false) // the others may know more
		return k.connectionsPause(fleet.Watched), nil
	}
	dead, next := d.dead(fleet.Disconnected, now, k.cfg.Grace)
	lost, err := k.cfg.Store.Workers.ReleaseUnresponsive(ctx, dead, "connection gone")
	k.announceLost(ctx, lost, "connection gone")
	if err == nil {
		err = k.lead(ctx, &fleet)
	}
	return min(k.connectionsPause(fleet.Watched), next), err
}

// heartbeatsPause is the time between two checks of the heartbeats. After a gap of heartbeatsGap, or connectionsGap, a
// check says nothing about the time between.
func (k *Coordinator) heartbeatsPause() time.Duration { return min(k.cfg.Interval, k.cfg.StaleAfter/3) }
func (k *Coordinator) heartbeatsGap() time.Duration   { return k.heartbeatsPause() + time.Second }
func (k *Coordinator) connectionsGap() time.Duration {
	return k.cfg.Interval + k.cfg.Grace + checkConnectionsEvery
}

// connectionsPause returns the pause until the connections are checked again. If none of the coordinators leads, each
// of those of a large fleet checks less often: one check is enough, and a coordinator that has seen an unresponsive
// worker comes back in time.
func (k *Coordinator) connectionsPause(workers int) time.Duration {
	pause := min(checkConnectionsEvery, k.cfg.Grace)
	if k.leadership.leading.Load() {
		return pause
	}
	if k.cfg.Hosted {
		pause = max(pause, min(k.cfg.Interval, checkConnectionsEvery*time.Duration(workers)/checksPerSecond))
	}
	return pause - rand.N(pause/4+1)
}

// announceLost logs the workers that were declared dead, and wakes the workers that may execute their runs.
func (k *Coordinator) announceLost(ctx context.Context, lost []store.LostWorker, why string) {
	for _, w := range lost {
		k.cfg.Log.Warn("kagzi: worker is lost", "worker", w.ID, "queues", w.Queues, "runs", w.Released, "because", why)
		if w.Released > 0 {
			_ = k.cfg.Hints.Due(ctx, nil, w.Due()...) // fails only in a transaction
		}
		_ = k.cfg.Hints.Changed(ctx, nil, w.ID) // tells the worker, if it lives, at once that it was declared dead
		k.noteRefused(w)
	}
}

// noteRefused logs that the database refuses to release one of a dead worker's runs. The others are released.
func (k *Coordinator) noteRefused(w store.LostWorker) {
	if w.Refused != nil {
		k.failing.Note(k.cfg.Log, "release a run of a dead worker", w.Refused)
	}
}

// lead tells the others that this coordinator works, if it hears them, too, and all its loops are on time. Every few
// seconds it also says which queues have work. A search of the queues that is slow, because of an old snapshot, or
// fails comes again after a multiple of its time: meanwhile the workers poll.
func (k *Coordinator) lead(ctx context.Context, fleet *store.FleetCheck) error {
	leading := needsLeader(fleet) && k.cfg.Hints.Listening() &&
		k.leadership.isOnTime(fireSchedules, endOverdue, runCompensations, serveLimits, keepKeys, tellOfEvents,
			releaseRuns)
	k.leadership.leading.Store(leading)
	if !leading {
		return nil
	}
	says := k.leadership.says()
	if begun := time.Now(); !begun.Before(k.nextSearch) {
		busy, err := k.cfg.Store.Workers.BusyQueues(ctx, busyWithin, longestSearch)
		says.Busy, says.Queues = busy, err == nil
		k.nextSearch = begun.Add(untilNextSearch(time.Since(begun)))
	}
	ctx, cancel := context.WithTimeout(ctx, longestLead)
	defer cancel()
	return k.cfg.Hints.Lead(ctx, says)
}
