package kagzi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestCompensate ends runs in every possible way, and checks which compensations run.
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
			j := &journal{}
			serve(k, travel, trip(j, tt.then))
			serveCancellations(k, j, nil)
			run := begin(k, travel, 7, tt.opts...)
			if tt.end != nil {
				tt.end(k, run)
			}
			if tt.status == StatusCompleted {
				resultOf(k, run)
			} else if re := failureOf(k, run, tt.status); re.Kind != tt.kind {
				t.Errorf("kind %q, want %q: %v", re.Kind, tt.kind, re)
			}
			j.want(t, tt.want)
			if tt.want == undone {
				for _, name := range []string{"car", "hotel", "flight"} {
					a := k.steps(run.ID())[name+"#compensation"]
					if len(a) != 1 || a[0].Status != StatusCompleted || a[0].Type != "COMPENSATION" || a[0].Child == "" {
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

// TestCompensationsNeedNoCodeOfTheRun: the worker of a run is gone, and the worker of its compensations runs them.
func TestCompensationsNeedNoCodeOfTheRun(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	stop := serve(k, travel, trip(j, sleepLong))
	run := begin(k, travel, 7)
	k.waitStatus(run.ID(), StatusSleeping)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	serveCancellations(k, j, nil)
	k.cancel(run.ID(), Reason("gone"))
	if re := failureOf(k, run, StatusCancelled); !strings.Contains(re.Message, "gone") {
		t.Errorf("the run ended with %v", re)
	}
	j.want(t, undone)
}

// TestCompensatingRun: a run that waits for its compensations says so, counts as active, and is not claimed.
func TestCompensatingRun(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	serve(k, travel, trip(j, breaks))
	run := begin(k, travel, 7, ID("trip"))
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
	j.want(t, undone)
	if err := k.c.Resume(k.ctx, run.ID()); !errors.Is(err, ErrCompensated) {
		t.Errorf("Resume: %v", err)
	}
	if _, err := k.c.Fork(k.ctx, run.ID(), "hotel"); !errors.Is(err, ErrCompensated) {
		t.Errorf("Fork: %v", err)
	}
}

// TestTerminateEndsCompensations terminates a run with the compensation that is under way. Resume runs what is left.
func TestTerminateEndsCompensations(t *testing.T) {
	k := newKit(t)
	serve(k, travel, trip(&journal{}, breaks))
	run := begin(k, travel, 7)
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

// TestQuarantinedIsNotCompensated: a quarantined run runs no compensation before somebody resumes it.
func TestQuarantinedIsNotCompensated(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	var right atomic.Bool
	serve(k, travel, func(ctx Context, n int) (int, error) {
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
	run := begin(k, travel, 1)
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
	j.want(t, "cancel:flight")
}

// TestACoordinatorGoesOnWithCompensations: the worker that ended a compensation died before it started the next.
func TestACoordinatorGoesOnWithCompensations(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	serve(k, travel, trip(j, breaks))
	run := begin(k, travel, 7)
	k.waitStatus(run.ID(), StatusSleeping, "compensation car")
	// The end of the first compensation, as a worker leaves it that dies after the commit.
	k.exec(`UPDATE kagzi.workflow_runs SET status = 'COMPLETED', started_at = now(), finished_at = now(), available_at = NULL WHERE workflow_type = 'cancel-booking'`)
	k.exec(wakeRun, string(run.ID()))
	serveCancellations(k, j, nil)
	failureOf(k, run, StatusFailed)
	j.want(t, "flight hotel car cancel:hotel7 cancel:flight7")
}
