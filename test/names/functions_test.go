package names_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

func one(context.Context) (int, error)           { return 1, nil }
func nothing(context.Context) error              { return nil }
func oneTx(context.Context, pgx.Tx) (int, error) { return 1, nil }
func nothingTx(context.Context, pgx.Tx) error    { return nil }
func branch(kagzi.Context) error                 { return nil }
func oneBranch(kagzi.Context) (int, error)       { return 1, nil }
func item(_ kagzi.Context, n int) (int, error)   { return n, nil }
func last[T any](_ T, err error) error           { return err }
func echo(_ kagzi.Context, n int) (int, error)   { return n, nil }

// inWorkflow has, for each function of a workflow that takes a name, calls with s in each place.
func inWorkflow(s string) map[string]func(kagzi.Context) error {
	named := kagzi.Define[int, int](s)
	return map[string]func(kagzi.Context) error{
		"Compensate":    func(ctx kagzi.Context) error { kagzi.Compensate(ctx, s, work.With(1)); return nil },
		"Compensate of": func(ctx kagzi.Context) error { kagzi.Compensate(ctx, "c", named.With(1)); return nil },
		"Do":            func(ctx kagzi.Context) error { return kagzi.Do(ctx, s, nothing) },
		"Do Limit": func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "d", nothing, kagzi.Limit(s), kit.NoRetry)
		},
		"DoTx":           func(ctx kagzi.Context) error { return kagzi.DoTx(ctx, s, nothingTx) },
		"DoTx Isolation": func(ctx kagzi.Context) error { return kagzi.DoTx(ctx, "d", nothingTx, kagzi.Isolation(s)) },
		"Go":             func(ctx kagzi.Context) error { return last(kagzi.Go(ctx, s, oneBranch).Result(ctx)) },
		"Map":            func(ctx kagzi.Context) error { return last(kagzi.Map(ctx, s, []int{1}, item)) },
		"Parallel": func(ctx kagzi.Context) error {
			return kagzi.Parallel(ctx, s, map[string]func(kagzi.Context) error{"b": branch})
		},
		"Parallel branch": func(ctx kagzi.Context) error {
			return kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{s: branch})
		},
		"Patched": func(ctx kagzi.Context) error { kagzi.Patched(ctx, s); return nil },
		"Peek":    func(ctx kagzi.Context) error { return last(topic.Peek(ctx, s, about, 1)) },
		"Publish": func(ctx kagzi.Context) error { return topic.Publish(ctx, s, about.With(1)) },
		"Publish topic": func(ctx kagzi.Context) error {
			return topic.Publish(ctx, "p", topic.Define[int](s).With(1))
		},
		"Publish title": func(ctx kagzi.Context) error { return topic.Publish(ctx, "p", about.With(1).Title(s)) },
		"Publish ID": func(ctx kagzi.Context) error {
			return topic.Publish(ctx, "p", about.With(1).WithID(kagzi.ID(s)))
		},
		"Race": func(ctx kagzi.Context) error {
			_, _, err := kagzi.Race(ctx, s, map[string]func(kagzi.Context) (int, error){"b": oneBranch})
			return err
		},
		"Race branch": func(ctx kagzi.Context) error {
			_, _, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (int, error){s: oneBranch})
			return err
		},
		"Reserve": func(ctx kagzi.Context) error { return topic.Reserve[int](ctx, s) },
		"RunChild": func(ctx kagzi.Context) error {
			return last(kagzi.RunChild(ctx, s, kagzi.Define[int, int]("child"), 1))
		},
		"RunChild of":     func(ctx kagzi.Context) error { return last(kagzi.StartChild(ctx, "c", named, 1)) },
		"SetMetadata":     func(ctx kagzi.Context) error { return kagzi.SetMetadata(ctx, s, kagzi.Metadata{"k": "v"}) },
		"SetMetadata key": func(ctx kagzi.Context) error { return kagzi.SetMetadata(ctx, "m", kagzi.Metadata{s: "v"}) },
		"Sleep":           func(ctx kagzi.Context) error { return kagzi.Sleep(ctx, s, time.Microsecond) },
		"SleepUntil":      func(ctx kagzi.Context) error { return kagzi.SleepUntil(ctx, s, ctx.Now()) },
		"StartChild": func(ctx kagzi.Context) error {
			return last(kagzi.StartChild(ctx, s, kagzi.Define[int, int]("child"), 1))
		},
		"StartChild ID": func(ctx kagzi.Context) error {
			return last(kagzi.StartChild(ctx, "c", work, 1, kagzi.ID(s)))
		},
		"StartChild Queue": func(ctx kagzi.Context) error {
			return last(kagzi.StartChild(ctx, "c", work, 1, kagzi.Queue(s)))
		},
		"StartChild Key": func(ctx kagzi.Context) error {
			return last(kagzi.StartChild(ctx, "c", work, 1, kagzi.Key(s)))
		},
		"Step":   func(ctx kagzi.Context) error { return last(kagzi.Step(ctx, s, one)) },
		"StepTx": func(ctx kagzi.Context) error { return last(kagzi.StepTx(ctx, s, oneTx)) },
		"WaitEvent": func(ctx kagzi.Context) error {
			return last(topic.WaitEvent(ctx, s, about, "e", kagzi.Timeout(time.Microsecond)))
		},
		"WaitEvent topic": func(ctx kagzi.Context) error {
			return last(topic.WaitEvent(ctx, "e", topic.Define[int](s), "e", kagzi.Timeout(time.Microsecond)))
		},
		"WaitEvent ID": func(ctx kagzi.Context) error {
			return last(topic.WaitEvent(ctx, "e", about, kagzi.ID(s), kagzi.Timeout(time.Microsecond)))
		},
		"WaitMessage": func(ctx kagzi.Context) error {
			return last(kagzi.WaitMessage(ctx, kagzi.DefineSignal[int](s), kagzi.Timeout(time.Microsecond)))
		},
		"WaitSignal": func(ctx kagzi.Context) error {
			return last(kagzi.WaitSignal(ctx, kagzi.DefineSignal[int](s), kagzi.Timeout(time.Microsecond)))
		},
		"WaitSignal key": func(ctx kagzi.Context) error {
			return last(kagzi.WaitSignal(ctx, message.For(s), kagzi.Timeout(time.Microsecond)))
		},
	}
}

