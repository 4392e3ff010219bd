package kagzi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A journal is what happened, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, " ")
}

func (j *journal) has(line string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.lines, line)
}

// cancelBooking undoes what it is given, on a queue of its own.
var cancelBooking = Define[string, struct{}]("cancel-booking", Queue("compensations"), RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})

// serveCancellations starts a worker that has nothing but the code of the compensations, which write to j. fail says
// whether an attempt to undo what is given fails.
func serveCancellations(k *kit, j *journal, fail func(what string) error) (stop func() error) {
	k.t.Helper()
	w := newTestWorker(k.t, newTestClient(k.t, k.pool), WorkerConfig{Queue: "compensations", NoCoordinator: true})
	Handle(w, cancelBooking, func(ctx Context, what string) (struct{}, error) {
		if fail != nil {
			if err := fail(what); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, Do(ctx, "cancel", func(context.Context) error {
			j.add("cancel:" + what)
			return nil
		})
	})
	return startWorker(k.t, w)
}

// trip books three things, each with its compensation registered before it, and then goes on.
func trip(j *journal, then func(Context) error) func(Context, int) (int, error) {
	return func(ctx Context, n int) (int, error) {
		for _, name := range []string{"flight", "hotel", "car"} {
			Compensate(ctx, name, cancelBooking.With(fmt.Sprint(name, n)))
			if err := Do(ctx, name, func(context.Context) error {
				j.add(name)
				return nil
			}); err != nil {
				return 0, err
			}
		}
		return n, then(ctx)
	}
}

const undone = "flight hotel car cancel:car7 cancel:hotel7 cancel:flight7"

// TestCompensate ends runs in all the ways there are, and looks at what is compensated.
func TestCompensate(t *testing.T) {
	t.Parallel()
	broken := Permanent(errors.New("broken"))
	booked := make(chan struct{})
	for _, tt := range []struct {
		name   string
		opts   []StartOption
		then   func(Context) error
		end    func(k *kit, run *Run[int])
		status Status
		kind   Kind
		want   string
	}{
		{name: "Completes", then: func(Context) error { return nil }, status: StatusCompleted, want: "flight hotel car"},
		{name: "FailsForGood", then: func(Context) error { return broken }, status: StatusFailed, kind: KindUnknown, want: undone},
		{name: "FailsInAStep", then: func(ctx Context) error { return Do(ctx, "s", func(context.Context) error { return broken }) }, status: StatusFailed, kind: KindUnknown, want: undone},
		{name: "FailsWithAKindOfTheEngine", then: func(ctx Context) error {
			return Do(ctx, "s", func(context.Context) error { return fmt.Errorf("the other service says: %w", KindBadInput) })
		}, status: StatusFailed, kind: KindBadInput, want: undone},
		{name: "FailsEachAttempt", opts: []StartOption{RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}}, then: func(Context) error { return errors.New("no") }, status: StatusFailed, kind: KindUnknown, want: undone},
		{name: "Panics", then: func(Context) error { panic("at the disco") }, status: StatusFailed, kind: KindPanic, want: undone},
		{name: "OverItsTimeout", opts: []StartOption{Timeout(time.Hour)}, then: sleepLong, end: func(k *kit, run *Run[int]) {
			k.waitStatus(run.ID(), StatusSleeping)
			k.exec(`UPDATE kagzi.workflow_runs SET deadline_at = now(), available_at = now()`)
		}, status: StatusFailed, kind: KindDeadline, want: undone},
		{name: "OverItsTimeoutInAStep", opts: []StartOption{Timeout(8 * time.Second)}, then: func(ctx Context) error {
			return Do(ctx, "s", func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			})
		}, status: StatusFailed, kind: KindDeadline, want: undone},
		{name: "CancelledInItsSleep", then: sleepLong, end: cancelAsleep, status: StatusCancelled, kind: KindCancelled, want: undone},
		{name: "CancelledInAStep", then: func(ctx Context) error {
			return Do(ctx, "s", func(ctx context.Context) error {
				close(booked)
				<-ctx.Done()
				return ctx.Err()
			})
		}, end: func(k *kit, run *Run[int]) {
			<-booked
			k.cancel(run.ID())
		}, status: StatusCancelled, kind: KindCancelled, want: undone},
		{name: "CancelledInABackoff", opts: []StartOption{RetryPolicy{MaxAttempts: 9, Backoff: time.Hour}}, then: func(Context) error { return errors.New("no") }, end: func(k *kit, run *Run[int]) {
			k.waitStatus(run.ID(), StatusPending, "retry")
			k.cancel(run.ID())
		}, status: StatusCancelled, kind: KindCancelled, want: undone},
		{name: "Terminated", then: sleepLong, end: func(k *kit, run *Run[int]) {
			k.waitStatus(run.ID(), StatusSleeping)
			if err := k.c.Terminate(k.ctx, run.ID()); err != nil {
				k.t.Fatal(err)
			}
		}, status: StatusCancelled, kind: KindCancelled, want: "flight hotel car"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("trip", noRetry)
			j := &journal{}
			serve(k, wf, trip(j, tt.then))
			serveCancellations(k, j, nil)
			run := begin(k, wf, 7, tt.opts...)
			if tt.end != nil {
				tt.end(k, run)
			}
			if tt.status == StatusCompleted {
				resultOf(k, run)
			} else if re := failureOf(k, run, tt.status); re.Kind != tt.kind {
				t.Errorf("kind %q, want %q: %v", re.Kind, tt.kind, re)
			}
			if got := j.String(); got != tt.want {
				t.Errorf("happened: %s\nwant:     %s", got, tt.want)
			}
			if tt.want == undone {
				for _, name := range []string{"car", "hotel", "flight"} {
					a := k.steps(run.ID())[name+"#compensation"]
					if len(a) != 1 || a[0].Status != StatusCompleted || a[0].Type != StepCompensation || a[0].Child == "" {
						t.Fatalf("the compensation of %s is recorded as %+v", name, a)
					}
					if info := k.infoOf(a[0].Child); info.Parent != run.ID() || info.ParentStep != name+"#compensation" || info.Workflow != "cancel-booking" || info.Status != StatusCompleted {
						t.Errorf("the compensation of %s is the run %+v", name, info)
					}
				}
			}
		})
	}
}

