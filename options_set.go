package kagzi

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/epochs"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
)

func (o inTx) start(c *startConfig) {
	c.tx = o.tx
	c.Check(o.validate())
}

func (o inTx) validate() error {
	if o.tx == nil {
		return errNilTx
	}
	return nil
}

func (o Queue) start(c *startConfig) {
	c.run.Queue = string(o)
	c.Check(valid.Queue(string(o)))
}

func (o Delay) start(c *startConfig) {
	c.run.Delay, c.run.At = time.Duration(o), time.Time{}
	c.Check(duration.Check("delay", c.run.Delay))
}

func (o At) start(c *startConfig) {
	c.run.At, c.run.Delay = time.Time(o), 0
	c.Check(valid.At(c.run.At))
}

func (o Priority) start(c *startConfig) {
	c.run.Priority = int(o)
	c.Check(valid.Priority(c.run.Priority))
}

func (o Version) start(c *startConfig) {
	c.run.Version = int(o)
	c.Check(valid.Version(c.run.Version))
}

func (o Metadata) start(c *startConfig) {
	c.metadata = o
	c.Check(valid.Metadata(o))
}

func (o Timeout) start(c *startConfig) {
	c.run.Timeout = time.Duration(o)
	c.Check(valid.Timeout("timeout", c.run.Timeout))
}

func (o ExecutionTimeout) start(c *startConfig) {
	c.run.Execution = time.Duration(o)
	c.Check(valid.Timeout("ExecutionTimeout", c.run.Execution))
}

func (o StartWithin) start(c *startConfig) {
	c.run.StartWithin = time.Duration(o)
	c.Check(valid.Timeout("StartWithin", c.run.StartWithin))
}

func (p RetryPolicy) start(c *startConfig) {
	var err error
	c.run.RetryPolicy, err = p.Core()
	c.Check(err)
}

// Core is for Kagzi's own packages: it returns p as it is stored, and the error of a wrong one.
func (p RetryPolicy) Core() (json.RawMessage, error) {
	stored, _ := json.Marshal(p) // one that is valid always encodes
	return stored, p.validate()
}

func (detached) start(c *startConfig) { c.run.Detached = true }

func (o Timeout) step(c *stepConfig) {
	c.timeout = time.Duration(o)
	c.Check(valid.Timeout("timeout", c.timeout))
}

func (p RetryPolicy) step(c *stepConfig) {
	c.policy = p
	c.Check(p.validate())
}

func (o Timeout) next(e *epochs.End) {
	e.Next.Timeout = time.Duration(o)
	e.Check(valid.Timeout("timeout", e.Next.Timeout))
}

func (o Version) next(e *epochs.End) {
	e.Next.Version = int(o)
	e.Check(valid.Version(e.Next.Version))
}

func (o Isolation) step(c *stepConfig) {
	c.isolation = o
	c.Check(replay.CheckIsolation(pgx.TxIsoLevel(o), c.tx))
}

func (o stepInput) step(c *stepConfig) { c.input = &o }

func (repeatable) step(c *stepConfig) { c.repeatable = true }

func (atMostOnce) step(c *stepConfig) { c.once = true }

func (r *reconcile) step(c *stepConfig) { c.reconcile = r }

func (o Timeout) branch(c *branchConfig) {
	c.timeout = time.Duration(o)
	c.Check(valid.Timeout("timeout", c.timeout))
}

func (o Concurrency) branch(c *branchConfig) {
	c.concurrency = int(o)
	if o < 1 {
		c.Check(fmt.Errorf("kagzi: concurrency %d: give at least 1, or leave the option out", int(o)))
	}
}

func (collectErrors) branch(c *branchConfig) { c.collect = true }

func (o inTx) Change(c *core.ChangeConfig)   { c.SetTx(o.tx, o.validate()) }
func (r Reason) Change(c *core.ChangeConfig) { c.SetReason(string(r)) }
func (a Actor) Change(c *core.ChangeConfig)  { c.SetActor(string(a)) }

func (g Grace) Change(c *core.ChangeConfig) {
	c.Grace = time.Duration(g)
	c.Check(valid.Timeout("grace", c.Grace))
	c.Only("Grace", "Grace is for Cancel and CancelAll, which wait for steps under way: leave it out")
}

func (v Version) Handle(c *core.HandleConfig) {
	c.Version = int(v)
	c.Check(valid.Version(c.Version))
}

func (defaultVersion) Handle(c *core.HandleConfig) {
	c.IsDefault = true
	c.Only("DefaultVersion", "DefaultVersion is for Handle: leave it out to replay the run's own version, or give a "+
		"Version")
}

func (allowAdditions) Handle(c *core.HandleConfig) {
	c.Additions = true
	c.Only("AllowAdditions", "AllowAdditions is for a replay: leave it out")
}

func (o inTx) Restart(c *core.RestartConfig)   { c.SetTx(o.tx, o.validate()) }
func (r Reason) Restart(c *core.RestartConfig) { c.SetReason(string(r)) }
func (a Actor) Restart(c *core.RestartConfig)  { c.SetActor(string(a)) }

func (v Version) Restart(c *core.RestartConfig) {
	c.Run.Version = int(v)
	c.Check(valid.Version(c.Run.Version))
}

func (o inTx) Update(c *core.UpdateConfig)   { c.SetTx(o.tx, o.validate()) }
func (r Reason) Update(c *core.UpdateConfig) { c.SetReason(string(r)) }
func (a Actor) Update(c *core.UpdateConfig)  { c.SetActor(string(a)) }

func (q Queue) Update(c *core.UpdateConfig) {
	c.Update.Queue, c.Changes = string(q), true
	c.Check(valid.Queue(string(q)))
}

func (p Priority) Update(c *core.UpdateConfig) {
	c.Update.Priority, c.Changes = int(p), true
	c.Check(valid.Priority(int(p)))
}

func (d Delay) Update(c *core.UpdateConfig) {
	c.SetDue(time.Duration(d), time.Time{})
	c.Check(duration.Check("delay", time.Duration(d)))
}

func (t At) Update(c *core.UpdateConfig) {
	c.SetDue(0, time.Time(t))
	c.Check(valid.At(time.Time(t)))
}

func (v Version) Update(c *core.UpdateConfig) {
	c.SetVersion(int(v))
	c.Check(valid.Version(int(v)))
}

func (defaultVersion) Update(c *core.UpdateConfig) { c.SetVersion(0) }

func (m Metadata) Update(c *core.UpdateConfig) {
	c.Update.SetMetadata, c.Changes = true, true
	c.Update.Metadata, _ = json.Marshal(m) // a map of strings always encodes
	c.Check(valid.Metadata(m))
}

func (id ID) start(c *startConfig) {
	c.run.ExternalID = string(id)
	c.Check(valid.NewID(string(id)))
}

func (id ID) Restart(c *core.RestartConfig) {
	c.Run.ExternalID = string(id)
	c.Check(valid.NewID(string(id)))
	c.Only("ID", "an ID is that of one run: leave it out, and each new run has the ID of its old one")
}
