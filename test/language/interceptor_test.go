package language_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// A journal collects lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf(format, args...))
}

func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Join(l.all, "\n")
	l.all = nil
	return all
}

type next = func(context.Context) error

type valueKey struct{}

// outcomeOf says how a call ended.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, kagzi.ErrSuspended):
		return strings.TrimPrefix(err.Error(), "kagzi: ")
	}
	return "failed: " + err.Error()
}

// serveOn runs a worker of the kit's own client, which has the interceptors.
func serveOn[In, Out any](k *kit.Kit, cfg kagzi.WorkerConfig, wf kagzi.Workflow[In, Out],
	fn func(kagzi.Context, In) (Out, error),
) (stop func() error) {
	k.T.Helper()
	w := kit.NewWorker(k.T, k.Client, cfg)
	kagzi.Handle(w, wf, fn)
	return kit.StartWorker(k.T, w)
}

// telling returns an interceptor that writes down all that it sees.
func telling(name string, l *lines) kagzi.Interceptor {
	return kagzi.Interceptor{
		Start: func(ctx context.Context, starts []*kagzi.StartCall, next next) error {
			for _, s := range starts {
				l.add("%s start %s%s%s", name, s.Workflow, s.ParentStep, s.Schedule)
				s.Headers = kagzi.Headers{"by": name + s.Headers["by"]}
			}
			err := next(ctx)
			l.add("%s started %d: %s", name, len(starts), outcomeOf(err))
			return err
		},
		Signal: func(ctx context.Context, m *kagzi.SignalCall, next next) error {
			m.Headers = kagzi.Headers{"by": name + m.Headers["by"]}
			err := next(ctx)
			l.add("%s signalled %s %v: %s", name, m.Signal, m.Run, outcomeOf(err))
			return err
		},
		Execute: func(ctx context.Context, e kagzi.Execution, next next) error {
			l.add("%s execute %s/%d %s first %t", name, e.Workflow, e.Version, e.ID, e.First)
			old, _ := ctx.Value(valueKey{}).(string)
			err := next(context.WithValue(ctx, valueKey{}, old+name))
			l.add("%s executed %s: %s", name, e.Workflow, outcomeOf(err))
			return err
		},
		Step: func(ctx context.Context, s kagzi.StepInfo, next next) error {
			err := next(ctx)
			l.add("%s step %s %d with %v: %s", name, s.Step, s.Attempt, ctx.Value(valueKey{}), outcomeOf(err))
			return err
		},
	}
}

func TestInterceptorsWrapEachOther(t *testing.T) {
	var l lines
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{telling("a", &l), {}, telling("b", &l)}})
	child := kagzi.Define[string, string]("child")
	wf := kagzi.Define[string, string]("wf")
	w := kit.NewWorker(t, k.Client, kit.NotifiedOnly)
	kagzi.Handle(w, child, func(ctx kagzi.Context, _ string) (string, error) { return ctx.Headers()["by"], nil })
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ string) (string, error) {
		one, err := kagzi.Step(ctx, "one", func(ctx context.Context) (string, error) {
			return fmt.Sprint(ctx.Value(valueKey{})), nil
		})
		if err != nil {
			return "", err
		}
		if err := kagzi.DoTx(ctx, "two", func(ctx context.Context, _ pgx.Tx) error { return nil }); err != nil {
			return "", err
		}
		m, err := kagzi.WaitMessage(ctx, kit.Approved)
		if err != nil {
			return "", err
		}
		c, err := kagzi.RunChild(ctx, "kid", child, "")
		return fmt.Sprintf("%s %s, message %s, child %s", one, ctx.Headers()["by"], m.Headers["by"], c), err
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, "", kagzi.ID("x"), kagzi.Headers{"by": "caller"})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal approved")
	k.Signal(kagzi.ID("x"), kit.Approved.With("").WithHeaders(kagzi.Headers{"by": "sender"}))
	if got, want := kit.ResultOf(k, run), "ab bacaller, message basender, child babacaller"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	got := l.take()
	for _, want := range []string{
		"a start wf\nb start wf\nb started 1: done\na started 1: done",
		"a execute wf/1 x first true\nb execute wf/1 x first true\nb step one 1 with ab: done\na step one 1 with ab: " +
			"done\nb step two 1 with ab: done",
		"b executed wf: the run goes on later: it waits for signal approved\na executed wf: the run goes on later: " +
			"it waits for signal approved",
		"b signalled approved x: done\na signalled approved x: done",
		"a execute wf/1 x first false\nb execute wf/1 x first false",
		"a start childkid\nb start childkid\nb started 1: done\na started 1: done",
		"b executed wf: done\na executed wf: done",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no\n%s\nin\n%s", want, got)
		}
	}
	if n := strings.Count(got, "a step one"); n != 1 {
		t.Errorf("a replay has called the interceptor of a step: %d calls", n)
	}
}

