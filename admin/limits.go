package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// Limits has the limits on steps: admin.New(client).Limits. Those on runs belong to [Queues] and [Keys].
type Limits struct{ core *core.Client }

// A StepLimit says how often the steps with its [kagzi.Limit] may begin, and how many of them may be under way, in all
// workers of the namespace together. With neither Rate nor MaxRunning, it lets every step begin.
type StepLimit struct {
	Name string `json:"name"`
	// Rate is how often attempts may begin. The zero Rate means any number.
	//
	// At a Burst of 1, the database never gives out more tokens in any interval than the rate allows. An attempt begins
	// at the time of its token or a little later: by 200 ms, or by a tenth of the time between two tokens if that is
	// more. One that comes later than that gets another token.
	Rate Rate `json:"rate,omitzero"`
	// MaxRunning is how many slots there are. An attempt under way has one, or as many as the units of its
	// [kagzi.Limit]. Zero means any number.
	//
	// An attempt that is under way counts until its function returns, or its worker is dead. If a caller or a
	// coordinator has ended its run, and the function does not return, it counts for ten more seconds.
	MaxRunning int `json:"max_running,omitempty"`
	// HonorRetryAfter lets an attempt that fails with [kagzi.RetryAfter] stop all others for that time, or until an
	// operator sets the limit without HonorRetryAfter. That attempt uses up none: its step keeps its place, and begins
	// again when the limit goes on. It is recorded only if it was to be made at most once.
	HonorRetryAfter bool `json:"honor_retry_after,omitempty"`
}

func (l StepLimit) validate() error {
	err := errors.Join(valid.LimitName(l.Name), l.Rate.validate("StepLimit.Rate"))
	if l.MaxRunning < 0 || l.MaxRunning > 1_000_000 {
		err = errors.Join(err, fmt.Errorf("kagzi: StepLimit.MaxRunning is %d: give 1 to 1000000, or 0 for any number",
			l.MaxRunning))
	}
	return err
}

func (l StepLimit) stored() store.StepLimit {
	return store.StepLimit{
		Name: l.Name, Every: l.Rate.every(), Burst: max(l.Rate.Burst, 1), MaxRunning: l.MaxRunning,
		RetryAfter: l.HonorRetryAfter,
	}
}

func stepLimitOf(l store.StepLimit) StepLimit {
	return StepLimit{
		Name: l.Name, Rate: rateOf(store.Rate{Interval: l.Every, Burst: l.Burst}), MaxRunning: l.MaxRunning,
		HonorRetryAfter: l.RetryAfter,
	}
}

// Declare is for code: call it when a program starts. It creates a limit, or replaces what the code has declared
// before. It does not change what [Limits.Set] has set: that stays until [Limits.Reset], and Declare logs so.
func (l Limits) Declare(ctx context.Context, limit StepLimit) error {
	return l.change(ctx, limit, nil, func(store.Why) error {
		by, err := l.core.Store.Limits.Declare(ctx, limit.stored())
		warnOfOverride(ctx, l.core, by, "limit", limit.Name)
		return err
	}, "declare")
}

// Set creates a limit, or replaces all of its values. The declared ones are kept for [Limits.Reset]. It is for
// operators: no [Limits.Declare] changes what they have set.
//
// A change is in force when Set returns. Attempts under way go on, even if they are more than a lower MaxRunning. If
// the Rate is higher than before, the steps that wait begin correspondingly earlier. It takes [kagzi.Reason] and
// [kagzi.Actor].
func (l Limits) Set(ctx context.Context, limit StepLimit, opts ...kagzi.ChangeOption) error {
	return l.change(ctx, limit, opts, func(why store.Why) error {
		return l.core.Store.Limits.Set(ctx, limit.stored(), why)
	}, "set")
}

// Reset takes back what operators have set, in favour of what the code declares. It takes [kagzi.Reason] and
// [kagzi.Actor], and returns [kagzi.ErrNotFound] if no code declares the limit.
func (l Limits) Reset(ctx context.Context, name string, opts ...kagzi.ChangeOption) error {
	return l.change(ctx, StepLimit{Name: name}, opts, func(why store.Why) error {
		return l.core.Store.Limits.Reset(ctx, name, why)
	}, "reset")
}

// change changes a limit by do, and lets steps begin that may do so now.
func (l Limits) change(ctx context.Context, limit StepLimit, opts []kagzi.ChangeOption, do func(store.Why) error,
	verb string,
) error {
	err := changeLimits(ctx, l.core, opts, limit.validate(), do)
	if err != nil {
		return failure.Wrap(l.core.Public(ctx, err), verb+" limit %s", text.Quote(limit.Name))
	}
	// there may be more slots
	out, err := l.core.Store.Limits.Serve(ctx, []string{limit.Name}, store.LimitRequest{})
	if pg.Locked(err) { // a worker serves it
		err = nil
	}
	_ = l.core.Hints.Signalled(ctx, nil, out.Called...) // fails only in a transaction
	return l.core.FailedIf(ctx, err, verb+" limit %s", text.Quote(limit.Name))
}

