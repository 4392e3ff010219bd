package hints

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/notify"
	"github.com/kagzi/kagzi/store"
)

// An announcement with a transaction is sent by its commit. Then nobody in this process is told directly, and only the
// transaction can fail. Without one it is sent now, and never fails.

// coordinators is the name under which coordinators learn that schedules have changed. No queue has it.
const coordinators = ""

// Due tells whoever may claim these runs.
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
		if err := notify.NotifyTx(ctx, tx, notify.WorkChannel, notify.WorkPayload(h.store.Namespace(), w.Queue)); err != nil {
			return err
		}
	}
	return nil
}

// work tells whoever may claim n runs; an empty workflow and a zero version stand for any. Workers of this process are told
// directly. If they have room for all, nobody else is told.
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

// Queue tells the workers of other processes to look at the queue now.
func (h *Hints) Queue(ctx context.Context, queue string) {
	h.publisher.Work(ctx, h.store.Namespace(), queue)
}

// Changed tells those who execute the runs, or wait for them. IDs of workers may be among them: both are unique.
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

// Cancelled tells what a cancel, or a deadline, has done. Compensations that it left to run take their first step, unless it is
// part of a transaction: then a coordinator has them do so.
func (h *Hints) Cancelled(ctx context.Context, tx pgx.Tx, runs *store.CancelledRuns) error {
	if tx == nil && len(runs.Step) > 0 {
		go h.Compensate(context.WithoutCancel(ctx), runs.Step)
	}
	return h.changedAndDue(ctx, tx, runs.Changed(), runs.Due)
}

// Signalled tells those who execute the runs that a message was stored for, or may claim them.
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

// Ended tells workers and coordinators of runs whose ends this process has written. Those in this process who wait for their
// results have them already: see Deliver.
func (h *Hints) Ended(ctx context.Context, ids []uuid.UUID) {
	h.refreshMembers(ids)
	h.publisher.Run(ctx, h.store.Namespace(), ids...)
}

// Fired tells workers of runs that schedules have started.
func (h *Hints) Fired(ctx context.Context, runs []store.FiredRun) {
	_ = h.Due(ctx, nil, woken(runs)...) // fails only in a transaction
}

func woken(runs []store.FiredRun) []store.DueRun {
	due := make([]store.DueRun, len(runs))
	for i, r := range runs {
		due[i] = store.DueRun{Queue: r.Queue, Type: r.Type, Version: r.Version}
	}
	return due
}

// Schedules tells coordinators that schedules have changed, and workers of the runs that this has started.
func (h *Hints) Schedules(ctx context.Context, tx pgx.Tx, fired []store.FiredRun) error {
	due := woken(fired)
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

// Flush returns when the notifications that were announced before are sent, and any announced meanwhile.
func (h *Hints) Flush() { h.publisher.Wait() }
