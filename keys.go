package kagzi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

type (
	// Key says for whom or what the run works, such as a tenant or an order: any text of 1 to 255 bytes in UTF-8,
	// without control characters. A queue's keys are its own.
	//
	// Limits of a queue may count by key (admin.QueueLimits, admin.KeyLimits). The keys of a queue take turns, so that
	// a key with a large backlog does not delay the others.
	//
	// A start that finds an active run of its [ID] returns that run, whatever the run's key. Restarts and forks copy
	// the key. A child does not have its parent's key: it would wait for a slot that the parent holds. A compensation
	// takes no key. See docs/flow.md.
	Key string

	// Group is a key that spans queues and workflows, and whose limit is one: of the runs of a group, at most one has
	// begun and not ended, whatever it waits for meanwhile. They begin in order of [Priority], time and start. Its name
	// obeys the rules of a Key's. A run has a Key or a Group, or neither. What [Key] says of children, copies and
	// compensations holds.
	Group string
)

func (k Key) start(c *startConfig) {
	c.run.Key.Name, c.keyed = string(k), true
	c.Check(valid.Key("Key", string(k)))
}

func (g Group) start(c *startConfig) {
	c.run.Key = store.Key{Name: string(g), Group: true}
	c.Check(valid.Key("Group", string(g)))
}

var errKeyAndGroup = errors.New("kagzi: there are a Key and a Group (one may be a default of Define): a run has one " +
	"of them; a group limits its runs to one at a time over all queues, a key is for the limits of a queue")

// Limit makes a step subject to the namespace's limit of that name, which admin.Limits.Declare creates. Each attempt
// waits until the limit lets it begin. A wait of more than 200 ms holds no slot of the worker, and the step's [Timeout]
// does not count it.
//
// An attempt takes one slot and one token, or as many as units says: 1 to 1,000,000. A step that wants more slots than
// there are begins alone.
//
// A step may have up to 10 limits. It begins when all of them let it begin, and takes what it needs of all at once.
//
// If the limit was neither declared nor set, the step waits, and admin.Client.Health names it.
func Limit(name string, units ...int) StepOption { return limitOption{name, units} }

type limitOption struct {
	name  string
	units []int
}

// maxUnits bounds what a step takes of a limit.
const maxUnits = 1_000_000

// maxLimits bounds the limits of a step.
const maxLimits = 10

func (l limitOption) step(c *stepConfig) {
	use := replay.LimitUse{Name: l.name, Units: 1}
	c.Check(valid.LimitName(l.name))
	switch {
	case len(l.units) > 1:
		c.Check(fmt.Errorf("kagzi: Limit %s has %d numbers of units: give one", text.Quote(l.name), len(l.units)))
	case len(l.units) == 1:
		use.Units = l.units[0]
	}
	if n := use.Units; n < 1 || n > maxUnits {
		c.Check(fmt.Errorf("kagzi: Limit %s has %d units: give 1 to %d", text.Quote(l.name), n, maxUnits))
	}
	c.limits = append(slices.DeleteFunc(c.limits, func(u replay.LimitUse) bool { return u.Name == l.name }), use)
	if len(c.limits) == maxLimits+1 {
		c.Check(fmt.Errorf("kagzi: the step has more than %d limits: put some of them together", maxLimits))
	}
}
