package kagzi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

type (
	// A RunID is Kagzi's name for one run, forever: a UUID in text.
	RunID string
	// An ID is the caller's name for a run, of at most 255 bytes: unique among the active runs of the
	// namespace, whatever their workflow, so put the workflow's name in it, as in "refund-42". As an option of
	// [Start] it makes the start idempotent while the run is active: a start with the same workflow and input
	// returns that run, one with another workflow or input is refused with [ErrIDConflict]; the input of a start that
	// brings a [Message] is not compared. It does not remember
	// runs that are over: starting again begins a new run. [IfActive] and [IfEnded] change either.
	//
	// As an option of [Client.Restart] and [Client.Fork] it is the new run's.
	ID string
)

// Status is where a run stands.
type Status string

// A run is active while it is pending, running or sleeping. It ends completed, failed or cancelled.
const (
	StatusPending   Status = "PENDING"  // it waits for a worker, for its Delay or At, or for its next attempt
	StatusRunning   Status = "RUNNING"  // a worker executes it
	StatusSleeping  Status = "SLEEPING" // it waits for what RunInfo.WaitingOn says
	StatusCompleted Status = "COMPLETED"
	StatusFailed    Status = "FAILED"
	StatusCancelled Status = "CANCELLED"
)

var statuses = []Status{StatusPending, StatusRunning, StatusSleeping, StatusCompleted, StatusFailed, StatusCancelled}

// Ended reports whether the status is terminal.
func (s Status) Ended() bool {
	return s == StatusCompleted || s == StatusFailed || s == StatusCancelled
}

// RunInfo is one row of the table of runs. As JSON it has names_like_this and leaves out what is zero; an Input or Output
// that is not JSON is in base64, as input_base64 or output_base64. What was written is read back. In a struct of your own
// that is written as JSON, give it a field name rather than embed it.
type RunInfo struct {
	ID          RunID           `json:"id"`
	ExternalID  ID              `json:"external_id,omitempty"`
	Workflow    string          `json:"workflow"`
	Queue       string          `json:"queue"`
	Version     int             `json:"version,omitempty"` // zero until a worker first executed the run, unless its start chose one
	Priority    int             `json:"priority"`
	Attempts    int             `json:"attempts"`             // of the run that have failed
	Worker      string          `json:"worker,omitempty"`     // that executes it; empty unless it is RUNNING
	Recoveries  int             `json:"recoveries,omitempty"` // times that its lease ended under a worker, which had died as a rule (see WorkerConfig.FixedLease), since its last progress
	Status      Status          `json:"status"`
	WaitingOn   string          `json:"waiting_on,omitempty"` // why it waits: "timer cooling-off", "retry authorize", "signal approved", "child ship", "previous run" of its schedule, "compensation flight", "children" that are to end before its compensations run, "recovery", "history" that could not be read; of a run that is over, "deletion"
	Metadata    Metadata        `json:"metadata,omitempty"`
	Parent      RunID           `json:"parent,omitempty"`      // the run whose child it is
	ParentStep  string          `json:"parent_step,omitempty"` // under which name that run started it, with its branches
	Origin      RunID           `json:"origin,omitempty"`      // the run that it was restarted or forked from
	Schedule    string          `json:"schedule,omitempty"`    // that started it
	FireTime    time.Time       `json:"fire_time,omitzero"`    // the tick of the schedule it stands for; zero if it was triggered by hand
	Kind        kind.Kind       `json:"kind,omitempty"`        // of the last failure
	Error       string          `json:"error,omitempty"`       // of the last failure
	CreatedAt   time.Time       `json:"created_at,omitzero"`
	StartedAt   time.Time       `json:"started_at,omitzero"`   // when a worker first executed it
	AvailableAt time.Time       `json:"available_at,omitzero"` // when a worker may claim it next; zero if it is over or waits for no time
	DeadlineAt  time.Time       `json:"deadline_at,omitzero"`  // when its Timeout ends it
	EndedAt     time.Time       `json:"ended_at,omitzero"`
	Input       json.RawMessage `json:"input,omitempty"`  // what the client's Codec wrote: JSON unless it writes something else; as it is stored if its Sealer cannot open it
	Output      json.RawMessage `json:"output,omitempty"` // as Input
}

func (c *Client) runInfo(r *store.Run) RunInfo {
	info := RunInfo{
		ID: RunID(r.RunID.String()), ExternalID: ID(r.ExternalID), Workflow: r.Type, Queue: r.Queue, Version: r.Version,
		Priority: r.Priority, Attempts: r.Attempts, Recoveries: r.Recoveries, Status: Status(r.Status), WaitingOn: r.WaitingOn,
		Kind: kind.Kind(r.ErrorKind), Error: r.Error, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, AvailableAt: r.AvailableAt,
		Schedule: r.Schedule, FireTime: r.FireAt, DeadlineAt: r.DeadlineAt, EndedAt: r.FinishedAt, Input: c.shown(r.Input), Output: c.shown(r.Output),
	}
	if r.LockedBy != uuid.Nil && info.Status == StatusRunning {
		info.Worker = r.LockedBy.String()
	}
	if r.Parent != uuid.Nil {
		info.Parent, info.ParentStep = RunID(r.Parent.String()), r.ParentStep
	}
	if r.Origin != uuid.Nil {
		info.Origin = RunID(r.Origin.String())
	}
	_ = json.Unmarshal(r.Metadata, &info.Metadata) // written by startOptions, from a map of strings
	return info
}

