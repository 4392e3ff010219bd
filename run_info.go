package kagzi

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

type (
	// A RunID is Kagzi's name for one run, forever: a UUID in text.
	RunID string
	// An ID is the caller's name for a run, of at most 255 bytes. It is unique among the active runs of the namespace,
	// whatever their workflow, so put the workflow's name in it, as in "refund-42". As an option of [Start] it makes
	// the start idempotent while the run is active: a start with the same workflow and input returns that run, and one
	// with another workflow or input is refused with [ErrIDConflict]; the input of a start that brings a [Message] is
	// not compared. Runs that are over do not count: starting again begins a new run. [IfActive] and [IfEnded] change
	// both rules.
	//
	// As an option of a restart or fork it is the new run's ID.
	ID string
)

// A Ref identifies a run: a [RunID], an [ID], or the run itself as a *[Run], a [RunInfo] or a [Started].
type Ref interface {
	Core() core.Ref // for Kagzi's own packages
	ref()
}

// Core is for Kagzi's own packages.
func (id RunID) Core() core.Ref { return core.OfRun(string(id)) }
func (RunID) ref()              {}

// Core is for Kagzi's own packages.
func (id ID) Core() core.Ref { return core.OfID(string(id)) }
func (ID) ref()              {}

// Core is for Kagzi's own packages.
func (r RunInfo) Core() core.Ref { return r.ID.Core() }
func (RunInfo) ref()             {}

// Core is for Kagzi's own packages.
func (s Started) Core() core.Ref { return s.ID.Core() }
func (Started) ref()             {}

// refOf is the inverse of Core.
func refOf(r core.Ref) Ref {
	if r.ByID {
		return ID(r.Text)
	}
	return RunID(r.Text)
}

// Status is the state of a run.
type Status string

// A run is active while it is pending, running or sleeping. It ends completed, failed or cancelled.
const (
	StatusPending   Status = "PENDING"  // it waits for a worker, for its Delay or At, or for its next attempt
	StatusRunning   Status = "RUNNING"  // a worker executes it
	StatusSleeping  Status = "SLEEPING" // it waits: see RunInfo.WaitingOn
	StatusCompleted Status = "COMPLETED"
	StatusFailed    Status = "FAILED"
	StatusCancelled Status = "CANCELLED"

	// StatusInDoubt is the state of a [StepAttempt] with [AtMostOnce], until it is known what its call has done.
	StatusInDoubt Status = "IN_DOUBT"
)

var statuses = []Status{StatusPending, StatusRunning, StatusSleeping, StatusCompleted, StatusFailed, StatusCancelled}

// Ended reports whether the status is terminal.
func (s Status) Ended() bool {
	return s == StatusCompleted || s == StatusFailed || s == StatusCancelled
}

