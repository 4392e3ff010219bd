package kagzi_test

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
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// exported lists the functions of the packages for users, and their types that have methods, as the source has them.
// Those of admin and topic have the package before the name. It leaves out the methods for Kagzi's own packages.
func exported(t *testing.T) (functions, types map[string]bool) {
	t.Helper()
	functions, types = map[string]bool{}, map[string]bool{}
	var names []string
	for _, folder := range []string{"", "admin/", "topic/"} {
		files, err := filepath.Glob(folder + "*.go")
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, files...)
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
			of := ""
			if file.Name.Name != "kagzi" {
				of = file.Name.Name + "."
			}
			if f.Recv == nil {
				functions[of+f.Name.Name] = true
				continue
			}
			name := receiver(f.Recv.List[0].Type)
			if ast.IsExported(name) && !ofCore(f) {
				types[of+name] = true
			}
		}
	}
	return functions, types
}

// ofCore reports whether a method is for Kagzi's own packages: it has a type of package core, or the name Core.
func ofCore(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f.Type, func(n ast.Node) bool {
		pkg, ok := n.(*ast.Ident)
		found = found || ok && pkg.Name == "core"
		return !found
	})
	return found || f.Name.Name == "Core"
}

// inside reports whether a method is for Kagzi's own packages.
func inside(m reflect.Method) bool {
	for i := range m.Type.NumIn() {
		in := m.Type.In(i)
		if in.Kind() == reflect.Pointer {
			in = in.Elem()
		}
		if strings.HasSuffix(in.PkgPath(), "internal/core") {
			return true
		}
	}
	return m.Name == "Core"
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

// A program that has overlooked the error of a constructor gets an error from each call, and no panic of Kagzi's.
func TestNothingOfNilPanics(t *testing.T) {
	t.Parallel()
	functions, types := exported(t)
	var client *kagzi.Client
	var worker *kagzi.Worker
	for _, tt := range []struct {
		of   any
		says string // in each error
	}{
		{client, "NewClient"},
		{&kagzi.Client{}, "NewClient"},
		{admin.New(client), "NewClient"},
		{admin.New(&kagzi.Client{}), "NewClient"},
		{topic.New(client), "NewClient"},
		{&admin.Client{}, "NewClient"},
		{admin.Runs{}, "NewClient"},
		{admin.Messages{}, "NewClient"},
		{admin.Schedules{}, "NewClient"},
		{admin.Queues{}, "NewClient"},
		{admin.Keys{}, "NewClient"},
		{admin.Limits{}, "NewClient"},
		{admin.Pauses{}, "NewClient"},
		{admin.Workers{}, "NewClient"},
		{admin.Topics{}, "NewClient"},
		{admin.Consumers{}, "NewClient"},
		{(*topic.Client)(nil), "NewClient"},
		{worker, "NewWorker"},
		{&kagzi.Worker{}, "NewWorker"},
		{(*kagzi.Coordinator)(nil), "NewCoordinator"},
		{&kagzi.Coordinator{}, "NewCoordinator"},
		{(*kagzi.Run[int])(nil), "Start and Find"},
		{&kagzi.Run[int]{}, "Start and Find"},
		{(*kagzi.Child[int])(nil), "Context is nil"},
		{&kagzi.Child[int]{}, "Context is nil"},
		{(*kagzi.Future[int])(nil), "kagzi.Go"},
		{&kagzi.Future[int]{}, "kagzi.Go"},
		{kagzi.Workflow[int, int]{}, ""},
		{kagzi.Signal[int]{}, ""},
		{kagzi.Message{}, ""},
		{topic.Topic[int]{}, ""},
		{topic.NewEvent{}, ""},
		{&kagzi.StartCall{}, ""},
		{&kagzi.SignalCall{}, ""},
		{kind.Kind(""), ""},
		{kagzi.Status(""), ""},
		{kagzi.RunInfo{}, ""},
		{admin.Quantiles{}, ""},
		{admin.Tally{}, ""},
		{admin.Outcome{}, ""},
		{kagzi.StepAttempt{}, ""},
		{admin.MessageInfo{}, ""},
		{admin.ScheduleInfo{}, ""},
		{admin.LimitInfo{}, ""},
		{admin.Rate{}, ""},
		{topic.Consumer{}, ""},
		{admin.ConsumerInfo{}, ""},
		{&admin.ConsumerInfo{}, ""},
		{kagzi.RetryPolicy{}, ""},
		{&kagzi.RetryPolicy{}, "JSON"},
		{&kagzi.StepError{}, ""},
		{&kagzi.RunError{}, ""},
		{&kagzi.BranchError{}, ""},
		{kagzi.BranchErrors{}, ""},
		{&kagzi.DivergenceError{}, ""},
	} {
		v := reflect.ValueOf(tt.of)
		name, _, _ := strings.Cut(reflect.Indirect(reflect.New(v.Type())).Type().String(), "[")
		name = strings.TrimPrefix(strings.TrimPrefix(name, "*"), "kagzi.")
		delete(types, name)
		for i := range v.NumMethod() {
			if inside(v.Type().Method(i)) {
				continue
			}
			method := name + "." + v.Type().Method(i).Name
			err, returns := callWithZeros(t, method, v.Method(i))
			if returns && tt.says != "" && method != "RetryPolicy.MarshalJSON" &&
				(err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%s: %v; want an error with %q", method, err, tt.says)
			}
		}
	}
	for name := range types {
		t.Errorf("type %s is not looked at", name)
	}

	zeroWorker := &kagzi.Worker{}
	for name, f := range map[string]any{
		"Continue": kagzi.Continue, "Do": kagzi.Do, "DoTx": kagzi.DoTx, "Go": kagzi.Go[int], "Map": kagzi.Map[int, int],
		"Parallel":      kagzi.Parallel,
		"topic.Publish": topic.Publish, "SetMetadata": kagzi.SetMetadata, "SetProgress": kagzi.SetProgress,
		"Race": kagzi.Race[int], "Results": kagzi.Results[int], "RunChild": kagzi.RunChild[int, int],
		"StartChild": kagzi.StartChild[int, int], "Sleep": kagzi.Sleep,
		"SleepUntil": kagzi.SleepUntil, "Step": kagzi.Step[int], "StepTx": kagzi.StepTx[int],
		"WaitMessage": kagzi.WaitMessage[int], "WaitSignal": kagzi.WaitSignal[int],
		// Those that return no error end the run by a panic.
		"Compensate": func() error {
			return panicked(func() { kagzi.Compensate(nil, "name", kit.CancelBooking.With("")) })
		},
		"Rollback": kagzi.Rollback,
		"Patched":  func() error { return panicked(func() { kagzi.Patched(nil, "") }) },
		"Migrate":  kagzi.Migrate, "NewClient": kagzi.NewClient, "NewWorker": kagzi.NewWorker,
		"NewCoordinator": kagzi.NewCoordinator,
		"Start":          kagzi.Start[int, int], "StartItem": kagzi.StartItem[int, int],
		"ItemOf": kagzi.ItemOf[int, int], "Find": kagzi.Find[int, int],
		"Handle": func() {
			kagzi.Handle(worker, kagzi.Workflow[int, int]{}, nil)
			kagzi.Handle(zeroWorker, kagzi.Workflow[int, int]{}, nil)
		},
		"HandleDo": func() {
			kagzi.HandleDo(worker, kagzi.DefineDo[int](""), nil)
		},
		"Define": kagzi.Define[int, int], "DefineDo": kagzi.DefineDo[int], "DefineSignal": kagzi.DefineSignal[int],
		"topic.Define": topic.Define[int], "topic.New": topic.New, "admin.New": admin.New,
		"topic.Events": topic.Events[int], "CurrentStep": kagzi.CurrentStep,
		"Checkpoint": kagzi.Checkpoint, "LastCheckpoint": kagzi.LastCheckpoint[int],
		"KindOf": kagzi.KindOf, "HTTPStatus": kagzi.HTTPStatus,
		"Permanent": func() { _ = kagzi.Permanent(nil) }, "RetryAfter": func() { _ = kagzi.RetryAfter(nil, 0) },
		"CollectErrors": kagzi.CollectErrors, "DefaultVersion": kagzi.DefaultVersion, "Detached": kagzi.Detached,
		"Repeatable": kagzi.Repeatable, "AtMostOnce": kagzi.AtMostOnce, "Limit": kagzi.Limit,
		"Reconcile":      kagzi.Reconcile[int],
		"admin.Happened": admin.Happened, "admin.DidNotHappen": admin.DidNotHappen, "admin.GiveUp": admin.GiveUp,
		"admin.DryRun": admin.DryRun, "InheritMetadata": kagzi.InheritMetadata,
		"admin.InheritCompensations": admin.InheritCompensations, "UndoneBy": func() {
			kagzi.UndoneBy(kagzi.Workflow[int, int]{})
		}, "Input": kagzi.Input, "admin.NewInput": admin.NewInput, "InTx": kagzi.InTx,
		"AllowAdditions": kagzi.AllowAdditions,
		"admin.Forget":   func() { _ = admin.Forget() }, "admin.Park": admin.Park, "admin.ByStarted": admin.ByStarted,
		"admin.ByEnded":        admin.ByEnded,
		"topic.Consume":        func() { topic.Consume[int](worker, topic.Consumer{}, nil) },
		"topic.DefineConsumer": topic.DefineConsumer,
		"topic.ConsumeBatch": func() {
			topic.ConsumeBatch(worker, topic.Consumer{}, topic.Topic[int]{}, topic.Batch{}, nil)
		},
		"topic.StartOn": func() {
			topic.StartOn(worker, topic.Consumer{}, topic.Topic[int]{}, kagzi.Workflow[int, int]{})
		},
		"topic.WaitEvent": topic.WaitEvent[int], "topic.Await": topic.Await[int], "topic.Follow": topic.Follow[int],
		"topic.Peek": topic.Peek[int], "topic.Reserve": topic.Reserve[int], "topic.WakeAt": topic.WakeAt,
	} {
		if !functions[name] {
			t.Errorf("there is no function %s", name)
		}
		delete(functions, name)
		if err, returns := callWithZeros(t, name, reflect.ValueOf(f)); returns &&
			(err == nil || !strings.HasPrefix(err.Error(), "kagzi: ")) {
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

// A nil option, an empty call and an empty reference are errors, too.
func TestNilArgumentsAreErrors(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	run := kit.Begin(k, wf, 1, kagzi.Delay(time.Hour))
	for name, f := range map[string]func() error{
		"nil reference": func() error { return kit.Second(k.Client.Get(k.Ctx, nil)) },
		"nil run":       func() error { return kit.Second(k.Client.Get(k.Ctx, (*kagzi.Run[int])(nil))) },
		"nil info":      func() error { return k.Client.Cancel(k.Ctx, (*kagzi.RunInfo)(nil)) },
		"zero info":     func() error { return k.Client.Cancel(k.Ctx, kagzi.RunInfo{}) },
		"empty ID":      func() error { return kit.Second(admin.New(k.Client).Runs.Fork(k.Ctx, kagzi.ID(""), "step")) },
		"zero workflow": func() error {
			return kit.Second(kagzi.Start(k.Ctx, k.Client, kagzi.Workflow[int, int]{}, 1))
		},
		"zero call":           func() error { return kit.Second(k.Client.StartMany(k.Ctx, []kagzi.Call{{}})) },
		"zero schedule":       func() error { return k.Client.Schedule(k.Ctx, kagzi.Schedule{}) },
		"zero message":        func() error { return k.Client.Signal(k.Ctx, run, kagzi.Message{}) },
		"nil option":          func() error { return k.Client.Cancel(k.Ctx, run, nil) },
		"nil option of start": func() error { return kit.Second(kagzi.Start(k.Ctx, k.Client, wf, 1, nil)) },
		"nil transaction":     func() error { return k.Client.Cancel(k.Ctx, run, kagzi.InTx(nil)) },
		"a nil transaction":   func() error { return k.Client.Cancel(k.Ctx, run, kagzi.InTx(pgx.Tx(nil))) },
		"bulk without filter": func() error {
			return kit.Second(admin.New(k.Client).Runs.CancelAll(k.Ctx, kagzi.RunFilter{}))
		},
		"worker without an ID": func() error { return admin.New(k.Client).Workers.Drain(k.Ctx, "") },
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
	c := kit.NewClient(t, pool)
	wf := kagzi.Define[int, int]("wf")
	run, err := kagzi.Start(kit.Context(t), c, wf, 1, kagzi.Delay(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	worker := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(worker, wf, func(kagzi.Context, int) (int, error) { return 0, nil })
	note, some, id := kagzi.DefineSignal[int]("note").With(1), kagzi.RunFilter{Workflow: "wf"}, uuid.NewString()
	past := time.Now().Add(-time.Minute)
	calls := map[string]func(ctx context.Context) error{
		"Schedules.Backfill": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Schedules.Backfill(ctx, "s", past, past))
		},
		"Cancel":         func(ctx context.Context) error { return c.Cancel(ctx, run) },
		"Runs.CancelAll": func(ctx context.Context) error { return kit.Second(admin.New(c).Runs.CancelAll(ctx, some)) },
		"Consumers.List": func(ctx context.Context) error { return kit.Second(admin.New(c).Consumers.List(ctx)) },
		"Consumers.Delete": func(ctx context.Context) error {
			return admin.New(c).Consumers.Delete(ctx, topic.DefineConsumer("c", topic.ConsumerConfig{}))
		},
		"Consumers.Skip": func(ctx context.Context) error {
			return admin.New(c).Consumers.Skip(ctx, topic.DefineConsumer("c", topic.ConsumerConfig{}),
				topic.Define[int]("t"), "event")
		},
		"Topics.List": func(ctx context.Context) error { return kit.Second(admin.New(c).Topics.List(ctx)) },
		"Trigger": func(ctx context.Context) error {
			return topic.New(c).Trigger(ctx, topic.DefineConsumer("c", topic.ConsumerConfig{}))
		},
		"Runs.Delete":    func(ctx context.Context) error { return admin.New(c).Runs.Delete(ctx, run) },
		"Runs.DeleteAll": func(ctx context.Context) error { return kit.Second(admin.New(c).Runs.DeleteAll(ctx, some)) },
		"DeleteSchedule": func(ctx context.Context) error { return c.DeleteSchedule(ctx, "s") },
		"Workers.Drain":  func(ctx context.Context) error { return admin.New(c).Workers.Drain(ctx, id) },
		"Workers.DrainQueue": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Workers.DrainQueue(ctx, "q"))
		},
		"Runs.Log":             func(ctx context.Context) error { return kit.Second(admin.New(c).Runs.Log(ctx, run)) },
		"Workers.ForceOffline": func(ctx context.Context) error { return admin.New(c).Workers.ForceOffline(ctx, id) },
		"Runs.Fork": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Runs.Fork(ctx, run, "step"))
		},
		"Runs.ForkAll": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Runs.ForkAll(ctx, some, "step"))
		},
		"Get":           func(ctx context.Context) error { return kit.Second(c.Get(ctx, run)) },
		"Wait":          func(ctx context.Context) error { return kit.Second(c.Wait(ctx, run)) },
		"Schedules.Get": func(ctx context.Context) error { return kit.Second(admin.New(c).Schedules.Get(ctx, "s")) },
		"Health":        func(ctx context.Context) error { return kit.Second(admin.New(c).Health(ctx)) },
		"Limits.Delete": func(ctx context.Context) error { return admin.New(c).Limits.Delete(ctx, "l") },
		"Limits.Declare": func(ctx context.Context) error {
			return admin.New(c).Limits.Declare(ctx, admin.StepLimit{Name: "l"})
		},
		"Limits.Reset": func(ctx context.Context) error { return admin.New(c).Limits.Reset(ctx, "l") },
		"Queues.Declare": func(ctx context.Context) error {
			return admin.New(c).Queues.Declare(ctx, admin.QueueLimits{Queue: "q"})
		},
		"Queues.Reset": func(ctx context.Context) error { return admin.New(c).Queues.Reset(ctx, "q") },
		"Limits.List":  func(ctx context.Context) error { return kit.Second(admin.New(c).Limits.List(ctx, "", 1)) },
		"Keys.List": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Keys.List(ctx, admin.KeyFilter{Queue: "q"}))
		},
		"Pauses.Set": func(ctx context.Context) error {
			return admin.New(c).Pauses.Set(ctx, admin.Target{Queue: "q"})
		},
		"Runs.Pause":  func(ctx context.Context) error { return admin.New(c).Runs.Pause(ctx, run) },
		"Pauses.List": func(ctx context.Context) error { return kit.Second(admin.New(c).Pauses.List(ctx)) },
		"Pauses.End": func(ctx context.Context) error {
			return admin.New(c).Pauses.End(ctx, admin.Target{Queue: "q"})
		},
		"Runs.Unpause": func(ctx context.Context) error { return admin.New(c).Runs.Unpause(ctx, run) },
		"Runs.UnpauseAll": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Runs.UnpauseAll(ctx, some))
		},
		"Queues.List": func(ctx context.Context) error { return kit.Second(admin.New(c).Queues.List(ctx)) },
		"Keys.Set": func(ctx context.Context) error {
			return admin.New(c).Keys.Set(ctx, "q", "k", admin.KeyLimits{})
		},
		"Queues.Set": func(ctx context.Context) error {
			return admin.New(c).Queues.Set(ctx, admin.QueueLimits{Queue: "q"})
		},
		"Limits.Set": func(ctx context.Context) error {
			return admin.New(c).Limits.Set(ctx, admin.StepLimit{Name: "l"})
		},
		"Runs.Count": func(ctx context.Context) error { return kit.Second(admin.New(c).Runs.Count(ctx, some)) },
		"Latencies":  func(ctx context.Context) error { return kit.Second(admin.New(c).Latencies(ctx)) },
		"Failures":   func(ctx context.Context) error { return kit.Second(admin.New(c).Failures(ctx, time.Hour)) },
		"Outcomes":   func(ctx context.Context) error { return kit.Second(admin.New(c).Outcomes(ctx, time.Hour, 1)) },
		"List":       func(ctx context.Context) error { return kit.Second(c.List(ctx, some)) },
		"Schedules.List": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Schedules.List(ctx, admin.ScheduleFilter{}))
		},
		"Schedules.NextFires": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Schedules.NextFires(ctx, "s", 1))
		},
		"Schedules.Pause": func(ctx context.Context) error { return admin.New(c).Schedules.Pause(ctx, "s") },
		"Publish": func(ctx context.Context) error {
			return topic.New(c).Publish(ctx, topic.Define[int]("t").With(1))
		},
		"PublishMany": func(ctx context.Context) error {
			return topic.New(c).PublishMany(ctx, []topic.NewEvent{topic.Define[int]("t").With(1)})
		},
		"Runs.Restart": func(ctx context.Context) error { return kit.Second(admin.New(c).Runs.Restart(ctx, run)) },
		"Runs.RestartAll": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Runs.RestartAll(ctx, some))
		},
		"Runs.Resume": func(ctx context.Context) error { return admin.New(c).Runs.Resume(ctx, run) },
		"Runs.ResumeAll": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Runs.ResumeAll(ctx, some))
		},
		"Schedules.Resume": func(ctx context.Context) error { return admin.New(c).Schedules.Resume(ctx, "s") },
		"Schedule": func(ctx context.Context) error {
			return c.Schedule(ctx, kagzi.Schedule{Name: "s", Every: time.Hour, Run: wf.With(1)})
		},
		"Audit": func(ctx context.Context) error { return kit.Second(admin.New(c).Audit(ctx, admin.AuditFilter{})) },
		"Messages.List": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Messages.List(ctx, run, admin.MessageFilter{}))
		},
		"Messages.Drop": func(ctx context.Context) error { return admin.New(c).Messages.Drop(ctx, run, "id") },
		"Messages.Redeliver": func(ctx context.Context) error {
			return admin.New(c).Messages.Redeliver(ctx, run, "id")
		},
		"CheckSealer": func(ctx context.Context) error { return c.CheckSealer(ctx) },
		"Signal":      func(ctx context.Context) error { return c.Signal(ctx, run, note) },
		"StartMany": func(ctx context.Context) error {
			return kit.Second(c.StartMany(ctx, []kagzi.Call{wf.With(1)}))
		},
		"Steps":       func(ctx context.Context) error { return kit.Second(c.Steps(ctx, run)) },
		"Stats":       func(ctx context.Context) error { return kit.Second(admin.New(c).Stats(ctx)) },
		"Stranded":    func(ctx context.Context) error { return kit.Second(admin.New(c).Stranded(ctx)) },
		"Runs.Doubts": func(ctx context.Context) error { return kit.Second(admin.New(c).Runs.Doubts(ctx, 0)) },
		"Runs.Resolve": func(ctx context.Context) error {
			return admin.New(c).Runs.Resolve(ctx, run, "s", admin.DidNotHappen())
		},
		"Runs.Terminate": func(ctx context.Context) error { return admin.New(c).Runs.Terminate(ctx, run) },
		"Runs.TerminateAll": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Runs.TerminateAll(ctx, some))
		},
		"Schedules.Trigger": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Schedules.Trigger(ctx, "s"))
		},
		"Runs.Update": func(ctx context.Context) error { return admin.New(c).Runs.Update(ctx, run, kagzi.Priority(1)) },
		"Runs.UpdateAll": func(ctx context.Context) error {
			return kit.Second(admin.New(c).Runs.UpdateAll(ctx, some, kagzi.Priority(1)))
		},
		"Workers.Get": func(ctx context.Context) error { return kit.Second(admin.New(c).Workers.Get(ctx, id)) },
		"Workers.Log": func(ctx context.Context) error { return kit.Second(admin.New(c).Workers.Log(ctx, id)) },
		"Workers.List": func(ctx context.Context) error {
			_, _, err := admin.New(c).Workers.List(ctx, admin.WorkerFilter{})
			return err
		},
		"Start":         func(ctx context.Context) error { return kit.Second(kagzi.Start(ctx, c, wf, 1)) },
		"Find":          func(ctx context.Context) error { return kit.Second(kagzi.Find(ctx, c, wf, run)) },
		"Run.Result":    func(ctx context.Context) error { return kit.Second(run.Result(ctx)) },
		"Run.Info":      func(ctx context.Context) error { return kit.Second(run.Info(ctx)) },
		"Run.Cancel":    func(ctx context.Context) error { return run.Cancel(ctx) },
		"Worker.Replay": func(ctx context.Context) error { return worker.Replay(ctx, run) },
		"Migrate":       func(ctx context.Context) error { return kagzi.Migrate(ctx, pool) },
	}
	quick := []string{"Core", "Liveness", "Workers.Local", "Namespace", "Readiness"}
	for name := range kit.Methods(c) {
		if calls[name] == nil && !slices.Contains(quick, name) {
			t.Errorf("%s is not called", name)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	before := sent.n.Load()
	for name, call := range calls {
		err := call(ended)
		if !errors.Is(err, context.Canceled) || !strings.HasPrefix(fmt.Sprint(err), "kagzi: ") ||
			kagzi.KindOf(err) != kind.Cancelled {
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

// A run prints as its run ID, and shows nothing of the client.
func TestRunAsText(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kagzi.Define[int, string]("checkout"), 1)
	if got := fmt.Sprintf("%v", run); got != string(run.ID()) {
		t.Errorf("prints %q, want %q", got, run.ID())
	}
	for _, none := range []*kagzi.Run[int]{nil, {}} {
		if got := fmt.Sprint(none); got != "" {
			t.Errorf("prints %q", got)
		}
	}
}