// Errors and panics of interceptors end what they wrap.
func TestInterceptorsThatFail(t *testing.T) {
	refused := errors.New("refused")
	for _, tt := range []struct {
		name        string
		interceptor kagzi.Interceptor
		kind        kind.Kind
		says        string
	}{
		{"ExecuteRefuses", kagzi.Interceptor{Execute: func(context.Context, kagzi.Execution, next) error {
			return refused
		}}, kind.Unknown, "refused"},
		{"ExecuteForgets", kagzi.Interceptor{Execute: func(context.Context, kagzi.Execution, next) error {
			return nil
		}}, kind.BadRequest, "did not call next"},
		{"ExecutePanics", kagzi.Interceptor{Execute: func(context.Context, kagzi.Execution, next) error {
			panic("boom")
		}}, kind.Panic, "boom"},
		{"ExecuteExits", kagzi.Interceptor{Execute: func(context.Context, kagzi.Execution, next) error {
			runtime.Goexit()
			return nil
		}}, kind.Panic, "Goexit"},
		{"ExecuteFailsAfter", kagzi.Interceptor{Execute: func(ctx context.Context, _ kagzi.Execution, next next) error {
			_ = next(ctx)
			return refused
		}}, kind.Unknown, "refused"},
		{"ExecutePanicsAfter", kagzi.Interceptor{Execute: func(ctx context.Context, _ kagzi.Execution,
			next next,
		) error {
			_ = next(ctx)
			panic("boom")
		}}, kind.Panic, "boom"},
		{"ExecuteExitsAfter", kagzi.Interceptor{Execute: func(ctx context.Context, _ kagzi.Execution, next next) error {
			_ = next(ctx)
			runtime.Goexit()
			return nil
		}}, kind.Panic, "Goexit"},
		{"ExecuteTwice", kagzi.Interceptor{Execute: func(ctx context.Context, _ kagzi.Execution, next next) error {
			_ = next(ctx)
			return next(ctx)
		}}, kind.BadRequest, "called next again"},
		{"StepRefuses", kagzi.Interceptor{Step: func(context.Context, kagzi.StepInfo, next) error {
			return kagzi.Permanent(refused)
		}}, kind.Unknown, "refused"},
		{
			"StepForgets",
			kagzi.Interceptor{Step: func(context.Context, kagzi.StepInfo, next) error { return nil }},
			kind.BadRequest, "did not call next",
		},
		{
			"StepPanics",
			kagzi.Interceptor{Step: func(context.Context, kagzi.StepInfo, next) error { panic("boom") }},
			kind.Panic, "boom",
		},
		{"StepTwice", kagzi.Interceptor{Step: func(ctx context.Context, _ kagzi.StepInfo, next next) error {
			_ = next(ctx)
			return next(ctx)
		}}, kind.BadRequest, "called next again"},
		{"StepForeign", kagzi.Interceptor{Step: func(_ context.Context, _ kagzi.StepInfo, next next) error {
			return next(context.Background())
		}}, kind.BadRequest, "does not descend"},
		{"StepFailsAfter", kagzi.Interceptor{Step: func(ctx context.Context, _ kagzi.StepInfo, next next) error {
			_ = next(ctx)
			return kagzi.Permanent(refused)
		}}, kind.Unknown, "refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{tt.interceptor}})
			wf := kagzi.Define[string, string]("wf")
			kit.Serve(k, wf, func(ctx kagzi.Context, _ string) (string, error) {
				return kagzi.Step(ctx, "step", func(context.Context) (string, error) { return "x", nil },
					kagzi.RetryPolicy{MaxAttempts: 1})
			})
			failed := kit.FailureOf(k, kit.Begin(k, wf, ""), kagzi.StatusFailed)
			if failed.Kind != tt.kind || !strings.Contains(failed.Message, tt.says) {
				t.Errorf("failed with kind %s: %s", failed.Kind, failed.Message)
			}
		})
	}
	for _, tt := range []struct {
		name string
		do   func(next next) error
		says string
	}{
		{"Refuses", func(next) error { return refused }, "refused"},
		{"Forgets", func(next) error { return nil }, "did not call next"},
		{"Panics", func(next) error { panic("boom") }, "boom"},
		{"FailsAfter", func(next next) error { return errors.Join(next(context.Background()), refused) }, "refused"},
	} {
		t.Run("Client"+tt.name, func(t *testing.T) {
			i := kagzi.Interceptor{
				Start:  func(_ context.Context, _ []*kagzi.StartCall, next next) error { return tt.do(next) },
				Signal: func(_ context.Context, _ *kagzi.SignalCall, next next) error { return tt.do(next) },
			}
			k := kit.New(t)
			wf := kagzi.Define[string, string]("wf")
			run := kit.Begin(k, wf, "")
			c := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{i}})
			_, err := kagzi.Start(k.Ctx, c, wf, "")
			kit.MustContain(t, err, "start wf", tt.says)
			kit.MustContain(t, c.Signal(k.Ctx, run.ID(), kit.Approved.With("")), tt.says)
		})
	}
}

