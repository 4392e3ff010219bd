package kagzi

import (
	"fmt"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

type (
	// IfActive says how a start treats an active run with its [ID]. Without it, ReturnActive applies.
	//
	// A start with an IfActive and without an ID is refused. As a default of [Define] it applies to the starts that
	// have an ID. The last one given wins: a start's own over a default.
	IfActive string
	// IfEnded says how a start treats runs with its [ID] that are over, if none is active. If one is active, [IfActive]
	// alone decides, and a run that is replaced does not count as ended. Runs of any workflow count, as long as
	// retention keeps them. Without it, StartAgain applies.
	//
	// The rule holds exactly, however many starts happen at once. With [InTx] the transaction must be READ COMMITTED: a
	// stricter one is refused. A start with an IfEnded and without an ID is refused. As a default of [Define] it
	// applies to the starts that have an ID. The last one given wins: a start's own over a default.
	IfEnded string
)

const (
	// ReturnActive returns the active run if it has the same workflow and input; else it refuses the start with
	// [ErrIDConflict].
	ReturnActive IfActive = "return_active"
	// ReturnAnyInput returns the active run if it has the same workflow, whatever its input; else it refuses the start
	// with [ErrIDConflict]. The start's input is then not used.
	ReturnAnyInput IfActive = store.ReturnAnyInput
	// RejectActive refuses the start with [ErrIDTaken]. A repeated start is refused, too, because of the run that it
	// started before. In a step, which may be repeated after a crash, prefer ReturnActive.
	RejectActive IfActive = store.RejectActive
	// ReplaceActive terminates the active run and starts a new one, in one transaction: at any time exactly one is
	// active. The old run ends as with admin.Runs.Terminate, whatever its input: its compensations do not run. If
	// they should run, [Client.Cancel] the run, wait for its end, and start. If the old run has another workflow, the
	// start is refused with [ErrIDConflict]. With [InTx] the transaction must be READ COMMITTED: a stricter one is
	// refused.
	ReplaceActive IfActive = store.ReplaceActive
)

const (
	// StartAgain starts a run regardless.
	StartAgain IfEnded = "start_again"
	// RejectEnded refuses the start with [ErrIDTaken]: an ID has one run, however it ended.
	RejectEnded IfEnded = store.RejectEnded
	// StartIfFailed starts a run if the newest one failed or was cancelled, and refuses the start with [ErrIDTaken] if
	// it completed. The newest run is the one that was started last, as in [Client.Get].
	StartIfFailed IfEnded = store.StartIfFailed
)

func (p IfActive) start(c *startConfig) {
	c.run.IfActive = p.stored()
	c.Check(p.validate())
	c.called.policy = c.name(c.called.policy, p != "", fmt.Sprintf("IfActive %q", string(p)))
}

func (p IfEnded) start(c *startConfig) {
	c.run.IfEnded = p.stored()
	c.Check(p.validate())
	c.called.policy = c.name(c.called.policy, p != "", fmt.Sprintf("IfEnded %q", string(p)))
}

func (p IfActive) Change(c *core.ChangeConfig) {
	c.Reject = true
	c.Only("IfActive", "IfActive is for admin.Schedules.Trigger and topic.Client.Trigger: leave it out")
	if p != RejectActive {
		c.Check(fmt.Errorf("kagzi: IfActive %s means nothing for a trigger: give kagzi.RejectActive, or leave it out",
			text.Quote(string(p))))
	}
}

func (p IfActive) validate() error {
	switch p {
	case "", ReturnActive, ReturnAnyInput, RejectActive, ReplaceActive:
		return nil
	}
	return fmt.Errorf("kagzi: there is no IfActive %s: give kagzi.ReturnActive, ReturnAnyInput, RejectActive or "+
		"ReplaceActive", text.Quote(string(p)))
}

func (p IfEnded) validate() error {
	switch p {
	case "", StartAgain, RejectEnded, StartIfFailed:
		return nil
	}
	return fmt.Errorf("kagzi: there is no IfEnded %s: give kagzi.StartAgain, RejectEnded or StartIfFailed",
		text.Quote(string(p)))
}

// stored returns p as the store knows it: the default is stored as no policy.
func (p IfActive) stored() string {
	if p == ReturnActive {
		return ""
	}
	return string(p)
}

func (p IfEnded) stored() string {
	if p == StartAgain {
		return ""
	}
	return string(p)
}

// WhenFull says what a start does if its [Key] or [Group] is full: if the runs that hold a slot of the key, and those
// that are due and wait for one, are as many as its limit. Without a WhenFull, WaitForSlot applies.
//
// The limit is that of the key, of admin.KeyLimits or admin.QueueLimits.EachKey; that of a group is one. A key without
// a limit is never full.
//
// A start with it needs a key, and must be due at once: it takes no [Delay], [At], [OncePer], [Debounce] and [Batch].
// As a default of [Define] it applies to the starts that have a key, but not to children and runs of schedules. The
// last one given wins.
//
// See docs/flow.md.
type WhenFull string

const (
	// WaitForSlot lets the run wait for a slot.
	WaitForSlot WhenFull = "wait"
	// RejectNew refuses the start with [ErrKeyFull]: the run could not begin at once. A step that may be repeated after
	// a crash should give an ID: else the run that it started before refuses it.
	RejectNew WhenFull = store.RejectNew
	// CancelOldest cancels the oldest runs of the key, in the transaction of the start: as many as are needed so that
	// the new run and the newest others fit the limit. They end as with [Client.Cancel]: compensations that they have
	// registered run first. A run that keeps its slot until its end keeps it until then, and the new run waits for it.
	// At most 1,000 runs that wait are cancelled, those that are due first. A call that starts more runs of the key
	// than its limit is refused with [ErrKeyFull].
	//
	// A step must not start a run of its own run's key so: it may cancel the run that it is a part of.
	CancelOldest WhenFull = store.CancelOldest
)

func (p WhenFull) start(c *startConfig) {
	c.run.WhenFull = p.stored()
	c.Check(p.validate())
	c.called.whenFull = c.called.whenFull || c.ofCall && p != ""
}

func (p WhenFull) validate() error {
	switch p {
	case "", WaitForSlot, RejectNew, CancelOldest:
		return nil
	}
	return fmt.Errorf("kagzi: there is no WhenFull %s: give kagzi.WaitForSlot, RejectNew or CancelOldest",
		text.Quote(string(p)))
}

// stored returns p as the store knows it: the default is stored as no policy.
func (p WhenFull) stored() string {
	if p == WaitForSlot {
		return ""
	}
	return string(p)
}

// fullNow refuses the options that do not fit a start that a full key refuses, or that cancels others.
func (cfg *startConfig) fullNow() error {
	run := cfg.run
	if run.WhenFull == "" {
		return nil
	}
	shares := func(policy string) bool { return run.Window != nil && run.Window.Policy == policy }
	for _, o := range []struct {
		name  string
		given bool
	}{
		{"Delay", run.Delay != 0},
		{"At", !run.At.IsZero()},
		{"OncePer", shares(store.OncePer)},
		{"Debounce", shares(store.Debounce)},
		{"Batch", shares(store.Batch)},
	} {
		if o.given {
			return fmt.Errorf("kagzi: WhenFull %q takes no %s (either may be a default of Define): whether the key "+
				"is full is decided at the start, for a run that is due then", run.WhenFull, o.name)
		}
	}
	return nil
}
