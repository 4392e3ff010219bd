package request

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A Refusal is the error of [Ask] if the run has refused the request: see [Received.Refuse]. It is not worth another
// attempt, because the answer stays the same. It has the [kind.Details] that the run gave.
type Refusal struct {
	Request string    // the name of the [Request] with its key
	Kind    kind.Kind // errors.Is(err, kind.NotFound)
	Message string    // of the error that the run gave

	details error
}

// Error names the request, the refusal and its kind, in one line.
func (e *Refusal) Error() string {
	return fmt.Sprintf("kagzi: request %q was refused: %s (%s)", e.Request, text.OneLine(e.Message),
		text.OneLine(string(cmp.Or(e.Kind, kind.Unknown))))
}

// Unwrap gives e its kind and its [kind.Details].
func (e *Refusal) Unwrap() error {
	return failure.Recorded(cmp.Or(e.Kind, kind.Unknown), true, e.details)
}

// decode decodes the answer to the request into out, or returns the error that the asker gets in its place. wrong is
// called if that has details that do not decode into what the asker expects.
func decode(c *core.Client, a *store.Answer, name string, out any, wrong func(error)) error {
	switch a.State {
	case store.AnswerReplied:
		if err := c.Payloads.Decode(a.Output, out); err != nil {
			return fmt.Errorf("kagzi: the answer does not decode into %v: %w", reflect.TypeOf(out).Elem(), err)
		}
		return nil
	case store.AnswerRefused:
		return &Refusal{
			Request: name, Kind: kind.Kind(a.ErrorKind), Message: a.Error,
			details: c.Payloads.DetailsOf(a.Output, wrong),
		}
	case store.AnswerNotSent:
		err := errors.New(a.Error)
		if is := sentinels[a.Is]; is != nil {
			err = failure.Explain(a.Error, is)
		}
		return failure.Permanent(kind.Kind(a.ErrorKind), err)
	case store.AnswerNoRun:
		return core.ErrRunNotFound
	case store.AnswerExpired:
		return failure.Permanent(kind.Timeout, failure.Explain("the run has not read the request in time"))
	case store.AnswerSetAside:
		return failure.Of(kind.BadInput, failure.Explain("the run has set the request aside: "+a.Error+"; "+
			"admin.Messages.Redeliver gives it back to a run whose code takes it, and admin.Messages.Drop removes it"))
	}
	end := &kagzi.RunError{
		Run: kagzi.RunID(a.RunID.String()), Workflow: a.End.Type, Status: kagzi.Status(a.End.Status),
		Kind: kind.Kind(a.End.ErrorKind), Message: a.End.Error,
	}
	if end.Status == kagzi.StatusCompleted {
		return failure.Explain("the run has completed without an answer", kagzi.ErrRunFinished)
	}
	return failure.Explain("the run is over without an answer: "+end.Error(), kagzi.ErrRunFinished, end)
}