func cancelAsleep(k *kit, run *Run[int]) {
	k.waitStatus(run.ID(), StatusSleeping)
	k.cancel(run.ID())
}

// sleepLong sleeps for longer than any test.
func sleepLong(ctx Context) error { return Sleep(ctx, "long", 10*time.Hour) }

// TestCompensationsNeedNoCodeOfTheRun: a run whose worker is gone is compensated by the worker that has the compensations.
func TestCompensationsNeedNoCodeOfTheRun(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	stop := serve(k, wf, trip(j, sleepLong))
	run := begin(k, wf, 7)
	k.waitStatus(run.ID(), StatusSleeping)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	serveCancellations(k, j, nil)
	k.cancel(run.ID(), Reason("gone"))
	if re := failureOf(k, run, StatusCancelled); !strings.Contains(re.Message, "gone") {
		t.Errorf("the run ended with %v", re)
	}
	if got := j.String(); got != undone {
		t.Errorf("happened: %s", got)
	}
}

// TestCompensatingRun looks at a run that waits for its compensations: it is told so, counts as active, and nobody claims
// it.
func TestCompensatingRun(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	serve(k, wf, trip(j, func(Context) error { return errors.New("broken") }))
	run := begin(k, wf, 7, ID("trip"))
	info := k.waitStatus(run.ID(), StatusSleeping, "compensation car")
	if info.Kind != KindUnknown || info.Error != "broken" || info.Attempts != 1 {
		t.Errorf("the run is %+v", info)
	}
	k.signal(run.ID(), DefineSignal[int]("late").With(1))
	if _, err := k.c.Restart(k.ctx, run.ID()); !errors.Is(err, ErrRunActive) {
		t.Errorf("Restart: %v", err)
	}
	if err := k.c.Resume(k.ctx, run.ID()); !errors.Is(err, ErrRunActive) {
		t.Errorf("Resume: %v", err)
	}
	k.cancel(run.ID())
	if info := k.infoOf(run.ID()); info.Status != StatusSleeping || info.WaitingOn != "compensation car" || info.Kind != KindCancelled {
		t.Errorf("after a cancel the run is %+v", info)
	}
	serveCancellations(k, j, nil)
	failureOf(k, run, StatusCancelled)
	if got := j.String(); got != undone {
		t.Errorf("happened: %s", got)
	}
	if err := k.c.Resume(k.ctx, run.ID()); !errors.Is(err, ErrCompensated) {
		t.Errorf("Resume: %v", err)
	}
	if _, err := k.c.Fork(k.ctx, run.ID(), "hotel"); !errors.Is(err, ErrCompensated) {
		t.Errorf("Fork: %v", err)
	}
}

