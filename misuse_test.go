package kagzi

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// exported lists the package's functions, and its types that have methods, as its source has them.
func exported(t *testing.T) (functions, types map[string]bool) {
	t.Helper()
	functions, types = map[string]bool{}, map[string]bool{}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			if f.Recv == nil {
				functions[f.Name.Name] = true
				continue
			}
			name := receiver(f.Recv.List[0].Type)
			if ast.IsExported(name) {
				types[name] = true
			}
		}
	}
	return functions, types
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// arguments are what a function can be called with: a context, names, and zero values of all else.
func arguments(f reflect.Type) []reflect.Value {
	var in []reflect.Value
	for i := range f.NumIn() {
		if f.IsVariadic() && i == f.NumIn()-1 {
			break
		}
		v := reflect.New(f.In(i)).Elem()
		switch {
		case v.Type() == reflect.TypeFor[context.Context]():
			v.Set(reflect.ValueOf(context.Background()))
		case v.Kind() == reflect.String:
			v.SetString("name")
		}
		in = append(in, v)
	}
	return in
}

// calls f, and returns its error: nil if it has none to return.
func callWithZeros(t *testing.T, name string, f reflect.Value) (err error, returnsError bool) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s panics: %v", name, p)
		}
	}()
	out := f.Call(arguments(f.Type()))
	for _, v := range out {
		if h, ok := v.Interface().(http.Handler); ok {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "NewClient") {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
		}
	}
	if n := len(out); n > 0 && out[n-1].Type() == reflect.TypeFor[error]() {
		err, _ = out[n-1].Interface().(error)
		return err, true
	}
	return nil, false
}

// Whoever has overlooked the error of a constructor learns of it by an error, whatever he calls, and from no panic of
// Kagzi's.
func TestNothingOfNilPanics(t *testing.T) {
	t.Parallel()
	functions, types := exported(t)
	var client *Client
	var worker *Worker
	for _, tt := range []struct {
		of   any
		says string // in each error
	}{
		{client, "NewClient"},
		{&Client{}, "NewClient"},
		{worker, "NewWorker"},
		{&Worker{}, "NewWorker"},
		{(*Coordinator)(nil), "NewCoordinator"},
		{&Coordinator{}, "NewCoordinator"},
		{(*Run[int])(nil), "Start and Find"},
		{&Run[int]{}, "Start and Find"},
		{(*Child[int])(nil), "Context is nil"},
		{&Child[int]{}, "Context is nil"},
		{(*Future[int])(nil), "kagzi.Go"},
		{&Future[int]{}, "kagzi.Go"},
		{Workflow[int, int]{}, ""},
		{Signal[int]{}, ""},
		{Message{}, ""},
		{Kind(""), ""},
		{Status(""), ""},
		{RunInfo{}, ""},
		{StepAttempt{}, ""},
		{ScheduleInfo{}, ""},
		{RetryPolicy{}, ""},
		{&RetryPolicy{}, "JSON"},
		{&StepError{}, ""},
		{&RunError{}, ""},
		{&BranchError{}, ""},
		{BranchErrors{}, ""},
		{&DivergenceError{}, ""},
	} {
		v := reflect.ValueOf(tt.of)
		name, _, _ := strings.Cut(reflect.Indirect(reflect.New(v.Type())).Type().String(), "[")
		name = strings.TrimPrefix(strings.TrimPrefix(name, "*"), "kagzi.")
		delete(types, name)
		for i := range v.NumMethod() {
			method := name + "." + v.Type().Method(i).Name
			err, returns := callWithZeros(t, method, v.Method(i))
			if returns && tt.says != "" && method != "RetryPolicy.MarshalJSON" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%s: %v; want an error with %q", method, err, tt.says)
			}
		}
	}
	for name := range types {
		t.Errorf("type %s is not looked at", name)
	}

	zeroWorker := &Worker{}
	for name, f := range map[string]any{
		"Do": Do, "DoTx": DoTx, "Go": Go[int], "Map": Map[int, int], "Parallel": Parallel,
		"Race": Race[int], "Results": Results[int], "RunChild": RunChild[int, int], "StartChild": StartChild[int, int], "Sleep": Sleep,
		"SleepUntil": SleepUntil, "Step": Step[int], "StepTx": StepTx[int], "WaitSignal": WaitSignal[int],
		// Those that return no error end the run by a panic.
		"Compensate": func() error {
			return panicked(func() { Compensate(nil, "name", cancelBooking.With("")) })
		},
		"Patched": func() error { return panicked(func() { Patched(nil, "") }) },
		"Migrate": Migrate, "NewClient": NewClient, "NewWorker": NewWorker, "NewCoordinator": NewCoordinator,
		"Start": Start[int, int], "Find": Find[int, int],
		"Handle": func() { Handle(worker, Workflow[int, int]{}, nil); Handle(zeroWorker, Workflow[int, int]{}, nil) },
		"Define": Define[int, int], "DefineSignal": DefineSignal[int], "CurrentStep": CurrentStep, "KindOf": KindOf, "HTTPStatus": HTTPStatus,
		"Permanent": func() { _ = Permanent(nil) }, "RetryAfter": func() { _ = RetryAfter(nil, 0) },
		"CollectErrors": CollectErrors, "DefaultVersion": DefaultVersion, "Detached": Detached,
		"DryRun": DryRun, "InheritCompensations": InheritCompensations, "UndoneBy": func() { UndoneBy(Workflow[int, int]{}) }, "Input": Input, "NewInput": NewInput, "InTx": InTx, "AllowAdditions": AllowAdditions,
		"Forget": func() { _ = Forget() },
	} {
		if !functions[name] {
			t.Errorf("there is no function %s", name)
		}
		delete(functions, name)
		if err, returns := callWithZeros(t, name, reflect.ValueOf(f)); returns && (err == nil || !strings.HasPrefix(err.Error(), "kagzi: ")) {
			t.Errorf("%s: %v; want an error", name, err)
		}
	}
	for name := range functions {
		t.Errorf("function %s is not looked at", name)
	}
}

