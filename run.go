package kagzi

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

type (
	// A RunID is Kagzi's name for one run, forever: a UUID in text.
	RunID string
	// An ID is the caller's name for a run, of at most 255 bytes: unique among the active runs of the
	// namespace, whatever their workflow, so put the workflow's name in it, as in "refund-42". As an option of
	// [Start] it makes the start idempotent while the run is active: a start with the same workflow and input
	// returns that run, one with another workflow or input is refused with [ErrIDConflict]. It does not remember
	// runs that are over: starting again begins a new run. [IfActive] and [IfEnded] change either.
	//
	// As an option of [Client.Signal] it is the message's ID, as with [Message.WithID]; of [Client.Restart] and
	// [Client.Fork] the new run's.
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

// RunInfo is one row of the table of runs.
type RunInfo struct {
	ID              RunID
	ExternalID      ID
	Workflow, Queue string
	Version         int // zero until a worker first executed the run, unless its start chose one
	Priority        int
	Attempts        int      // of the run, that failed
	Worker          WorkerID // that executes it; empty unless it is RUNNING
	Recoveries      int      // times it was taken over from a dead worker, since its last progress
	Status          Status
	WaitingOn       string // why it waits: "timer cooling-off", "retry authorize", "signal approved", "child ship", "previous run" of its schedule
	Metadata        Metadata
	Parent          RunID     // the run whose child it is
	ParentStep      string    // under which name that run started it, with its branches
	Origin          RunID     // the run that it was restarted or forked from
	Schedule        string    // that started it
	FireTime        time.Time // the tick of the schedule it stands for; zero if it was triggered by hand
	Kind            Kind      // of the last failure
	Error           string    // of the last failure
	CreatedAt       time.Time
	StartedAt       time.Time // when a worker first executed it
	AvailableAt     time.Time // when a worker may claim it next; zero if it is over or waits for no time
	DeadlineAt      time.Time // when its Timeout ends it
	EndedAt         time.Time
	Input, Output   json.RawMessage // what the client's Codec wrote: JSON unless it writes something else
}

func runInfo(r *store.Run) RunInfo {
	info := RunInfo{
		ID: RunID(r.RunID.String()), ExternalID: ID(r.ExternalID), Workflow: r.Type, Queue: r.Queue, Version: r.Version,
		Priority: r.Priority, Attempts: r.Attempts, Recoveries: r.Recoveries, Status: Status(r.Status), WaitingOn: r.WaitingOn,
		Kind: Kind(r.ErrorKind), Error: r.Error, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, AvailableAt: r.AvailableAt,
		Schedule: r.Schedule, FireTime: r.FireAt, DeadlineAt: r.DeadlineAt, EndedAt: r.FinishedAt, Input: r.Input, Output: r.Output,
	}
	if r.LockedBy != uuid.Nil && info.Status == StatusRunning {
		info.Worker = WorkerID(r.LockedBy.String())
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

// A StepType says what a step is.
type StepType string

// Types of steps.
const (
	StepFunction     StepType = store.KindFunction     // Step, StepTx, Do, DoTx
	StepSleep        StepType = store.KindSleep        // Sleep, SleepUntil
	StepSignal       StepType = store.KindSignal       // WaitSignal
	StepChild        StepType = store.KindChild        // StartChild, RunChild
	StepMarker       StepType = store.KindMarker       // what a Map, Parallel or Race remembers, Patched ("#patched:…"), and how a run that is undone ends ("#undo")
	StepCompensation StepType = store.KindCompensation // Compensate; attempt 0 is the registration
)

// A StepAttempt is one attempt of one step.
type StepAttempt struct {
	Step      string
	Type      StepType
	Attempt   int             // from 1, as in [StepInfo]
	Status    Status          // StatusRunning also of what had not ended when the run was ended from outside
	Output    json.RawMessage // what the client's Codec wrote; of a StepMarker Kagzi's own
	Kind      Kind
	Error     string
	StartedAt time.Time
	EndedAt   time.Time // of a StepSignal when the message was stored, which may be before StartedAt
	Child     RunID     // that a StepChild started
	WakeAt    time.Time // of a sleep its end; of a failed attempt when the next may start, zero if it was the last
}

// Started is what [Client.StartMany] says of one call.
type Started struct {
	ID      RunID
	Existed bool
}

// A Run is the handle to one run. It is safe for concurrent use.
type Run[Out any] struct {
	client   *Client
	workflow string
	id       RunID
	existed  bool
}

// ID returns Kagzi's name for the run.
func (r *Run[Out]) ID() RunID { return r.id }

// Existed reports whether Start found the run instead of making it.
func (r *Run[Out]) Existed() bool { return r.existed }

// Info reads the run's row.
func (r *Run[Out]) Info(ctx context.Context) (RunInfo, error) { return r.client.Get(ctx, r.id) }

// Result waits for the run to end. The error is a *[RunError] if the run did not complete; any other error
// says that waiting ended, not the run: ctx ended, or [ErrRunNotFound]. While the database is away Result
// goes on waiting. A run started [InTx] does not exist before the commit: Result returns [ErrRunNotFound] until
// then.
func (r *Run[Out]) Result(ctx context.Context) (Out, error) {
	var out Out
	id, err := uuid.Parse(string(r.id))
	if err != nil {
		return out, failed(ErrRunNotFound, "result of %s", r.id)
	}
	end, err := r.client.results.wait(ctx, id)
	if err != nil {
		return out, failed(err, "result of %s %s", r.workflow, r.id)
	}
	if Status(end.Status) != StatusCompleted {
		return out, &RunError{Run: r.id, Workflow: end.Type, Status: Status(end.Status), Kind: Kind(end.ErrorKind), Message: end.Error}
	}
	if err := r.client.cfg.Codec.Decode(end.Output, &out); err != nil {
		return out, fmt.Errorf("kagzi: result of %s %s: does not decode into %T: %w", r.workflow, r.id, out, err)
	}
	return out, nil
}

// Cancel is [Client.Cancel] of this run.
func (r *Run[Out]) Cancel(ctx context.Context, opts ...ChangeOption) error {
	return r.client.Cancel(ctx, r.id, opts...)
}