// TestTerminateEndsCompensations ends a run, and the compensation that is under way. Resume goes on with what is left.
func TestTerminateEndsCompensations(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	serve(k, wf, trip(&journal{}, func(Context) error { return errors.New("broken") }))
	run := begin(k, wf, 7)
	k.waitStatus(run.ID(), StatusSleeping, "compensation car")
	if err := k.c.Terminate(k.ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	failureOf(k, run, StatusCancelled)
	for _, name := range []string{"car", "hotel", "flight"} {
		a := k.steps(run.ID())[name+"#compensation"]
		switch {
		case len(a) != 1 || a[0].Status != StatusRunning:
			t.Errorf("the compensation of %s is recorded as %+v", name, a)
		case name != "car" && a[0].Child != "":
			t.Errorf("the compensation of %s was started", name)
		case name == "car" && k.infoOf(a[0].Child).Status != StatusCancelled:
			t.Errorf("the compensation of %s is %+v", name, k.infoOf(a[0].Child))
		}
	}
	j := &journal{}
	serveCancellations(k, j, nil)
	k.resume(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Message != "broken" || j.String() != "cancel:car7 cancel:hotel7 cancel:flight7" {
		t.Errorf("the run ended with %v; happened: %s", re, j)
	}
}

// TestUndoneBy registers with the result of a step what undoes it.
func TestUndoneBy(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	var attempts atomic.Int64
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "hotel", cancelBooking.With("hotel?"))
		Compensate(ctx, "car", cancelBooking.With("car?"))
		if _, err := Step(ctx, "flight", func(context.Context) (string, error) {
			if attempts.Add(1) == 1 {
				return "", errors.New("not yet")
			}
			return "LH1", nil
		}, UndoneBy(cancelBooking), soon); err != nil {
			return 0, err
		}
		if err := Sleep(ctx, "night", time.Hour); err != nil {
			return 0, err
		}
		if _, err := StepTx(ctx, "hotel", func(context.Context, pgx.Tx) (string, error) { return "Ritz", nil }, UndoneBy(cancelBooking)); err != nil {
			return 0, err
		}
		if err := Sleep(ctx, "another night", time.Hour); err != nil {
			return 0, err
		}
		_, err := Step(ctx, "car", func(context.Context) (string, error) { return "", Permanent(errors.New("no car")) }, UndoneBy(cancelBooking))
		return 0, err
	})
	serveCancellations(k, j, nil)
	run := begin(k, wf, 1)
	for _, night := range []string{"timer night", "timer another night"} {
		k.waitStatus(run.ID(), StatusSleeping, night)
		k.forward(run.ID())
	}
	failureOf(k, run, StatusFailed)
	if got := j.String(); got != "cancel:Ritz cancel:LH1 cancel:car?" {
		t.Errorf("happened: %s", got)
	}
	for step, n := range map[string]int{"flight#compensation": 1, "hotel#compensation": 2, "car#compensation": 1} {
		if a := k.steps(run.ID())[step]; len(a) != n {
			t.Errorf("%s has %d registrations, want %d: %+v", step, len(a), n, a)
		}
	}
}

