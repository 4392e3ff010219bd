package kagzitest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
)

// A mock stands for the functions of steps of one name.
type mock struct {
	fn     func(context.Context) (any, error)
	do     bool // it is of MockDo
	called bool
}

// A call is the function of a step under way.
type call struct {
	step  string
	begun time.Time
}

// Mock puts fn in the place of the function of the steps named name: of those whose full ID it is, such as "ship/0/pack",
// or else of those that are named so in whatever branch. They may be of any workflow, unless the workflow's name stands
// before: "checkout:authorize". Everything else stays: fn's result is recorded, an error is tried again as the step's
// [kagzi.RetryPolicy] says, and [kagzi.CurrentStep] tells fn which step it is. The transaction of a [kagzi.StepTx] is
// committed with nothing in it but the record. Another Mock of the name replaces the one before. A step whose function
// returns another type than T fails, and the test with it; so does the test if steps ran and none has called fn, see
// [Config]. Mock may be called at any time.
//
// A child is no step, nor is what [kagzi.Compensate] registers: give its workflow another function, with [kagzi.Handle].
func Mock[T any](e *Env, name string, fn func(context.Context) (T, error)) {
	e.t.Helper()
	e.mock(name, fn == nil, &mock{fn: func(ctx context.Context) (any, error) { return fn(ctx) }})
}

// MockDo is [Mock] for the steps of [kagzi.Do] and [kagzi.DoTx].
func MockDo(e *Env, name string, fn func(context.Context) error) {
	e.t.Helper()
	e.mock(name, fn == nil, &mock{do: true, fn: func(ctx context.Context) (any, error) { return nil, fn(ctx) }})
}

func (e *Env) mock(name string, none bool, m *mock) {
	e.t.Helper()
	if name == "" {
		e.t.Fatalf("kagzitest: the mock has no name: give that of the step")
	}
	if none {
		e.t.Fatalf("kagzitest: the mock of step %q is nil", name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mocks[name] = m
}

// call is the worker's way to the function of a step.
func (e *Env) call(ctx context.Context, id string, result reflect.Type, real func() (any, error)) (any, error) {
	step := kagzi.CurrentStep(ctx)
	run, err := uuid.Parse(string(step.Run))
	if err != nil {
		return real()
	}
	c := &call{id, time.Now()}
	e.mu.Lock()
	if e.calls[run] == nil {
		e.calls[run] = map[*call]bool{}
	}
	e.calls[run][c] = true
	e.ran[id] = true
	m := e.mockOf(step.Workflow, id)
	if m != nil {
		m.called = true
	}
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
	v, err := m.fn(ctx)
	switch {
	case err != nil || result == nil:
	case m.do && result.Kind() != reflect.Interface: // that of kagzi.Do is any
		err = kagzi.Permanent(fmt.Errorf("kagzitest: the mock of step %q returns nothing, and the step %v: use Mock", id, result))
		e.t.Error(err)
	case v != nil && !reflect.TypeOf(v).AssignableTo(result):
		err = kagzi.Permanent(fmt.Errorf("kagzitest: the mock of step %q returns %T, and the step %v", id, v, result))
		e.t.Error(err)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// mockOf returns the mock of a step, nil if it has none. A name that comes again on its branch is counted: "pay#2".
func (e *Env) mockOf(workflow, id string) *mock {
	bare := id[strings.LastIndexByte(id, '/')+1:]
	first, _, _ := strings.Cut(bare, "#")
	for _, name := range []string{id, bare, first} {
		for _, name := range []string{workflow + ":" + name, name} {
			if m := e.mocks[name]; m != nil {
				return m
			}
		}
	}
	return nil
}

// checkMocks fails the test if steps ran and a mock was never called: most likely its name is wrong.
func (e *Env) checkMocks() {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cfg.SpareMocks || len(e.ran) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(e.mocks)) {
		if !e.mocks[name].called {
			e.t.Errorf("kagzitest: the mock of step %q was never called; steps that ran: %s", name, strings.Join(slices.Sorted(maps.Keys(e.ran)), ", "))
		}
	}
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
