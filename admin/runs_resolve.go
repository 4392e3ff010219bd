package admin

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A Resolution says what the call of a step in doubt has done: [Happened], [DidNotHappen] or [GiveUp].
type Resolution struct {
	answer func(*core.Client) (store.Answer, error) // nil: it is empty
}

// Happened says that the call has had its effect. result becomes the step's result: a value of the type that the step
// returns, or its JSON as a json.RawMessage. It is nil for a [kagzi.Do].
func Happened(result any) Resolution {
	return Resolution{func(c *core.Client) (a store.Answer, err error) {
		a.State = store.AnswerReplied
		a.Output, err = c.Payloads.Encode(payloads.Subject{Kind: "the result"}, result)
		return a, err
	}}
}

// DidNotHappen says that the call has had no effect, and will have none. The step calls its function again, whatever
// its [kagzi.RetryPolicy] says.
func DidNotHappen() Resolution {
	return Resolution{func(*core.Client) (store.Answer, error) { return store.Answer{State: store.AnswerNotSent}, nil }}
}

// GiveUp lets the step fail for good, with the kind, text and details of err. An error without a kind gets
// [kind.InDoubt].
func GiveUp(err error) Resolution {
	return Resolution{func(c *core.Client) (store.Answer, error) {
		if err == nil {
			return store.Answer{}, errors.New("kagzi: the error of GiveUp is nil: say why the step fails")
		}
		k := kagzi.KindOf(err)
		if k == kind.Unknown {
			k = kind.InDoubt
		}
		details, lost := c.Payloads.Details(err)
		return store.Answer{
			State: store.AnswerRefused, ErrorKind: string(k), Error: failure.Class{Undetailed: lost}.Text(err),
			Output: details,
		}, nil
	}}
}

// Resolve says what the call of a step with [kagzi.AtMostOnce] has done that is in doubt. step is the
// [kagzi.StepAttempt].Step. A run that waits for that goes on. Of several calls for one doubt, and of the step's
// [kagzi.Reconcile], one takes effect.
//
// It returns [ErrNoDoubt] if the step is not in doubt, or no longer, and [kagzi.ErrNotFound] if there is no such run. A
// step of a run that is over can be resolved, too: that is recorded, and starts nothing.
//
// It takes [kagzi.InTx], [kagzi.Reason] and [kagzi.Actor]. See docs/doubt.md.
func (r Runs) Resolve(ctx context.Context, ref kagzi.Ref, step string, as Resolution,
	opts ...kagzi.ChangeOption,
) error {
	if err := r.core.Made(); err != nil {
		return err
	}
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err == nil {
		err = validateStepID(step)
	}
	if err == nil && as.answer == nil {
		err = errors.New("kagzi: the resolution is empty: give admin.Happened, DidNotHappen or GiveUp")
	}
	if err == nil {
		err = r.resolve(ctx, at, step, as, cfg)
	}
	return r.core.FailedIf(ctx, err, "resolve %q of %v", step, at)
}

func (r Runs) resolve(ctx context.Context, at core.Ref, step string, as Resolution, cfg core.ChangeConfig) error {
	tx, id, err := r.core.ResolveToChange(ctx, cfg.Tx, at)
	if err != nil {
		return err
	}
	answer, err := as.answer(r.core)
	if err != nil {
		return err
	}
	told, err := r.core.Store.Messages.Resolve(ctx, tx, id, step, answer, cfg.Why)
	if errors.Is(err, store.ErrNoDoubt) {
		return failure.Explain("it is under way, was resolved, or has another name: Client.Steps shows it", ErrNoDoubt)
	}
	if err != nil {
		return err
	}
	return r.core.Hints.Signalled(ctx, tx, told)
}

// A Doubt is a step that was called at most once, and of which it is not known what the call has done: see
// [kagzi.AtMostOnce]. Its JSON follows the rules of [kagzi.RunInfo].
type Doubt struct {
	Run      kagzi.RunID `json:"run"`
	ID       kagzi.ID    `json:"id,omitempty"` // the run's
	Workflow string      `json:"workflow"`
	Step     string      `json:"step"`
	Attempt  int         `json:"attempt"`
	CalledAt time.Time   `json:"called_at,omitzero"`
	Kind     kind.Kind   `json:"kind,omitempty"` // with Error, why it is in doubt
	Error    string      `json:"error,omitempty"`
	// nothing in the run waits until the doubt is resolved: the run is over, or the branch of the step
	Over bool `json:"over,omitempty"`
}

// Doubts returns up to limit steps that are in doubt, those of the newest runs first; zero means 100. Steps of runs
// that are over are among them, until they are resolved or their runs deleted.
func (r Runs) Doubts(ctx context.Context, limit int) ([]Doubt, error) {
	limit, err := valid.Listed(limit)
	if err == nil {
		err = r.core.CheckSchema(ctx, nil)
	}
	if err != nil {
		return nil, r.core.FailedIf(ctx, err, "list doubts")
	}
	rows, err := r.core.Inspect.Doubts(ctx, r.core.Store.Pool(), limit)
	if err != nil {
		return nil, r.core.FailedIf(ctx, err, "list doubts")
	}
	out := make([]Doubt, len(rows))
	for i, d := range rows {
		out[i] = Doubt{
			Run: kagzi.RunID(d.RunID.String()), ID: kagzi.ID(d.ExternalID), Workflow: d.Type, Step: d.Step,
			Attempt: d.Attempt, CalledAt: d.Since, Kind: kind.Kind(d.ErrorKind), Over: d.Over,
			Error: cmp.Or(d.Error, "the run was stopped during the call"),
		}
	}
	return out, nil
}
