package kagzi

import (
	"fmt"

	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

type (
	// IfActive says how a start treats an active run with its [ID]. Without it, ReturnActive applies.
	//
	// A start with an IfActive and without an ID is refused. As a default of [Define] it applies to the starts that have an
	// ID. The last one given wins: a start's own over a default.
	IfActive string
	// IfEnded says how a start treats runs with its [ID] that are over, if none is active. If one is active, [IfActive] alone
	// decides, and a run that is replaced does not count as ended. Runs of any workflow count, as long as retention keeps
	// them. Without it, StartAgain applies.
	//
	// The rule holds exactly, however many starts happen at once. With [InTx] the transaction must be READ COMMITTED: a
	// stricter one is refused. A start with an IfEnded and without an ID is refused. As a default of [Define] it applies to
	// the starts that have an ID. The last one given wins: a start's own over a default.
	IfEnded string
)

const (
	// ReturnActive returns the active run if it has the same workflow and input; else it refuses the start with
	// [ErrIDConflict].
	ReturnActive IfActive = "return_active"
	// RejectActive refuses the start with [ErrIDTaken]. A repeated start is refused, too, because of the run that it started
	// before. In a step, which may be repeated after a crash, prefer ReturnActive.
	RejectActive IfActive = store.RejectActive
	// ReplaceActive terminates the active run and starts a new one, in one transaction: at any time exactly one is active.
	// The old run ends as with [Client.Terminate], whatever its input: its compensations do not run. If they should run,
	// [Client.Cancel] the run, wait for its end, and start. If the old run has another workflow, the start is refused with
	// [ErrIDConflict]. With [InTx] the transaction must be READ COMMITTED: a stricter one is refused.
	ReplaceActive IfActive = store.ReplaceActive
)

const (
	// StartAgain starts a run regardless.
	StartAgain IfEnded = "start_again"
	// RejectEnded refuses the start with [ErrIDTaken]: an ID has one run, however it ended.
	RejectEnded IfEnded = store.RejectEnded
	// StartIfFailed starts a run if the newest one failed or was cancelled, and refuses the start with [ErrIDTaken] if it
	// completed. The newest run is the one that was started last, as in [Client.Get].
	StartIfFailed IfEnded = store.StartIfFailed
)

func (p IfActive) start(c *startConfig) {
	c.ifActive = p.stored()
	c.check(p.validate())
	c.called.policy = c.name(c.called.policy, p != "", fmt.Sprintf("IfActive %q", string(p)))
}

func (p IfEnded) start(c *startConfig) {
	c.ifEnded = p.stored()
	c.check(p.validate())
	c.called.policy = c.name(c.called.policy, p != "", fmt.Sprintf("IfEnded %q", string(p)))
}

func (p IfActive) change(c *changeConfig) {
	c.reject = true
	c.only("IfActive", "IfActive is for Trigger and TriggerSchedule: leave it out")
	if p != RejectActive {
		c.check(fmt.Errorf("kagzi: IfActive %s means nothing for a trigger: give kagzi.RejectActive, or leave it out", text.Quote(string(p))))
	}
}

func (p IfActive) validate() error {
	switch p {
	case "", ReturnActive, RejectActive, ReplaceActive:
		return nil
	}
	return fmt.Errorf("kagzi: there is no IfActive %s: give kagzi.ReturnActive, RejectActive or ReplaceActive", text.Quote(string(p)))
}

func (p IfEnded) validate() error {
	switch p {
	case "", StartAgain, RejectEnded, StartIfFailed:
		return nil
	}
	return fmt.Errorf("kagzi: there is no IfEnded %s: give kagzi.StartAgain, RejectEnded or StartIfFailed", text.Quote(string(p)))
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
