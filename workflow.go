package kagzi

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/epochs"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// A Workflow is a contract: a name, an input and an output type. Declare it once, as a package variable that
// callers and workers import.
type Workflow[In, Out any] struct {
	name     string
	defaults []StartOption
}

// Define names a workflow. A name has at most 255 bytes, and is valid UTF-8 without control characters. It identifies
// the workflow in all programs and in stored runs: a workflow that is renamed is another one. Functions that use the
// workflow return an error for a bad name.
//
// Defaults apply to every start that does not override them. Of each type of option the last one given wins, but every
// [Message] is sent. With an [ID] among the defaults, one run of the workflow is active at a time. [Start] and other
// functions that start a run return an error for a wrong default; [Handle] does not check them.
func Define[In, Out any](name string, defaults ...StartOption) Workflow[In, Out] {
	return Workflow[In, Out]{name, defaults}
}

// DefineDo is [Define] for a workflow without a result.
func DefineDo[In any](name string, defaults ...StartOption) Workflow[In, struct{}] {
	return Define[In, struct{}](name, defaults...)
}

// Name returns the workflow's name.
func (w Workflow[In, Out]) Name() string { return w.name }

// With binds the workflow to an input, for [Client.StartMany]. It starts nothing.
func (w Workflow[In, Out]) With(in In, opts ...StartOption) Call {
	return Call{workflow: w.name, input: in, decodable: payloads.DecodableAs(in), defaults: w.defaults, opts: opts}
}

// Continue lets the run begin again, as the same run, with next as its input and without its history: return Continue's
// error, as it is, from the workflow function. So a run may live for years. See docs/continue.md.
//
// Its ID, key, metadata, values, unread messages, deadline, children and those who wait for it stay. A request that was
// read and not answered is read again.
//
// The attempts of the run are counted anew. Without a [Version], it takes the version that a new run would take. A
// [Timeout] gives it another deadline, counted from now.
//
// next has the type of the workflow's input, and ctx is the function's, not a branch's. A run that has registered a
// compensation fails instead.
func Continue(ctx Context, next any, opts ...ContinueOption) error {
	b, _, err := branchOf(ctx)
	if err != nil {
		return err
	}
	end := &epochs.End{Input: next}
	core.Each(opts, &end.Given, func(o ContinueOption) { o.next(end) })
	return epochs.Of(b, end)
}

// A Call is a workflow with its input and options, not started.
type Call struct {
	workflow  string
	input     any
	decodable payloads.Decodable // of input
	defaults  []StartOption
	opts      []StartOption
	inherited Headers         // of the run that starts it
	metadata  func() Metadata // of that run, for InheritMetadata
	as        string          // its role; empty: it is for a Start
	item      bool            // input is an item of a batch: see Item
}

// Core is for package request: a [Call] is a reference for its questions alone, to the run that has its ID.
func (c Call) Core() core.Ref {
	cfg, _ := c.config(nil) // a start with the call returns the error
	return core.Ref{Text: cfg.run.ExternalID, Given: true, ByID: true}
}

// config returns the configuration that the call's options give, with options shared by several calls. It refuses
// options that do not fit the role in which the run is started.
func (c Call) config(shared []StartOption) (startConfig, error) {
	cfg := startConfig{headers: c.inherited}
	set := func(o StartOption) { o.start(&cfg) }
	core.Each(c.defaults, &cfg.Given, set)
	cfg.ofCall = true
	core.Each(shared, &cfg.Given, set)
	core.Each(c.opts, &cfg.Given, set)
	if cfg.inherits && c.metadata != nil {
		cfg.metadata = Headers(cfg.metadata).over(Headers(c.metadata()))
		cfg.Check(valid.Metadata(cfg.metadata))
	}
	if err := cmp.Or(cfg.validate(), valid.Workflow(c.workflow), c.refuse(&cfg)); err != nil {
		return cfg, err
	}
	var err error
	if cfg.run.Window, err = c.window(&cfg); err != nil {
		return cfg, err
	}
	if c.as != "" || cfg.run.Key.Name == "" {
		cfg.run.WhenFull = "" // it is a default of Define, or start refuses it
	}
	return cfg, cfg.fullNow()
}

