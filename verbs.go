package kagzi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// Cancel ends an active run, and its children except [Detached] ones: at once in the table, and within milliseconds on
// the worker that executes it, where the contexts of its steps end. A run that executes with a slot of a key or queue
// with limits stays active, and keeps the slot, until its steps under way have returned, or their [Grace] is over. A
// run that has registered compensations with [Compensate] ends once they have run, and stays active until then. They
// begin when the run's steps under way have returned, or when their [Grace] is over. A run that has failed, and whose
// compensations are under way, ends as cancelled. A run that is already cancelled stays so. Cancel returns
// [ErrNotFound], and [ErrRunFinished] if the run completed or failed before.
func (c *Client) Cancel(ctx context.Context, ref Ref, opts ...ChangeOption) error {
	ref = plain(ref)
	cfg, err := changeOptions(opts, takes("Grace"))
	if err != nil {
		return failure.Wrap(err, "cancel %v", named(ref))
	}
	return c.cancel(ctx, ref, cfg)
}

func (c *Client) cancel(ctx context.Context, ref Ref, cfg changeConfig) error {
	err := c.end(ctx, ref, cfg, func(ctx context.Context, tx pgx.Tx, id uuid.UUID) (*store.CancelledRuns, error) {
		return c.store.Runs.Cancel(ctx, tx, id, cfg.Why, cfg.grace)
	})
	return c.failedIf(ctx, err, "cancel %v", named(ref))
}

// Terminate is [Client.Cancel] without compensations: it ends an active run and its children at once, even if
// compensations of the run are under way. It returns once that is stored, and returns the errors of Cancel.
func (c *Client) Terminate(ctx context.Context, ref Ref, opts ...ChangeOption) error {
	ref = plain(ref)
	cfg, err := changeOptions(opts, everyVerb)
	if err != nil {
		return failure.Wrap(err, "terminate %v", named(ref))
	}
	return c.terminate(ctx, ref, cfg)
}

func (c *Client) terminate(ctx context.Context, ref Ref, cfg changeConfig) error {
	err := c.end(ctx, ref, cfg, func(ctx context.Context, tx pgx.Tx, id uuid.UUID) (*store.CancelledRuns, error) {
		return c.store.Runs.Terminate(ctx, tx, id, cfg.Why)
	})
	return c.failedIf(ctx, err, "terminate %v", named(ref))
}

// end ends the run by calling how.
func (c *Client) end(ctx context.Context, ref Ref, cfg changeConfig,
	how func(context.Context, pgx.Tx, uuid.UUID) (*store.CancelledRuns, error),
) error {
	tx, id, err := c.resolveToChange(ctx, cfg.tx, ref)
	if err != nil {
		return err
	}
	ended, err := how(ctx, tx, id)
	if err != nil {
		return err
	}
	return c.hints.Cancelled(ctx, tx, ended)
}

// Resume continues a failed or cancelled run: it begins a new attempt, in which all recorded results stay. The failures
// with which the last attempt ended are forgotten, and those steps tried again, as in an attempt that a [RetryPolicy]
// allows. Two sorts of failures count: those in the chain of the error that the function returned (so wrap errors with
// %w), and those after which it reached no step, sleep, wait, child or group. A failure after which the function
// continued stays recorded, too, unless a [Forget] names it. If there is nothing to try again, no step is executed: the
// function sees the same results, and fails again unless its code has changed. The run's deadline is removed.
//
// Resume returns once that is stored. It returns [ErrRunActive] if the run is not over, [ErrRunFinished] if it
// completed, [ErrCompensated] if its compensations have run, and [ErrIDConflict] if another active run has its ID, or a
// later run of its [Consumer] has begun. A run whose compensations failed ([kind.Compensation]), or that was terminated
// while they ran, continues with these, if the slots that it would hold to its end are free: otherwise Resume returns
// [ErrRunActive]. The parent of a resumed child keeps the failure that it has recorded, and does not cancel the child
// when it ends.
func (c *Client) Resume(ctx context.Context, ref Ref, opts ...ChangeOption) error {
	ref = plain(ref)
	cfg, err := changeOptions(opts, takes("Forget"))
	if err != nil {
		return failure.Wrap(err, "resume %v", named(ref))
	}
	return c.resume(ctx, ref, cfg)
}

func (c *Client) resume(ctx context.Context, ref Ref, cfg changeConfig) error {
	var id uuid.UUID
	var err error
	cfg.tx, id, err = c.resolveToChange(ctx, cfg.tx, ref)
	var resumed store.Resumed
	if err == nil {
		resumed, err = c.store.Runs.Resume(ctx, cfg.tx, id, cfg.Why, cfg.forget...)
	}
	notFailed, unknown := errors.AsType[*store.NotFailed](err)
	held, isHeld := errors.AsType[*store.GroupHeld](err)
	full, isFull := errors.AsType[*store.QueueFull](err)
	switch {
	case isFull && full.Key != "":
		err = failure.Explain(fmt.Sprintf("its compensations go on, and it would hold a slot of key %q of queue %q, "+
			"whose %d are taken: resume it when one is free", full.Key, full.Queue, full.MaxRunning), ErrRunActive)
	case isFull:
		err = failure.Explain(fmt.Sprintf("its compensations go on, and it would hold one of the %d slots of queue "+
			"%q, which are taken: resume it when one is free", full.MaxRunning, full.Queue), ErrRunActive)
	case errors.Is(err, store.ErrPlaceInTx):
		err = failure.Explain("its compensations go on, and it would hold a slot of its queue, which has MaxRunning: "+
			"no worker could claim from that queue until the transaction ends: call Resume without InTx", ErrRunActive)
	case isHeld:
		err = failure.Explain(fmt.Sprintf("its compensations go on, and run %s of group %q is under way: pause the "+
			"group (Client.Pause), and resume this run once that one has ended", held.RunID, held.Group), ErrRunActive)
	case unknown:
		err = failure.Explain(fmt.Sprintf("%q has no failure to forget: Client.Steps lists the failed steps; a "+
			"timeout of a wait cannot be forgotten: Fork from the wait instead", notFailed.Steps), ErrNotFound)
	case errors.Is(err, store.ErrRunFinished):
		err = failure.Explain("the run completed, so there is nothing to resume: Restart starts another",
			ErrRunFinished)
	case errors.Is(err, store.ErrIDConflict):
		err = failure.Explain("another active run has its ID, or a later run of its consumer has begun", ErrIDConflict)
	}
	if err == nil && resumed.Ends != nil {
		err = c.hints.Cancelled(ctx, cfg.tx, resumed.Ends)
	} else if err == nil {
		err = c.hints.Due(ctx, cfg.tx, store.DueRun{Queue: resumed.Queue})
	}
	if err != nil {
		return failure.Wrap(c.public(ctx, err), "resume %v", named(ref))
	}
	return nil
}