// An error that an interceptor hides stays, and one that it adds to the end of a run that goes on has no effect.
func TestInterceptorsThatHide(t *testing.T) {
	hide := kagzi.Interceptor{
		Execute: func(ctx context.Context, _ kagzi.Execution, next next) error {
			if err := next(ctx); errors.Is(err, kagzi.ErrSuspended) {
				return errors.New("it may not sleep")
			}
			return nil
		},
		Step:  func(ctx context.Context, _ kagzi.StepInfo, next next) error { _ = next(ctx); return nil },
		Start: func(ctx context.Context, _ []*kagzi.StartCall, next next) error { _ = next(ctx); return nil },
	}
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{hide}})
	wf := kagzi.Define[string, string]("wf")
	serveOn(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ string) (string, error) {
		if err := kagzi.Sleep(ctx, "nap", time.Hour); err != nil {
			return "", err
		}
		return kagzi.Step(ctx, "step", func(context.Context) (string, error) {
			return "", kagzi.Permanent(errors.New("declined"))
		})
	})
	run := kit.Begin(k, wf, "", kagzi.ID("x"))
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap")
	if _, err := kagzi.Start(k.Ctx, k.Client, wf, "other", kagzi.ID("x")); !errors.Is(err, kagzi.ErrIDConflict) {
		t.Errorf("the start: %v", err)
	}
	k.Forward(run.ID())
	if failed := kit.FailureOf(k, run, kagzi.StatusFailed); !strings.Contains(failed.Message, "declined") {
		t.Errorf("failed: %s", failed.Message)
	}
}

