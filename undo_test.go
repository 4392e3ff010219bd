package kagzi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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

// trip books three things, each with its undo before it, and then goes on.
func trip(j *journal, then func(Context) error) func(Context, int) (int, error) {
	return func(ctx Context, n int) (int, error) {
		for _, name := range []string{"flight", "hotel", "car"} {
			var booked string
			Compensate(ctx, "cancel-"+name, func(context.Context) error {
				j.add("cancel:" + booked)
				return nil
			})
			var err error
			booked, err = Step(ctx, name, func(context.Context) (string, error) {
				j.add(name)
				return fmt.Sprint(name, n), nil
			})
			if err != nil {
				return 0, err
			}
		}
		return n, then(ctx)
	}
}

const undone = "flight hotel car cancel:car7 cancel:hotel7 cancel:flight7"

// TestCompensate ends runs in all the ways there are, and looks at what is undone.
func TestCompensate(t *testing.T) {
	t.Parallel()
	broken := Permanent(errors.New("broken"))
	booked := make(chan struct{})
	for _, tt := range []struct {
		name   string
		opts   []StartOption
		then   func(Context) error
		end    func(k *kit, j *journal, run *Run[int])
		status Status
		kind   Kind
		want   string
	}{
		{name: "Completes", then: func(Context) error { return nil }, status: StatusCompleted, want: "flight hotel car"},
		{name: "FailsForGood", then: func(Context) error { return broken }, status: StatusFailed, kind: KindUnknown, want: undone},
		{name: "FailsInAStep", then: func(ctx Context) error { return Do(ctx, "s", func(context.Context) error { return broken }) }, status: StatusFailed, kind: KindUnknown, want: undone},
		{name: "FailsEachAttempt", opts: []StartOption{RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}}, then: func(Context) error { return errors.New("no") }, status: StatusFailed, kind: KindUnknown, want: undone},
		{name: "Panics", then: func(Context) error { panic("at the disco") }, status: StatusFailed, kind: KindPanic, want: undone},
		{name: "OverItsTimeout", opts: []StartOption{Timeout(time.Hour)}, then: sleepLong, end: func(k *kit, _ *journal, run *Run[int]) {
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
		}, end: func(k *kit, _ *journal, run *Run[int]) {
			<-booked
			k.cancel(run.ID())
		}, status: StatusCancelled, kind: KindCancelled, want: undone},
		{name: "CancelledInABackoff", opts: []StartOption{RetryPolicy{MaxAttempts: 9, Backoff: time.Hour}}, then: func(Context) error { return errors.New("no") }, end: func(k *kit, j *journal, run *Run[int]) {
			k.waitStatus(run.ID(), StatusPending, "retry")
			k.cancel(run.ID())
		}, status: StatusCancelled, kind: KindCancelled, want: undone},
		{name: "Terminated", then: sleepLong, end: func(k *kit, _ *journal, run *Run[int]) {
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
			run := begin(k, wf, 7, tt.opts...)
			if tt.end != nil {
				tt.end(k, j, run)
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
					if a := k.steps(run.ID())["cancel-"+name]; len(a) != 2 || a[1].Status != StatusCompleted {
						t.Errorf("the undo of %s is recorded as %+v", name, a)
					}
				}
			}
		})
	}
}

func sleepLong(ctx Context) error { return Sleep(ctx, "long", time.Hour) }

func cancelAsleep(k *kit, _ *journal, run *Run[int]) {
	k.waitStatus(run.ID(), StatusSleeping)
	k.cancel(run.ID())
}

// TestUndoIsRetried lets an undo fail, with a backoff that outlasts its execution.
func TestUndoIsRetried(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	var calls atomic.Int64
	var keys journal
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "undo", func(ctx context.Context) error {
			keys.add(CurrentStep(ctx).Key + " " + CurrentStep(ctx).Step)
			if calls.Add(1) < 3 {
				return errors.New("not yet")
			}
			return nil
		}, RetryPolicy{MaxAttempts: 3, Backoff: time.Hour, NoJitter: true})
		return 0, errors.New("no")
	})
	run := begin(k, wf, 1)
	for i := range int64(2) {
		waitFor(t, "the undo failed", func() bool { return calls.Load() == i+1 })
		info := k.waitStatus(run.ID(), StatusSleeping)
		if info.WaitingOn != "retry undo" || time.Until(info.AvailableAt) < 30*time.Minute {
			t.Errorf("the run waits for %q until %v", info.WaitingOn, info.AvailableAt)
		}
		if i == 0 { // a cancel now changes how the run ends, and neither the backoff nor the undo
			k.cancel(run.ID())
			waitFor(t, "the run has looked, and sleeps again", func() bool {
				info, err := run.Info(k.ctx)
				return err == nil && info.Status == StatusSleeping && time.Until(info.AvailableAt) > 30*time.Minute
			})
		}
		k.exec(`UPDATE kagzi.step_runs SET wake_at = now() WHERE attempt_number = $1`, i+1)
		k.forward(run.ID())
	}
	failureOf(k, run, StatusCancelled)
	key := string(run.ID()) + "/undo undo"
	if got, want := keys.String(), strings.Join([]string{key, key, key}, " "); got != want {
		t.Errorf("keys %s, want %s", got, want)
	}
	if err := run.Cancel(k.ctx); err != nil {
		t.Errorf("Cancel of a cancelled run: %v", err)
	}
}

