// Package epochs ends the functions of runs that continue, or that are rolled back: see package store,
// doc_continue.go and doc_compensations.go.
package epochs

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// An End says what follows the workflow function that returns it as its error: the run continues, or it is rolled back.
type End struct {
	core.Given
	Input any
	Next  store.Continuation // but for its Input

	rollsBack bool
}

func (e *End) Error() string {
	what := "continues with another input"
	if e.rollsBack {
		what = "is rolled back, and completes"
	}
	return "kagzi: the run " + what + ": return this error, as it is, from the workflow function"
}

// EndsRun makes the engine refuse the error where a branch returns it.
func (*End) EndsRun() {}

// Of returns the error by which the function of b's workflow continues the run.
func Of(b *replay.Branch, end *End) error {
	if err := b.AskToEnd("Continue"); err != nil {
		return failure.Wrap(err, "continue")
	}
	if err := end.Wrong(); err != nil {
		return b.Misuse(failure.Wrap(err, "continue"))
	}
	return end
}

// Rollback returns the error by which the function of b's workflow lets the compensations of the run begin, before it
// completes.
func Rollback(b *replay.Branch) error {
	if err := b.AskToEnd("Rollback"); err != nil {
		return failure.Wrap(err, "rollback")
	}
	return &End{rollsBack: true}
}

// Next does what the End says that b's function has returned, and else returns err. The function's result counts unless
// the run continues. In is the input of the workflow. An error that contains an End is a failure: a replay may have it
// from a record, and then it has no End.
func Next[In any](b *replay.Branch, c *payloads.Coder, workflow string, err error) (continues bool, failed error) {
	end, ok := err.(*End)
	if _, contains := errors.AsType[*End](err); contains && !ok {
		return false, failure.Permanent(kind.Validation, err)
	}
	if !ok {
		return false, err
	}
	if end.rollsBack {
		return false, replay.RollBack(b)
	}
	in, ok := end.Input.(In)
	if isNil := end.Input == nil && reflect.TypeFor[In]().Kind() == reflect.Interface; !ok && !isNil {
		return false, failure.Permanent(kind.Validation, fmt.Errorf("kagzi: continue: the input of workflow %q is %v, "+
			"and Continue was called with a %T", workflow, reflect.TypeFor[In](), end.Input))
	}
	next, what := end.Next, payloads.Subject{Kind: "next input of workflow", Name: workflow}
	if next.Input, err = c.Encode(what, in); err != nil {
		return false, payloads.Unstorable(err)
	}
	if err := payloads.DecodableAs(in)(c, what, next.Input); err != nil {
		return false, failure.Permanent(kind.Validation, err)
	}
	return true, b.Continue(&next)
}
