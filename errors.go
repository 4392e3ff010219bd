package kagzi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
)

// Causes and refusals.
var (
	// ErrLeaseLost is the cause of a step's context once other workers may execute the run: the lease ended, or the
	// worker was declared dead, was forced offline, or could not reach the database for too long.
	ErrLeaseLost = standing.ErrLeaseLost
	// ErrShutdown is the cause of a step's context once its worker stops. The step runs again elsewhere.
	ErrShutdown = standing.ErrShutdown
	// ErrNotFound reports one of these, and its text says which:
	//   - the client's namespace has no such run, schedule, limit or worker (workers that are offline are kept for a
	//     week);
	//   - a run to fork has no record of the step;
	//   - a step to admin.Forget has not failed;
	//   - there is no such consumer with that topic, or the topic has no such event;
	//   - the run has no such message.
	ErrNotFound = core.ErrNotFound
	// ErrRunFinished reports that the run is over, so it accepts no signal and no change.
	ErrRunFinished = core.ErrRunFinished
	// ErrRunActive reports that the run is not over, so it cannot be resumed, restarted, forked or deleted.
	ErrRunActive = core.ErrRunActive
	// ErrIDTaken reports that an [IfActive] or [IfEnded] refuses a start because of another run with its ID. The error
	// names that run, and Get finds it by the ID. If that run has another workflow or another input, the error is
	// ErrIDConflict as well.
	ErrIDTaken = core.ErrIDTaken
	// ErrIDConflict reports that an active run with the ID has another workflow or another input.
	ErrIDConflict = core.ErrIDConflict
	// ErrKeyFull reports that a [WhenFull] refuses a start because its key has no free slot. Nothing was started. Its
	// kind is [kind.RateLimited], so a step that starts the run is repeated according to its [RetryPolicy].
	ErrKeyFull = core.ErrKeyFull
	// ErrInboxFull reports that a run has 10,000 messages that it has not read, and takes no more. Its kind is
	// [kind.RateLimited], so a step that sends the message is repeated according to its [RetryPolicy].
	ErrInboxFull = core.ErrInboxFull
	// ErrNoMessage reports, by errors.Is, that a [WaitSignal], or another wait for a message, has timed out. Its kind
	// is [kind.Timeout], as that of a step that has timed out.
	ErrNoMessage = errors.New("kagzi: no message came in time")
	// ErrPayloadTooLarge reports an input, a payload of a signal or an event, or an item of [Map] over
	// ClientConfig.MaxPayload. A result that is too large fails its step or run instead, with [kind.Validation].
	ErrPayloadTooLarge = payloads.ErrTooLarge
	// ErrSuspended is the error of next in an Execute of an [Interceptor] if the run goes on later: it sleeps or waits,
	// or its worker gave it back ([ErrShutdown]) or lost it ([ErrLeaseLost]).
	ErrSuspended = replay.ErrSuspended
	// ErrRetried is the error of next in an Execute of an [Interceptor], by errors.Is, if this attempt of the run has
	// failed and another follows, by the run's [RetryPolicy]. Kind and text are those of the failure.
	ErrRetried = replay.ErrRetried
)

// A StepError reports that a step failed in every attempt that its policy allowed. It is the same in a replay: kind,
// text and [kind.Details] survive, other errors in the chain do not.
type StepError struct {
	Step     string
	Attempts int       // in the last series: an attempt of the run that tries the step again begins a new series
	Kind     kind.Kind // errors.Is(err, kind.Timeout)
	Message  string    // of the last attempt; after a panic with its stack, in several lines

	// permanent says that the error of the last attempt was marked Permanent, so another attempt of the run would not
	// help.
	permanent bool
	details   error
}

// Error names the step, the failure and its kind, in one line.
func (e *StepError) Error() string {
	var attempts string
	switch {
	case e.Attempts == 1:
		attempts = ", 1 attempt"
	case e.Attempts > 1:
		attempts = fmt.Sprintf(", %d attempts", e.Attempts)
	}
	return fmt.Sprintf("kagzi: step %q: %s (%s%s)", e.Step, text.OneLine(e.Message), kindText(e.Kind), attempts)
}