// A StepAttempt is one attempt of one step. As JSON it is as a [RunInfo] is.
type StepAttempt struct {
	Step string `json:"step"`
	// Type is FUNCTION for [Step], [StepTx], [Do] and [DoTx], SLEEP for [Sleep] and [SleepUntil], SIGNAL for [WaitSignal],
	// CHILD_WORKFLOW for [StartChild] and [RunChild], BRANCH for the failure of a branch, MARKER for what a [Map], [Parallel] or
	// [Race] remembers, for [Child.Cancel] ("ship/#cancel") and for [Patched] ("#patched:…"), and COMPENSATION for [Compensate] and
	// [UndoneBy] ("flight#compensation"). A compensation has an attempt for each registration under the name, RUNNING until it has run,
	// as Child; it stays so if it was replaced, or if the run completed or was terminated.
	Type      string          `json:"type"`
	Attempt   int             `json:"attempt"`          // from 1, as in [StepInfo]
	Status    Status          `json:"status"`           // StatusRunning also in a run that is over, if nothing was recorded of the end
	Input     json.RawMessage `json:"input,omitempty"`  // that [Input] gave, as the client's Codec wrote it
	Output    json.RawMessage `json:"output,omitempty"` // what the client's Codec wrote; of a MARKER Kagzi's own
	Kind      kind.Kind       `json:"kind,omitempty"`
	Error     string          `json:"error,omitempty"`
	StartedAt time.Time       `json:"started_at,omitzero"`
	EndedAt   time.Time       `json:"ended_at,omitzero"` // of a SIGNAL when the message was stored, which may be before StartedAt
	Child     RunID           `json:"child,omitempty"`   // that a CHILD_WORKFLOW started, or a COMPENSATION
	WakeAt    time.Time       `json:"wake_at,omitzero"`  // of a sleep its end; of a failed attempt when the next may start, zero if it was the last
}

// Started is what [Client.StartMany] says of one call.
type Started struct {
	ID      RunID `json:"id"`
	Existed bool  `json:"existed"`
}

// A Run is the handle to one run. It is safe for concurrent use.
type Run[Out any] struct {
	client   *Client
	workflow string
	id       RunID
	existed  bool
}

// ID returns Kagzi's name for the run.
func (r *Run[Out]) ID() RunID {
	if r == nil {
		return ""
	}
	return r.id
}

// made returns an error if r is not what Start or Find returned.
func (r *Run[Out]) made() error {
	if r == nil || r.client == nil {
		return errors.New("kagzi: the run is nil or a zero Run: Start and Find return one, unless they return an error")
	}
	return nil
}

// Existed reports whether Start found the run instead of making it.
func (r *Run[Out]) Existed() bool { return r != nil && r.existed }

// Info reads the run's row.
func (r *Run[Out]) Info(ctx context.Context) (RunInfo, error) {
	if err := r.made(); err != nil {
		return RunInfo{}, err
	}
	return r.client.Get(ctx, r.id)
}

// Result waits for the run to end. The error is a *[RunError] if the run did not complete. Another error says that the
// waiting ended: ctx has ended, the run was not found ([ErrNotFound]), or the database gives the same error again and
// again. Or the run has completed, and its result cannot be opened by the [Sealer] or does not decode into Out. While
// the database is away Result goes on waiting. A run started [InTx] does not exist before the commit: Result returns
// ErrNotFound until then.
func (r *Run[Out]) Result(ctx context.Context) (Out, error) {
	var out Out
	if err := r.made(); err != nil {
		return out, err
	}
	id, err := uuid.Parse(string(r.id))
	if err != nil {
		return out, failure.Wrap(errRunNotFound, "result of %s", r.id)
	}
	end, err := r.client.hints.Result(ctx, id)
	if errors.Is(err, store.ErrRunNotFound) {
		err = errRunNotFound
	}
	if err != nil {
		return out, failure.Wrap(err, "result of %s %s", r.workflow, r.id)
	}
	if Status(end.Status) != StatusCompleted {
		return out, &RunError{Run: r.id, Workflow: end.Type, Status: Status(end.Status), Kind: kind.Kind(end.ErrorKind), Message: end.Error}
	}
	if err := r.client.decode(end.Output, &out); err != nil {
		return out, fmt.Errorf("kagzi: result of %s %s: does not decode into %T: %w", r.workflow, r.id, out, err)
	}
	return out, nil
}

// Cancel is [Client.Cancel] of this run.
func (r *Run[Out]) Cancel(ctx context.Context, opts ...ChangeOption) error {
	if err := r.made(); err != nil {
		return err
	}
	return r.client.Cancel(ctx, r.id, opts...)
}
