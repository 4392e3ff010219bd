package kagzi

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/engine"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
)

// Causes and refusals.
var (
	// ErrLeaseLost is the cause of a step's context once others may execute the run: its lease ended, its worker was
	// declared dead or forced offline, or could not reach the database for too long.
	ErrLeaseLost = engine.ErrLeaseLost
	// ErrShutdown is the cause of a step's context once its worker stops. The step runs again elsewhere.
	ErrShutdown = engine.ErrShutdown
	// ErrNotFound reports that the client's namespace has no such run, schedule or worker (it keeps workers that are offline for
	// a week), that a run to fork has no record of the step, or that a step to [Forget] has not failed. The error's text says
	// which.
	ErrNotFound = errors.New("kagzi: not found")
	// ErrRunFinished reports that the run is over, so nothing more can happen to it.
	ErrRunFinished = errors.New("kagzi: run is over")
	// ErrRunActive reports that the run is not over, so it cannot be resumed, restarted or forked.
	ErrRunActive = errors.New("kagzi: run is not over")
	// ErrCompensated reports that the run's compensations have run, or some of them, so it cannot go on from what its steps did.
	ErrCompensated = errors.New("kagzi: run was compensated: Restart it, or Resume it if a compensation failed")
	// ErrIDTaken reports that an [IfActive] or [IfEnded] refuses a start, because of another run of its ID. The error
	// names that run, and Get finds it by the ID. If it is of another workflow, or was started with another input, the
	// error is ErrIDConflict as well.
	ErrIDTaken = errors.New("kagzi: ID taken by another run")
	// ErrIDConflict reports that an active run has the ID and is of another workflow, or was started with another
	// input.
	ErrIDConflict = errors.New("kagzi: ID in use with another workflow or input")
	// ErrPayloadTooLarge reports an input, a signal's payload or an item of [Map] over ClientConfig.MaxPayload. A
	// result that is too large fails its step or run instead, with kind.Validation.
	ErrPayloadTooLarge = errors.New("kagzi: payload too large")
)

// Each is an ErrNotFound that says what was not found.
var (
	errRunNotFound      = failure.Explain("run not found", ErrNotFound)
	errStepNotFound     = failure.Explain("the run has no such step: Client.Steps lists those it has reached", ErrNotFound)
	errScheduleNotFound = failure.Explain("schedule not found", ErrNotFound)
	errWorkerNotFound   = failure.Explain("worker not found", ErrNotFound)
)

// A StepError reports that a step failed in every attempt its policy allowed. It is the same in a replay:
// kind and text survive, other errors in the chain do not.
type StepError struct {
	Step     string
	Attempts int       // of the last series: an attempt of the run that tries the step again begins another
	Kind     kind.Kind // errors.Is(err, kind.Timeout)
	Message  string    // of the last attempt; after a panic with its stack, in several lines

	// permanent says that the last attempt was marked Permanent: another attempt of the run would not help.
	permanent bool
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

// Is reports whether target is e's kind.
func (e *StepError) Is(target error) bool { return failure.IsKind(target, e.Kind) }

// A RunError reports that a run ended without completing: Status is StatusFailed or StatusCancelled.
type RunError struct {
	Run      RunID
	Workflow string
	Status   Status
	Kind     kind.Kind // errors.Is(err, kind.Deadline)
	Message  string    // of the last attempt; after a panic with its stack, in several lines

	step string // that started it, in the run that asks
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

// Is reports whether target is e's kind.
func (e *RunError) Is(target error) bool { return failure.IsKind(target, e.Kind) }

// A BranchError is the failure of one branch, or of one child of [Results].
type BranchError struct {
	Name  string
	Index int // in the items of Map, or the children of Results
	Err   error

	child  bool
	id     string         // of the branch's record
	others []*BranchError // what else had failed in its group, by the end of that
}

// Error names the branch or child and its failure.
func (e *BranchError) Error() string { return "kagzi: " + e.text() }

// Unwrap returns what failed in the branch.
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

// BranchErrors are the failures under CollectErrors, or of a Race that nobody won.
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

// Permanent marks err as not worth another attempt. It keeps err's text, chain and kind. If err is marked
// with [RetryAfter] too, the outer mark counts. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, permanent: true}
}

// RetryAfter marks err as worth another attempt, whatever its kind, after at least d: what an HTTP header
// Retry-After says. The policy's MaxAttempts and longer backoffs still hold. It keeps err's text, chain and
// kind. If err is marked [Permanent] too, the outer mark counts. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &markedError{err: err, after: max(d, 0)}
}

// A markedError is permanent, or to be tried again after a while.
type markedError struct {
	err       error
	permanent bool
	after     time.Duration
}

func (e *markedError) Error() string { return e.err.Error() }
func (e *markedError) Unwrap() error { return e.err }

// isPermanent reports whether err is not worth another attempt: by its outermost mark, else by its kind.
func isPermanent(err error) bool {
	if err == nil {
		return false
	}
	if m, ok := outermostMark(err); ok {
		return m.permanent
	}
	return !KindOf(err).Retryable()
}

// retryAfter returns the wait that err's outermost mark asks for.
func retryAfter(err error) (time.Duration, bool) {
	m, ok := outermostMark(err)
	return m.after, ok && !m.permanent
}

func outermostMark(err error) (mark markedError, found bool) {
	defer func() {
		if recover() != nil { // a method of a user's error
			mark, found = markedError{}, false
		}
	}()
	found = walkErrors(err, func(err error) bool {
		switch e := err.(type) {
		case *markedError:
			mark = *e
			return true
		case *StepError:
			mark.permanent = e.permanent
			return e.permanent
		case *failure.Error:
			mark.permanent = e.Permanent
			return e.Permanent
		}
		return false
	})
	return mark, found
}

func kindText(k kind.Kind) string {
	if k == "" {
		return string(kind.Unknown)
	}
	return string(k)
}

func trimKagzi(s string) string { return strings.TrimPrefix(s, "kagzi: ") }
