package kagzi

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
)

func (o inTx) start(c *startConfig) {
	c.tx = o.tx
	c.check(o.validate())
}

func (o inTx) validate() error {
	if o.tx == nil {
		return errNilTx
	}
	return nil
}

func (o Queue) start(c *startConfig) {
	c.queue = string(o)
	c.check(valid.Queue(string(o)))
}

func (o Delay) start(c *startConfig) {
	c.delay, c.at = time.Duration(o), time.Time{}
	c.check(duration.Check("delay", c.delay))
}

func (o At) start(c *startConfig) {
	c.at, c.delay = time.Time(o), 0
	c.check(valid.At(c.at))
}

func (o Priority) start(c *startConfig) {
	c.priority = int(o)
	c.check(valid.Priority(c.priority))
}

func (o Version) start(c *startConfig) {
	c.version = int(o)
	c.check(valid.Version(c.version))
}

func (o Metadata) start(c *startConfig) {
	c.metadata = o
	c.check(valid.Metadata(o))
}

func (o Timeout) start(c *startConfig) {
	c.timeout = time.Duration(o)
	c.check(valid.Timeout("timeout", c.timeout))
}

func (p RetryPolicy) start(c *startConfig) {
	c.policy, _ = json.Marshal(p) // one that is valid always encodes
	c.check(p.validate())
}

func (detached) start(c *startConfig) { c.detached = true }

func (o Timeout) step(c *stepConfig) {
	c.timeout = time.Duration(o)
	c.check(valid.Timeout("timeout", c.timeout))
}

func (p RetryPolicy) step(c *stepConfig) {
	c.policy = p
	c.check(p.validate())
}

func (o Isolation) step(c *stepConfig) {
	c.isolation = o
	c.check(replay.CheckIsolation(pgx.TxIsoLevel(o), c.tx))
}

func (o stepInput) step(c *stepConfig) { c.input = &o }

func (repeatable) step(c *stepConfig) { c.repeatable = true }

func (o Timeout) branch(c *branchConfig) {
	c.timeout = time.Duration(o)
	c.check(valid.Timeout("timeout", c.timeout))
}

func (o Concurrency) branch(c *branchConfig) {
	c.concurrency = int(o)
	if o < 1 {
		c.check(fmt.Errorf("kagzi: concurrency %d: give at least 1, or leave the option out", int(o)))
	}
}

func (collectErrors) branch(c *branchConfig) { c.collect = true }

func (c *verbConfig) setTx(o inTx) {
	c.tx = o.tx
	c.check(o.validate())
	c.only("InTx", "InTx is not for limits, because claims and steps would wait for the end of your transaction: "+
		"leave it out")
}

func (c *verbConfig) setReason(o Reason) {
	c.Reason = o.text()
	c.only("Reason", "an event of a topic takes no Reason: put it into the payload, or leave it out")
}

func (c *verbConfig) setActor(o Actor) {
	c.Actor = Reason(o).text()
	c.only("Actor", "an event of a topic takes no Actor: put it into the payload, or leave it out")
}

func (c *verbConfig) setDry() {
	c.dry = true
	c.only("DryRun", "DryRun is for the verbs that take a RunFilter, such as CancelAll: leave it out, or call one of "+
		"these with a filter")
}

func (o inTx) change(c *changeConfig)   { c.setTx(o) }
func (r Reason) change(c *changeConfig) { c.setReason(r) }
func (a Actor) change(c *changeConfig)  { c.setActor(a) }
func (dryRun) change(c *changeConfig)   { c.setDry() }

func (g Grace) change(c *changeConfig) {
	c.grace = time.Duration(g)
	c.check(valid.Timeout("grace", c.grace))
	c.only("Grace", "Grace is for Cancel and CancelAll, which wait for steps under way: leave it out")
}

func (f forgetSteps) change(c *changeConfig) {
	c.forget = append(c.forget, f...)
	for _, step := range f {
		c.check(validateStepID(step))
	}
	c.only("Forget", "Forget is for Resume and ResumeAll, which try failures again: leave it out")
}

