package kagzi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/store"
)

// A Workflow is a contract: a name, an input and an output type. Declare it once, as a package variable that
// callers and workers import.
type Workflow[In, Out any] struct {
	name     string
	defaults []StartOption
}

// Define names a workflow. A name has at most 255 bytes, and is valid UTF-8 without control characters. It identifies the
// workflow in all programs and in stored runs: a workflow that is renamed is another one. Functions that use the workflow return
// an error for a bad name.
//
// Defaults apply to every start that does not override them. Of each type of option the last one given wins, but every [Message]
// is sent. With an [ID] among the defaults, one run of the workflow is active at a time. [Start] and other functions that start
// a run return an error for a wrong default; [Handle] does not check them.
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
	inherited Headers  // of the run that starts it
	metadata  Metadata // of that run, for InheritMetadata
	as        string   // asChild or asCompensation if a run starts it; empty: no run does
	item      bool     // input is an item of a batch: see Item
}

// The roles in which a run starts a call.
const (
	asChild        = "child"
	asCompensation = "compensation"
)

// detached reports whether the call has the option Detached.
func (c Call) detached() bool {
	is := func(o StartOption) bool { _, ok := o.(detached); return ok }
	return slices.ContainsFunc(c.defaults, is) || slices.ContainsFunc(c.opts, is)
}

// config returns the configuration that the call's options give, with options shared by several calls. It refuses options that
// do not fit the role in which the run is started.
func (c Call) config(shared []StartOption) (startConfig, error) {
	cfg, err := startOptions(slices.Concat(c.defaults, shared, c.opts))
	cfg.headers = cfg.headers.over(c.inherited)
	err = cmp.Or(err, cfg.headers.validate())
	if cfg.inherits && err == nil {
		cfg.metadata = Metadata(Headers(cfg.metadata).over(Headers(c.metadata)))
		err = validateMetadata(cfg.metadata)
	}
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
		if cfg.inherits && err == nil {
			err = errors.New("kagzi: InheritMetadata is for children: this run has no parent")
		}
	case asChild:
		takesNo("InTx", cfg.tx != nil, "its start is recorded with the run")
		takesNo("Message", len(cfg.messages) > 0, "send it with Client.Signal in a step, to its ID")
		policy := idPolicy(c.opts)
		takesNo(policy, policy != "", "an active run that has its ID is ErrIDConflict")
		takesNo(windowOption(c.opts), windowOption(c.opts) != "", "a step that calls Start takes it")
		takesNo("WhenFull", hasWhenFull(c.opts), "a step that calls Start takes it")
	case asCompensation:
		takesNo("InTx", cfg.tx != nil, "it starts once the run has ended badly")
		takesNo("Message", len(cfg.messages) > 0, "put its data into the input")
		takesNo("ID", cfg.id != "", "another run might have it when the compensation is to run")
		takesNo("At", !cfg.at.IsZero(), "give it a Delay, which counts from when it is its turn")
		takesNo("Detached", cfg.detached, "its run waits for it")
		takesNo("InheritMetadata", cfg.inherits, "give it Metadata")
		takesNo("Key", cfg.key != "" && !cfg.group, "it would wait for a slot that its run may hold")
		takesNo("Group", cfg.group, "it would wait for the slot that its run may hold")
		takesNo(windowOption(c.opts), windowOption(c.opts) != "", "it runs once, when it is its turn")
		takesNo("WhenFull", hasWhenFull(c.opts), "it has no key")
	}
	if err == nil {
		cfg.window, err = c.window(cfg, shared)
	}
	if c.as != "" || cfg.key == "" {
		cfg.whenFull = "" // it is a default of Define, or start refuses it
	}
	if err == nil {
		err = cfg.fullNow()
	}
	return cfg, err
}

// window returns the window that a start of the call shares with others, nil if there is none.
func (c Call) window(cfg startConfig, shared []StartOption) (*store.Window, error) {
	is := func(o StartOption) bool { _, ok := o.(OncePer); return ok }
	needsID := slices.ContainsFunc(shared, is) || slices.ContainsFunc(c.opts, is)
	is = func(o StartOption) bool { _, ok := o.(Batch); return ok }
	batched := slices.ContainsFunc(shared, is) || slices.ContainsFunc(c.opts, is)
	switch {
	case c.item && c.as != "":
		return nil, fmt.Errorf("kagzi: a %s is no Item: start it with the whole input, with Workflow.With", c.as)
	case c.as != "":
		return nil, nil
	case c.item && cfg.batch == nil:
		return nil, errors.New("kagzi: an item needs a kagzi.Batch, which says when a batch is full: give one, or make it a default of Define")
	case batched && !c.item:
		return nil, errors.New("kagzi: Batch collects single items: start them with StartItem, or with ItemOf in StartMany")
	case c.item:
		b := cfg.batch
		w := &store.Window{Policy: store.Batch, Key: b.Key, Open: cmp.Or(b.Within, time.Second), Most: cmp.Or(b.Most, 100)}
		if cfg.debounce != nil || cfg.oncePer != 0 {
			return nil, errors.New("kagzi: an item takes no Debounce and no OncePer: its Batch says when the run is due")
		}
		return w, cfg.shares("an item", "put it into the item")
	case cfg.debounce != nil:
		d := cfg.debounce
		longest := 10 * min(d.Delay, duration.Longest/10)
		w := &store.Window{Policy: store.Debounce, Key: d.Key, Delay: d.Delay, Open: cmp.Or(d.Max, max(longest, d.Delay))}
		if cfg.oncePer != 0 {
			return nil, errors.New("kagzi: a start takes either Debounce or OncePer: leave one out")
		}
		return w, cfg.shares("Debounce", "it has a Key")
	case cfg.oncePer == 0:
		return nil, nil
	case cfg.id == "" && needsID:
		return nil, errors.New("kagzi: OncePer without an ID: give a kagzi.ID, of which one run is started in each period")
	case cfg.id == "":
		return nil, nil
	case cfg.ifEnded.stored() != "":
		return nil, fmt.Errorf("kagzi: OncePer takes no IfEnded %q: until the period is over its run is returned, however it ended", string(cfg.ifEnded))
	case len(cfg.messages) > 0:
		return nil, errors.New("kagzi: OncePer takes no Message: send it with Client.Signal to the run that Start returns")
	}
	return &store.Window{Policy: store.OncePer, Key: string(cfg.id), Open: time.Duration(cfg.oncePer)}, nil
}

