package admin

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// NewInput gives the new run of a [Runs.Restart] or [Runs.Fork] another input. An input that does not decode into
// the workflow's input type fails the run with [kind.BadInput].
func NewInput(v any) RestartOption { return newInput{v} }

type newInput struct{ v any }

// InheritCompensations gives a [Runs.Fork] a copy of the compensations that the old run registered before the step.
// If both runs fail, both execute them. Without the option, the fork registers only the compensations of the steps that
// it executes. A compensation then stays with the old run alone if it has the name of a step that the fork copies, or
// if the fork copies anything after it on the same branch. If the old run has completed, such a compensation never
// runs.
func InheritCompensations() RestartOption { return inheritCompensations{} }

type inheritCompensations struct{}

// restartOptions validates opts, and refuses those that are not among takes.
func (r Runs) restartOptions(ctx context.Context, opts []RestartOption, takes []string) (core.RestartConfig, error) {
	if err := r.core.Usable(ctx); err != nil {
		return core.RestartConfig{}, err
	}
	cfg := core.RestartConfig{
		Verb: core.Verb{Given: core.Given{Takes: takes}},
		Run:  store.Restart{Hash: r.core.Payloads.HashStored},
	}
	core.Each(opts, &cfg.Given, func(o RestartOption) { o.Restart(&cfg) })
	if cfg.Input != nil {
		input, hash, err := r.core.Payloads.EncodeHashed(payloads.Subject{Kind: "the new input"}, cfg.Input)
		cfg.Check(err)
		cfg.Run.Replace, cfg.Run.Input, cfg.Run.InputHash = true, input, hash
	}
	cfg.Run.Why = cfg.Why
	return cfg, cfg.Wrong()
}

// Restart starts a new run like one that is over, and returns the new run's ID. The new run has the same workflow,
// version, input, queue, priority, metadata, retry policy, Timeout (which counts anew) and [kagzi.ID]. It is due now
// and has no parent. [kagzi.Version], [kagzi.ID] and [NewInput] replace these values. RunInfo.Origin of the new run is
// the old one, which does not change; both get an event.
//
// A restart of a scheduled run keeps its FireTime, and does not belong to the schedule: Overlap does not count it.
//
// Restart returns [kagzi.ErrRunActive] if the run is not over, and [kagzi.ErrIDConflict] if an active run has its ID.
func (r Runs) Restart(ctx context.Context, ref kagzi.Ref, opts ...RestartOption) (kagzi.RunID, error) {
	at := core.RefOf(ref)
	cfg, err := r.restartOptions(ctx, opts, core.Takes("ID", "NewInput"))
	if err != nil {
		return "", failure.Wrap(err, "restart %v", at)
	}
	return r.restart(ctx, at, cfg)
}

func (r Runs) restart(ctx context.Context, at core.Ref, cfg core.RestartConfig) (kagzi.RunID, error) {
	id, err := r.newFrom(ctx, at, cfg)
	if err != nil {
		return "", failure.Wrap(err, "restart %v", at)
	}
	return id, nil
}

// Fork is [Runs.Restart] from a step on. The new run gets copies of everything that the old run had recorded when the
// step first began, and of all signals. It executes the step itself, everything that began after it, and everything
// that was under way then in other branches.
//
// step is an ID as [kagzi.Client.Steps] shows it: "pay", "pay#2", or "ship/0/pack" of a branch; "ship" stands for all
// branches of the group, "ship/0" for all of that branch. Records of Kagzi, which begin with #, and of compensations
// are refused.
//
// Fork returns once the new run is stored. It returns the errors of Restart, [kagzi.ErrNotFound] if the run has no
// record of the step, and [ErrCompensated]. See docs/repairing.md.
func (r Runs) Fork(ctx context.Context, ref kagzi.Ref, step string, opts ...RestartOption) (kagzi.RunID, error) {
	at := core.RefOf(ref)
	err := validateStepID(step)
	var cfg core.RestartConfig
	if err == nil {
		cfg, err = r.restartOptions(ctx, opts, core.Takes("ID", "NewInput", "InheritCompensations"))
	}
	if err != nil {
		return "", failure.Wrap(err, "fork %v from step %s", at, text.Quote(step))
	}
	return r.fork(ctx, at, step, cfg)
}

func (r Runs) fork(ctx context.Context, at core.Ref, step string, cfg core.RestartConfig) (kagzi.RunID, error) {
	cfg.Run.Step = step
	id, err := r.newFrom(ctx, at, cfg)
	if err != nil {
		return "", failure.Wrap(err, "fork %v from step %s", at, text.Quote(step))
	}
	return id, nil
}

// newFrom starts a new run from ref. It makes the new run's ID before the first try, so that a repeated try finds the
// run.
func (r Runs) newFrom(ctx context.Context, at core.Ref, cfg core.RestartConfig) (_ kagzi.RunID, err error) {
	if cfg.Run.New, err = uuid.NewV7(); err != nil {
		return "", err
	}
	if cfg.Tx, cfg.Run.Run, err = r.core.ResolveToChange(ctx, cfg.Tx, at); err != nil {
		return "", r.core.Public(ctx, err)
	}
	call := core.StartCall{ID: cfg.Run.ExternalID, Origin: cfg.Run.Run, Run: cfg.Run.New}
	err = r.core.InterceptStart(ctx, call, func(ctx context.Context, headers json.RawMessage) error {
		cfg.Run.Headers = headers
		work, err := r.core.Store.Runs.Restart(ctx, cfg.Tx, cfg.Run)
		if err == nil {
			err = r.core.Hints.Due(ctx, cfg.Tx, append(work.Due, work.DueRun)...)
		}
		return r.core.Public(ctx, err)
	})
	if err != nil {
		return "", err
	}
	return kagzi.RunID(cfg.Run.New.String()), nil
}
