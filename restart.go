package kagzi

import (
	"context"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// NewInput gives the new run of a [Client.Restart] or [Client.Fork] another input. An input that does not decode into
// the workflow's input type fails the run with [kind.BadInput].
func NewInput(v any) RestartOption { return newInput{v} }

type newInput struct{ v any }

// InheritCompensations gives a [Client.Fork] a copy of the compensations that the old run registered before the step.
// If both runs fail, both execute them. Without the option, the fork registers only the compensations of the steps that
// it executes. A compensation then stays with the old run alone if it has the name of a step that the fork copies, or
// if the fork copies anything after it on the same branch. If the old run has completed, such a compensation never
// runs.
func InheritCompensations() RestartOption { return inheritCompensations{} }

type inheritCompensations struct{}

// restartOptions validates opts, and refuses those that are not among takes.
func (c *Client) restartOptions(ctx context.Context, opts []RestartOption, takes []string) (restartConfig, error) {
	if err := c.usable(ctx); err != nil {
		return restartConfig{}, err
	}
	cfg := restartConfig{
		verbConfig: verbConfig{given: given{takes: takes}},
		run:        store.Restart{Hash: c.payloads.HashStored},
	}
	each(opts, &cfg.given, func(o RestartOption) { o.restart(&cfg) })
	if cfg.input != nil {
		input, hash, err := c.payloads.EncodeHashed(payloads.Subject{Kind: "the new input"}, cfg.input)
		cfg.check(err)
		cfg.run.Replace, cfg.run.Input, cfg.run.InputHash = true, input, hash
	}
	cfg.run.Why = cfg.Why
	return cfg, cfg.wrong()
}

// Restart starts a new run like one that is over, and returns the new run's ID. The new run has the same workflow,
// version, input, queue, priority, metadata, retry policy, Timeout (which counts anew) and [ID]. It is due now and has
// no parent. [Version], [ID] and [NewInput] replace these values. RunInfo.Origin of the new run is the old one, which
// does not change; both get an event.
//
// A restart of a scheduled run keeps its FireTime, and does not belong to the schedule: Overlap does not count it.
//
// Restart returns [ErrRunActive] if the run is not over, and [ErrIDConflict] if an active run has its ID.
func (c *Client) Restart(ctx context.Context, ref Ref, opts ...RestartOption) (RunID, error) {
	ref = plain(ref)
	cfg, err := c.restartOptions(ctx, opts, takes("ID", "NewInput"))
	if err != nil {
		return "", failure.Wrap(err, "restart %v", named(ref))
	}
	return c.restart(ctx, ref, cfg)
}

func (c *Client) restart(ctx context.Context, ref Ref, cfg restartConfig) (RunID, error) {
	id, err := c.newFrom(ctx, ref, cfg)
	if err != nil {
		return "", failure.Wrap(err, "restart %v", named(ref))
	}
	return id, nil
}

// Fork is [Client.Restart] from a step on. The new run gets copies of everything that the old run had recorded when the
// step first began, and of all signals. It executes the step itself, everything that began after it, and everything
// that was under way then in other branches. step is an ID as [Client.Steps] shows it: "pay", "pay#2", or "ship/0/pack"
// of a branch; "ship" stands for all branches of the group, "ship/0" for all of that branch. Kagzi's own records, whose
// names begin with #, and those of compensations are refused.
//
// The workflow function must reach the same step again: if a new Version or input leads to other items for a Map that
// had begun, the run is quarantined with [kind.Nondeterminism] there.
//
// Fork returns once the new run is stored. It returns the errors of Restart, [ErrNotFound] if the run has no record of
// the step (a step that was interrupted within a second has none), and [ErrCompensated] if compensations of the old run
// have run. The new run compensates the steps that it executes, and with [InheritCompensations] also those that it
// copies from the old run.
func (c *Client) Fork(ctx context.Context, ref Ref, step string, opts ...RestartOption) (RunID, error) {
	ref = plain(ref)
	err := validateStepID(step)
	var cfg restartConfig
	if err == nil {
		cfg, err = c.restartOptions(ctx, opts, takes("ID", "NewInput", "InheritCompensations"))
	}
	if err != nil {
		return "", failure.Wrap(err, "fork %v from step %s", named(ref), text.Quote(step))
	}
	return c.fork(ctx, ref, step, cfg)
}

func (c *Client) fork(ctx context.Context, ref Ref, step string, cfg restartConfig) (RunID, error) {
	cfg.run.Step = step
	id, err := c.newFrom(ctx, ref, cfg)
	if err != nil {
		return "", failure.Wrap(err, "fork %v from step %s", named(ref), text.Quote(step))
	}
	return id, nil
}

// newFrom starts a new run from ref. It makes the new run's ID before the first try, so that a repeated try finds the
// run.
func (c *Client) newFrom(ctx context.Context, ref Ref, cfg restartConfig) (_ RunID, err error) {
	if cfg.run.New, err = uuid.NewV7(); err != nil {
		return "", err
	}
	if cfg.tx, cfg.run.Run, err = c.resolveToChange(ctx, cfg.tx, ref); err != nil {
		return "", c.public(ctx, err)
	}
	call := &StartCall{
		ID: ID(cfg.run.ExternalID), Origin: RunID(cfg.run.Run.String()),
		Run: RunID(cfg.run.New.String()),
	}
	err = intercept(ctx, c.intercepts.start, []*StartCall{call}, func(ctx context.Context) (err error) {
		if cfg.run.Headers, err = call.headers(); err != nil {
			return err
		}
		work, err := c.store.Runs.Restart(ctx, cfg.tx, cfg.run)
		if err == nil {
			err = c.hints.Due(ctx, cfg.tx,
				append(work.Due, store.DueRun{Queue: work.Queue, Type: work.Type, Version: work.Version})...)
		}
		return c.public(ctx, err)
	})
	if err != nil {
		return "", err
	}
	return call.Run, nil
}