// The table has every exported function that takes a Context and a name.
func TestEveryFunctionIsInTheTable(t *testing.T) {
	t.Parallel()
	known, found := map[string]bool{"SetProgress": true}, 0 // a text
	for name := range inWorkflow("x") {
		first, _, _ := strings.Cut(name, " ")
		known[first] = true
	}
	for _, name := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || len(f.Type.Params.List) < 2 {
				continue
			}
			of := f.Type.Params.List[0].Type
			if outside, ok := of.(*ast.SelectorExpr); ok && fmt.Sprint(outside.X) == "kagzi" {
				of = outside.Sel
			}
			if of, ok := of.(*ast.Ident); !ok || of.Name != "Context" {
				continue
			}
			takesName := slices.ContainsFunc(f.Type.Params.List[1:], func(p *ast.Field) bool {
				kind := fmt.Sprint(p.Type)
				return kind == "string" || strings.Contains(kind, "Signal")
			})
			if found++; takesName && !known[f.Name.Name] {
				t.Errorf("%s takes a name and is not in the table", f.Name.Name)
			}
		}
	}
	if found < 20 {
		t.Errorf("INVALID: only %d functions were found", found)
	}
}

// A workflow function that uses a bad name fails its run with kind.BadRequest. The database is not bothered with it.
func TestRefusedNamesInWorkflows(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	logged := &testlog.Buffer{}
	c := kit.NewClientWith(t, db.Pool, kagzi.ClientConfig{Logger: logged.Logger()})
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: c}
	type call struct{ Function, Name string }
	wf := kagzi.Define[call, string]("wf", kit.NoRetry)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 50})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, in call) (string, error) {
		err := inWorkflow(refused[in.Name])[in.Function](ctx)
		if err != nil {
			return "", err
		}
		return "went through", nil
	})
	kit.StartWorker(t, w)
	runs := map[call]*kagzi.Run[string]{}
	for function := range inWorkflow("x") {
		for name := range refused {
			in := call{function, name}
			runs[in] = kit.Begin(k, wf, in)
		}
	}
	for in, run := range runs {
		ctx, cancel := context.WithTimeout(k.Ctx, await.Patience)
		defer cancel()
		out, err := run.Result(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%+v: %+v", in, k.InfoOf(run.ID()))
		}
		if err == nil {
			t.Errorf("%+v: %s", in, out)
			continue
		}
		re, ok := errors.AsType[*kagzi.RunError](err)
		if !ok || re.Kind != kind.BadRequest {
			t.Errorf("%+v: %v", in, err)
		}
		wantRefusal(t, fmt.Sprintf("%+v", in), err)
	}
	if logged.Has("refuses") {
		t.Errorf("the database refuses something:\n%s", logged)
	}
}

