package kagzi

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
	hasID       = has("ID", func(c *startConfig) bool { return c.id != "" })
	hasDelay    = has("Delay", func(c *startConfig) bool { return c.delay != 0 })
	hasAt       = has("At", func(c *startConfig) bool { return !c.at.IsZero() })
	hasDetached = has("Detached", func(c *startConfig) bool { return c.detached })
	hasInherits = has("InheritMetadata", func(c *startConfig) bool { return c.inherits })
	hasKey      = has("Key", func(c *startConfig) bool { return c.key != "" && !c.group })
	hasGroup    = has("Group", func(c *startConfig) bool { return c.group })
)

const (
	ofTick     = "each tick starts a run of its own, at its time (it may be a default of Define)"
	ofOverlap  = "Overlap says what a tick does while a run is active"
	noParent   = "it is for children: this run has no parent"
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
