package replay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A Divergence says where code and history differ.
type Divergence struct {
	Step    string // empty if only the end differs
	Message string
}

// Verify executes h, in the language of an environment, against the history of a run that is over, and returns nil if h
// ends in the same way. It writes nothing. additions allows operations that are not in the history. See
// doc_replay.go.
func Verify(ctx context.Context, of *Env, run *store.Run, history []*store.StepRow, h Handler,
	additions bool,
) (*Divergence, error) {
	idle := standing.New(nil, slog.New(slog.DiscardHandler), func() {}, func() {})
	idle.Clock.Set(run.FinishedAt, time.Now(), time.Now())
	env := of.verifying(idle)
	claimed := &store.ClaimedRun{
		Spec: run.Spec, RunID: run.RunID, ExternalID: run.ExternalID, Attempts: run.Attempts,
		DeadlineAt: run.DeadlineAt, ParentRunID: run.Parent, FireAt: run.FireAt, StartedAt: run.EpochStart(),
		Input: run.Input, Epoch: run.Epoch,
	}
	claimed.Metadata = run.FirstMetadata
	if run.Status == store.Failed { // Attempts counts the failed attempt, too
		claimed.Attempts--
	}
	v := &verification{over: make(chan struct{}), additions: additions}
	e := &Run{}
	env.Prepare(e, v, claimed, true)
	defer e.stopContext(nil)
	e.Lock()
	e.remember(history)
	e.beginLocked(h)
	e.Unlock()
	select {
	case <-v.over:
	case <-ctx.Done():
		e.stop(stopVerified, context.Cause(ctx))
		return nil, fmt.Errorf("the code has not come to an end: %w", context.Cause(ctx))
	}
	want := endOf(run)
	want.output = env.shown(want.output) // sealing the same output twice may give other bytes
	if step, message := v.diverged(e, want); message != "" {
		return &Divergence{step, message}, nil
	}
	return nil, nil
}

// A verification hosts an execution that writes nothing.
type verification struct {
	over      chan struct{} // closed by Ended
	additions bool          // operations that are not in the history are intended
}

// A verification is no worker: nothing is written, and no run lingers.
func (v *verification) Enqueued()                    {}
func (v *verification) Released()                    {}
func (v *verification) Ended(bool)                   { close(v.over) }
func (v *verification) Abandoned()                   {}
func (v *verification) MayLinger(time.Duration) bool { return false }
func (v *verification) HasNews()                     {}
func (v *verification) Stepped(int)                  {}

// A recordedEnd is the end of a run's code.
type recordedEnd struct {
	status      string
	kind        kind.Kind
	text        string
	output      []byte
	fromOutside bool // the run was ended from outside, so the history may stop anywhere
	rollsBack   bool // its compensations have run, or are to run, before it completes
	unknown     bool // its output is not known: an outcome keeps it
}

// endOf returns how a run's code ended, without regard to its compensations.
func endOf(run *store.Run) recordedEnd {
	end := recordedEnd{status: run.Status, kind: kind.Kind(run.ErrorKind), text: run.Error, output: run.Output}
	if o := run.Outcome; o != nil {
		end.status, end.kind, end.text = o.Status, kind.Kind(o.Kind), o.Error
		end.rollsBack = o.Status == store.Completed
		end.unknown = end.rollsBack && run.Status != store.Completed
	}
	end.fromOutside = end.status == store.Cancelled || run.Quarantined || end.kind == kind.Deadline ||
		end.kind == kind.Database
	return end
}

// diverged returns where the stopped execution differs from its history. The message is empty if it does not.
func (v *verification) diverged(e *Run, want recordedEnd) (step, message string) {
	err := outcomeOf(e)
	e.Lock()
	defer e.Unlock()
	reason, cause := e.whyLocked()
	output, returned := e.resultLocked()
	if reason == stopFailed {
		if err = cause; e.errors().Classify(err).Kind == kind.Nondeterminism {
			if c, ok := errors.AsType[*contradiction](err); ok {
				step = c.where()
			}
			return step, failure.Text(err)
		}
	}
	if want.fromOutside { // the history has no end to compare with
		return "", ""
	}
	if reason != stopFailed {
		step, message, added := e.beyondLocked(v.additions)
		if message != "" {
			return step, message
		}
		if added { // the added operation has no result, so the end cannot be compared
			return "", ""
		}
		if !returned {
			return "", fmt.Sprintf("the code waits for what never comes; the run %s", want)
		}
	}
	if err == nil && e.nextLocked() != nil {
		return "", fmt.Sprintf("the code now continues the run with another input; the run %s", want)
	}
	got := recordedEnd{
		status: store.Completed, output: e.shown(output), rollsBack: e.rollsBackLocked() && e.hasRegistered(),
	}
	if err != nil {
		class := e.errors().Classify(err)
		got = recordedEnd{
			status: store.Failed, kind: class.Kind, text: class.Text(err), output: e.shown(class.Details),
		}
	}
	if got.same(want) {
		return "", ""
	}
	return "", fmt.Sprintf("the code now comes to another end: it %s; the run %s", got, want)
}

func (r recordedEnd) same(other recordedEnd) bool {
	same := r.status == other.status && r.kind == other.kind && withoutStack(r.text) == withoutStack(other.text) &&
		r.rollsBack == other.rollsBack
	lost := r.text != failure.WithoutNote(r.text) || other.text != failure.WithoutNote(other.text)
	return same && (lost || other.unknown || bytes.Equal(r.output, other.output))
}

func (r recordedEnd) String() string {
	switch {
	case r.rollsBack:
		return fmt.Sprintf("rolled back, and completed with %s", shortened(r.output))
	case r.status == store.Completed:
		return fmt.Sprintf("completed with %s", shortened(r.output))
	}
	end := fmt.Sprintf("failed (%s): %s", cmp.Or(r.kind, kind.Unknown), shortened([]byte(text.OneLine(r.text))))
	if r.output != nil {
		end += fmt.Sprintf(", with the details %s", shortened(r.output))
	}
	return end
}

// withoutStack cuts off the stack after a panic's text, which contains addresses, and what is said of lost details.
func withoutStack(text string) string {
	text, _, _ = strings.Cut(failure.WithoutNote(text), "\n\n")
	return text
}

// shortened returns data, cut for a message.
func shortened(data []byte) string {
	const most = 200
	text := text.Sanitize(string(data), text.MaxError)
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return text
}