// Deferred calls of an interceptor run, whatever ends the execution, and it learns why.
func TestInterceptorsLearnTheEnd(t *testing.T) {
	var l lines
	i := kagzi.Interceptor{
		Execute: func(ctx context.Context, e kagzi.Execution, next next) (err error) {
			defer func() { l.add("execution: %s", outcomeOf(err)) }()
			return next(ctx)
		},
		Step: func(ctx context.Context, s kagzi.StepInfo, next next) (err error) {
			err = errors.New("the goroutine ended")
			defer func() { l.add("step: %s", outcomeOf(err)) }()
			return next(ctx)
		},
	}
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{i}})
	wf := kagzi.Define[string, string]("wf")
	begun := make(chan struct{}, 1)
	stop := serveOn(k, kagzi.WorkerConfig{DrainTimeout: 100 * time.Millisecond}, wf,
		func(ctx kagzi.Context, mode string) (string, error) {
			return kagzi.Step(ctx, "step", func(ctx context.Context) (string, error) {
				if mode == "panic" {
					panic("boom")
				}
				begun <- struct{}{}
				<-ctx.Done()
				return "", context.Cause(ctx)
			}, kagzi.RetryPolicy{MaxAttempts: 1})
		})
	run := kit.Begin(k, wf, "cancel")
	await.Receive(t, begun)
	k.Cancel(run.ID())
	kit.FailureOf(k, run, kagzi.StatusCancelled)
	kit.FailureOf(k, kit.Begin(k, wf, "panic"), kagzi.StatusFailed)
	last := kit.Begin(k, wf, "shutdown")
	await.Receive(t, begun)
	if err := stop(); err != nil {
		t.Error(err)
	}
	k.WaitStatus(last.ID(), kagzi.StatusPending)
	got := l.take()
	for _, want := range []string{
		"execution: failed: kagzi: run was cancelled", "step: failed: panic: boom", "execution: failed: kagzi: step " +
			"\"step\": panic: boom", "execution: the run goes on later: kagzi: worker shut down",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}

// A StartMany is one call, and so are a restart and a fork.
func TestInterceptorsOfOtherStarts(t *testing.T) {
	var l lines
	i := kagzi.Interceptor{Start: func(ctx context.Context, starts []*kagzi.StartCall, next next) error {
		for _, s := range starts {
			s.Headers = kagzi.Headers{"n": fmt.Sprint(len(starts))}
		}
		err := next(ctx)
		for _, s := range starts {
			l.add("%s of %s, run %t existed %t", s.Workflow+s.Schedule, s.Origin, s.Run != "", s.Existed)
		}
		return err
	}}
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{i}})
	wf := kagzi.Define[string, string]("wf")
	serveOn(k, kagzi.WorkerConfig{NoCoordinator: true}, wf, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "step", func(context.Context) (string, error) {
			return shownHeaders(ctx.Headers()), nil
		})
	})
	started, err := k.Client.StartMany(k.Ctx, []kagzi.Call{
		wf.With("", kagzi.Headers{"own": "1"}),
		wf.With("", kagzi.ID("x")),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range started {
		if got := kit.ResultOf(k, kit.Find(t, k.Client, wf, s)); got != "n=2" {
			t.Errorf("a run of StartMany has %s", got)
		}
	}
	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, started[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := kit.ResultOf(k, kit.Find(t, k.Client, wf, again)); got != "n=1" {
		t.Errorf("the restart has %s", got)
	}
	want := fmt.Sprintf("wf of , run true existed false\nwf of , run true existed false\n of %s, run true "+
		"existed false", started[0].ID)
	if got := l.take(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}

	co := k.Coordinator()
	k.Schedule(kagzi.Schedule{Name: "nightly", Cron: "0 3 * * *", Run: wf.With("", kagzi.Headers{"own": "1"})})
	k.Schedule(kagzi.Schedule{
		Name: "weekly", Cron: "0 4 * * 1", Overlap: kagzi.OverlapCancelPrevious,
		Run: wf.With(""),
	})
	k.Missed("nightly", 24*time.Hour)
	k.Missed("weekly", 8*24*time.Hour)
	k.Pass(co)
	for _, name := range []string{"nightly", "weekly"} {
		fired := k.Fired(name)
		if len(fired) == 0 || shownHeaders(fired[0].Headers) != "n=1" {
			t.Errorf("%s fired %v", name, fired)
		}
	}
	id, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, "nightly")
	if err != nil {
		t.Fatal(err)
	}
	if got := shownHeaders(k.InfoOf(id).Headers); got != "n=1 own=1" {
		t.Errorf("the triggered run has %s", got)
	}
	got := strings.Split(l.take(), "\n")
	slices.Sort(got)
	if want := "nightly of , run true existed false"; got[0] != want {
		t.Errorf("the trigger: %q in %v", got[0], got)
	}
	for _, want := range []string{"wfnightly of , run false existed false", "wfweekly of , run false existed false"} {
		if !slices.Contains(got, want) {
			t.Errorf("there is no %q in %v", want, got)
		}
	}
}

// A broken interceptor holds up the schedules that it breaks, and only these.
func TestInterceptorThatBreaksASchedule(t *testing.T) {
	broken := true
	i := kagzi.Interceptor{Start: func(ctx context.Context, starts []*kagzi.StartCall, next next) error {
		if broken && starts[0].Schedule == "bad" {
			panic("boom")
		}
		return next(ctx)
	}}
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{i}})
	wf := kagzi.Define[string, string]("wf")
	co := k.Coordinator()
	for _, name := range []string{"bad", "good"} {
		k.Schedule(kagzi.Schedule{Name: name, Cron: "0 3 * * *", Run: wf.With("")})
		k.Missed(name, 24*time.Hour)
	}
	if _, err := k.Fire(co); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("firing: %v", err)
	}
	if good, bad := k.Fired("good"), k.Fired("bad"); len(good) == 0 || len(bad) > 0 || k.Info("bad").Paused {
		t.Errorf("good fired %d, bad %d", len(good), len(bad))
	}
	broken = false
	k.Pass(co)
	if len(k.Fired("bad")) == 0 {
		t.Error("the schedule does not fire once its interceptor is mended")
	}
}

