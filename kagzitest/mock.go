package kagzitest

import "context"

// Mock makes fn run instead of the functions of the steps named name. A full ID, such as "ship/0/pack", is one step;
// another name is all of that name, on any branch, of any workflow unless it begins with one: "checkout:authorize".
// Another Mock for the same name replaces this one.
//
// Nothing else changes: fn's result is recorded, its error retried as the step's [kagzi.RetryPolicy] says, and
// [kagzi.CurrentStep] tells fn its step. The transaction of a [kagzi.StepTx] has only the record in it.
//
// A step whose function returns another type than T fails, with the test. The test also fails if steps ran and none
// called fn: see [Config].
//
// For a child or compensation, give its workflow another function with [kagzi.Handle].
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