// refuse refuses the options that do not fit the role of the call.
func (c Call) refuse(cfg *startConfig) error {
	role := cmp.Or(c.as, "a start")
	for _, r := range misfits {
		if r.role == role {
			if option := r.option(cfg); option != "" {
				return fmt.Errorf("kagzi: %s takes no %s: %s", role, option, r.instead)
			}
		}
	}
	return nil
}

// window returns the window that a start of the call shares with others, nil if there is none.
func (c Call) window(cfg *startConfig) (*store.Window, error) {
	switch {
	case c.item && c.as != "":
		return nil, fmt.Errorf("kagzi: %s is no Item: start it with the whole input, with Workflow.With", c.as)
	case c.as != "":
		return nil, nil
	case c.item:
		return cfg.itemWindow()
	case cfg.called.batch:
		return nil, errors.New("kagzi: Batch collects single items: start them with StartItem, or with ItemOf in " +
			"StartMany")
	case cfg.debounce == nil:
		return cfg.onceWindow()
	case cfg.oncePer != 0:
		return nil, errors.New("kagzi: a start takes either Debounce or OncePer: leave one out")
	}
	return cfg.debounce, cfg.shares("Debounce", "it has a Key")
}

func (cfg *startConfig) itemWindow() (*store.Window, error) {
	switch {
	case cfg.batch == nil:
		return nil, errors.New("kagzi: an item needs a kagzi.Batch, which says when a batch is full: give one, or " +
			"make it a default of Define")
	case cfg.debounce != nil || cfg.oncePer != 0:
		return nil, errors.New("kagzi: an item takes no Debounce and no OncePer: its Batch says when the run is due")
	}
	return cfg.batch, cfg.shares("an item", "put it into the item")
}

func (cfg *startConfig) onceWindow() (*store.Window, error) {
	switch id := cfg.run.ExternalID; {
	case cfg.oncePer == 0, id == "" && !cfg.called.oncePer:
		return nil, nil
	case id == "":
		return nil, errors.New("kagzi: OncePer without an ID: give a kagzi.ID, of which one run is started in " +
			"each period")
	case cfg.run.IfEnded != "":
		return nil, fmt.Errorf("kagzi: OncePer takes no IfEnded %q: until the period is over its run is returned, "+
			"however it ended", cfg.run.IfEnded)
	case len(cfg.messages) > 0:
		return nil, errors.New("kagzi: OncePer takes no Message: send it with Client.Signal to the run that Start " +
			"returns")
	}
	return &store.Window{Policy: store.OncePer, Key: cfg.run.ExternalID, Open: cfg.oncePer}, nil
}

// shares refuses the options that do not fit a run that waits for several starts. instead says what to give for an ID.
func (cfg *startConfig) shares(what, instead string) error {
	for _, o := range []struct {
		name, instead string
		given         bool
	}{
		{"ID", instead, cfg.run.ExternalID != ""},
		{"Delay", "the run is due when no more starts are to join it", cfg.run.Delay != 0},
		{"At", "the run is due when no more starts are to join it", !cfg.run.At.IsZero()},
		{"Message", "send it with Client.Signal to the run that Start returns", len(cfg.messages) > 0},
	} {
		if o.given {
			return fmt.Errorf("kagzi: %s takes no %s (it may be a default of Define): %s", what, o.name, o.instead)
		}
	}
	return nil
}

// validate returns the errors of the options, each and together.
func (cfg *startConfig) validate() error {
	if cfg.keyed && cfg.run.Key.Group {
		cfg.Check(errKeyAndGroup)
	}
	at, timeout := cfg.run.At, cfg.run.Timeout
	if end := at.Add(timeout).UTC(); valid.Time("At", at) == nil && end.Year() > 9999 {
		cfg.Check(fmt.Errorf("kagzi: At %s and timeout %v together end in the year %d: the last is 9999",
			at.Format(time.RFC3339), timeout, end.Year()))
	}
	return cmp.Or(cfg.Wrong(), Headers(cfg.headers).validate())
}
