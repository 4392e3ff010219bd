package core

import (
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// The configurations that options give. An option sets itself: its method has the name of what it is an option of.

// Given is what the options of every call have in common.
type Given struct {
	Takes []string // of the options that not every call takes, those that this one does
	errs  []error
}

// Check notes that an option is wrong, unless err is nil.
func (g *Given) Check(err error) {
	if err != nil {
		g.errs = append(g.errs, err)
	}
}

// Only refuses an option of this name if the call does not take it.
func (g *Given) Only(name, refusal string) {
	if !slices.Contains(g.Takes, name) {
		g.Check(errors.New("kagzi: " + refusal))
	}
}

// Refused reports whether err is one of those that Check noted.
func (g *Given) Refused(err error) bool { return slices.Contains(g.errs, err) }

// Wrong returns what is wrong with the options.
func (g *Given) Wrong() error { return errors.Join(g.errs...) }

// Each lets the options set themselves, in order: of one kind the last one wins, unless the kind says otherwise.
func Each[O any](opts []O, g *Given, set func(O)) {
	for _, o := range opts {
		if any(o) == nil {
			g.Check(ErrNilOption)
			continue
		}
		set(o)
	}
}

// ErrNilOption refuses an option.
var ErrNilOption = errors.New("kagzi: there is a nil option: leave it out")

// Verb is what the options of all verbs give.
type Verb struct {
	Given
	Tx  pgx.Tx
	Dry bool
	store.Why
}

// SetTx takes the transaction of an InTx, of which err says what is wrong with it.
func (c *Verb) SetTx(tx pgx.Tx, err error) {
	c.Tx = tx
	c.Check(err)
	c.Only("InTx", "InTx is not for limits, because claims and steps would wait for the end of your transaction: "+
		"leave it out")
}

// SetReason takes a Reason.
func (c *Verb) SetReason(reason string) {
	c.Reason = whyText(reason)
	c.Only("Reason", "an event of a topic takes no Reason: put it into the payload, or leave it out")
}

// SetActor takes an Actor.
func (c *Verb) SetActor(actor string) {
	c.Actor = whyText(actor)
	c.Only("Actor", "an event of a topic takes no Actor: put it into the payload, or leave it out")
}

// SetDry takes a DryRun.
func (c *Verb) SetDry() {
	c.Dry = true
	c.Only("DryRun", "DryRun is for the verbs that take a RunFilter, such as CancelAll: leave it out, or call one of "+
		"these with a filter")
}

// whyText returns a reason or an actor as it is stored.
func whyText(s string) string { return text.Sanitize(s, MostWhy) }

// MostWhy is how many bytes of a reason or an actor are kept.
const MostWhy = 1 << 10

// ChangeConfig is the configuration that a change's options give. Of each kind the last one counts, but Forgets add up.
type ChangeConfig struct {
	Verb
	Grace  time.Duration // zero: not given
	Forget []string
	Park   bool
	Reject bool // RejectActive
}

// RestartConfig is the configuration that the options of a restart give.
type RestartConfig struct {
	Verb
	Run   store.Restart
	Input any // of NewInput; nil: not given
}

// UpdateConfig is the configuration that an update's options give.
type UpdateConfig struct {
	Verb
	Update  store.RunUpdate
	Changes bool // there is something to change
}

// SetDue lets the run be due a time from now, or at a time.
func (c *UpdateConfig) SetDue(delay time.Duration, at time.Time) {
	c.Update.SetDue, c.Update.Delay, c.Update.At, c.Changes = true, delay, at, true
}

// SetVersion gives the run a version, or, with zero, takes its version away.
func (c *UpdateConfig) SetVersion(version int) {
	c.Update.SetVersion, c.Update.Version, c.Changes = true, version, true
}

// HandleConfig is the configuration that the options of a handler or a replay give.
type HandleConfig struct {
	Given
	Version   int // zero: not given
	IsDefault bool
	Additions bool

	// Consumer returns the row of the consumer whose function the handler is, for a worker of these queues; nil: it is
	// a workflow's.
	Consumer func(queues []string) (*store.Consumer, error)
}

type (
	// A ChangeOption is a kagzi.ChangeOption.
	ChangeOption interface{ Change(*ChangeConfig) }
	// A RestartOption is an admin.RestartOption.
	RestartOption interface{ Restart(*RestartConfig) }
	// An UpdateOption is an admin.UpdateOption.
	UpdateOption interface{ Update(*UpdateConfig) }
)

// EveryVerb has the options that almost every verb takes.
var EveryVerb = []string{"InTx", "Reason", "Actor"}

// Takes returns the options of a verb that takes more than every verb.
func Takes(more ...string) []string {
	return append(EveryVerb[:len(EveryVerb):len(EveryVerb)], more...)
}

// Changes validates opts, and refuses those that are not among takes.
func Changes[O ChangeOption](opts []O, takes []string) (ChangeConfig, error) {
	cfg := ChangeConfig{Verb: Verb{Given: Given{Takes: takes}}}
	Each(opts, &cfg.Given, func(o O) { o.Change(&cfg) })
	return cfg, cfg.Wrong()
}
