package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// Runs has the verbs for runs, for one or for all that a filter selects: admin.New(client).Runs. [kagzi.Client] finds,
// lists, cancels and signals them.
type Runs struct{ core *core.Client }

// Terminate is [kagzi.Client.Cancel] without compensations: it ends an active run and its children at once, even if
// compensations of the run are under way. It returns once that is stored, and returns the errors of Cancel.
func (r Runs) Terminate(ctx context.Context, ref kagzi.Ref, opts ...kagzi.ChangeOption) error {
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err != nil {
		return failure.Wrap(err, "terminate %v", at)
	}
	return r.terminate(ctx, at, cfg)
}

func (r Runs) terminate(ctx context.Context, at core.Ref, cfg core.ChangeConfig) error {
	err := r.core.End(ctx, at, cfg.Tx,
		func(ctx context.Context, tx pgx.Tx, id uuid.UUID) (*store.CancelledRuns, error) {
			return r.core.Store.Runs.Terminate(ctx, tx, id, cfg.Why)
		})
	return r.core.FailedIf(ctx, err, "terminate %v", at)
}

// Resume continues a failed or cancelled run: it begins a new attempt, in which all recorded results stay. Steps are
// tried again whose failures are in the chain of the error that the function returned (so wrap errors with %w), or
// after which it reached no step, sleep, wait, child or group. Other failures stay recorded, unless a [Forget] names
// them: see docs/steps.md. The run's deadline is removed.
//
// It returns [kagzi.ErrRunActive] if the run is not over, [kagzi.ErrRunFinished] if it completed,
// [ErrCompensated] if its compensations have run, and [kagzi.ErrIDConflict] if another active run has its ID, or
// a later run of its topic.Consumer has begun. A run whose compensations failed or were terminated continues with
// these: see docs/compensation.md.
func (r Runs) Resume(ctx context.Context, ref kagzi.Ref, opts ...kagzi.ChangeOption) error {
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.Takes("Forget"))
	if err != nil {
		return failure.Wrap(err, "resume %v", at)
	}
	return r.resume(ctx, at, cfg)
}

func (r Runs) resume(ctx context.Context, at core.Ref, cfg core.ChangeConfig) error {
	var id uuid.UUID
	var err error
	cfg.Tx, id, err = r.core.ResolveToChange(ctx, cfg.Tx, at)
	var resumed store.Resumed
	if err == nil {
		resumed, err = r.core.Store.Runs.Resume(ctx, cfg.Tx, id, cfg.Why, cfg.Forget...)
	}
	notFailed, unknown := errors.AsType[*store.NotFailed](err)
	held, isHeld := errors.AsType[*store.GroupHeld](err)
	full, isFull := errors.AsType[*store.QueueFull](err)
	switch {
	case isFull && full.Key != "":
		err = failure.Explain(fmt.Sprintf("its compensations go on, and it would hold a slot of key %q of queue %q, "+
			"whose %d are taken: resume it when one is free", full.Key, full.Queue, full.MaxRunning),
			kagzi.ErrRunActive)
	case isFull:
		err = failure.Explain(fmt.Sprintf("its compensations go on, and it would hold one of the %d slots of queue "+
			"%q, which are taken: resume it when one is free", full.MaxRunning, full.Queue), kagzi.ErrRunActive)
	case errors.Is(err, store.ErrPlaceInTx):
		err = failure.Explain("its compensations go on, and it would hold a slot of its queue, which has MaxRunning: "+
			"no worker could claim from that queue until the transaction ends: call Resume without InTx",
			kagzi.ErrRunActive)
	case isHeld:
		err = failure.Explain(fmt.Sprintf("its compensations go on, and run %s of group %q is under way: pause the "+
			"group (admin.Pauses.Set), and resume this run once that one has ended", held.RunID, held.Group),
			kagzi.ErrRunActive)
	case unknown:
		err = failure.Explain(fmt.Sprintf("%q has no failure to forget: Client.Steps lists the failed steps; a "+
			"timeout of a wait cannot be forgotten: Fork from the wait instead", notFailed.Steps), kagzi.ErrNotFound)
	case errors.Is(err, store.ErrRunFinished):
		err = failure.Explain("the run completed, so there is nothing to resume: Restart starts another",
			kagzi.ErrRunFinished)
	case errors.Is(err, store.ErrIDConflict):
		err = failure.Explain("another active run has its ID, or a later run of its consumer has begun",
			kagzi.ErrIDConflict)
	}
	if err == nil && resumed.Ends != nil {
		err = r.core.Hints.Cancelled(ctx, cfg.Tx, resumed.Ends)
	} else if err == nil {
		err = r.core.Hints.Due(ctx, cfg.Tx, store.DueRun{Queue: resumed.Queue})
	}
	if err != nil {
		return failure.Wrap(r.core.Public(ctx, err), "resume %v", at)
	}
	return nil
}