// Delete deletes a limit. While steps wait for it or hold one of its slots, it returns an error and deletes
// nothing. To lift a limit, set it without Rate and MaxRunning. It takes [kagzi.Reason] and [kagzi.Actor]. Delete
// returns [kagzi.ErrNotFound] if there is no such limit.
func (l Limits) Delete(ctx context.Context, name string, opts ...kagzi.ChangeOption) error {
	cfg, err := limitOptions(l.core, opts)
	if err == nil {
		err = valid.LimitName(name)
	}
	if err == nil {
		err = l.core.CheckSchema(ctx, nil)
	}
	var found, used bool
	if err == nil {
		found, used, err = l.core.Store.Limits.Delete(ctx, name, cfg.Why)
	}
	switch {
	case err != nil:
	case !found:
		err = core.ErrLimitNotFound
	case used:
		err = errors.New("steps wait for it or are under way: to let them begin, set it without Rate and MaxRunning; " +
			"if its name is wrong, correct it in the code, or cancel their runs")
	}
	return l.core.FailedIf(ctx, err, "delete limit %s", text.Quote(name))
}

// limitOptions validates the client and the options of a change of limits.
func limitOptions(c *core.Client, opts []kagzi.ChangeOption) (core.ChangeConfig, error) {
	if err := c.Made(); err != nil {
		return core.ChangeConfig{}, err
	}
	return core.Changes(opts, []string{"Reason", "Actor"})
}

// LimitInfo is a limit on steps, and what it does at the moment. Its JSON follows the rules of [ScheduleInfo].
type LimitInfo struct {
	Name            string        `json:"name"`
	Every           time.Duration `json:"every,omitempty"` // between two starts: the Rate
	Burst           int           `json:"burst,omitempty"` // of the Rate
	MaxRunning      int           `json:"max_running,omitempty"`
	HonorRetryAfter bool          `json:"honor_retry_after,omitempty"`
	// Slots in use, without those of dead workers that were noticed; zero without MaxRunning. They are more than
	// MaxRunning while a step with more units is under way alone, and after MaxRunning was lowered.
	Running int `json:"running"`
	Waiting int `json:"waiting"` // steps that wait for a slot or a token
	// a step has named it, and it was neither declared nor set: no step begins
	Unset    bool       `json:"unset,omitempty"`
	Declared *StepLimit `json:"declared,omitempty"` // by the code; nil: it declares none
	Override *Override  `json:"override,omitempty"` // who has set it; nil: it is as declared

	NextAt    time.Time `json:"next_at,omitzero"`    // when the next step gets a token; past if one is there
	LineUntil time.Time `json:"line_until,omitzero"` // when a step that comes now would get a token
}

// List returns up to n limits, in the order of their names, beginning after the given one; zero means 100. Counts end
// at 10,000.
func (l Limits) List(ctx context.Context, after string, n int) ([]LimitInfo, error) {
	err := l.core.Made()
	if err == nil && n < 0 {
		err = fmt.Errorf("kagzi: the number of limits is %d: give a positive one, or 0 for 100", n)
	}
	if err == nil && after != "" {
		err = valid.LimitName(after)
	}
	if err == nil {
		err = l.core.CheckSchema(ctx, nil)
	}
	var rows []inspect.LimitState
	if err == nil {
		rows, err = l.core.Inspect.Limits(ctx, after, cmp.Or(min(n, valid.MostListed), 100))
	}
	if err != nil {
		return nil, failure.Wrap(l.core.Public(ctx, err), "list limits")
	}
	infos := make([]LimitInfo, len(rows))
	for i, r := range rows {
		infos[i] = LimitInfo{
			Name: r.Name, Every: r.Every, MaxRunning: r.MaxRunning, HonorRetryAfter: r.RetryAfter, Running: r.Running,
			Waiting: r.Waiting, Unset: r.Origin.String() == "", Declared: declaredOf(r.Origin, stepLimitOf),
			Override: overrideOf(r.Origin),
		}
		if r.Every > 0 {
			infos[i].Burst, infos[i].NextAt, infos[i].LineUntil = r.Burst, r.NextAt, r.LineAt
		}
	}
	return infos, nil
}

type limitFields LimitInfo

type limitJSON struct {
	limitFields
	Every string `json:"every,omitempty"`
}

// MarshalJSON writes the JSON that LimitInfo documents.
func (l LimitInfo) MarshalJSON() ([]byte, error) {
	return json.Marshal(limitJSON{limitFields(l), duration.Text(l.Every)})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (l *LimitInfo) UnmarshalJSON(data []byte) error {
	var in limitJSON
	err := json.Unmarshal(data, &in)
	if err == nil {
		in.limitFields.Every, err = duration.OfText(in.Every)
	}
	if err != nil {
		return failure.Wrap(err, "limit as JSON")
	}
	*l = LimitInfo(in.limitFields)
	return nil
}