// panicked returns what f panics with, if that is an error of Kagzi's.
func panicked(f func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}

// An option that is nil, a call or a reference that is none are errors, too.
func TestNilArgumentsAreErrors(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf")
	run := begin(k, wf, 1, Delay(time.Hour))
	for name, f := range map[string]func() error{
		"nil reference":        func() error { return second(k.c.Get(k.ctx, nil)) },
		"nil run":              func() error { return second(k.c.Get(k.ctx, (*Run[int])(nil))) },
		"nil info":             func() error { return k.c.Cancel(k.ctx, (*RunInfo)(nil)) },
		"zero info":            func() error { return k.c.Cancel(k.ctx, RunInfo{}) },
		"empty ID":             func() error { return second(k.c.Fork(k.ctx, ID(""), "step")) },
		"zero workflow":        func() error { return second(Start(k.ctx, k.c, Workflow[int, int]{}, 1)) },
		"zero call":            func() error { return second(k.c.StartMany(k.ctx, []Call{{}})) },
		"zero schedule":        func() error { return k.c.Schedule(k.ctx, Schedule{}) },
		"zero message":         func() error { return k.c.Signal(k.ctx, run, Message{}) },
		"nil option":           func() error { return k.c.Cancel(k.ctx, run, nil) },
		"nil option of start":  func() error { return second(Start(k.ctx, k.c, wf, 1, nil)) },
		"nil transaction":      func() error { return k.c.Cancel(k.ctx, run, InTx(nil)) },
		"a nil transaction":    func() error { return k.c.Cancel(k.ctx, run, InTx(pgx.Tx(nil))) },
		"bulk without filter":  func() error { return second(k.c.CancelAll(k.ctx, RunFilter{})) },
		"worker without an ID": func() error { return k.c.Drain(k.ctx, "") },
	} {
		err := f()
		if err == nil || !strings.HasPrefix(err.Error(), "kagzi: ") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, gap := range []string{" :", "  ", "<nil>"} {
			if strings.Contains(err.Error(), gap) {
				t.Errorf("%s: a name is missing in %q", name, err)
			}
		}
	}
}