func (p Percent) change(c *changeConfig) {
	c.percent = int(p)
	c.check(valid.Percent(c.percent))
	c.only("Percent", "Percent is for Unpause: leave it out")
}

func (park) change(c *changeConfig) {
	c.park = true
	c.only("Park", "Park is for Pause: leave it out")
}

func (v Version) handle(c *handleConfig) {
	c.version = int(v)
	c.check(valid.Version(c.version))
}

func (defaultVersion) handle(c *handleConfig) {
	c.isDefault = true
	c.only("DefaultVersion", "DefaultVersion is for Handle: leave it out to replay the run's own version, or give a "+
		"Version")
}

func (allowAdditions) handle(c *handleConfig) {
	c.additions = true
	c.only("AllowAdditions", "AllowAdditions is for a replay: leave it out")
}

func (o inTx) restart(c *restartConfig)   { c.setTx(o) }
func (r Reason) restart(c *restartConfig) { c.setReason(r) }
func (a Actor) restart(c *restartConfig)  { c.setActor(a) }
func (dryRun) restart(c *restartConfig)   { c.setDry() }

func (v Version) restart(c *restartConfig) {
	c.run.Version = int(v)
	c.check(valid.Version(c.run.Version))
}

func (inheritCompensations) restart(c *restartConfig) {
	c.run.Compensations = true
	c.only("InheritCompensations", "InheritCompensations is for Fork: a restart begins at the beginning, and "+
		"registers its own")
}

func (o newInput) restart(c *restartConfig) {
	c.input = o.v
	c.only("NewInput", "NewInput is for Restart and Fork of one run: leave it out, and each new run has the input of "+
		"its old one")
	if o.v == nil {
		c.check(errors.New("kagzi: NewInput(nil): give the new input, or leave the option out to keep the old one"))
	}
}

func (o inTx) update(c *updateConfig)   { c.setTx(o) }
func (r Reason) update(c *updateConfig) { c.setReason(r) }
func (a Actor) update(c *updateConfig)  { c.setActor(a) }
func (dryRun) update(c *updateConfig)   { c.setDry() }

func (q Queue) update(c *updateConfig) {
	c.update.Queue, c.changes = string(q), true
	c.check(valid.Queue(string(q)))
}

func (p Priority) update(c *updateConfig) {
	c.update.Priority, c.changes = int(p), true
	c.check(valid.Priority(int(p)))
}

func (d Delay) update(c *updateConfig) {
	c.setDue(time.Duration(d), time.Time{})
	c.check(duration.Check("delay", time.Duration(d)))
}

func (t At) update(c *updateConfig) {
	c.setDue(0, time.Time(t))
	c.check(valid.At(time.Time(t)))
}

// setDue lets the run be due a time from now, or at a time.
func (c *updateConfig) setDue(delay time.Duration, at time.Time) {
	c.update.SetDue, c.update.Delay, c.update.At, c.changes = true, delay, at, true
}

func (v Version) update(c *updateConfig) {
	c.setVersion(int(v))
	c.check(valid.Version(int(v)))
}

func (defaultVersion) update(c *updateConfig) { c.setVersion(0) }

// setVersion gives the run a version, or, with zero, takes its version away.
func (c *updateConfig) setVersion(version int) {
	c.update.SetVersion, c.update.Version, c.changes = true, version, true
}

func (m Metadata) update(c *updateConfig) {
	c.update.SetMetadata, c.changes = true, true
	c.update.Metadata, _ = json.Marshal(m) // a map of strings always encodes
	c.check(valid.Metadata(m))
}

func (id ID) start(c *startConfig) {
	c.id = string(id)
	c.check(valid.NewID(string(id)))
}

func (id ID) restart(c *restartConfig) {
	c.run.ExternalID = string(id)
	c.check(valid.NewID(string(id)))
	c.only("ID", "an ID is that of one run: leave it out, and each new run has the ID of its old one")
}
