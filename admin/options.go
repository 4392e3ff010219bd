package admin

import (
	"errors"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
)

type (
	// An UpdateOption goes to [Runs.Update] and [Runs.UpdateAll]: [kagzi.Queue], [kagzi.Priority], [kagzi.At],
	// [kagzi.Delay], [kagzi.Version], [kagzi.DefaultVersion] and [kagzi.Metadata] are what to change; there are also
	// [kagzi.Reason], [kagzi.Actor] and [kagzi.InTx], and for UpdateAll [DryRun].
	UpdateOption interface{ Update(*core.UpdateConfig) }
	// A RestartOption goes to [Runs.Restart], [Runs.Fork], [Runs.RestartAll] and [Runs.ForkAll]:
	// [kagzi.Version], [kagzi.Reason], [kagzi.Actor] and [kagzi.InTx]. Restart and Fork also take [kagzi.ID] and
	// [NewInput], RestartAll and ForkAll also [DryRun], and Fork and ForkAll also [InheritCompensations].
	RestartOption interface{ Restart(*core.RestartConfig) }
)

// DryRun makes a bulk verb report the runs that it would change and skip, and change none: each change is rolled back.
func DryRun() interface {
	kagzi.ChangeOption
	RestartOption
	UpdateOption
} {
	return dryRun{}
}

// Forget names failures that a [Runs.Resume] forgets, in addition to those with which the last attempt ended: steps,
// children, branches and groups, as [kagzi.Client.Steps] shows them: "probe", "ship/0/pack", "ship".
//
// Forgetting a branch or group also forgets the failures that caused its own. Forgetting a failure also forgets those
// of the branches and groups that contain it. A group whose Timeout has passed begins again, with its whole time.
//
// If a name belongs to no failure, or to one after which another attempt was due, Resume changes nothing and returns
// [kagzi.ErrNotFound]. So it does for a [kagzi.WaitSignal] that timed out: [Runs.Fork] from it instead.
//
// Steps after a forgotten failure keep their recorded results.
func Forget(steps ...string) kagzi.ChangeOption { return forgetSteps(steps) }

type forgetSteps []string

type dryRun struct{}

func (dryRun) Change(c *core.ChangeConfig)   { c.SetDry() }
func (dryRun) Restart(c *core.RestartConfig) { c.SetDry() }
func (dryRun) Update(c *core.UpdateConfig)   { c.SetDry() }

func (f forgetSteps) Change(c *core.ChangeConfig) {
	c.Forget = append(c.Forget, f...)
	for _, step := range f {
		c.Check(validateStepID(step))
	}
	c.Only("Forget", "Forget is for Resume and ResumeAll, which try failures again: leave it out")
}

func (park) Change(c *core.ChangeConfig) {
	c.Park = true
	c.Only("Park", "Park is for Pause: leave it out")
}

func (inheritCompensations) Restart(c *core.RestartConfig) {
	c.Run.Compensations = true
	c.Only("InheritCompensations", "InheritCompensations is for Fork: a restart begins at the beginning, and "+
		"registers its own")
}

func (o newInput) Restart(c *core.RestartConfig) {
	c.Input = o.v
	c.Only("NewInput", "NewInput is for Restart and Fork of one run: leave it out, and each new run has the input of "+
		"its old one")
	if o.v == nil {
		c.Check(errors.New("kagzi: NewInput(nil): give the new input, or leave the option out to keep the old one"))
	}
}
