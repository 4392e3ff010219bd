package kagzitest

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
)

// A mock stands for the functions of steps of one name.
type mock func(context.Context) (any, error)

// A call is the function of a step under way.
type call struct{ begun time.Time }

// Mock puts fn in the place of the function of the steps named name: of those whose full ID it is, such as "ship/0/pack",
// or else of those that are named so in whatever branch. Everything else stays: fn's result is recorded, an error is tried
// again as the step's [kagzi.RetryPolicy] says, and [kagzi.CurrentStep] tells fn which step it is. The transaction of a
// [kagzi.StepTx] is committed with nothing in it but the record. Another Mock of the name replaces the one before. A step
// whose function returns another type than T fails, and the test with it. Mock may be called at any time.
func Mock[T any](e *Env, name string, fn func(context.Context) (T, error)) {
	e.t.Helper()
	e.mock(name, fn == nil, func(ctx context.Context) (any, error) { return fn(ctx) })
}

// MockDo is [Mock] for the steps of [kagzi.Do] and [kagzi.DoTx], and for what [kagzi.Compensate] registered.
func MockDo(e *Env, name string, fn func(context.Context) error) {
	e.t.Helper()
	e.mock(name, fn == nil, func(ctx context.Context) (any, error) { return nil, fn(ctx) })
}

func (e *Env) mock(name string, none bool, fn func(context.Context) (any, error)) {
	e.t.Helper()
	if none {
		e.t.Fatalf("kagzitest: the mock of step %q is nil", name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mocks[name] = fn
}

// call is the worker's way to the function of a step.
func (e *Env) call(ctx context.Context, id string, result reflect.Type, real func() (any, error)) (any, error) {
	run, err := uuid.Parse(string(kagzi.CurrentStep(ctx).Run))
	if err != nil {
		return real()
	}
	c := &call{time.Now()}
	e.mu.Lock()
	if e.calls[run] == nil {
		e.calls[run] = map[*call]bool{}
	}
	e.calls[run][c] = true
	m := e.mockOf(id)
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if delete(e.calls[run], c); len(e.calls[run]) == 0 {
			delete(e.calls, run)
		}
	}()
	if m == nil {
		return real()
	}
	v, err := m(ctx)
	if err == nil && v != nil && result != nil && !reflect.TypeOf(v).AssignableTo(result) {
		err = kagzi.Permanent(fmt.Errorf("kagzitest: the mock of step %q returns a %T, and the step a %v", id, v, result))
		e.t.Error(err)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// mockOf returns the mock of a step, nil if it has none. A name that comes again on its branch is counted: "pay#2".
func (e *Env) mockOf(id string) mock {
	bare := id[strings.LastIndexByte(id, '/')+1:]
	first, _, _ := strings.Cut(bare, "#")
	for _, name := range []string{id, bare, first} {
		if m := e.mocks[name]; m != nil {
			return m
		}
	}
	return nil
}

// slow counts the functions of the run's steps that are not waited for any more.
func (e *Env) slow(run uuid.UUID) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.calls[run] {
		if time.Since(c.begun) > e.cfg.StepPatience {
			n++
		}
	}
	return n
}
