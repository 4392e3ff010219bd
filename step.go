package kagzi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
)

// Step executes fn and records one result under name. After a crash fn may be executed again: make its effects
// idempotent, with the Key of [CurrentStep]. A replay does not call fn, so return what the workflow needs.
//
// The next step waits until the result is committed.
//
// fn's ctx ends with the step's [Timeout], when the run is cancelled, and when the worker must give it up.
//
// A name has at most 255 bytes, without # and /. One that comes again on a branch is counted: "pay#2".
//
// A failed attempt is repeated by the step's [RetryPolicy]. After the last one Step returns a *[StepError]. Another
// error says that the call is wrong or the branch was cancelled. See docs/steps.md.
func Step[T any](ctx Context, name string, fn func(context.Context) (T, error), opts ...StepOption) (T, error) {
	var call stepFunc
	if fn != nil {
		call = func(ctx context.Context, _ pgx.Tx) (any, error) { return fn(ctx) }
	}
	return durable[T](ctx, name, call, opts, false)
}

// StepTx is [Step] with a transaction of the application's database: the changes that fn makes in tx commit together
// with the step's record, or not at all, unless fn calls [Checkpoint]. To roll back, return an error.
//
// fn must not end tx: Commit and Rollback of tx do nothing and return an error. If fn calls Rollback, deferred or not,
// and returns no error, the attempt fails for good. fn may use savepoints, by tx.Begin.
//
// The transaction is READ COMMITTED unless an [Isolation] says otherwise, and holds a connection while fn runs. If the
// database refuses the commit, the attempt has failed. If the connection is lost, fn is called again, without counting
// an attempt: see docs/steps.md.
func StepTx[T any](ctx Context, name string, fn func(context.Context, pgx.Tx) (T, error),
	opts ...StepOption,
) (T, error) {
	var call stepFunc
	if fn != nil {
		call = func(ctx context.Context, tx pgx.Tx) (any, error) { return fn(ctx, tx) }
	}
	return durable[T](ctx, name, call, opts, true)
}

// Do is [Step] for a function without a result. A replay does not call fn, so a variable outside of fn that fn sets
// stays unset: return values that the workflow needs later from a [Step].
func Do(ctx Context, name string, fn func(context.Context) error, opts ...StepOption) error {
	var call stepFunc
	if fn != nil {
		call = func(ctx context.Context, _ pgx.Tx) (any, error) { return nil, fn(ctx) }
	}
	_, err := durable[any](ctx, name, call, opts, false)
	return err
}

// DoTx is [StepTx] for a function without a result.
func DoTx(ctx Context, name string, fn func(context.Context, pgx.Tx) error, opts ...StepOption) error {
	var call stepFunc
	if fn != nil {
		call = func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, fn(ctx, tx) }
	}
	_, err := durable[any](ctx, name, call, opts, true)
	return err
}

type stepFunc func(context.Context, pgx.Tx) (any, error)

// A typedStep is a step with its types put back on. It is one allocation for all that the engine asks of a step.
type typedStep[T any] struct {
	replay.StepSpec
	stepConfig
	undo *undoneBy // nil: it has no compensation
	c    *Client
	call stepFunc
	out  T
	from []byte // the data that out was decoded from; nil: there is no out yet
	next T      // decode decodes into it
}

// decode sets out. An error leaves it as it was.
func (s *typedStep[T]) decode(data []byte) error {
	s.next = *new(T)
	if err := s.c.core.Payloads.Decode(data, &s.next); err != nil {
		return err
	}
	s.out, s.from = s.next, data
	return nil
}

func (s *typedStep[T]) Call(ctx context.Context, tx pgx.Tx) (any, error) { return s.call(ctx, tx) }

func (s *typedStep[T]) Encode(id string, v any) ([]byte, *replay.Registration, error) {
	return s.c.encodeStep(id, v, s.Result, s, s.undo)
}

func (s *typedStep[T]) Reconcile(ctx context.Context) (any, bool, error) {
	return s.reconcile.call(ctx)
}

func (s *typedStep[T]) Decodes(output []byte) error {
	switch s.Result.Kind() {
	case reflect.Interface, reflect.Pointer, reflect.Map, reflect.Slice:
	default:
		if string(output) == "null" { // it would be a zero value, which is hardly meant
			return fmt.Errorf("null is no %v", s.Result)
		}
	}
	return s.decode(output)
}

// undoOf returns the compensation of a recorded result; nil if the result cannot be read, which durable reports.
func (s *typedStep[T]) undoOf(output []byte) *replay.Registration {
	if s.decode(output) != nil {
		return nil
	}
	r, _ := s.c.newRegistration(s.undo.call(s.out))
	return r
}

