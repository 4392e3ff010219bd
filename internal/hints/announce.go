package hints

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/notify"
	"github.com/kagzi/kagzi/store"
)

// With a transaction, its commit sends an announcement as a notification, to this process, too; the error is the
// transaction's. Without a transaction, an announcement wakes waiters of this process directly and notifies other
// processes now; it never fails.

// coordinators is the name in place of a queue's that announces changed schedules to coordinators. No queue has it.
const coordinators = ""

// Due announces to workers that runs are due.
func (h *Hints) Due(ctx context.Context, tx pgx.Tx, runs ...store.DueRun) error {
	if tx == nil {
		count := map[store.DueRun]int{}
		for _, w := range runs {
			w.RunID = uuid.Nil
			count[w]++
		}
		for w, n := range count {
			h.work(ctx, w.Queue, w.Type, w.Version, n)
		}
		return nil
	}
	announced := map[string]bool{}
	for _, w := range runs {
		if announced[w.Queue] {
			continue
		}
		announced[w.Queue] = true
		if err := notify.NotifyTx(ctx, tx, notify.WorkChannel,
			notify.WorkPayload(h.store.Namespace(), w.Queue)); err != nil {
			return err
		}
	}
	return nil
}

// work announces n due runs; an empty workflow and a zero version stand for any. It wakes workers of this process
// directly, and notifies others only if these have no room for all.
func (h *Hints) work(ctx context.Context, queue, workflow string, version, n int) {
	h.mu.Lock()
	room := 0
	for w := range h.workers {
		room += w.Offer(queue, workflow, version)
	}
	h.mu.Unlock()
	if room < n || workflow == "" {
		h.Queue(ctx, queue)
	}
}

// Reserve keeps a slot of a worker of this process for a run that is about to be inserted: see Worker. It returns nil
// if no worker has one.
func (h *Hints) Reserve(run *store.NewRun) Reservation {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.workers {
		if p := w.Reserve(run); p != nil {
			return p
		}
	}
	return nil
}

// Queue notifies the workers of other processes that runs of the queue may be due.
func (h *Hints) Queue(ctx context.Context, queue string) {
	h.publisher.Work(ctx, h.store.Namespace(), queue)
}

// Changed announces that the runs have changed, to the workers that execute them and to those who wait for their
// results. The IDs may include workers: both kinds are unique.
func (h *Hints) Changed(ctx context.Context, tx pgx.Tx, ids ...uuid.UUID) error {
	switch {
	case len(ids) == 0:
		return nil
	case tx != nil:
		return notify.NotifyTx(ctx, tx, notify.RunChannel, notify.RunPayload(h.store.Namespace(), ids)...)
	}
	h.refresh(ids)
	h.publisher.Run(ctx, h.store.Namespace(), ids...)
	return nil
}

// changedAndDue is Changed and Due.
func (h *Hints) changedAndDue(ctx context.Context, tx pgx.Tx, ids []uuid.UUID, due []store.DueRun) error {
	if err := h.Changed(ctx, tx, ids...); err != nil {
		return err
	}
	return h.Due(ctx, tx, due...)
}

// Cancelled announces the runs that a cancel or a deadline changed. Without a transaction it also starts their
// compensations; with one, a coordinator does.
func (h *Hints) Cancelled(ctx context.Context, tx pgx.Tx, runs *store.CancelledRuns) error {
	if tx == nil && len(runs.Step) > 0 {
		go h.Compensate(context.WithoutCancel(ctx), runs.Step)
	}
	if tx == nil && h.OnEnd != nil {
		for _, r := range runs.Ends {
			h.OnEnd(r)
		}
	}
	return h.changedAndDue(ctx, tx, runs.Changed(), runs.Due)
}

// Signalled announces the runs for which a message was stored, to the workers that execute them or may claim them.
func (h *Hints) Signalled(ctx context.Context, tx pgx.Tx, runs ...store.Signalled) error {
	var changed []uuid.UUID
	var due []store.DueRun
	for _, r := range runs {
		if r.Running {
			changed = append(changed, r.RunID)
		}
		if r.Due {
			due = append(due, r.DueRun)
		}
	}
	return h.changedAndDue(ctx, tx, changed, due)
}

// Ended announces runs whose ends this process has written, to workers, coordinators and other processes. Deliver has
// already passed their results to those in this process who wait for them.
func (h *Hints) Ended(ctx context.Context, ids []uuid.UUID) {
	h.refreshMembers(ids)
	h.publisher.Run(ctx, h.store.Namespace(), ids...)
}

// Fired announces runs that schedules have started, to workers.
func (h *Hints) Fired(ctx context.Context, runs []store.FiredRun) {
	_ = h.Due(ctx, nil, dueRuns(runs)...) // fails only in a transaction
}

func dueRuns(runs []store.FiredRun) []store.DueRun {
	due := make([]store.DueRun, len(runs))
	for i, r := range runs {
		due[i] = store.DueRun{Queue: r.Queue, Type: r.Type, Version: r.Version}
	}
	return due
}

// Schedules announces to coordinators that schedules have changed, and to workers the runs that the change started.
func (h *Hints) Schedules(ctx context.Context, tx pgx.Tx, fired []store.FiredRun) error {
	due := dueRuns(fired)
	if tx != nil {
		return h.Due(ctx, tx, append(due, store.DueRun{Queue: coordinators})...)
	}
	h.mu.Lock()
	for k := range h.coordinators {
		k.WakeSchedules()
	}
	h.mu.Unlock()
	h.Queue(ctx, coordinators)
	return h.Due(ctx, nil, due...)
}

// Flush returns once all notifications are sent, including those that are announced while it waits.
func (h *Hints) Flush() { h.publisher.Wait() }
