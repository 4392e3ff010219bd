package kagzi

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/epochs"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// Handle makes fn the worker's code for wf, as version 1 unless a [Version] says otherwise. A worker may have handlers
// for several versions of a workflow and uses them all: a run stays on the version that it began with. A run that names
// no version begins with the highest one, or with the [DefaultVersion].
//
// Call Handle before [Worker.Run], which returns mistakes: a nil fn, two handlers for one version, two defaults, a bad
// name, a nil w. A Handle that comes while the worker runs has no effect: it is logged at level Error, and Run does not
// return it.
func Handle[In, Out any](w *Worker, wf Workflow[In, Out], fn func(Context, In) (Out, error), opts ...HandleOption) {
	if w.made() != nil {
		return // as Run says
	}
	name := wf.name
	cfg, err := handleOptions(opts, "Version", "DefaultVersion")
	version := cmp.Or(cfg.Version, 1)
	err = errors.Join(valid.Workflow(name), err)
	if fn == nil {
		err = errors.Join(err, errors.New("kagzi: the function is nil"))
	}
	var consumer *store.Consumer
	if cfg.Consumer != nil {
		var refused error
		if consumer, refused = cfg.Consumer(w.queueNames()); refused != nil {
			w.mistakes = append(w.mistakes, failure.Wrap(refused, "consumer %q", name))
			return
		}
	}
	if err != nil {
		w.mistakes = append(w.mistakes, failure.Wrap(err, "handler of %q", name))
		return
	}
	client := w.client
	w.handle(name, version, cfg.IsDefault, func(b *replay.Branch, input []byte) ([]byte, error) {
		in, err := decodeInput[In](client, b, input, consumer)
		if err != nil {
			return nil, err
		}
		out, err := fn(&runContext{b, client}, in)
		if continues, err := epochs.Next[In](b, &client.core.Payloads, name, err); continues || err != nil {
			return nil, err
		}
		result := payloads.Subject{Kind: "result of workflow", Name: name}
		data, err := client.core.Payloads.Encode(result, out)
		if err != nil {
			return nil, payloads.Unstorable(err)
		}
		if err := payloads.DecodableAs(out)(&client.core.Payloads, result, data); err != nil {
			return nil, failure.Permanent(kind.Validation, err)
		}
		return data, nil
	})
	known := func(o *store.Consumer) bool { return o.Name == name }
	if consumer != nil && !slices.ContainsFunc(w.consumers, known) {
		w.consumers = append(w.consumers, consumer)
	}
}

// HandleDo is [Handle] for a workflow without a result.
func HandleDo[In any](w *Worker, wf Workflow[In, struct{}], fn func(Context, In) error, opts ...HandleOption) {
	var whole func(Context, In) (struct{}, error)
	if fn != nil {
		whole = func(ctx Context, in In) (struct{}, error) { return struct{}{}, fn(ctx, in) }
	}
	Handle(w, wf, whole, opts...)
}

// decodeInput decodes the input of a run: that of a consumer's is its state, which its first run does not have.
func decodeInput[In any](c *Client, b *replay.Branch, input []byte, consumer *store.Consumer) (in In, err error) {
	if consumer == nil {
		if err := c.core.Payloads.DecodeInput(input, &in); err != nil {
			return in, badInput(reflect.TypeFor[In](), err)
		}
		return in, nil
	}
	// its end would consume nothing, and the consumer would see the same events again
	if b.ExternalID() != store.RunOfConsumer(consumer.Name) {
		return in, failure.Permanent(kind.Validation, fmt.Errorf("kagzi: %s is a consumer, whose runs no other call "+
			"starts: use Trigger of package topic", text.Quote(consumer.Name)))
	}
	b.Consume(consumer.Name, consumer.Topics)
	if len(input) == 0 {
		return in, nil
	}
	if err := c.core.Payloads.DecodeInput(input, &in); err != nil {
		return in, badState(reflect.TypeFor[In](), err)
	}
	return in, nil
}

// handleOptions validates opts, and refuses those that are not among takes.
func handleOptions(opts []HandleOption, takes ...string) (core.HandleConfig, error) {
	cfg := core.HandleConfig{Given: core.Given{Takes: takes}}
	core.Each(opts, &cfg.Given, func(o HandleOption) { o.Handle(&cfg) })
	return cfg, cfg.Wrong()
}

func (w *Worker) handle(workflow string, version int, isDefault bool, h replay.Handler) {
	if w.running.Load() {
		w.client.cfg.Logger.Error("kagzi: Handle has no effect on a worker that runs: call it before Run",
			"workflow", workflow)
		if h := w.hooks.Load(); h != nil && h.Late != nil {
			h.Late(workflow)
		}
		return
	}
	if w.handlers[workflow] == nil {
		w.handlers[workflow] = map[int]replay.Handler{}
	}
	if w.handlers[workflow][version] != nil {
		w.mistakes = append(w.mistakes, fmt.Errorf("kagzi: two handlers for version %d of workflow %q: give one of "+
			"them another kagzi.Version", version, workflow))
		return
	}
	w.handlers[workflow][version] = h
	if !isDefault {
		return
	}
	if other, ok := w.defaults[workflow]; ok {
		w.mistakes = append(w.mistakes, fmt.Errorf("kagzi: versions %d and %d of workflow %q are both "+
			"kagzi.DefaultVersion: choose one", other, version, workflow))
		return
	}
	w.defaults[workflow] = version
}

func badInput(want reflect.Type, err error) error {
	return failure.Quarantine(kind.BadInput, fmt.Errorf("the stored input does not decode into %v, the type that "+
		"this program has for it: %w; "+
		"deploy code whose type decodes it, with the Codec and Sealer that the run was started with, and Resume the "+
		"run, or Restart it with another admin.NewInput", want, err))
}

// badState is badInput for a run of a consumer.
func badState(want reflect.Type, err error) error {
	return failure.Quarantine(kind.BadInput, fmt.Errorf("the consumer's state does not decode into %v, the type that "+
		"its function has in this program: %w; "+
		"deploy code whose type decodes it, and unpause the consumer's group (admin.Pauses.End)", want, err))
}
