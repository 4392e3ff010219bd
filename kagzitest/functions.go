package kagzitest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
)

// A mock replaces the functions of the steps of one name.
type mock struct {
	fn     func(context.Context) (any, error)
	do     bool // set by MockDo
	called bool // a step has called fn
}

// A call is the function of a step, or its mock, while it runs.
type call struct {
	step  string
	begun time.Time
}

// stepFunctions has the mocks of a test, and knows which functions of steps are running.
type stepFunctions struct {
	t testing.TB

	mu    sync.Mutex                   // guards all below
	mocks map[string]*mock             // by the name that Mock was given
	ran   map[string]bool              // the steps whose functions, or mocks, were called
	calls map[uuid.UUID]map[*call]bool // running, by run
}

func newStepFunctions(t testing.TB) *stepFunctions {
	return &stepFunctions{
		t: t, mocks: map[string]*mock{}, ran: map[string]bool{},
		calls: map[uuid.UUID]map[*call]bool{},
	}
}

// mock sets the mock for a name.
func (f *stepFunctions) mock(name string, m *mock) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mocks[name] = m
}

// call calls the mock of the step id, or its own function real. The worker calls it for each attempt of a step.
func (f *stepFunctions) call(ctx context.Context, id string, result reflect.Type,
	real func() (any, error),
) (any, error) {
	step := kagzi.CurrentStep(ctx)
	run, err := uuid.Parse(string(step.Run))
	if err != nil {
		return real()
	}
	m, done := f.begin(run, step.Workflow, id)
	defer done()
	if m == nil {
		return real()
	}
	v, err := m.fn(ctx)
	switch {
	case err != nil || result == nil:
	case m.do && result.Kind() != reflect.Interface: // the result of kagzi.Do is any
		err = kagzi.Permanent(fmt.Errorf("kagzitest: the mock of step %q returns nothing, but the step returns %v: "+
			"use Mock", id, result))
		f.t.Error(err)
	case v != nil && !reflect.TypeOf(v).AssignableTo(result):
		err = kagzi.Permanent(fmt.Errorf("kagzitest: the mock of step %q returns %T, but the step returns %v", id,
			v, result))
		f.t.Error(err)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// begin records that the function of a step runs until done is called, and returns the step's mock, nil if it has none.
func (f *stepFunctions) begin(run uuid.UUID, workflow, id string) (m *mock, done func()) {
	c := &call{id, time.Now()}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[run] == nil {
		f.calls[run] = map[*call]bool{}
	}
	f.calls[run][c] = true
	f.ran[id] = true
	if m = f.mockOf(workflow, id); m != nil {
		m.called = true
	}
	return m, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.calls[run], c); len(f.calls[run]) == 0 {
			delete(f.calls, run)
		}
	}
}

// mockOf returns the mock of a step, nil if it has none. A name that a branch uses again is counted, as in "pay#2". The
// caller holds mu.
func (f *stepFunctions) mockOf(workflow, id string) *mock {
	bare := id[strings.LastIndexByte(id, '/')+1:]
	first, _, _ := strings.Cut(bare, "#")
	for _, name := range []string{id, bare, first} {
		for _, name := range []string{workflow + ":" + name, name} {
			if m := f.mocks[name]; m != nil {
				return m
			}
		}
	}
	return nil
}

// checkMocks fails the test if steps ran and a mock was never called: most likely its name is wrong.
func (f *stepFunctions) checkMocks() {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ran) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(f.mocks)) {
		if !f.mocks[name].called {
			f.t.Errorf("kagzitest: the mock of step %q was never called; steps that ran: %s", name,
				strings.Join(slices.Sorted(maps.Keys(f.ran)), ", "))
		}
	}
}

// slow returns the number of the run's functions that have run for longer than patience.
func (f *stepFunctions) slow(run uuid.UUID, patience time.Duration) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.calls[run] {
		if time.Since(c.begun) > patience {
			n++
		}
	}
	return n
}

// running returns the steps of the run whose functions are running.
func (f *stepFunctions) running(run uuid.UUID) (steps []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.calls[run] {
		steps = append(steps, c.step)
	}
	return steps
}
