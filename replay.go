package kagzi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// A DivergenceError reports that code does not do again what the history of a run says it did.
type DivergenceError struct {
	Run      RunID
	Workflow string
	Version  int
	Step     string // where they part, with its branches; empty if only the end differs
	Message  string
}

// Error names the run, and how it went another way than its history, in one line.
func (e *DivergenceError) Error() string {
	return fmt.Sprintf("kagzi: run %s of workflow %q, version %d, diverges: %s", e.Run, e.Workflow, e.Version, e.Message)
}

// Replay executes the worker's code for a run that is over against the run's history, and returns nil if it comes to the
// same end: the same result, or an error of the same kind and text. Else it returns a *[DivergenceError] that says what
// differs first. Nothing is written, and no step function is called. The worker need not be running.
//
// Of a run that was ended from outside of its code, by a cancel, say, or by its Timeout, the history has no end:
// Replay says whether the code does again what is there. A step that is recorded and that the code does not come to any
// more is no divergence by itself. A step that is new is one, unless [AllowAdditions] is given.
//
// With a [Version] the handler of that version is taken, instead of that of the run's own.
//
// Replay returns [ErrRunNotFound], [ErrRunActive] if the run is not over, and another error if the worker has no handler
// for the version or if ctx ends before the code does. Code that waits for something other than its durable
// operations goes on then.
func (w *Worker) Replay(ctx context.Context, ref Ref, opts ...ReplayOption) error {
	ref = plain(ref)
	if err := w.made(); err != nil {
		return err
	}
	if err := errors.Join(w.mistakes...); err != nil {
		return err
	}
	cfg, err := replayOptions(opts)
	if err != nil {
		return err
	}
	id, err := w.client.resolve(ctx, nil, ref)
	if err != nil {
		return failure.Wrap(w.client.public(ctx, err), "replay %v", named(ref))
	}
	run, err := w.client.store.Run(ctx, id)
	if err != nil {
		return failure.Wrap(w.client.public(ctx, err), "replay %v", ref)
	}
	switch Status(run.Status) {
	case StatusCompleted, StatusFailed, StatusCancelled:
	default:
		return failure.Wrap(ErrRunActive, "replay %v", ref)
	}
	if run.StartedAt.IsZero() { // no code has seen it
		return nil
	}
	version := cmp.Or(cfg.version, run.Version)
	h := w.handlers[run.Type][version]
	if h == nil {
		return failure.Wrap(fmt.Errorf("kagzi: the worker has no handler for version %d of workflow %q: give it one with kagzi.Handle and kagzi.Version", version, run.Type), "replay %v", ref)
	}
	histories, err := w.client.store.History(ctx, []uuid.UUID{id})
	if err != nil {
		return failure.Wrap(err, "replay %v", ref)
	}
	return replay(ctx, w, run, histories[id], h, cfg.additions)
}

// AllowAdditions says of a replay that operations which the code has and the history has not are meant, such as steps, sleeps,
// waits, children and branches: to come to one is no divergence. What the code does after it, on the same branch, is not looked at.
func AllowAdditions() ReplayOption { return allowAdditions{} }

type allowAdditions struct{}

// replayConfig is what a replay's options say.
type replayConfig struct {
	version   int // zero: the run's
	additions bool
}

func replayOptions(opts []ReplayOption) (cfg replayConfig, err error) {
	for _, o := range opts {
		switch o := o.(type) {
		case allowAdditions:
			cfg.additions = true
		case Version:
			cfg.version = int(o)
			err = errors.Join(err, validateVersion(int(o)))
		case nil:
			err = errors.Join(err, errNilOption)
		}
	}
	return cfg, err
}

// replay is Replay for a run that was found, with its history and code.
func replay(ctx context.Context, w *Worker, run *store.Run, history []*store.StepRow, h handler, additions bool) error {
	// A session of its own that never begins: executions ask it for the codec and the time.
	s := newSession(w.session())
	s.clock.set(run.FinishedAt, time.Now(), time.Now())
	claimed := &store.ClaimedRun{
		RunID: run.RunID, Type: run.Type, Version: run.Version, ExternalID: run.ExternalID, Attempts: run.Attempts,
		DeadlineAt: run.DeadlineAt, ParentRunID: run.Parent, FireAt: run.FireAt, StartedAt: run.StartedAt, Input: run.Input,
	}
	if run.Status == store.Failed { // the last attempt counts
		claimed.Attempts--
	}
	e := newExecution(s, claimed, history, true)
	e.mode, e.verification = verify, &verification{over: make(chan struct{}), additions: additions}
	defer e.cancel(nil)
	go e.execute(h)
	select {
	case <-e.verification.over:
	case <-ctx.Done():
		e.stop(stopVerified, context.Cause(ctx))
		return failure.Wrap(fmt.Errorf("the code has not come to an end: %w", context.Cause(ctx)), "replay %s", e.runID)
	}
	want := endOf(run)
	want.output = w.client.shown(want.output) // sealed twice it may be other bytes
	step, message := e.diverged(want)
	if message == "" {
		return nil
	}
	return &DivergenceError{Run: e.runID, Workflow: run.Type, Version: run.Version, Step: step, Message: message}
}