// durable executes a step, or passes it in a replay. The result comes decoded from its record, the first time too.
func durable[T any](ctx Context, name string, call stepFunc, opts []StepOption, tx bool) (T, error) {
	var zero T
	b, c, err := branchOf(ctx)
	if err != nil {
		return zero, err
	}
	s := &typedStep[T]{stepConfig: stepConfig{tx: tx}, c: c, call: call}
	err = s.apply(opts)
	if err == nil && call == nil {
		err = errors.New("kagzi: the function is nil")
	}
	s.StepSpec = replay.StepSpec{
		Name: name, BadName: valid.StepName("step", name), Invalid: err, Result: reflect.TypeFor[T](), Function: s,
		Tx: tx, Isolation: pgx.TxIsoLevel(s.isolation), Timeout: s.timeout, Repeatable: s.repeatable,
		Limits: s.limits, Retry: s, AtMostOnce: s.once, Reconciles: s.reconcile != nil,
	}
	s.Invalid = cmp.Or(err, s.checkOnce(s.Result, tx))
	if given := s.input; given != nil {
		s.Input = func() ([]byte, error, error) { return c.encodeInput(given.v) }
	}
	if s.undo, _ = s.undoneBy.(*undoneBy); s.undo != nil {
		s.Compensation, s.Invalid = s.undoOf, cmp.Or(s.Invalid, s.undo.validate(s.Result))
	}
	row, err := b.Step(&s.StepSpec)
	if err != nil {
		return zero, err
	}
	if s.from != nil && bytes.Equal(s.from, row.Output) { // it was decoded before it was recorded
		return s.out, nil
	}
	if err := s.decode(row.Output); err != nil {
		b.Nondeterministic(row.StepID, "the recorded result of step %q does not decode into %v: %v", row.StepID,
			s.Result, err)
	}
	return s.out, nil
}

// apply lets the options set themselves, and returns their error.
func (c *stepConfig) apply(opts []StepOption) error {
	core.Each(opts, &c.Given, func(o StepOption) { o.step(c) })
	return c.Wrong()
}

// checkOnce refuses options that do not go with AtMostOnce, and those that need it.
func (c *stepConfig) checkOnce(result reflect.Type, tx bool) error {
	switch r := c.reconcile; {
	case !c.once && r != nil:
		return errors.New("kagzi: Reconcile is for a step that may be in doubt: give it AtMostOnce, too")
	case !c.once:
		return nil
	case tx:
		return errors.New("kagzi: a StepTx happens exactly once: leave AtMostOnce out, or use Step for an effect " +
			"outside of the database")
	case c.repeatable:
		return errors.New("kagzi: Repeatable and AtMostOnce contradict each other: leave one out")
	case r != nil && r.call == nil:
		return errors.New("kagzi: the function of Reconcile is nil")
	case r != nil && r.result != result:
		return fmt.Errorf("kagzi: Reconcile returns %v, and the step %v: these must be one type", r.result, result)
	}
	return nil
}

func (c *stepConfig) Allows(attempt int, last kind.Kind) bool { return c.policy.allows(attempt, last) }

func (c *stepConfig) Backoff(attempt int, random float64) time.Duration {
	return c.policy.backoff(attempt, random)
}

// encodeInput returns the value of [Input] as it is recorded. invalid is the error of a wrong call; failed is that of a
// Sealer, which may be transient and fails the attempt alone.
func (c *Client) encodeInput(v any) (input []byte, invalid, failed error) {
	input, err := c.core.Payloads.Encode(payloads.Subject{Kind: "the Input"}, v)
	if payloads.IsSealing(err) {
		return nil, nil, err
	}
	return input, err, nil
}

// A decoder decodes into the type that it stands for.
type decoder interface{ decode(data []byte) error }

// encodeStep returns a step's result as it is recorded, and the registration of its compensation, if it has one.
func (c *Client) encodeStep(id string, v any, result reflect.Type, as decoder,
	undo *undoneBy,
) ([]byte, *replay.Registration, error) {
	data, err := c.core.Payloads.Encode(payloads.Subject{Kind: "the result"}, v) // the StepError names the step
	if err != nil {
		return nil, nil, payloads.Unstorable(err)
	}
	if err := as.decode(data); err != nil {
		return nil, nil, failure.Permanent(kind.Validation, payloads.Undecodable(payloads.Subject{Kind: "the result"},
			v, result, err))
	}
	if undo == nil {
		return data, nil, nil
	}
	r, err := c.newRegistration(undo.call(v))
	if err != nil {
		return nil, nil, Permanent(failure.Wrap(err, "compensation of step %q", id))
	}
	return data, r, nil
}
