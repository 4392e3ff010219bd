package admin

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// Pauses has the pauses of a queue, a workflow, a key or a group, and of all runs: admin.New(client).Pauses.
// [Runs.Pause] pauses one run.
type Pauses struct{ core *core.Client }

// A Target says what [Pauses.Set] stops: All runs of the namespace; the runs of a Queue, of a Workflow, or of a
// Workflow in a Queue; those of a Key of a Queue; or those of a Group. A zero Target is refused. An empty field is not
// part of the target: a Queue with an empty Key is the whole queue.
type Target struct {
	All      bool   `json:"all,omitempty"`
	Queue    string `json:"queue,omitempty"`
	Workflow string `json:"workflow,omitempty"`
	Key      string `json:"key,omitempty"`
	Group    string `json:"group,omitempty"`
}

// A Pause is a pause that has not ended: see [Pauses.List].
type Pause struct {
	Target
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Actor  string    `json:"actor,omitempty"`
	Parks  bool      `json:"parks,omitempty"` // with [Park]
}

// Park makes a [Pauses.Set] stop executions that are under way, too: each stops at its next step, sleep, wait or child,
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

// Set keeps workers from claiming the runs of t, from the moment it is stored, and before any worker runs. Starts,
// messages, cancels and timeouts go on: a run's [kagzi.Timeout] does not wait. Compensations are runs, and are paused
// like others. It takes [kagzi.InTx], [kagzi.Reason], [kagzi.Actor] and [Park]. Pausing a target again replaces
// those that are given, keeps a Reason and an Actor that are not, and ends a Park that is not.
//
// No claim waits for a transaction that InTx names. Until it ends, no run of a Key or Group that it pauses begins.
func (p Pauses) Set(ctx context.Context, t Target, opts ...kagzi.ChangeOption) error {
	if err := p.core.Made(); err != nil {
		return err
	}
	pause, err := t.stored()
	cfg, e := core.Changes(opts, core.Takes("Park"))
	if err = errors.Join(err, e); err == nil {
		err = p.core.CheckSchema(ctx, cfg.Tx)
	}
	if err == nil {
		pause.Reason, pause.Actor, pause.Parks = cfg.Reason, cfg.Actor, cfg.Park
		var workers []uuid.UUID
		if workers, err = p.core.Store.Pauses.Pause(ctx, cfg.Tx, pause); err == nil {
			err = p.core.Hints.Changed(ctx, cfg.Tx, workers...)
		}
	}
	return p.core.FailedIf(ctx, err, "pause")
}

// End ends the pause of t. Each pause ends by itself: while all runs are paused, too, those of t stay so. It
// returns [kagzi.ErrNotFound] if t itself is not paused. It takes [kagzi.InTx], [kagzi.Reason] and [kagzi.Actor].
func (p Pauses) End(ctx context.Context, t Target, opts ...kagzi.ChangeOption) error {
	if err := p.core.Made(); err != nil {
		return err
	}
	pause, err := t.stored()
	cfg, e := core.Changes(opts, core.EveryVerb)
	if err = errors.Join(err, e); err == nil {
		err = p.core.CheckSchema(ctx, cfg.Tx)
	}
	if err == nil {
		pause.Reason, pause.Actor = cfg.Reason, cfg.Actor
		var ended store.Unpaused
		ended, err = p.core.Store.Pauses.Unpause(ctx, cfg.Tx, pause)
		if errors.Is(err, store.ErrNotPaused) {
			err = failure.Explain("there is no pause of exactly this: admin.Pauses.List lists them",
				kagzi.ErrNotFound)
		}
		var due []store.DueRun
		for _, q := range ended.Queues {
			due = append(due, store.DueRun{Queue: q})
		}
		if err == nil {
			err = p.core.Hints.Changed(ctx, cfg.Tx, ended.Workers...)
		}
		if err == nil {
			err = p.core.Hints.Due(ctx, cfg.Tx, due...)
		}
	}
	return p.core.FailedIf(ctx, err, "unpause")
}

// List returns the pauses, at most 1000. Single runs are not among them: [kagzi.RunFilter].Paused finds
// those.
func (p Pauses) List(ctx context.Context) ([]Pause, error) {
	err := p.core.CheckSchema(ctx, nil)
	var rows []store.Pause
	if err == nil {
		rows, err = p.core.Inspect.Pauses(ctx, p.core.Store.Pool(), 1000)
	}
	out := make([]Pause, len(rows))
	for i, p := range rows {
		out[i] = pauseOf(p)
	}
	return out, p.core.FailedIf(ctx, err, "list pauses")
}

func pauseOf(p store.Pause) Pause {
	out := Pause{
		Target: Target{Queue: p.Queue, Workflow: p.Type, Key: p.Key.Name}, Since: p.At, Reason: p.Reason,
		Actor: p.Actor, Parks: p.Parks,
	}
	if p.Key.Group {
		out.Target = Target{Group: p.Key.Name}
	}
	out.All = out.Target == Target{}
	return out
}
