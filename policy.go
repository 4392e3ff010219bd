package kagzi

import (
	"fmt"

	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

type (
	// IfActive says what a start does while an active run has its [ID]. Without it, ReturnActive.
	//
	// A start needs an ID for it: given without one it is an error. As a default of [Define] it is about the starts
	// that have an ID. The last one given wins: a start's own over a default.
	IfActive string
	// IfEnded says what a start does if runs that are over have its [ID], and none that is active: if one is, [IfActive]
	// alone counts, and a run that is replaced does not count as ended. Runs of any workflow count, as long as retention
	// keeps them. Without it, StartAgain.
	//
	// It holds exactly, however many start at once. With [InTx] the transaction must be READ COMMITTED: a stricter one
	// is refused. A start needs an ID for it: given without one it is an error. As a default of [Define] it is about
	// the starts that have an ID. The last one given wins: a start's own over a default.
	IfEnded string
)

const (
	// ReturnActive returns the active run if it is of the same workflow and was started with the same input; else the
	// start is refused with [ErrIDConflict].
	ReturnActive IfActive = "return_active"
	// RejectActive refuses the start with [ErrIDTaken]. A start that is repeated is refused, too, for the run that it
	// has started before; so a step, which may be repeated after a crash, is better off with ReturnActive.
	RejectActive IfActive = store.RejectActive
	// ReplaceActive terminates the active run and starts a new one, in one transaction: at no time is there none, and
	// never are there two. The old run ends as with [Client.Terminate], whatever its input: its compensations do not run.
	// To have its compensations run, [Client.Cancel] it, wait for its end, and start. If it is of another workflow, the start is
	// refused with [ErrIDConflict]. With [InTx] the transaction must be READ COMMITTED: a stricter one is refused.
	ReplaceActive IfActive = store.ReplaceActive
)

const (
	// StartAgain starts a run regardless.
	StartAgain IfEnded = "start_again"
	// RejectEnded refuses the start with [ErrIDTaken]: there is one run of the ID, however it ended.
	RejectEnded IfEnded = store.RejectEnded
	// StartIfFailed starts a run if the newest one failed or was cancelled, and refuses the start with [ErrIDTaken] if it
	// completed. The newest is the one that was started last, as in [Client.Get].
	StartIfFailed IfEnded = store.StartIfFailed
)

func (IfActive) startOption() {}
func (IfEnded) startOption()  {}

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

// stored is p as the store knows it: what a start does anyway is no policy.
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

// idPolicy names a policy among the options that is about an ID, "" if there is none.
func idPolicy(opts []StartOption) string {
	for _, o := range opts {
		switch o := o.(type) {
		case IfActive:
			if o != "" {
				return fmt.Sprintf("IfActive %q", string(o))
			}
		case IfEnded:
			if o != "" {
				return fmt.Sprintf("IfEnded %q", string(o))
			}
		}
	}
	return ""
}

// withoutID refuses a policy in the options of a start that has no ID.
func withoutID(options ...[]StartOption) error {
	for _, opts := range options {
		if p := idPolicy(opts); p != "" {
			return fmt.Errorf("kagzi: %s without an ID: give a kagzi.ID, whose runs it is about", p)
		}
	}
	return nil
}