// Unwrap gives e its kind and its [kind.Details].
func (e *StepError) Unwrap() error { return failure.Recorded(e.Kind, e.permanent, e.details) }

// Is reports whether target is [ErrNoMessage], for a wait that has timed out.
func (e *StepError) Is(target error) bool {
	return target == ErrNoMessage && e.Attempts == 0 && e.Kind == kind.Timeout
}

// A RunError reports that a run ended without completing: Status is StatusFailed or StatusCancelled.
type RunError struct {
	Run      RunID
	Workflow string
	Status   Status
	Kind     kind.Kind // errors.Is(err, kind.Deadline)
	Message  string    // of the last attempt; after a panic with its stack, in several lines

	step    string // the step that started it, in the run that asks for its result
	details error
}

// Error names the run, the failure and its kind, in one line.
func (e *RunError) Error() string {
	run := fmt.Sprintf("kagzi: run %s of workflow %q", e.Run, e.Workflow)
	if e.Status == StatusCancelled {
		if e.Message == "" {
			return run + " was cancelled"
		}
		if how, ok := strings.CutPrefix(text.OneLine(e.Message), "run was "); ok { // cancelled or terminated, and why
			return run + " was " + how
		}
		return fmt.Sprintf("%s was cancelled: %s", run, text.OneLine(e.Message))
	}
	return fmt.Sprintf("%s failed (%s): %s", run, kindText(e.Kind), text.OneLine(e.Message))
}

// Unwrap gives e its kind and its [kind.Details].
func (e *RunError) Unwrap() error { return failure.Recorded(e.Kind, false, e.details) }

// A BranchError is the failure of one branch, or of one child of [Results].
type BranchError struct {
	Name  string
	Index int // in the items of Map, or the children of Results
	Err   error

	child  bool
	id     string         // of the branch's record
	others []*BranchError // the other failures in its group, by the group's end
}

// Error names the branch or child and its failure.
func (e *BranchError) Error() string { return "kagzi: " + e.text() }

// Unwrap returns the error of the branch or child.
func (e *BranchError) Unwrap() error { return e.Err }

func (e *BranchError) text() string {
	name := fmt.Sprintf("%q", e.Name)
	if e.Name == "" {
		name = fmt.Sprint(e.Index)
	}
	what := "branch"
	if e.child {
		what = "child"
	}
	return fmt.Sprintf("%s %s: %s", what, name, text.OneLine(text.OfError(e.Err)))
}

// BranchErrors are the failures of a group with [CollectErrors], or of a [Race] without a winner.
type BranchErrors []*BranchError

// Error names the first ten failures.
func (e BranchErrors) Error() string {
	const shown = 10
	if len(e) == 1 {
		return e[0].Error()
	}
	var b strings.Builder
	what := "branches"
	if len(e) > 0 && e[0].child {
		what = "children"
	}
	fmt.Fprintf(&b, "kagzi: %d %s failed", len(e), what)
	for i, branch := range e[:min(len(e), shown)] {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + branch.text())
	}
	if len(e) > shown {
		fmt.Fprintf(&b, "; and %d more", len(e)-shown)
	}
	return b.String()
}

// Unwrap returns the branches' errors.
func (e BranchErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, branch := range e {
		errs[i] = branch
	}
	return errs
}

// A DivergenceError reports that code does not repeat what the history of a run has recorded.
type DivergenceError struct {
	Run      RunID
	Workflow string
	Version  int
	Step     string // the step at which they differ, with its branches; empty if only the end differs
	Message  string
}

// Error names the run, and its first difference from the history, in one line.
func (e *DivergenceError) Error() string {
	return fmt.Sprintf("kagzi: run %s of workflow %q, version %d, diverges: %s", e.Run, e.Workflow,
		e.Version, e.Message)
}

// Unwrap gives e its kind.
func (e *DivergenceError) Unwrap() error { return failure.Recorded(kind.Nondeterminism, false, nil) }

func kindText(k kind.Kind) string {
	if k == "" {
		return string(kind.Unknown)
	}
	return string(k)
}
