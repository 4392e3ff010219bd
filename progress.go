package kagzi

import (
	"context"
	"errors"
	"fmt"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
)

// maxProgress is how many bytes of a text are kept.
const maxProgress = 1 << 10

// An AnyContext is the [Context] of a workflow function, or the ctx of a step's function, or a context made from that.
type AnyContext interface {
	Done() <-chan struct{}
	Err() error
}

// SetProgress says how far the run is, for people: "42 of 100 pages", and perhaps a fraction from 0 to 1. [RunInfo]
// shows it, also after the run's end. An empty text without a fraction removes it.
//
// Call it in a workflow function or in a step's function, from any goroutine, as often as you like: it waits for
// nothing. The progress is stored within a second. It is not part of the run's history: see docs/workflows.md.
//
// Control characters are replaced, and a text over 1 KiB is truncated. SetProgress returns an error of
// [kind.BadRequest] for a wrong fraction, or if ctx belongs to no run. The run does not fail for it unless the caller
// returns the error.
func SetProgress(ctx AnyContext, text string, fraction ...float64) error {
	p, err := newProgress(text, fraction)
	if err != nil {
		return failure.BadRequest(failure.Wrap(err, "set progress"))
	}
	switch ctx := ctx.(type) {
	case *runContext:
		if ctx == nil {
			return core.ErrNilContext
		}
		ctx.b.SetProgress(p.Text, p.Fraction)
		return nil
	case context.Context:
		if scope := scopeOf(ctx); scope != nil {
			if scope.Err() == nil {
				scope.step.By.SetProgress(p.Text, p.Fraction)
			}
			return nil
		}
	}
	return errNoProgress
}

var errNoProgress = failure.BadRequest(errors.New("kagzi: set progress: ctx belongs to no run: give the Context of a " +
	"workflow function, or the ctx of a step's function"))

func newProgress(said string, fraction []float64) (p Progress, err error) {
	p.Text = text.Sanitize(said, maxProgress)
	switch {
	case len(fraction) > 1:
		return p, fmt.Errorf("kagzi: there are %d fractions: give one, or none", len(fraction))
	case len(fraction) == 1 && !(fraction[0] >= 0 && fraction[0] <= 1): // NaN, too
		return p, fmt.Errorf("kagzi: the fraction is %v: give 0 (nothing is done) to 1 (all is done)", fraction[0])
	case len(fraction) == 1:
		p.Fraction = &fraction[0]
	}
	return p, nil
}