// RunInfo is one row of the table of runs. Its JSON has names in snake_case and omits zero values; an Input or Output
// that is not JSON is written in base64, as input_base64 or output_base64. Unmarshalling that JSON yields the same
// RunInfo. In a struct of your own that is marshalled, make it a named field, not an embedded one.
type RunInfo struct {
	ID         RunID  `json:"id"`
	ExternalID ID     `json:"external_id,omitempty"`
	Workflow   string `json:"workflow"`
	Queue      string `json:"queue"`
	// zero until a worker first executed the run, unless its start chose one
	Version  int    `json:"version,omitempty"`
	Priority int    `json:"priority"`
	Attempts int    `json:"attempts"`      // attempts of the run that have failed
	Key      Key    `json:"key,omitempty"` // the run has a Key or a Group, or neither
	Group    Group  `json:"group,omitempty"`
	Worker   string `json:"worker,omitempty"` // the ID of the worker that executes it; empty unless it is RUNNING
	// how often its lease has ended under a worker since its last progress, as a rule because the worker died (see
	// WorkerConfig.FixedLease)
	Recoveries int    `json:"recoveries,omitempty"`
	Status     Status `json:"status"`
	// WaitingOn is what the run waits for. Its String method says it: "timer cooling-off", "signal approved", "child
	// ship", "retry authorize". It is empty for a Delay or At, and before the first worker. docs/waiting.md has all
	// values.
	//
	// If several branches wait, it has at most three things that they wait for: "timer cooling-off; signal approved;
	// 4 more". Those with a time come first, in the order of their times, so AvailableAt is that of the first.
	//
	// [Client.Get] also names what keeps workers from claiming a run that is due, such as "key tenant-7 (2 of 2
	// running), behind order-42", the steps that a cancel waits for, and messages that the run cannot read.
	// [Client.List] does not look.
	WaitingOn waits.List `json:"waiting_on,omitempty"`

	// Hung lists code of the run that hangs in its worker; if the run is over, in any worker: [Client.Get] reads it
	// from the last heartbeat, and [Client.List] does not. See [WorkerConfig].HungAfter.
	Hung []HungCode `json:"hung,omitempty"`

	// SilentSince is when the worker of a RUNNING run last reported, if that worker is dead, or silent for longer than
	// its StaleAfter: then the run is not being executed, and another worker takes it over at AvailableAt, or before.
	// It is zero otherwise.
	SilentSince time.Time `json:"silent_since,omitzero"`

	// when a cancel asked its worker to end it; zero if the cancel ended it at once
	CancelRequestedAt time.Time `json:"cancel_requested_at,omitzero"`

	// when admin.Runs.Pause paused it; zero unless it is paused itself
	PausedAt time.Time `json:"paused_at,omitzero"`
	Metadata Metadata  `json:"metadata,omitempty"`
	Headers  Headers   `json:"headers,omitempty"`
	// since when it refuses messages ([ErrInboxFull]); [Client.List] does not look whether it has read some since
	InboxFullSince time.Time `json:"inbox_full_since,omitzero"`
	// what it last said by [SetProgress]; nil if it said nothing
	Progress *Progress `json:"progress,omitempty"`
	Parent   RunID     `json:"parent,omitempty"` // the run whose child it is
	// the name under which that run started it, with its branches
	ParentStep string `json:"parent_step,omitempty"`
	Origin     RunID  `json:"origin,omitempty"`   // the run that it was restarted or forked from
	Schedule   string `json:"schedule,omitempty"` // the schedule that started it
	// the tick of the schedule; zero if the run was triggered by hand
	FireTime time.Time `json:"fire_time,omitzero"`
	Kind     kind.Kind `json:"kind,omitempty"` // of the last failure
	// it failed for a reason that people must remove before they call admin.Runs.Resume
	Quarantined bool `json:"quarantined,omitempty"`
	// its compensations have run: admin.Runs.Restart starts it again; admin.Runs.Resume returns admin.ErrCompensated
	Compensated bool      `json:"compensated,omitempty"`
	Error       string    `json:"error,omitempty"` // of the last failure
	CreatedAt   time.Time `json:"created_at,omitzero"`
	StartedAt   time.Time `json:"started_at,omitzero"` // when a worker first executed it
	Epoch       int       `json:"epoch,omitempty"`     // how often it has continued with another input: see [Continue]
	// when a worker may claim it next; zero if it is over, or waits for something other than a time
	AvailableAt time.Time `json:"available_at,omitzero"`
	DeadlineAt  time.Time `json:"deadline_at,omitzero"` // when its Timeout or ExecutionTimeout ends it
	StartBy     time.Time `json:"start_by,omitzero"`    // when StartWithin ends it; zero once it has begun
	EndedAt     time.Time `json:"ended_at,omitzero"`
	// as the client's Codec wrote it; as it is stored if the Sealer cannot open it
	Input  json.RawMessage `json:"input,omitempty"`
	Output json.RawMessage `json:"output,omitempty"` // as Input; of a failed run its [kind.Details]
}

// A HungCode is a function that hangs. A step's function hangs if it goes on although its ctx has ended; the function
// of a workflow or branch, if it waits for long outside of steps and of Kagzi's other operations. The log of the run's
// worker has the stack.
type HungCode struct {
	Step   string `json:"step,omitempty"`   // empty: it is the function of the workflow or of the branch
	Branch string `json:"branch,omitempty"` // without a Step: the branch; empty for the workflow function
	Cause  string `json:"cause,omitempty"`  // why the step's ctx ended, as in "step timed out after 30s"
	// when it ended, or when the worker first saw the function outside of operations
	Since  time.Time `json:"since,omitzero"`
	Worker string    `json:"worker,omitempty"` // in which it hangs

	// Awaits is the run for whose [Run.Result] the step waits since then, while such steps hold all slots of the
	// worker: none is free for that run. A child holds no slot for its parent: see [RunChild].
	Awaits RunID `json:"awaits,omitempty"`
}

// hungCodes returns the codes for people.
func hungCodes(codes []store.HungCode) (out []HungCode) {
	for _, c := range codes {
		h := HungCode{Step: c.Step, Branch: c.Branch, Cause: c.Cause, Since: c.Since.UTC(), Worker: c.Worker.String()}
		if c.Awaits != uuid.Nil {
			h.Awaits = RunID(c.Awaits.String())
		}
		out = append(out, h)
	}
	return out
}

// A Progress is what a run last said by [SetProgress].
type Progress struct {
	Text     string    `json:"text,omitempty"`
	Fraction *float64  `json:"fraction,omitempty"` // from 0 to 1; nil if it was not given
	At       time.Time `json:"at,omitzero"`        // when it was stored
}

// storedProgress reads what a run's row has; nil if that is nothing.
func storedProgress(raw json.RawMessage) *Progress {
	var p *Progress
	if json.Unmarshal(raw, &p) != nil || p == nil { // the engine wrote it
		return nil
	}
	p.At = p.At.UTC()
	return p
}