// TestRegisteredAgain: the last registration under a name counts, replays register nothing, and what returns to an earlier
// input is registered again.
func TestRegisteredAgain(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		for i, input := range []string{"a", "b", "b", "a"} {
			Compensate(ctx, "x", cancelBooking.With(input))
			if i == 0 {
				Compensate(ctx, "y", cancelBooking.With("y"))
			}
			if err := Sleep(ctx, fmt.Sprint("night ", i), time.Hour); err != nil {
				return 0, err
			}
		}
		return 0, errors.New("broken")
	})
	serveCancellations(k, j, nil)
	run := begin(k, wf, 1)
	for i := range 4 {
		k.waitStatus(run.ID(), StatusSleeping, fmt.Sprint("timer night ", i))
		k.forward(run.ID())
	}
	failureOf(k, run, StatusFailed)
	if got := j.String(); got != "cancel:a cancel:y" {
		t.Errorf("happened: %s", got)
	}
	if a := k.steps(run.ID())["x#compensation"]; len(a) != 3 {
		t.Errorf("x has %d registrations, want 3: %+v", len(a), a)
	}
}

// TestCompensationFails: the others run, the run says what is left, and Resume goes on with that.
func TestCompensationFails(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	var closed atomic.Bool
	closed.Store(true)
	serve(k, wf, trip(j, func(Context) error { return errors.New("broken") }))
	serveCancellations(k, j, func(what string) error {
		if what == "hotel7" && closed.Load() {
			return errors.New("the hotel is closed")
		}
		return nil
	})
	run := begin(k, wf, 7)
	re := failureOf(k, run, StatusFailed)
	if re.Kind != KindCompensation {
		t.Errorf("the run ended with %v", re)
	}
	mustContain(t, re, "hotel#compensation", "the hotel is closed", "broken")
	if got := j.String(); got != "flight hotel car cancel:car7 cancel:flight7" {
		t.Errorf("happened: %s", got)
	}
	if _, err := k.c.Fork(k.ctx, run.ID(), "hotel"); !errors.Is(err, ErrCompensated) {
		t.Errorf("Fork: %v", err)
	}
	k.resume(run.ID())
	failureOf(k, run, StatusFailed)
	closed.Store(false)
	k.resume(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindUnknown || re.Message != "broken" {
		t.Errorf("the run ended with %v", re)
	}
	if got := j.String(); got != "flight hotel car cancel:car7 cancel:flight7 cancel:hotel7" {
		t.Errorf("happened: %s", got)
	}
	if err := k.c.Resume(k.ctx, run.ID()); !errors.Is(err, ErrCompensated) {
		t.Errorf("Resume: %v", err)
	}
}

// TestCompensationResumed: people resume the compensation itself, and then the run, which runs nothing twice.
func TestCompensationResumed(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	var closed atomic.Bool
	closed.Store(true)
	serve(k, wf, trip(j, func(Context) error { return errors.New("broken") }))
	serveCancellations(k, j, func(what string) error {
		if what == "car7" && closed.Load() {
			return Permanent(errors.New("closed"))
		}
		return nil
	})
	run := begin(k, wf, 7)
	failureOf(k, run, StatusFailed)
	closed.Store(false)
	of := k.steps(run.ID())["car#compensation"][0].Child
	k.resume(of)
	k.waitStatus(of, StatusCompleted)
	k.resume(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindUnknown {
		t.Errorf("the run ended with %v", re)
	}
	if got := j.String(); got != "flight hotel car cancel:hotel7 cancel:flight7 cancel:car7" {
		t.Errorf("happened: %s", got)
	}
}

// TestCompensationsOfAFamily: the compensations of a child have ended before its parent's begin.
func TestCompensationsOfAFamily(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(k *kit, run *Run[int]){
		"Cancelled": cancelAsleep,
		"Fails":     func(k *kit, run *Run[int]) { k.signal(run.ID(), DefineSignal[int]("fail").With(1)) },
		"OverItsTimeout": func(k *kit, run *Run[int]) {
			k.exec(`UPDATE kagzi.workflow_runs SET deadline_at = now() - interval '1 h' WHERE run_id = $1`, string(run.ID()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			child, parent := Define[string, int]("child", noRetry), Define[int, int]("parent", noRetry)
			j := &journal{}
			w := newTestWorker(t, k.c, WorkerConfig{Coordinator: CoordinatorConfig{Interval: 50 * time.Millisecond}})
			Handle(w, child, func(ctx Context, name string) (int, error) {
				Compensate(ctx, "inner", cancelBooking.With(name+" inner"))
				return 0, sleepLong(ctx)
			})
			Handle(w, parent, func(ctx Context, _ int) (int, error) {
				Compensate(ctx, "outer", cancelBooking.With("outer"))
				for _, name := range []string{"a", "b"} {
					if _, err := StartChild(ctx, name, child, name); err != nil {
						return 0, err
					}
				}
				_, err := WaitSignal(ctx, DefineSignal[int]("fail"))
				return 0, errors.Join(err, errors.New("broken"))
			})
			startWorker(t, w)
			run := begin(k, parent, 1)
			k.waitStatus(run.ID(), StatusSleeping)
			waitFor(t, "the children sleep", func() bool {
				return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'child' AND status = 'SLEEPING'`) == 2
			})
			end(k, run)
			k.waitStatus(run.ID(), StatusSleeping, "children")
			serveCancellations(k, j, nil)
			if _, err := run.Result(k.ctx); err == nil {
				t.Error("the run completed")
			}
			if got := j.String(); got != "cancel:a inner cancel:b inner cancel:outer" && got != "cancel:b inner cancel:a inner cancel:outer" {
				t.Errorf("happened: %s", got)
			}
		})
	}
}

// TestCompensationsOfACompensation: one that fails has its own run before the next begins.
func TestCompensationsOfACompensation(t *testing.T) {
	k := newKit(t)
	wf, nested := Define[int, int]("trip", noRetry), Define[string, int]("nested", noRetry)
	j := &journal{}
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "first", cancelBooking.With("first"))
		Compensate(ctx, "last", nested.With("last"))
		return 0, errors.New("broken")
	})
	Handle(w, nested, func(ctx Context, what string) (int, error) {
		Compensate(ctx, "inner", cancelBooking.With(what+" inner"))
		return 0, errors.New("nested, too")
	})
	startWorker(t, w)
	serveCancellations(k, j, nil)
	if re := failureOf(k, begin(k, wf, 1), StatusFailed); re.Kind != KindCompensation {
		t.Errorf("the run ended with %v", re)
	}
	if got := j.String(); got != "cancel:last inner cancel:first" {
		t.Errorf("happened: %s", got)
	}
}

// TestQuarantinedIsNotCompensated: what people are to look at stays as it is, until they resume it.
func TestQuarantinedIsNotCompensated(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	var right atomic.Bool
	serve(k, wf, func(ctx Context, n int) (int, error) {
		Compensate(ctx, "flight", cancelBooking.With("flight"))
		if err := Do(ctx, "book", func(context.Context) error { return nil }); err != nil {
			return 0, err
		}
		if err := Sleep(ctx, "night", time.Hour); err != nil {
			return 0, err
		}
		if !right.Load() {
			return 0, errors.New("not reached")
		}
		return 0, errors.New("broken")
	})
	serveCancellations(k, j, nil)
	run := begin(k, wf, 1)
	k.waitStatus(run.ID(), StatusSleeping, "timer night")
	k.exec(`UPDATE kagzi.step_runs SET step_kind = 'FUNCTION' WHERE step_id = 'night'`)
	k.forward(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindNondeterminism || j.String() != "" {
		t.Errorf("the run ended with %v; happened: %s", re, j)
	}
	k.exec(`UPDATE kagzi.step_runs SET step_kind = 'SLEEP' WHERE step_id = 'night'`)
	right.Store(true)
	k.resume(run.ID())
	failureOf(k, run, StatusFailed)
	if got := j.String(); got != "cancel:flight" {
		t.Errorf("happened: %s", got)
	}
}

// TestWrongCompensations fail the run, before anything is recorded.
func TestWrongCompensations(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call func(Context) error
		says []string
	}{
		"Name":     {func(ctx Context) error { Compensate(ctx, "a/b", cancelBooking.With("")); return nil }, []string{"compensation", "'/'"}},
		"NoCall":   {func(ctx Context) error { Compensate(ctx, "a", Call{}); return nil }, []string{"workflow", "empty"}},
		"ID":       {func(ctx Context) error { Compensate(ctx, "a", cancelBooking.With("", ID("x"))); return nil }, []string{"takes no ID"}},
		"Detached": {func(ctx Context) error { Compensate(ctx, "a", cancelBooking.With("", Detached())); return nil }, []string{"takes no Detached"}},
		"Message": {func(ctx Context) error {
			Compensate(ctx, "a", cancelBooking.With("", DefineSignal[int]("s").With(1)))
			return nil
		}, []string{"takes no Message"}},
		"Input": {func(ctx Context) error { Compensate(ctx, "a", Define[any, int]("x").With(func() {})); return nil }, []string{"cannot be encoded"}},
		"OtherType": {func(ctx Context) error {
			_, err := Step(ctx, "s", func(context.Context) (int, error) { return 1, nil }, UndoneBy(cancelBooking))
			return err
		}, []string{"takes string", "returns int"}},
		"UndoneByOptions": {func(ctx Context) error {
			_, err := Step(ctx, "s", func(context.Context) (string, error) { t.Error("the step was executed"); return "", nil }, UndoneBy(cancelBooking, ID("x")))
			return err
		}, []string{"takes no ID"}},
		"UndoneByNothing": {func(ctx Context) error {
			_, err := Step(ctx, "s", func(context.Context) (string, error) { t.Error("the step was executed"); return "", nil }, UndoneBy(Workflow[string, int]{}))
			return err
		}, []string{"workflow", "empty"}},
		"NoResult": {func(ctx Context) error {
			return Do(ctx, "s", func(context.Context) error { return nil }, UndoneBy(cancelBooking))
		}, []string{"takes string", "use Step"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			re := refused(k, func(ctx Context) (int, error) { return 0, tt.call(ctx) })
			mustContain(t, re, tt.says...)
			if n := k.count(`SELECT count(*) FROM kagzi.step_runs`); n > 0 {
				t.Errorf("%d records", n)
			}
		})
	}
}

// twice is a run that is tried a second time.
var twice = RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}

func doLine(ctx Context, j *journal, name string) error {
	return Do(ctx, name, func(context.Context) error {
		j.add(name)
		return nil
	})
}

// endsAs waits until the run is over, and fails the test unless it ended so.
func endsAs[Out any](k *kit, run *Run[Out], status Status) RunInfo {
	k.t.Helper()
	_, err := run.Result(k.ctx)
	info := k.infoOf(run.ID())
	if info.Status != status {
		k.t.Errorf("ended %s with %v, want %s", info.Status, err, status)
	}
	return info
}

// TestManyFailedCompensations: of the errors of compensations a run keeps as much as of any error.
func TestManyFailedCompensations(t *testing.T) {
	k := newKit(t)
	wf, undo := Define[int, int]("wf", noRetry), Define[int, int]("undo", noRetry)
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, wf, func(ctx Context, _ int) (int, error) {
		for i := range 5 {
			Compensate(ctx, fmt.Sprint("c", i), undo.With(i))
		}
		return 0, errors.New("broken")
	})
	Handle(w, undo, func(Context, int) (int, error) { return 0, errors.New(strings.Repeat("long ", maxErrorText)) })
	startWorker(t, w)
	re := failureOf(k, begin(k, wf, 1), StatusFailed)
	mustContain(t, re, "not compensated: c4#compensation: long long", "the run ended because: broken (unknown)")
	if len(re.Message) > maxErrorText {
		t.Errorf("the error has %d bytes", len(re.Message))
	}
}
