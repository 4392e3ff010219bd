package admin

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// A Target says what [Client.Pause] stops: All runs of the namespace; the runs of a Queue, of a Workflow, or of a
// Workflow in a Queue; those of a Key of a Queue; or those of a Group. A zero Target is refused. An empty field is not
// part of the target: a Queue with an empty Key is the whole queue.
type Target struct {
	All      bool   `json:"all,omitempty"`
	Queue    string `json:"queue,omitempty"`
	Workflow string `json:"workflow,omitempty"`
	Key      string `json:"key,omitempty"`
	Group    string `json:"group,omitempty"`
}

// A Pause is a pause that has not ended: see [Client.Pauses].
type Pause struct {
	Target
	Since   time.Time `json:"since,omitzero"`
	Reason  string    `json:"reason,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Percent int       `json:"percent,omitempty"` // of the runs go on nevertheless
	Parks   bool      `json:"parks,omitempty"`   // with [Park]
}

// Percent makes [Client.Unpause] let that percentage of the runs go on, from 1 to 99, and keep the pause. The runs are
// chosen by a hash of their IDs, so those that go on at 10 also do at 20. The runs of a [kagzi.Key] or a [kagzi.Group]
// go on or stay together: its name chooses.
type Percent int

// Park makes a [Client.Pause] stop what is under way, too: each execution stops at its next step, sleep, wait or child,
// and keeps the result of the step under way. Without it, executions that have begun go on until they end or suspend.
func Park() kagzi.ChangeOption { return park{} }

type park struct{}

// stored validates the target.
func (t Target) stored() (store.Pause, error) {
	set := func(names ...string) (n int) {
		for _, s := range names {
			if s != "" {
				n++
			}
		}
		return n
	}
	p := store.Pause{Queue: t.Queue, Type: t.Workflow, Key: store.Key{Name: t.Key}}
	var err error
	switch {
	case t == Target{}:
		err = errors.New("kagzi: the target is empty: give a Queue, a Workflow, a Key or a Group, or All: true for " +
			"every run of the namespace")
	case t.All && set(t.Queue, t.Workflow, t.Key, t.Group) > 0:
		err = errors.New("kagzi: the target is All and something else: give one of them")
	case t.Group != "" && set(t.Queue, t.Workflow, t.Key) > 0:
		err = errors.New("kagzi: a Group spans queues and workflows: leave Queue, Workflow and Key out")
	case t.Key != "" && t.Queue == "":
		err = errors.New("kagzi: a Key belongs to a queue: give its Queue, too")
	case t.Key != "" && t.Workflow != "":
		err = errors.New("kagzi: a key is paused with all of its runs: leave Workflow out")
	case t.Group != "":
		p.Key = store.Key{Name: t.Group, Group: true}
	}
	for field, name := range map[string]string{
		"queue": t.Queue, "workflow name": t.Workflow, "key": t.Key,
		"group": t.Group,
	} {
		if err == nil && name != "" {
			err = valid.Name(field, name)
		}
	}
	return p, err
}

// Pause keeps workers from claiming the runs of t, from the moment it is stored, and before any worker runs. Starts,
// messages, cancels and timeouts go on: a run's [kagzi.Timeout] does not wait. Compensations are runs, and are paused
// like others. It takes [kagzi.InTx], [kagzi.Reason], [kagzi.Actor] and [Park]. Pausing again what is paused replaces
// those that are given, keeps a Reason and an Actor that are not, ends a Park that is not, and stops runs that were let
// go on.
func (c *Client) Pause(ctx context.Context, t Target, opts ...kagzi.ChangeOption) error {
	if err := of(c).Made(); err != nil {
		return err
	}
	p, err := t.stored()
	cfg, e := core.Changes(opts, core.Takes("Park"))
	if err = errors.Join(err, e); err == nil {
		err = of(c).CheckSchema(ctx, cfg.Tx)
	}
	if err == nil {
		p.Reason, p.Actor, p.Parks = cfg.Reason, cfg.Actor, cfg.Park
		var workers []uuid.UUID
		if workers, err = c.core.Store.Pauses.Pause(ctx, cfg.Tx, p); err == nil {
			err = c.core.Hints.Changed(ctx, cfg.Tx, workers...)
		}
	}
	return of(c).FailedIf(ctx, err, "pause")
}

// Unpause ends the pause of t, or with [Percent] lets some of its runs go on. Each pause ends by itself: while all runs
// are paused, too, those of t stay so. It returns [kagzi.ErrNotFound] if t itself is not paused. It takes [kagzi.InTx],
// [kagzi.Reason], [kagzi.Actor] and Percent.
func (c *Client) Unpause(ctx context.Context, t Target, opts ...kagzi.ChangeOption) error {
	if err := of(c).Made(); err != nil {
		return err
	}
	p, err := t.stored()
	cfg, e := core.Changes(opts, core.Takes("Percent"))
	if err = errors.Join(err, e); err == nil && cfg.Percent > 0 && p.Key.Name != "" {
		err = errors.New("kagzi: Percent is for queues, workflows and All: the runs of a key or a group go on or " +
			"stay together; leave Percent out to end the pause")
	}
	if err == nil {
		err = of(c).CheckSchema(ctx, cfg.Tx)
	}
	if err == nil {
		p.Reason, p.Actor = cfg.Reason, cfg.Actor
		var ended store.Unpaused
		ended, err = c.core.Store.Pauses.Unpause(ctx, cfg.Tx, p, cfg.Percent)
		if errors.Is(err, store.ErrNotPaused) {
			err = failure.Explain("there is no pause of exactly this: admin.Client.Pauses lists them",
				kagzi.ErrNotFound)
		}
		var due []store.DueRun
		for _, q := range ended.Queues {
			due = append(due, store.DueRun{Queue: q})
		}
		if err == nil {
			err = c.core.Hints.Changed(ctx, cfg.Tx, ended.Workers...)
		}
		if err == nil {
			err = c.core.Hints.Due(ctx, cfg.Tx, due...)
		}
	}
	return of(c).FailedIf(ctx, err, "unpause")
}

// Pauses returns what is paused, at most 1000 targets. Single runs are not among them: [kagzi.RunFilter].Paused finds
// those.
func (c *Client) Pauses(ctx context.Context) ([]Pause, error) {
	err := of(c).CheckSchema(ctx, nil)
	var rows []store.Pause
	if err == nil {
		rows, err = c.core.Inspect.Pauses(ctx, c.core.Store.Pool(), 1000)
	}
	out := make([]Pause, len(rows))
	for i, p := range rows {
		out[i] = pauseOf(p)
	}
	return out, of(c).FailedIf(ctx, err, "list pauses")
}

func pauseOf(p store.Pause) Pause {
	out := Pause{
		Target: Target{Queue: p.Queue, Workflow: p.Type, Key: p.Key.Name}, Since: p.At, Reason: p.Reason,
		Actor: p.Actor, Percent: p.Percent, Parks: p.Parks,
	}
	if p.Key.Group {
		out.Target = Target{Group: p.Key.Name}
	}
	out.All = out.Target == Target{}
	return out
}

// PauseRun pauses an active run: no worker claims it, and one that executes it stops at the next step, sleep, wait or
// child, and keeps the result of the step under way. Its children go on. A cancel ends the pause, and the run's
// [kagzi.Timeout] goes on. It returns [kagzi.ErrRunFinished] if the run is over or about to end. It takes [kagzi.InTx],
// [kagzi.Reason] and [kagzi.Actor].
func (c *Client) PauseRun(ctx context.Context, ref kagzi.Ref, opts ...kagzi.ChangeOption) error {
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err == nil {
		err = c.pauseRun(ctx, at, cfg)
	}
	return of(c).FailedIf(ctx, err, "pause %v", at)
}

func (c *Client) pauseRun(ctx context.Context, at core.Ref, cfg core.ChangeConfig) error {
	tx, id, err := of(c).ResolveToChange(ctx, cfg.Tx, at)
	if err == nil {
		err = c.core.Store.Pauses.PauseRun(ctx, tx, id, cfg.Why)
	}
	if errors.Is(err, store.ErrRunEnding) {
		err = failure.Explain("the run was cancelled or is being compensated", kagzi.ErrRunFinished)
	}
	if err == nil {
		err = c.core.Hints.Changed(ctx, tx, id)
	}
	return err
}

// UnpauseRun lets a run go on: it ends the run's own pause, and exempts the run from the pauses of its queue, of its
// workflow and of all runs that there are now, but not from that of its key or group. It returns [kagzi.ErrRunFinished]
// if the run is over. It takes [kagzi.InTx], [kagzi.Reason] and [kagzi.Actor].
func (c *Client) UnpauseRun(ctx context.Context, ref kagzi.Ref, opts ...kagzi.ChangeOption) error {
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err == nil {
		err = c.unpauseRun(ctx, at, cfg)
	}
	return of(c).FailedIf(ctx, err, "unpause %v", at)
}

func (c *Client) unpauseRun(ctx context.Context, at core.Ref, cfg core.ChangeConfig) error {
	tx, id, err := of(c).ResolveToChange(ctx, cfg.Tx, at)
	var run store.DueRun
	if err == nil {
		run, err = c.core.Store.Pauses.UnpauseRun(ctx, tx, id, cfg.Why)
	}
	if err == nil {
		err = c.core.Hints.Changed(ctx, tx, id)
	}
	if err == nil {
		err = c.core.Hints.Due(ctx, tx, run)
	}
	return err
}

// UnpauseRuns is [Client.UnpauseRun] for the active runs that f selects, the newest first, like [Client.CancelAll]. It
// takes [kagzi.InTx], [kagzi.Reason], [kagzi.Actor] and [DryRun].
func (c *Client) UnpauseRuns(ctx context.Context, f kagzi.RunFilter, opts ...kagzi.ChangeOption) (BulkResult, error) {
	cfg, err := core.Changes(opts, core.Takes("DryRun"))
	v := verb{
		name: "unpause runs", to: active, tx: cfg.Tx, dry: cfg.Dry,
		do: func(ctx context.Context, tx pgx.Tx, run kagzi.RunID) (kagzi.RunID, error) {
			cfg.Tx = tx
			return "", of(c).FailedIf(ctx, c.unpauseRun(ctx, run.Core(), cfg), "unpause %v", run.Core())
		},
	}
	return c.bulk(ctx, f, v, err)
}