// The context that interceptors make reaches the handler of the Logger.
func TestLoggerOfAnInterceptedRun(t *testing.T) {
	var l lines
	i := kagzi.Interceptor{Execute: func(ctx context.Context, _ kagzi.Execution, next next) error {
		return next(context.WithValue(ctx, valueKey{}, "trace-7"))
	}}
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{i}, Logger: slog.New(valueHandler{&l})})
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		ctx.Logger().Info("hello")
		b := kagzi.Go(ctx, "branch", func(ctx kagzi.Context) (int, error) {
			ctx.Logger().With("a", 1).WithGroup("g").Info("from a branch")
			return 0, nil
		})
		return b.Result(ctx)
	})
	got := l.take()
	for _, want := range []string{"hello trace-7", "from a branch trace-7"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}

type valueHandler struct{ l *lines }

func (h valueHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h valueHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h valueHandler) WithGroup(string) slog.Handler            { return h }
func (h valueHandler) Handle(ctx context.Context, r slog.Record) error {
	h.l.add("%s %v", r.Message, ctx.Value(valueKey{}))
	return nil
}

// An interceptor gets the errors that the caller gets.
func TestInterceptorsGetPublicErrors(t *testing.T) {
	var seen []error
	see := func(err error) error { seen = append(seen, err); return err }
	i := kagzi.Interceptor{
		Start:  func(ctx context.Context, _ []*kagzi.StartCall, next next) error { return see(next(ctx)) },
		Signal: func(ctx context.Context, _ *kagzi.SignalCall, next next) error { return see(next(ctx)) },
	}
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{i}})
	wf := kagzi.Define[string, string]("wf")
	run := kit.Begin(k, wf, "", kagzi.ID("x"))
	_, conflict := kagzi.Start(k.Ctx, k.Client, wf, "other", kagzi.ID("x"))
	_, active := admin.New(k.Client).Runs.Restart(k.Ctx, run.ID())
	nobody := k.Client.Signal(k.Ctx, kagzi.ID("y"), kit.Approved.With(""))
	for i, tt := range []struct{ got, want error }{
		{nil, nil},
		{conflict, kagzi.ErrIDConflict},
		{active, kagzi.ErrRunActive},
		{nobody, kagzi.ErrNotFound},
	} {
		if i >= len(seen) || !errors.Is(seen[i], tt.want) || !errors.Is(tt.got, tt.want) {
			t.Errorf("call %d returned %v; the interceptors have seen %v", i, tt.got, seen)
		}
	}
}
