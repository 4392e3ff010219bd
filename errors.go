package kagzi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
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
	//   - a step to [Forget] has not failed;
	//   - there is no such consumer with that topic, or the topic has no such event;
	//   - the run has no such message.
	ErrNotFound = errors.New("kagzi: not found")
	// ErrRunFinished reports that the run is over, so it accepts no signal and no change.
	ErrRunFinished = errors.New("kagzi: run is over")
	// ErrRunActive reports that the run is not over, so it cannot be resumed, restarted, forked or deleted.
	ErrRunActive = errors.New("kagzi: run is not over")
	// ErrNotWaiting reports that a [Client.Update] cannot change a run: a worker executes it, its new queue is full, or
	// the run waits for something else than the time that was to be changed. The text says which, and what to do.
	ErrNotWaiting = errors.New("kagzi: run does not wait for that")
	// ErrRunNeeded reports that a [Client.Delete] refuses a run, because its parent or its [Consumer] needs it.
	ErrRunNeeded = errors.New("kagzi: run is needed by another")
	// ErrCompensated reports that at least one of the run's compensations has run, so the run cannot continue from its
	// steps.
	ErrCompensated = errors.New("kagzi: run was compensated: Restart it, or Resume it if a compensation failed")
	// ErrIDTaken reports that an [IfActive] or [IfEnded] refuses a start because of another run with its ID. The error
	// names that run, and Get finds it by the ID. If that run has another workflow or another input, the error is
	// ErrIDConflict as well.
	ErrIDTaken = errors.New("kagzi: ID taken by another run")
	// ErrIDConflict reports that an active run with the ID has another workflow or another input.
	ErrIDConflict = errors.New("kagzi: ID in use with another workflow or input")
	// ErrKeyFull reports that a [WhenFull] refuses a start because its key has no free slot. Nothing was started. Its
	// kind is [kind.RateLimited], so a step that starts the run is repeated according to its [RetryPolicy].
	ErrKeyFull = errors.New("kagzi: key is full")
	// ErrInboxFull reports that a run has 10,000 messages that it has not read, and takes no more. Its kind is
	// [kind.RateLimited], so a step that sends the message is repeated according to its [RetryPolicy].
	ErrInboxFull = errors.New("kagzi: the run has too many unread messages")
	// ErrPayloadTooLarge reports an input, a payload of a signal or an event, or an item of [Map] over
	// ClientConfig.MaxPayload. A result that is too large fails its step or run instead, with [kind.Validation].
	ErrPayloadTooLarge = payloads.ErrTooLarge
)

var errInboxFull = failure.Explain(fmt.Sprintf("the run has %d messages that it has not read, and takes no more "+
	"before it reads some: Client.Messages lists them; if a name is misspelt, send under the right one, and "+
	"Client.DropMessage removes the others", store.MostUnread), ErrInboxFull)

// Each is an ErrNotFound whose text names the thing that was not found.
var (
	errRunNotFound  = failure.Explain("run not found", ErrNotFound)
	errStepNotFound = failure.Explain("the run has no such step: Client.Steps lists those it has reached",
		ErrNotFound)
	errScheduleNotFound = failure.Explain("schedule not found", ErrNotFound)
	errLimitNotFound    = failure.Explain("limit not found", ErrNotFound)
	errWorkerNotFound   = failure.Explain("worker not found", ErrNotFound)
	errConsumerNotFound = failure.Explain("consumer not found: a worker with its function stores it", ErrNotFound)
	errMessageNotFound  = failure.Explain("the run has no message with that ID: Client.Messages lists those "+
		"that it has", ErrNotFound)
	errEventNotFound = failure.Explain("event not found: the topic has none with that ID, or none any more",
		ErrNotFound)
)

// A StepError reports that a step failed in every attempt that its policy allowed. It is the same in a replay: kind and
// text survive, other errors in the chain do not.
type StepError struct {
	Step     string
	Attempts int       // in the last series: an attempt of the run that tries the step again begins a new series
	Kind     kind.Kind // errors.Is(err, kind.Timeout)
	Message  string    // of the last attempt; after a panic with its stack, in several lines

	// permanent says that the error of the last attempt was marked Permanent, so another attempt of the run would not
	// help.
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

	step string // the step that started it, in the run that asks for its result
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

func kindText(k kind.Kind) string {
	if k == "" {
		return string(kind.Unknown)
	}
	return string(k)
}

// public turns the store's errors into the package's.
func public(err error) error {
	if conflict, ok := errors.AsType[*store.IDConflict](err); ok {
		return failure.Explain(conflict.Error(), ErrIDConflict)
	}
	if taken, ok := errors.AsType[*store.IDTaken](err); ok {
		return publicTaken(taken)
	}
	if full, ok := errors.AsType[*store.KeyFull](err); ok {
		return failure.Explain(full.Error(), ErrKeyFull)
	}
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		return failure.Explain(held.Error(), held)
	}
	if pg.Locked(err) {
		return failure.Explain("another transaction has locked rows that this call changes, perhaps one given with "+
			"InTx that is neither committed nor rolled back: nothing was changed; try again", err)
	}
	for _, p := range []struct{ from, to error }{
		{store.ErrInboxFull, errInboxFull},
		{store.ErrRunNotFound, errRunNotFound},
		{store.ErrRunFinished, ErrRunFinished},
		{store.ErrIDConflict, ErrIDConflict},
		{store.ErrRunActive, ErrRunActive},
		{store.ErrNoConsumer, errConsumerNotFound},
		{store.ErrNoEvent, errEventNotFound},
		{store.ErrStepNotFound, errStepNotFound},
		{store.ErrCompensated, ErrCompensated},
		{store.ErrScheduleNotFound, errScheduleNotFound},
		{store.ErrWorkerNotFound, errWorkerNotFound},
	} {
		if errors.Is(err, p.from) {
			return p.to
		}
	}
	return explainServer(err)
}

// publicTaken returns the refusal of an IfActive or IfEnded as callers see it.
func publicTaken(taken *store.IDTaken) error {
	errs := []error{ErrIDTaken}
	if taken.Differs != "" {
		errs = append(errs, ErrIDConflict)
	}
	return failure.Explain(taken.Error(), errs...)
}

// explainServer adds advice to some errors of the server and of transactions. It returns others unchanged.
func explainServer(err error) error {
	pe, _ := errors.AsType[*pgconn.PgError](err)
	switch advice := store.Advice(err); {
	case advice != "" && !strings.HasSuffix(err.Error(), advice):
		return fmt.Errorf("%w: %s", err, advice)
	case errors.Is(err, pgx.ErrTxClosed):
		return failure.Of(kind.BadRequest, failure.Explain("the transaction given with InTx has ended: begin "+
			"another", err))
	case pe == nil:
		return err
	case pe.Code == "25006":
		return failure.Explain("the server takes no writes: it is a standby or read-only, or the transaction given "+
			"with InTx is: connect to the primary "+
			"(target_session_attrs=read-write), and begin the transaction READ WRITE", err)
	case (pe.Code == "3F000" || pe.Code == "42P01") && strings.Contains(pe.Message, "kagzi"):
		// no such schema, no such table
		return failure.Of(kind.Unavailable, failure.Explain("schema missing: call kagzi.Migrate, or give InTx a "+
			"transaction of the client's database", err))
	}
	return err
}