// shares refuses the options that do not fit a run that waits for several starts. instead says what to give for an ID.
func (cfg *startConfig) shares(what, instead string) error {
	for _, o := range []struct {
		name, instead string
		given         bool
	}{
		{"ID", instead, cfg.id != ""},
		{"Delay", "the run is due when no more starts are to join it", cfg.delay != 0},
		{"At", "the run is due when no more starts are to join it", !cfg.at.IsZero()},
		{"Message", "send it with Client.Signal to the run that Start returns", len(cfg.messages) > 0},
	} {
		if o.given {
			return fmt.Errorf("kagzi: %s takes no %s (it may be a default of Define): %s", what, o.name, o.instead)
		}
	}
	return nil
}

// startConfig is the configuration that a start's options give.
type startConfig struct {
	id       ID
	queue    string // empty: not given
	delay    time.Duration
	at       time.Time
	priority int // zero: not given
	version  int
	timeout  time.Duration
	metadata Metadata
	inherits bool    // InheritMetadata
	headers  Headers // all that were given, merged
	policy   json.RawMessage
	messages []Message // all that were given, in order
	tx       pgx.Tx
	ifActive IfActive
	ifEnded  IfEnded
	oncePer  OncePer   // zero: not given
	debounce *Debounce // nil: not given
	batch    *Batch    // nil: not given
	detached bool
	whenFull WhenFull
	key      string // of the Key or the Group
	group    bool   // key is a Group

	window *store.Window // that the start shares with others: set by Call.config; nil: none

	inputHash []byte // of the input: set by newRun
}

// startOptions validates opts. Of each type the last one wins, except for messages.
func startOptions(opts []StartOption) (startConfig, error) {
	var cfg startConfig
	var errs []error
	var keyed, grouped bool
	check := func(err error) { errs = append(errs, err) }
	for _, o := range opts {
		switch o := o.(type) {
		case ID:
			cfg.id = o
			check(validateNewID(string(o)))
		case Queue:
			cfg.queue = string(o)
			check(validateQueue(string(o)))
		case Delay:
			cfg.delay, cfg.at = time.Duration(o), time.Time{}
			check(validateDuration("delay", time.Duration(o)))
		case At:
			cfg.at, cfg.delay = time.Time(o), 0
			check(validateAt(cfg.at))
		case Priority:
			cfg.priority = int(o)
			check(validatePriority(int(o)))
		case Version:
			cfg.version = int(o)
			check(validateVersion(int(o)))
		case Metadata:
			check(validateMetadata(o))
			cfg.metadata = o
		case Headers:
			cfg.headers = o.over(cfg.headers)
		case Timeout:
			cfg.timeout = time.Duration(o)
			check(validateTimeout("timeout", time.Duration(o)))
		case RetryPolicy:
			check(o.validate())
			cfg.policy, _ = json.Marshal(o) // one that is valid always encodes
		case IfActive:
			cfg.ifActive = o
			check(o.validate())
		case IfEnded:
			cfg.ifEnded = o
			check(o.validate())
		case WhenFull:
			cfg.whenFull = o
			check(o.validate())
		case OncePer:
			cfg.oncePer = o
			check(o.validate())
		case Debounce:
			cfg.debounce = &o
			check(o.validate())
		case Batch:
			cfg.batch = &o
			check(o.validate())
		case Message:
			cfg.messages = append(cfg.messages, o)
			check(o.validate())
		case inTx:
			cfg.tx = o.tx
			if o.tx == nil {
				check(errNilTx)
			}
		case detached:
			cfg.detached = true
		case inheritMetadata:
			cfg.inherits = true
		case Key:
			cfg.key, keyed = string(o), true
			check(validateKey("Key", string(o)))
		case Group:
			cfg.key, cfg.group, grouped = string(o), true, true
			check(validateKey("Group", string(o)))
		case nil:
			check(errNilOption)
		}
	}
	if keyed && grouped {
		check(errKeyAndGroup)
	}
	if end := cfg.at.Add(cfg.timeout).UTC(); validateTime("At", cfg.at) == nil && end.Year() > 9999 {
		check(fmt.Errorf("kagzi: At %s and timeout %v together end in the year %d: the last is 9999", cfg.at.Format(time.RFC3339), cfg.timeout, end.Year()))
	}
	return cfg, errors.Join(errs...)
}
