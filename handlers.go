package kagzi

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"

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
	if w.made() == nil { // else Run says so
		handle(w, wf.name, fn, opts, nil)
	}
}

// handleOptions validates opts, and refuses those that are not among takes.
func handleOptions(opts []HandleOption, takes ...string) (handleConfig, error) {
	cfg := handleConfig{given: given{takes: takes}}
	each(opts, &cfg.given, func(o HandleOption) { o.handle(&cfg) })
	return cfg, cfg.wrong()
}

// handle gives the worker the function of a workflow, or of a consumer. It reports whether the call was right.
func handle[In, Out any](w *Worker, name string, fn func(Context, In) (Out, error), opts []HandleOption,
	consumer *store.Consumer,
) bool {
	cfg, err := handleOptions(opts, "Version", "DefaultVersion")
	version := cmp.Or(cfg.version, 1)
	err = errors.Join(valid.Workflow(name), err)
	if fn == nil {
		err = errors.Join(err, errors.New("kagzi: the function is nil"))
	}
	if err != nil {
		w.mistakes = append(w.mistakes, failure.Wrap(err, "handler of %q", name))
		return false
	}
	client := w.client
	w.handle(name, version, cfg.isDefault, func(b *replay.Branch, input []byte) ([]byte, error) {
		var in In
		if consumer != nil {
			// its end would consume nothing, and the consumer would see the same events again
			if b.ExternalID() != store.RunOfConsumer(name) {
				return nil, failure.Permanent(kind.Validation, fmt.Errorf("kagzi: %s is a consumer, whose runs "+
					"nobody else starts: use Client.Trigger", text.Quote(name)))
			}
			b.Consume(name, consumer.Topics)
		}
		if first := consumer != nil && len(input) == 0; !first {
			if err := client.payloads.DecodeInput(input, &in); err != nil && consumer != nil {
				return nil, badState(reflect.TypeFor[In](), err)
			} else if err != nil {
				return nil, badInput(reflect.TypeFor[In](), err)
			}
		}
		out, err := fn(&runContext{b, client}, in)
		if err != nil {
			return nil, err
		}
		result := payloads.Subject{Kind: "result of workflow", Name: name}
		data, err := client.payloads.Encode(result, out)
		if err != nil {
			return nil, payloads.Unstorable(err)
		}
		if err := payloads.DecodableAs(out)(&client.payloads, result, data); err != nil {
			return nil, failure.Permanent(kind.Validation, err)
		}
		return data, nil
	})
	return true
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
		"run, or Restart it with another kagzi.NewInput", want, err))
}