// A LogEntry is an entry of a run's log, see [Client.RunLog], or of a worker's, see [Client.WorkerLog].
type LogEntry struct {
	// Event is what happened. For a run it is CANCELLED, TERMINATED, RESUMED, PAUSED, UNPAUSED, UPDATED, SIGNALLED,
	// MESSAGE_DROPPED, MESSAGE_REDELIVERED, DELETED, RESTARTED or FORKED; both the old and the new run get the last
	// two. For a worker it is STARTED, DRAINING (it drains or was asked to), STOPPED or LOST (it was declared dead or
	// forced offline), each at most once.
	Event string    `json:"event"`
	At    time.Time `json:"at,omitzero"`
	// Reason is the [Reason] that the caller gave for the change of a run. For LOST it says why; for DRAINING it is
	// "Client.Drain" or "Run's context ended".
	Reason string `json:"reason,omitempty"`
	Actor  string `json:"actor,omitempty"` // the [Actor] that the caller gave for the change of a run
	// for RESTARTED and FORKED, the new run, or the run that this one comes from (RunInfo.Origin); for DELETED, the run
	// with which this one was deleted
	Other RunID  `json:"other,omitempty"`
	Step  string `json:"step,omitempty"` // for FORKED, the step from which the new run executes
	// Changes are, for UPDATED, what was changed: "queue", "priority", "version", "available_at" and "metadata", in
	// this order. For DELETED they say what the run was: "workflow", "status" and, if it had an [ID], "id", without a
	// To. For SIGNALLED it is "signal", without a From; for MESSAGE_REDELIVERED also "message", its ID, and for
	// MESSAGE_DROPPED both without a To.
	Changes []LogChange `json:"changes,omitempty"`
}

// A LogChange is a value that was changed. The values are texts: a time is in RFC 3339, metadata are JSON, and an empty
// text stands for none.
type LogChange struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// RunLog returns the changes that callers made to a run, oldest first: that it was resumed, restarted and so on. The
// log is deleted with its run. What stays of a run that [Client.Delete] has deleted is one entry, which says who
// deleted it and why. An [ID] that no run has stands for the run with it that was deleted last. RunLog returns
// [ErrNotFound] if the client's namespace has neither.
func (c *Client) RunLog(ctx context.Context, ref Ref) ([]LogEntry, error) {
	ref = plain(ref)
	rows, err := c.runEvents(ctx, ref)
	if err != nil {
		return nil, failure.Wrap(c.public(ctx, err), "log of %v", named(ref))
	}
	events := make([]LogEntry, len(rows))
	for i, e := range rows {
		events[i] = LogEntry{Event: e.Event, At: e.At, Reason: e.Reason, Actor: e.Actor, Step: e.Step}
		if e.Other != uuid.Nil {
			events[i].Other = RunID(e.Other.String())
		}
		for _, change := range e.Changes {
			events[i].Changes = append(events[i].Changes, LogChange(change))
		}
	}
	return events, nil
}

// runEvents returns the events of a run, or of one that was deleted.
func (c *Client) runEvents(ctx context.Context, ref Ref) (rows []store.RunEvent, err error) {
	id, err := c.resolve(ctx, nil, ref)
	if external, ok := ref.(ID); ok && errors.Is(err, store.ErrRunNotFound) {
		id, err = c.store.Deletions.Find(ctx, string(external))
	}
	if err != nil {
		return nil, err
	}
	_, missing := c.store.Runs.Get(ctx, id) // before the events: if it is deleted meanwhile, these say so
	if missing != nil && !errors.Is(missing, store.ErrRunNotFound) {
		return nil, missing
	}
	rows, err = c.store.Runs.Events(ctx, id)
	if err == nil && len(rows) == 0 {
		err = missing
	}
	return rows, err
}

// everyVerb has the options that almost every verb takes.
var everyVerb = []string{"InTx", "Reason", "Actor"}

// takes returns the options of a verb that takes more than every verb.
func takes(more ...string) []string {
	return append(everyVerb[:len(everyVerb):len(everyVerb)], more...)
}

// changeOptions validates opts, and refuses those that are not among takes.
func changeOptions(opts []ChangeOption, takes []string) (changeConfig, error) {
	cfg := changeConfig{verbConfig: verbConfig{given: given{takes: takes}}}
	each(opts, &cfg.given, func(o ChangeOption) { o.change(&cfg) })
	return cfg, cfg.wrong()
}