// A workflow function uses odd names everywhere, and finds them again in a replay.
func TestAllowedNamesInWorkflows(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	logged := &testlog.Buffer{}
	c := kit.NewClientWith(t, db.Pool, kagzi.ClientConfig{Logger: logged.Logger()})
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: c}
	wf := kagzi.Define[string, int]("wf", kit.NoRetry)
	// of consumers, and of names that there must be
	leftOut := []string{"Peek", "Reserve", "Do Limit", "DoTx Isolation"}
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 50})
	child := kagzi.Define[int, int]("child")
	kagzi.Handle(w, child, echo)
	kagzi.Handle(w, work, echo) // which may undo a run that fails
	kagzi.Handle(w, wf, func(ctx kagzi.Context, name string) (int, error) {
		calls, n := inWorkflow(stepName(name)), 0
		for _, function := range slices.Sorted(maps.Keys(calls)) {
			// name and key are one name
			if slices.Contains(leftOut, function) || function == "WaitSignal key" && name == "longest" {
				n++
				continue
			}
			err := calls[function](ctx)
			if _, late := errors.AsType[*kagzi.StepError](err); err != nil && !(late && errors.Is(err, kind.Timeout)) {
				return n, fmt.Errorf("%s: %w", function, err)
			}
			n++
		}
		return n, nil
	})
	kit.StartWorker(t, w)
	runs := map[string]*kagzi.Run[int]{}
	for name := range allowed {
		runs[name] = kit.Begin(k, wf, name)
	}
	for name, run := range runs {
		ctx, cancel := context.WithTimeout(k.Ctx, await.Patience)
		defer cancel()
		if n, err := run.Result(ctx); ctx.Err() != nil {
			t.Fatalf("%+v: %+v", name, k.InfoOf(run.ID()))
		} else if err != nil || n != len(inWorkflow("x")) {
			t.Errorf("%s: %d, %v", name, n, err)
			continue
		}
		if err := w.Replay(k.Ctx, run.ID()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s := stepName(name)
		steps, err := c.Steps(k.Ctx, run.ID(), kagzi.StepFilter{Steps: []string{s}})
		if err != nil || len(steps) == 0 || steps[0].Step != s {
			t.Errorf("%s: steps %+v, %v", name, steps, err)
		}
		info, err := c.Get(k.Ctx, run.ID())
		if err != nil || info.Metadata[s] != "v" {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
	}
	if logged.Has("refuses") {
		t.Errorf("the database refuses something:\n%s", logged)
	}
}

// stepName returns an allowed name without the characters that names of steps may not have.
func stepName(name string) string {
	return strings.NewReplacer("/", "", "#", "").Replace(allowed[name])
}

// badKind is an error of a kind that the application has made up.
type badKind struct{ kind kind.Kind }

func (badKind) Error() string { return "bad" }

func (e badKind) As(target any) bool {
	k, ok := target.(*kind.Kind)
	if ok {
		*k = e.kind
	}
	return ok
}

// Names in the errors of an application reach the record of a failure, whatever they are.
func TestNamesInErrors(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: db.Pool, Client: kit.NewClient(t, db.Pool)}
	errs := func(s string) map[string]error {
		return map[string]error{
			"StepError": &kagzi.StepError{Step: s, Kind: kind.Kind(s), Message: s},
			"RunError": &kagzi.RunError{
				Run: kagzi.RunID(s), Workflow: s, Status: kagzi.Status(s),
				Kind: kind.Kind(s), Message: s,
			},
			"BranchError": &kagzi.BranchError{Name: s, Err: errors.New(s)}, "Kind": kind.Kind(s),
			"As": badKind{kind.Kind(s)}, "text": errors.New(s),
		}
	}
	type call struct{ Err, Name, Where string }
	wf := kagzi.Define[call, int]("wf", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{MaxConcurrent: 50})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, in call) (int, error) {
		err := errs(refused[in.Name])[in.Err]
		switch in.Where {
		case "step":
			return 1, kagzi.Do(ctx, "s", func(context.Context) error { return err }, kit.NoRetry)
		case "branch":
			return kagzi.Go(ctx, "b", func(kagzi.Context) (int, error) { return 1, err }).Result(ctx)
		}
		return 1, err
	})
	kit.StartWorker(t, w)
	runs := map[call]*kagzi.Run[int]{}
	for name := range refused {
		for e := range errs("") {
			for _, where := range []string{"run", "step", "branch"} {
				in := call{e, name, where}
				runs[in] = kit.Begin(k, wf, in)
			}
		}
	}
	for in, run := range runs {
		ctx, cancel := context.WithTimeout(k.Ctx, await.Patience)
		_, err := run.Result(ctx)
		cancel()
		if _, ended := errors.AsType[*kagzi.RunError](err); !ended {
			t.Errorf("%+v: %v", in, err)
		}
	}
}
