// Package epochs ends the epochs of runs that continue: see package store, doc_continue.go.
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

// An End is what a workflow function gives its run to continue with. As an error it ends the function.
type End struct {
	core.Given
	Input any
	Next  store.Continuation // but for its Input
}

func (*End) Error() string {
	return "kagzi: the run continues with another input: return this error, as it is, from the " +
		"workflow function"
}

// EndsRun makes the engine refuse the error where a branch returns it.
func (*End) EndsRun() {}

// Of returns the error by which the function of b's workflow continues the run.
func Of(b *replay.Branch, end *End) error {
	if err := b.AskToContinue(); err != nil {
		return failure.Wrap(err, "continue")
	}
	if err := end.Wrong(); err != nil {
		return b.Misuse(failure.Wrap(err, "continue"))
	}
	return end
}

// Next lets b's run begin again, if its function has returned an End, and else returns err. In is the input of the
// workflow. An error that contains an End is a failure: a replay may have it from a record, and then it has no End.
func Next[In any](b *replay.Branch, c *payloads.Coder, workflow string, err error) (continues bool, failed error) {
	end, ok := err.(*End)
	if _, contains := errors.AsType[*End](err); contains && !ok {
		return false, failure.Permanent(kind.Validation, err)
	}
	if !ok {
		return false, err
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