// A verification is what Replay notes of an execution. The execution's mutex guards it.
type verification struct {
	over     chan struct{} // closed when the execution has ended
	beyond   []unrecorded
	conflict string // the step whose record the code contradicts

	additions bool // what the history does not have is meant
}

// An unrecorded is a branch that came to what the history does not have.
type unrecorded struct {
	b    *branch
	what lookedUp
}

func (v *verification) note(b *branch) {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	v.beyond = append(v.beyond, unrecorded{b, b.looked})
}

// contradicts ends the execution, whose code and history cannot both be right about a step.
func (e *execution) contradicts(err error, step any) {
	e.mu.Lock()
	if e.reason == underWay {
		e.verification.conflict, _ = step.(string)
	}
	e.mu.Unlock()
	e.fail(err)
}

func (s unrecorded) String() string {
	if s.what.found {
		return fmt.Sprintf("the code goes on with %s %q, and the history does not say how that ended", kindWord(s.what.kind), s.what.id)
	}
	return fmt.Sprintf("the code comes to %s %q, which the history does not have", kindWord(s.what.kind), s.what.id)
}

// A recordedEnd is how the code of a run ended.
type recordedEnd struct {
	status string
	kind   Kind
	text   string
	output []byte
	cut    bool // it was ended from outside: the history has no more than its beginning
}

// endOf returns how a run's code ended, whatever has become of its compensations.
func endOf(run *store.Run) recordedEnd {
	end := recordedEnd{status: run.Status, kind: Kind(run.ErrorKind), text: run.Error, output: run.Output}
	if o := run.Outcome; o != nil {
		end.status, end.kind, end.text = o.Status, Kind(o.Kind), o.Error
	}
	end.cut = end.status == store.Cancelled || run.Quarantined || end.kind == KindDeadline || end.kind == KindDatabase
	return end
}

// diverged says where the execution, which is over, has left its history; the message is empty if it has not.
func (e *execution) diverged(want recordedEnd) (step, message string) {
	err := e.outcome()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reason == stopFailed {
		if err = e.failure; KindOf(err) == KindNondeterminism {
			return e.verification.conflict, failure.Text(err)
		}
	}
	if want.cut { // where it stopped, the history did
		return "", ""
	}
	if e.reason != stopFailed {
		added := false
		for _, s := range e.verification.beyond {
			switch {
			case s.b.orphaned():
			case e.verification.additions && !s.what.found:
				added = true
			default:
				return s.what.id, s.String()
			}
		}
		if added { // what would follow from its result nobody knows
			return "", ""
		}
		if !e.returned {
			return "", fmt.Sprintf("the code waits for what never comes; the run %s", want)
		}
	}
	got := recordedEnd{status: store.Completed, output: e.s.cfg.client.shown(e.output)}
	if err != nil {
		got = recordedEnd{status: store.Failed, kind: KindOf(err), text: failure.Text(err)}
	}
	if got.same(want) {
		return "", ""
	}
	return "", fmt.Sprintf("the code now comes to another end: it %s; the run %s", got, want)
}

// orphaned reports whether a branch above has failed: that cancelled this one, wherever it was. The execution's mutex is
// held.
func (b *branch) orphaned() bool {
	for b = b.parent; b != nil; b = b.parent {
		if b.result.done.fired > 0 && b.result.err != nil {
			return true
		}
	}
	return false
}

func (r recordedEnd) same(other recordedEnd) bool {
	return r.status == other.status && r.kind == other.kind && withoutStack(r.text) == withoutStack(other.text) && bytes.Equal(r.output, other.output)
}

func (r recordedEnd) String() string {
	if r.status == store.Completed {
		return fmt.Sprintf("completed with %s", shortened(r.output))
	}
	return fmt.Sprintf("failed (%s): %s", kindText(r.kind), shortened([]byte(text.OneLine(r.text))))
}

// withoutStack leaves out what follows a panic's text: where in memory it happened.
func withoutStack(text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	return text
}

// shortened is data for a message.
func shortened(data []byte) string {
	const most = 200
	text := text.Sanitize(string(data), text.MaxError)
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return text
}