// TestUndoFailsForGood shows that the others run, that the run says what is left to do, and that Resume does that alone.
func TestUndoFailsForGood(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	var j journal
	var repaired atomic.Bool
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		for _, name := range []string{"a", "b", "c"} {
			Compensate(ctx, name, func(context.Context) error {
				j.add(name)
				if name == "b" && !repaired.Load() {
					return Permanent(errors.New("the bank says no"))
				}
				return nil
			})
		}
		return 0, errors.New("out of stock")
	})
	run := begin(k, wf, 1)
	re := failureOf(k, run, StatusFailed)
	if re.Kind != KindCompensation {
		t.Errorf("kind %q", re.Kind)
	}
	mustContain(t, re, "the bank says no", `"b"`, "out of stock")
	if got := j.String(); got != "c b a" {
		t.Errorf("called: %s", got)
	}
	repaired.Store(true)
	k.resume(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindUnknown || re.Message != "out of stock" {
		t.Errorf("once undone: %v", re)
	}
	if got := j.String(); got != "c b a b" {
		t.Errorf("called: %s", got)
	}
}

// TestUndoOfBranches registers from branches, of which one waits and one is in a step when the run is cancelled: what the
// step did is recorded before it is undone, and nothing new begins.
func TestUndoOfBranches(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	var j journal
	inStep := make(chan struct{})
	undo := func(ctx Context, name string) {
		Compensate(ctx, "undo", func(context.Context) error {
			j.add("undo-" + name)
			return nil
		})
	}
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		return 0, Parallel(ctx, "p", map[string]func(Context) error{
			"sleeps": func(ctx Context) error {
				undo(ctx, "sleeps")
				if err := sleepLong(ctx); err != nil {
					return err
				}
				j.add("slept")
				return nil
			},
			"works": func(ctx Context) error {
				undo(ctx, "works")
				if err := Do(ctx, "slow", func(ctx context.Context) error {
					close(inStep)
					<-ctx.Done()
					j.add("done")
					return nil
				}); err != nil {
					return err
				}
				return Do(ctx, "next", func(context.Context) error {
					j.add("went on")
					return nil
				})
			},
		})
	})
	run := begin(k, wf, 1)
	<-inStep
	waitFor(t, "both have registered", func() bool {
		return k.count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'COMPENSATION'`) == 2
	})
	k.cancel(run.ID())
	failureOf(k, run, StatusCancelled)
	got := strings.Fields(j.String())
	if len(got) != 3 || got[0] != "done" || !slices.Contains(got, "undo-sleeps") || !slices.Contains(got, "undo-works") {
		t.Errorf("happened: %v", got)
	}
	if a := k.steps(run.ID())["p/works/slow"]; len(a) != 1 || a[0].Status != StatusCompleted {
		t.Errorf("the step that was under way: %+v", a)
	}
}

// TestCodeThatForgotItsUndo has the code changed while the run sleeps, and the run cancelled: it is set aside, and
// undone once the code is right and the run resumed and cancelled again.
func TestCodeThatForgotItsUndo(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	stop := serve(k, wf, trip(j, sleepLong))
	run := begin(k, wf, 7)
	k.waitStatus(run.ID(), StatusSleeping)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	stop = serve(k, wf, func(ctx Context, _ int) (int, error) { return 0, sleepLong(ctx) })
	k.cancel(run.ID())
	re := failureOf(k, run, StatusFailed)
	if re.Kind != KindNondeterminism {
		t.Errorf("kind %q", re.Kind)
	}
	mustContain(t, re, "cancel-", "Resume")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	serve(k, wf, trip(j, sleepLong))
	k.resume(run.ID())
	failureOf(k, run, StatusCancelled) // that was decided
	if got := j.String(); got != undone {
		t.Errorf("happened: %s", got)
	}
}

// TestWrongCompensations shows that a wrong call fails the run.
func TestWrongCompensations(t *testing.T) {
	t.Parallel()
	nop := func(context.Context) error { return nil }
	for name, tt := range map[string]struct {
		call func(Context)
		says string
	}{
		"NoFunction": {func(ctx Context) { Compensate(ctx, "x", nil) }, "nil"},
		"BadName":    {func(ctx Context) { Compensate(ctx, "a/b", nop) }, `: compensation "a/b" contains`},
		"BadOption":  {func(ctx Context) { Compensate(ctx, "x", nop, Timeout(30)) }, "30 ns"},
		"OtherGoroutine": {func(ctx Context) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				Compensate(ctx, "x", nop)
			}()
			<-done
		}, "kagzi.Go"},
		"InAStep": {func(ctx Context) {
			_ = Do(ctx, "s", func(context.Context) error {
				Compensate(ctx, "x", nop)
				return nil
			})
		}, "inside of a step"},
		"NoContext": {func(Context) { Compensate(nil, "x", nop) }, "Context is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf")
			serve(k, wf, func(ctx Context, _ int) (int, error) {
				tt.call(ctx)
				return 1, nil
			})
			mustContain(t, failureOf(k, begin(k, wf, 1), StatusFailed), tt.says)
		})
	}
}

// TestUndoSeesWhatCameLast lets a run fail right after it took a message or a child's end, which nobody waited to be
// recorded, and an undo fail so that it is tried again by another execution: there, too, it finds its variables as they
// were.
func TestUndoSeesWhatCameLast(t *testing.T) {
	t.Parallel()
	word := DefineSignal[string]("word")
	other := Define[int, string]("other")
	for name, last := range map[string]func(Context) (string, error){
		"Child":  func(ctx Context) (string, error) { return RunChild(ctx, "child", other, 1) },
		"Signal": func(ctx Context) (string, error) { return WaitSignal(ctx, word) },
		"SignalOfARace": func(ctx Context) (string, error) {
			_, got, err := Race(ctx, "race", map[string]func(Context) (string, error){
				"a": func(ctx Context) (string, error) { return WaitSignal(ctx, word) },
				"b": func(ctx Context) (string, error) { return "", sleepLong(ctx) },
			})
			return got, err
		},
		"Branch": func(ctx Context) (string, error) {
			return Go(ctx, "b", func(ctx Context) (string, error) { return WaitSignal(ctx, word) }).Result(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[int, int]("wf", noRetry)
			seen := make(chan string, 9)
			w := newTestWorker(t, k.c, WorkerConfig{})
			Handle(w, other, func(Context, int) (string, error) { return "it", nil })
			Handle(w, wf, func(ctx Context, _ int) (int, error) {
				var got string
				var calls int
				Compensate(ctx, "undo", func(sctx context.Context) error {
					seen <- got
					if calls++; CurrentStep(sctx).Attempt == 1 {
						return errors.New("not yet")
					}
					return nil
				}, RetryPolicy{Backoff: time.Hour, NoJitter: true})
				var err error
				if got, err = last(ctx); err != nil {
					return 0, err
				}
				return 0, Permanent(errors.New("out of stock"))
			})
			startWorker(t, w)
			run := begin(k, wf, 1)
			if name != "Child" {
				k.signal(run.ID(), word.With("it"))
			}
			first := receive(t, seen)
			k.waitStatus(run.ID(), StatusSleeping, "retry undo")
			k.exec(`UPDATE kagzi.step_runs SET wake_at = now() WHERE step_id = 'undo' AND attempt_number = 1`)
			k.forward(run.ID())
			if second := receive(t, seen); first != "it" || second != "it" {
				t.Errorf("the undo saw %q and %q", first, second)
			}
			if re := failureOf(k, run, StatusFailed); re.Message != "out of stock" {
				t.Errorf("ended with %v", re)
			}
		})
	}
}

// TestGoexitInAnUndo shows that an undo which ends its goroutine does not keep the others from running.
func TestGoexitInAnUndo(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	j := &journal{}
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		undoLine(ctx, j, "a")
		Compensate(ctx, "bad", func(context.Context) error {
			runtime.Goexit()
			return nil
		}, RetryPolicy{MaxAttempts: 1})
		return 0, errors.New("no")
	})
	endsAs(k, begin(k, wf, 1), StatusFailed)
	wantJournal(t, j, "undo-a")
}