// A StepAttempt is one attempt of one step. Its JSON follows the rules of [RunInfo].
type StepAttempt struct {
	Step string `json:"step"`
	// Type is FUNCTION for [Step], [StepTx], [Do] and [DoTx], SLEEP for [Sleep] and [SleepUntil], SIGNAL for
	// [WaitSignal], CHILD_WORKFLOW for [StartChild] and [RunChild], BRANCH for the failure of a branch, MARKER for the
	// record of a [Map], [Parallel] or [Race], of [Child.Cancel] ("ship/#cancel") and of [Patched] ("#patched:…"),
	// PUBLISH for topic.Publish, METADATA for [SetMetadata], VALUE for value.Set ("#value:state"), CHECKPOINT for
	// [Checkpoint] ("#checkpoint:pay"), REQUEST, REPLY and ASK for package request, and COMPENSATION for [Compensate]
	// and [UndoneBy] ("flight#compensation"). A compensation has one attempt for each registration under its name.
	Type    string `json:"type"`
	Attempt int    `json:"attempt"` // from 1, as in [StepInfo]
	// Status is
	//
	//   - StatusRunning while the attempt, sleep, wait, child or compensation is under way;
	//   - StatusCompleted, or StatusFailed with Kind and Error. A wait or a group of branches that timed out is failed,
	//     of [kind.Timeout];
	//   - StatusCancelled if it cannot end any more: its branch has lost or failed, its group failed or timed out, or
	//     its run is over. A child is cancelled if its run was. A compensation is cancelled
	//     if its registration was replaced, or if its run completed or was terminated before;
	//   - StatusInDoubt: see there;
	//   - StatusPending if its worker drained or died, and the attempt is made again. A compensation is pending until
	//     its run, the Child, is started.
	Status  Status          `json:"status"`
	Input   json.RawMessage `json:"input,omitempty"`   // the value of [Input], as the client's Codec wrote it
	Output  json.RawMessage `json:"output,omitempty"`  // as that of a run; a MARKER's is Kagzi's own
	Headers Headers         `json:"headers,omitempty"` // of the message that a SIGNAL read
	Kind    kind.Kind       `json:"kind,omitempty"`
	Error   string          `json:"error,omitempty"`
	// when the attempt first began: it keeps this time if its worker died and another one executes it again
	StartedAt time.Time `json:"started_at,omitzero"`
	// when the ctx of its function ended, while the function goes on nevertheless: see [HungCode]
	HungSince time.Time `json:"hung_since,omitzero"`
	// for a SIGNAL, when the message was stored, which may be before StartedAt; if it was cancelled, when that was
	// decided, as far as that is known
	EndedAt time.Time `json:"ended_at,omitzero"`
	Child   RunID     `json:"child,omitempty"` // the run that a CHILD_WORKFLOW or a COMPENSATION started
	// the ID of the worker that recorded the attempt last: see admin.Workers.Get, which knows it until a week after
	// its end
	Worker string `json:"worker,omitempty"`
	// the end of a sleep; when a wait or a group times out; for a failed attempt, when the next may start, or zero if
	// none follows
	WakeAt time.Time `json:"wake_at,omitzero"`
}

// Started is the result of [Client.StartMany] for one call.
type Started struct {
	ID      RunID `json:"id"`
	Existed bool  `json:"existed"`
}

type runInfoFields RunInfo

// A field here comes before the one of the same name in the struct embedded beside it.
type runInfoJSON struct {
	runInfoFields
	Input       json.RawMessage `json:"input,omitempty"`
	InputBytes  []byte          `json:"input_base64,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	OutputBytes []byte          `json:"output_base64,omitempty"`
}

// MarshalJSON writes the run by the rules of RunInfo.
func (r RunInfo) MarshalJSON() ([]byte, error) {
	out := runInfoJSON{runInfoFields: runInfoFields(r)}
	out.Input, out.InputBytes = payloads.InJSON(r.Input)
	out.Output, out.OutputBytes = payloads.InJSON(r.Output)
	return json.Marshal(out)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (r *RunInfo) UnmarshalJSON(data []byte) error {
	var in runInfoJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return failure.Wrap(err, "run as JSON")
	}
	*r = RunInfo(in.runInfoFields)
	r.Input, r.Output = payloads.FromJSON(in.Input, in.InputBytes), payloads.FromJSON(in.Output, in.OutputBytes)
	return nil
}

type stepFields StepAttempt

type stepJSON struct {
	stepFields
	Input       json.RawMessage `json:"input,omitempty"`
	InputBytes  []byte          `json:"input_base64,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	OutputBytes []byte          `json:"output_base64,omitempty"`
}

// MarshalJSON writes the attempt by the rules of RunInfo.
func (s StepAttempt) MarshalJSON() ([]byte, error) {
	out := stepJSON{stepFields: stepFields(s)}
	out.Input, out.InputBytes = payloads.InJSON(s.Input)
	out.Output, out.OutputBytes = payloads.InJSON(s.Output)
	return json.Marshal(out)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (s *StepAttempt) UnmarshalJSON(data []byte) error {
	var in stepJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return failure.Wrap(err, "step as JSON")
	}
	*s = StepAttempt(in.stepFields)
	s.Input, s.Output = payloads.FromJSON(in.Input, in.InputBytes), payloads.FromJSON(in.Output, in.OutputBytes)
	return nil
}
