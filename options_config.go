package kagzi

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/store"
)

// The configurations that options give. An option sets itself: its method has the name of what it is an option of. This
// file refers to no type that is declared above it, so that every file of options may refer to it.

// startConfig is the configuration that a start's options give: of each kind the last one, but all messages, in order.
type startConfig struct {
	core.Given
	sharing
	run      store.NewRun // as far as options say it: what is zero was not given. newRun sets the rest
	metadata map[string]string
	inherits bool              // InheritMetadata
	headers  map[string]string // all that were given, merged, over those that the run inherits
	messages []StartOption     // each a Message
	tx       pgx.Tx
	keyed    bool // there is a Key; if there is a Group, run says so

	ofCall bool   // the options now come from the call itself, not from the workflow's definition
	called called // by these

	inputHash []byte // of the input: set by newRun
}

// sharing says with which other starts a start shares its run. Call.config chooses the one that counts, the run's
// Window.
type sharing struct {
	oncePer  time.Duration // zero: not given
	debounce *store.Window // nil: not given
	batch    *store.Window // nil: not given
}

// called has what the call itself gives of the options that are ignored in a workflow's definition where they do not
// fit.
type called struct {
	policy   string // its first IfActive or IfEnded; empty: none
	window   string // the name of its first OncePer, Debounce or Batch; empty: none
	oncePer  bool
	batch    bool
	whenFull bool
}

// name returns the name of the first of the call's own options of one sort, of which before was the first up to now.
func (cfg *startConfig) name(before string, given bool, name string) string {
	if before == "" && given && cfg.ofCall {
		return name
	}
	return before
}

// stepConfig is the configuration that a step's options give.
type stepConfig struct {
	core.Given
	tx         bool // the step has a transaction
	timeout    time.Duration
	policy     RetryPolicy
	isolation  Isolation  // of its transaction, if it has one; empty: not given
	undoneBy   StepOption // an *undoneBy; nil: not given
	input      *stepInput // nil: not given
	repeatable bool
	once       bool       // AtMostOnce
	reconcile  *reconcile // nil: not given
	limits     []replay.LimitUse
}

// branchConfig is the configuration that a group's options give.
type branchConfig struct {
	core.Given
	timeout     time.Duration
	concurrency int
	collect     bool
}

// The roles in which a call is started by something else than a Start.
const (
	asChild        = "a child"
	asCompensation = "a compensation"
	asTick         = "the run of a schedule"
)

// A misfit says which option does not fit a role, and what to do instead.
type misfit struct {
	role    string
	option  func(*startConfig) string // its name, or "" if the call does not have it
	instead string
}

// has names an option if given says that it was given, also as a default of Define.
func has(name string, given func(*startConfig) bool) func(*startConfig) string {
	return func(c *startConfig) string {
		if given(c) {
			return name
		}
		return ""
	}
}

// The options that a call itself may have, and that are ignored among the defaults of a workflow.
var (
	hasPolicy   = func(c *startConfig) string { return c.called.policy }
	hasWindow   = func(c *startConfig) string { return c.called.window }
	hasWhenFull = has("WhenFull", func(c *startConfig) bool { return c.called.whenFull })
)

var (
	hasTx       = has("InTx", func(c *startConfig) bool { return c.tx != nil })
	hasMessage  = has("Message", func(c *startConfig) bool { return len(c.messages) > 0 })
	hasID       = has("ID", func(c *startConfig) bool { return c.run.ExternalID != "" })
	hasDelay    = has("Delay", func(c *startConfig) bool { return c.run.Delay != 0 })
	hasAt       = has("At", func(c *startConfig) bool { return !c.run.At.IsZero() })
	hasDetached = has("Detached", func(c *startConfig) bool { return c.run.Detached })
	hasInherits = has("InheritMetadata", func(c *startConfig) bool { return c.inherits })
	hasKey      = has("Key", func(c *startConfig) bool { return c.run.Key.Name != "" && !c.run.Key.Group })
	hasGroup    = has("Group", func(c *startConfig) bool { return c.run.Key.Group })
)

const (
	ofTick     = "each tick starts a run of its own, at its time (it may be a default of Define)"
	ofOverlap  = "Overlap says what a tick does while a run is active"
	noParent   = "only a child takes it, and this run has no parent"
	askInAStep = "a step that calls Start takes it"
)

// misfits are the options that do not fit the roles, in the order in which they are refused.
var misfits = []misfit{
	{"a start", hasDetached, noParent},
	{"a start", hasInherits, noParent},

	{asChild, hasTx, "its start is recorded with the run"},
	{asChild, hasMessage, "send it with Client.Signal in a step, to its ID"},
	{asChild, hasPolicy, "an active run that has its ID is ErrIDConflict"},
	{asChild, hasWindow, askInAStep},
	{asChild, hasWhenFull, askInAStep},

	{asCompensation, hasTx, "it starts once the run has ended badly"},
	{asCompensation, hasMessage, "put its data into the input"},
	{asCompensation, hasID, "another run might have it when the compensation is to run"},
	{asCompensation, hasAt, "give it a Delay, which counts from when it is its turn"},
	{asCompensation, hasDetached, "its run waits for it"},
	{asCompensation, hasInherits, "give it Metadata"},
	{asCompensation, hasKey, "it would wait for a slot that its run may hold"},
	{asCompensation, hasGroup, "it would wait for the slot that its run may hold"},
	{asCompensation, hasWindow, "it runs once, when it is its turn"},
	{asCompensation, hasWhenFull, "it has no key"},

	{asTick, hasDetached, noParent},
	{asTick, hasInherits, noParent},
	{asTick, hasWindow, "each tick starts a run of its own"},
	{asTick, hasWhenFull, ofOverlap},
	{asTick, hasID, ofTick},
	{asTick, hasDelay, ofTick},
	{asTick, hasAt, ofTick},
	{asTick, hasMessage, ofTick},
	{asTick, hasTx, ofTick},
	{asTick, hasPolicy, "it has no ID; " + ofOverlap},
}
