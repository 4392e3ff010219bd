package kagzi

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/kagzi/kagzi/internal/engine"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
)

// A Workflow is a contract: a name, an input and an output type. Declare it once, as a package variable that
// callers and workers import.
type Workflow[In, Out any] struct {
	name     string
	defaults []StartOption
}

// Define names a workflow. A name has at most 255 bytes, valid UTF-8 without control characters; it is the same in all
// programs, and stays with the runs: one that is renamed is another workflow. A bad name is reported by whatever uses the
// workflow.
//
// Defaults hold for every start that does not say otherwise; of one kind the last given wins, but each [Message] is sent.
// An [ID] makes it a workflow of which one run is active at a time. A wrong default is reported by [Start] and whatever else
// starts a run, not by [Handle].
func Define[In, Out any](name string, defaults ...StartOption) Workflow[In, Out] {
	return Workflow[In, Out]{name, defaults}
}

// Name returns the workflow's name.
func (w Workflow[In, Out]) Name() string { return w.name }

// With binds the workflow to an input, for [Client.StartMany]. It starts nothing.
func (w Workflow[In, Out]) With(in In, opts ...StartOption) Call {
	return Call{workflow: w.name, input: in, decodable: decodableAs(in), defaults: w.defaults, opts: opts}
}

// A Call is a workflow with its input and options, not started.
type Call struct {
	workflow  string
	input     any
	decodable decodable // of input
	defaults  []StartOption
	opts      []StartOption
	as        string // what a run starts it as; empty: it is no run's
}

// What a run may start.
const (
	asChild        = "child"
	asCompensation = "compensation"
)

// detached reports whether the call says so.
func (c Call) detached() bool {
	is := func(o StartOption) bool { _, ok := o.(detached); return ok }
	return slices.ContainsFunc(c.defaults, is) || slices.ContainsFunc(c.opts, is)
}

// config returns what the call's options say, with those shared by several calls. It refuses those that do not go with what
// the run is started as.
func (c Call) config(shared []StartOption) (startConfig, error) {
	cfg, err := startOptions(slices.Concat(c.defaults, shared, c.opts))
	if err == nil {
		err = validateWorkflow(c.workflow)
	}
	takesNo := func(option string, given bool, instead string) {
		if given && err == nil {
			err = fmt.Errorf("kagzi: a %s takes no %s: %s", c.as, option, instead)
		}
	}
	switch c.as {
	case "":
		if cfg.detached && err == nil {
			err = errors.New("kagzi: Detached is for children: this run has no parent to end before it")
		}
	case asChild:
		takesNo("InTx", cfg.tx != nil, "it starts with what its run records")
		takesNo("Message", len(cfg.messages) > 0, "send it with Client.Signal in a step, to its ID")
		policy := idPolicy(c.opts)
		takesNo(policy, policy != "", "an active run that has its ID is ErrIDConflict")
	case asCompensation:
		takesNo("InTx", cfg.tx != nil, "it starts once the run has ended badly")
		takesNo("Message", len(cfg.messages) > 0, "give it what it needs as its input")
		takesNo("ID", cfg.id != "", "another run might have it when the compensation is to run")
		takesNo("At", !cfg.at.IsZero(), "give it a Delay, which counts from when it is its turn")
		takesNo("Detached", cfg.detached, "its run waits for it")
	}
	return cfg, err
}

// Handle makes fn the worker's code for wf, in version 1 unless a [Version] says otherwise. A worker may have handlers
// for several versions of a workflow, which then are all at work: a run stays on the version that it began with. A run
// that names none begins with the highest, or with the [DefaultVersion].
//
// Mistakes (a nil fn, two for one version, two defaults, a bad name, a nil w) are returned by [Worker.Run]. Call it before Run.
func Handle[In, Out any](w *Worker, wf Workflow[In, Out], fn func(Context, In) (Out, error), opts ...HandleOption) {
	if w.made() != nil {
		return // as Run says
	}
	version, isDefault := Version(1), false
	var err error
	for _, o := range opts {
		switch o := o.(type) {
		case Version:
			version = o
		case defaultVersion:
			isDefault = true
		case allowAdditions:
			err = errors.Join(err, errors.New("kagzi: AllowAdditions is for a replay: leave it out"))
		case nil:
			err = errors.Join(err, errNilOption)
		}
	}
	err = errors.Join(validateWorkflow(wf.name), validateVersion(int(version)), err)
	if fn == nil {
		err = errors.Join(err, errors.New("kagzi: the function is nil"))
	}
	if err != nil {
		w.mistakes = append(w.mistakes, failure.Wrap(err, "handler of %q", wf.name))
		return
	}
	client := w.client
	w.handle(wf.name, int(version), isDefault, func(b *engine.Branch, input []byte) ([]byte, error) {
		var in In
		if err := client.decode(input, &in); err != nil {
			return nil, badInput(reflect.TypeFor[In](), err)
		}
		out, err := fn(&runContext{b, client}, in)
		if err != nil {
			return nil, err
		}
		result := what{"result of workflow", wf.name}
		data, err := client.encode(result, out)
		if err != nil {
			return nil, unstorable(err)
		}
		if err := decodableAs(out)(client, result, data); err != nil {
			return nil, failure.Permanent(kind.Validation, err)
		}
		return data, nil
	})
}

func badInput(want reflect.Type, err error) error {
	return failure.Quarantine(kind.BadInput, fmt.Errorf("the stored input does not decode into %v, the type that this program has for it: %w; "+
		"deploy code whose type decodes it, with the Codec and Sealer that the run was started with, and Resume the run, or Restart it with another kagzi.NewInput", want, err))
}
