package hints

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

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
			h.work(ctx, w, n, 0)
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

// Delayed announces a run that this process has started, and that is due after that time. Workers of this process claim
// then. Without room there, it notifies others now: their next claim finds out when the run is due.
func (h *Hints) Delayed(ctx context.Context, run store.DueRun, after time.Duration) {
	h.work(ctx, run, 1, after)
}

// work announces n runs like this one that are due after that time; an empty workflow and a zero version stand for any.
// It wakes workers of this process directly, and notifies others only if these have no room for all.
func (h *Hints) work(ctx context.Context, like store.DueRun, n int, after time.Duration) {
	h.mu.Lock()
	room := 0
	for w := range h.workers {
		room += w.Offer(like.Queue, like.Type, like.Version, after)
	}
	if like.Queue == store.AwaitedQueue {
		for k := range h.coordinators {
			k.WakeAwaited()
		}
	}
	h.mu.Unlock()
	if room < n || like.Type == "" {
		h.Queue(ctx, like.Queue)
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

// Ended announces runs whose ends this process has written, to those who wait for them. Deliver has already passed
// their results to those in this process who waited before. others are announced in any case, to workers and
// coordinators: parents of these runs, and those of these runs for which a queued one may wait.
func (h *Hints) Ended(ctx context.Context, ids, others []uuid.UUID) {
	h.refresh(ids)
	if len(others) > 0 {
		h.refreshMembers(others)
		h.publisher.Run(ctx, h.store.Namespace(), others...)
	}
	h.tell(ctx, ids)
}

// tell announces runs to other processes, if one waits, or may wait unheard.
func (h *Hints) tell(ctx context.Context, ids []uuid.UUID) {
	if len(ids) > 0 && (h.demand.lately() || !h.Listening()) {
		h.publisher.Run(ctx, h.store.Namespace(), ids...)
	}
}

// Fired announces runs that schedules have started, to workers.
func (h *Hints) Fired(ctx context.Context, runs []store.DueRun) {
	_ = h.Due(ctx, nil, runs...) // fails only in a transaction
}

// Schedules announces to coordinators that schedules have changed, and to workers the runs that the change started.
func (h *Hints) Schedules(ctx context.Context, tx pgx.Tx, fired []store.DueRun) error {
	if tx != nil {
		return h.Due(ctx, tx, append(slices.Clip(fired), store.DueRun{Queue: coordinators})...)
	}
	h.mu.Lock()
	for k := range h.coordinators {
		k.WakeSchedules()
	}
	h.mu.Unlock()
	h.Queue(ctx, coordinators)
	return h.Due(ctx, nil, fired...)
}

// Flush returns once all notifications and replies are sent, including those that are announced while it waits.
func (h *Hints) Flush() {
	h.replies.Wait()
	h.publisher.Wait()
}

// Replied announces answers that this process has written, to those who wait for them. An answer whose request's ID is
// not known is read from the table. A run that has asked gets its answer as a message, which is on its way when Replied
// returns: if it is lost, the run looks for the answer after a while.
func (h *Hints) Replied(ctx context.Context, answers []store.Answer) {
	var runs, unknown []uuid.UUID
	for _, a := range answers {
		runs = append(runs, a.RunID)
		if a.ID == "" {
			unknown = append(unknown, a.RunID)
		} else {
			// an answer is the same for every waiter
			h.results.deliver(ending{of: awaited{run: a.RunID, request: a.ID}, answer: a}, math.MaxUint64)
		}
		if a.ID == "" || a.Asked.ReplyTo != "" {
			h.replies.Add(a)
		}
	}
	h.results.refreshWhileOn(unknown)
	h.tell(ctx, runs)
}

// Left sends the runs that have asked, and wait for these open requests, the ends of the asked runs.
func (h *Hints) Left(open []store.Answer) {
	for _, a := range open {
		if a.ID == "" || a.Asked.ReplyTo != "" {
			h.replies.Add(a)
		}
	}
}

// Valued announces values that this process has written, to those who wait for them.
func (h *Hints) Valued(ctx context.Context, runs []uuid.UUID) {
	h.results.refreshWhileOn(runs)
	h.tell(ctx, runs)
}

// sendReplies sends answers to the runs that have asked.
func (h *Hints) sendReplies(answers []store.Answer) {
	ctx := context.Background()
	messages, err := h.store.Messages.Replies(ctx, answers)
	if err != nil {
		h.log.Warn("kagzi: runs that have asked get their answers later", "error", err)
	}
	for _, m := range messages {
		if err := h.SendReply(ctx, m); err != nil {
			h.log.Warn("kagzi: a run that has asked gets its answer later", "run_id", m.RunID, "error", err)
		}
	}
}

// SendReply sends a message with an answer, unless its run has one already or is over.
func (h *Hints) SendReply(ctx context.Context, m store.Message) error {
	found, err := h.store.Messages.Send(ctx, nil, m)
	switch {
	case err == nil:
		return h.Signalled(ctx, nil, found)
	case errors.Is(err, store.ErrRunFinished), errors.Is(err, store.ErrRunNotFound):
		return nil
	}
	return err
}