// A LogEntry is an entry of a run's log, see [Runs.Log], or of a worker's, see [Workers.Log].
type LogEntry struct {
	// Event names the change. For a run it is CANCELLED, TERMINATED, RESUMED, PAUSED, UNPAUSED, UPDATED, SIGNALLED,
	// MESSAGE_DROPPED, MESSAGE_REDELIVERED, RESOLVED, DELETED, RESTARTED or FORKED; both the old and the new run get
	// the last two. ATTEMPT_FAILED is an attempt of the run that another one, or a Resume, followed; the newest 20
	// stay. For a worker it is STARTED, DRAINING (it drains or was asked to), STOPPED or LOST (it was declared dead or
	// forced offline), each at most once.
	Event string    `json:"event"`
	At    time.Time `json:"at,omitzero"`
	// Reason is the [kagzi.Reason] that the caller gave for the change of a run. For ATTEMPT_FAILED it is the kind and
	// the text of the failure. For LOST it says why; for DRAINING it is "Workers.Drain" or "Run's context ended".
	Reason string `json:"reason,omitempty"`
	Actor  string `json:"actor,omitempty"` // the [kagzi.Actor] that the caller gave for the change of a run
	// for RESTARTED and FORKED, the new run, or the run that this one comes from (RunInfo.Origin); for DELETED, the run
	// with which this one was deleted
	Other kagzi.RunID `json:"other,omitempty"`
	Step  string      `json:"step,omitempty"` // for FORKED, where the new run begins; for RESOLVED, what was in doubt
	// Changes are, for UPDATED, the changed fields: "queue", "priority", "version", "available_at" and "metadata", in
	// this order. For DELETED they say what the run was: "workflow", "status" and, if it had an [kagzi.ID], "id",
	// without a To. For SIGNALLED it is "signal", without a From; for MESSAGE_REDELIVERED also "message", its ID, and
	// for MESSAGE_DROPPED both without a To.
	Changes []LogChange `json:"changes,omitempty"`
}

// A LogChange is a value that was changed. The values are texts: a time is in RFC 3339, metadata are JSON, and an empty
// text stands for none.
type LogChange struct {
	Field string `json:"field"`
	From  string `json:"from,omitempty"`
	To    string `json:"to,omitempty"`
}

// Log returns the changes that callers made to a run, and its failed attempts, oldest first. The log is deleted with
// its run. Of a run that [Runs.Delete] has deleted, one entry stays, which says who
// deleted it and why. An [kagzi.ID] that no run has stands for the run with it that was deleted last. Log returns
// [kagzi.ErrNotFound] if the client's namespace has neither.
func (r Runs) Log(ctx context.Context, ref kagzi.Ref) ([]LogEntry, error) {
	at := core.RefOf(ref)
	rows, err := r.events(ctx, at)
	if err != nil {
		return nil, failure.Wrap(r.core.Public(ctx, err), "log of %v", at)
	}
	events := make([]LogEntry, len(rows))
	for i, e := range rows {
		events[i] = LogEntry{Event: e.Event, At: e.At, Reason: e.Reason, Actor: e.Actor, Step: e.Step}
		if e.Other != uuid.Nil {
			events[i].Other = kagzi.RunID(e.Other.String())
		}
		for _, change := range e.Changes {
			events[i].Changes = append(events[i].Changes, LogChange(change))
		}
	}
	return events, nil
}

// events returns the events of a run, or of one that was deleted.
func (r Runs) events(ctx context.Context, at core.Ref) (rows []store.RunEvent, err error) {
	id, err := r.core.Resolve(ctx, nil, at)
	if at.ByID && errors.Is(err, store.ErrRunNotFound) {
		id, err = r.core.Store.Deletions.Find(ctx, at.Text)
	}
	if err != nil {
		return nil, err
	}
	_, missing := r.core.Store.Runs.Get(ctx, id) // before the events: if it is deleted meanwhile, these say so
	if missing != nil && !errors.Is(missing, store.ErrRunNotFound) {
		return nil, missing
	}
	rows, err = r.core.Store.Runs.Events(ctx, id)
	if err == nil && len(rows) == 0 {
		err = missing
	}
	return rows, err
}