// asked counts the statements that are sent.
type asked struct{ n atomic.Int64 }

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	a.n.Add(1)
	return ctx
}
func (a *asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (a *asked) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	a.n.Add(1)
	return ctx
}
func (a *asked) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (a *asked) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// A call whose context has ended does nothing, whether the client has been used before or not.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	cfg := db.Pool.Config()
	sent := &asked{}
	cfg.ConnConfig.Tracer = sent
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c := newTestClient(t, pool)
	wf := Define[int, int]("wf")
	run, err := Start(testContext(t), c, wf, 1, Delay(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	worker := newTestWorker(t, c, WorkerConfig{})
	Handle(worker, wf, func(Context, int) (int, error) { return 0, nil })
	note, some, id := DefineSignal[int]("note").With(1), RunFilter{Workflow: "wf"}, uuid.NewString()
	past := time.Now().Add(-time.Minute)
	calls := map[string]func(ctx context.Context) error{
		"BackfillSchedule": func(ctx context.Context) error { return second(c.BackfillSchedule(ctx, "s", past, past)) },
		"Cancel":           func(ctx context.Context) error { return c.Cancel(ctx, run) },
		"CancelAll":        func(ctx context.Context) error { return second(c.CancelAll(ctx, some)) },
		"DeleteSchedule":   func(ctx context.Context) error { return c.DeleteSchedule(ctx, "s") },
		"Drain":            func(ctx context.Context) error { return c.Drain(ctx, id) },
		"DrainQueue":       func(ctx context.Context) error { return second(c.DrainQueue(ctx, "q")) },
		"Events":           func(ctx context.Context) error { return second(c.Events(ctx, run)) },
		"ForceOffline":     func(ctx context.Context) error { return c.ForceOffline(ctx, id) },
		"Fork":             func(ctx context.Context) error { return second(c.Fork(ctx, run, "step")) },
		"ForkAll":          func(ctx context.Context) error { return second(c.ForkAll(ctx, some, "step")) },
		"Get":              func(ctx context.Context) error { return second(c.Get(ctx, run)) },
		"GetSchedule":      func(ctx context.Context) error { return second(c.GetSchedule(ctx, "s")) },
		"Health":           func(ctx context.Context) error { return second(c.Health(ctx)) },
		"List":             func(ctx context.Context) error { return second(c.List(ctx, some)) },
		"ListSchedules":    func(ctx context.Context) error { return second(c.ListSchedules(ctx, ScheduleFilter{})) },
		"NextFires":        func(ctx context.Context) error { return second(c.NextFires(ctx, "s", 1)) },
		"PauseSchedule":    func(ctx context.Context) error { return c.PauseSchedule(ctx, "s") },
		"Restart":          func(ctx context.Context) error { return second(c.Restart(ctx, run)) },
		"RestartAll":       func(ctx context.Context) error { return second(c.RestartAll(ctx, some)) },
		"Resume":           func(ctx context.Context) error { return c.Resume(ctx, run) },
		"ResumeAll":        func(ctx context.Context) error { return second(c.ResumeAll(ctx, some)) },
		"ResumeSchedule":   func(ctx context.Context) error { return c.ResumeSchedule(ctx, "s") },
		"Schedule": func(ctx context.Context) error {
			return c.Schedule(ctx, Schedule{Name: "s", Every: time.Hour, Run: wf.With(1)})
		},
		"Signal":          func(ctx context.Context) error { return c.Signal(ctx, run, note) },
		"StartMany":       func(ctx context.Context) error { return second(c.StartMany(ctx, []Call{wf.With(1)})) },
		"Steps":           func(ctx context.Context) error { return second(c.Steps(ctx, run)) },
		"Stranded":        func(ctx context.Context) error { return second(c.Stranded(ctx)) },
		"Terminate":       func(ctx context.Context) error { return c.Terminate(ctx, run) },
		"TerminateAll":    func(ctx context.Context) error { return second(c.TerminateAll(ctx, some)) },
		"TriggerSchedule": func(ctx context.Context) error { return second(c.TriggerSchedule(ctx, "s")) },
		"Worker":          func(ctx context.Context) error { return second(c.Worker(ctx, id)) },
		"WorkerEvents":    func(ctx context.Context) error { return second(c.WorkerEvents(ctx, id)) },
		"Workers": func(ctx context.Context) error {
			_, _, err := c.Workers(ctx, WorkerFilter{})
			return err
		},
		"Start":         func(ctx context.Context) error { return second(Start(ctx, c, wf, 1)) },
		"Find":          func(ctx context.Context) error { return second(Find(ctx, c, wf, run)) },
		"Run.Result":    func(ctx context.Context) error { return second(run.Result(ctx)) },
		"Run.Info":      func(ctx context.Context) error { return second(run.Info(ctx)) },
		"Run.Cancel":    func(ctx context.Context) error { return run.Cancel(ctx) },
		"Worker.Replay": func(ctx context.Context) error { return worker.Replay(ctx, run) },
		"Migrate":       func(ctx context.Context) error { return Migrate(ctx, pool) },
	}
	methods := reflect.TypeFor[*Client]()
	for i := range methods.NumMethod() {
		if name := methods.Method(i).Name; calls[name] == nil && name != "Liveness" && name != "Readiness" {
			t.Errorf("%s is not called", name)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := sent.n.Load()
	for name, call := range calls {
		err := call(ended)
		if !errors.Is(err, context.Canceled) || !strings.HasPrefix(fmt.Sprint(err), "kagzi: ") || KindOf(err) != KindCancelled {
			t.Errorf("%s: %v", name, err)
		}
	}
	late, cancel := context.WithDeadline(t.Context(), past)
	defer cancel()
	for name, call := range calls {
		if err := call(late); !errors.Is(err, context.DeadlineExceeded) && name != "Health" { // which reports it
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := sent.n.Load() - before; n > 0 {
		t.Errorf("%d statements were sent", n)
	}
}
