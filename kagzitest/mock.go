package kagzitest

import "context"

// Mock makes fn run instead of the functions of the steps named name. If name is a full ID, such as "ship/0/pack", fn
// replaces the function of that step; otherwise it replaces those of all steps of that name, on any branch. The steps
// may be of any workflow, unless the name begins with a workflow's: "checkout:authorize". Nothing else changes: fn's
// result is recorded, an error is retried as the step's [kagzi.RetryPolicy] says, and [kagzi.CurrentStep] tells fn
// which step it runs for. The transaction of a [kagzi.StepTx] is committed with only the record in it. Another Mock for
// the same name replaces this one.
//
// A step whose function returns another type than T fails, and so does the test. The test also fails if steps ran and
// none called fn, see [Config]. Mock may be called at any time.
//
// A child is no step, and neither is a call that [kagzi.Compensate] registers: give its workflow another function with
// [kagzi.Handle].
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
		e.t.Fatalf("kagzitest: the mock has no name: give the name of the step")
	}
	if none {
		e.t.Fatalf("kagzitest: the mock of step %q is nil", name)
	}
	e.functions.mock(name, m)
}
