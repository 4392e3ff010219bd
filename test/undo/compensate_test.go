package undo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// TestCompensate ends runs in every possible way, and checks which compensations run.
func TestCompensate(t *testing.T) {
	t.Parallel()
	broken := kagzi.Permanent(errors.New("broken"))
	booked := make(chan struct{})
	for _, tt := range []struct {
		name   string
		opts   []kagzi.StartOption
		then   func(kagzi.Context) error
		end    func(k *kit.Kit, run *kagzi.Run[int])
		status kagzi.Status
		kind   kind.Kind
		want   string
	}{
		{
			name: "Completes", then: func(kagzi.Context) error { return nil }, status: kagzi.StatusCompleted,
			want: "flight hotel car",
		},
		{
			name: "FailsForGood", then: func(kagzi.Context) error { return broken }, status: kagzi.StatusFailed,
			kind: kind.Unknown, want: kit.Compensated,
		},
		{name: "FailsInAStep", then: func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "s", func(context.Context) error { return broken })
		}, status: kagzi.StatusFailed, kind: kind.Unknown, want: kit.Compensated},
		{name: "FailsWithAKindOfTheEngine", then: func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "s", func(context.Context) error {
				return fmt.Errorf("the other service says: %w", kind.BadInput)
			})
		}, status: kagzi.StatusFailed, kind: kind.BadInput, want: kit.Compensated},
		{
			name: "FailsEachAttempt",
			opts: []kagzi.StartOption{kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}},
			then: func(kagzi.Context) error { return errors.New("no") }, status: kagzi.StatusFailed, kind: kind.Unknown,
			want: kit.Compensated,
		},
		{
			name: "Panics", then: func(kagzi.Context) error { panic("at the disco") }, status: kagzi.StatusFailed,
			kind: kind.Panic, want: kit.Compensated,
		},
		{
			name: "OverItsTimeout", opts: []kagzi.StartOption{kagzi.Timeout(time.Hour)}, then: kit.SleepLong,
			end: func(k *kit.Kit, run *kagzi.Run[int]) {
				k.WaitStatus(run.ID(), kagzi.StatusSleeping)
				k.Exec(`UPDATE kagzi.workflow_runs SET deadline_at = now(), available_at = now()`)
			}, status: kagzi.StatusFailed, kind: kind.Deadline, want: kit.Compensated,
		},
		{
			name: "OverItsTimeoutInAStep", opts: []kagzi.StartOption{kagzi.Timeout(8 * time.Second)},
			then: func(ctx kagzi.Context) error {
				return kagzi.Do(ctx, "s", func(ctx context.Context) error {
					<-ctx.Done()
					return ctx.Err()
				})
			}, status: kagzi.StatusFailed, kind: kind.Deadline, want: kit.Compensated,
		},
		{
			name: "CancelledInItsSleep", then: kit.SleepLong, end: kit.CancelAsleep, status: kagzi.StatusCancelled,
			kind: kind.Cancelled, want: kit.Compensated,
		},
		{name: "CancelledInAStep", then: func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "s", func(ctx context.Context) error {
				close(booked)
				<-ctx.Done()
				return ctx.Err()
			})
		}, end: func(k *kit.Kit, run *kagzi.Run[int]) {
			await.Opened(t, booked)
			k.Cancel(run.ID())
		}, status: kagzi.StatusCancelled, kind: kind.Cancelled, want: kit.Compensated},
		{
			name: "CancelledInABackoff",
			opts: []kagzi.StartOption{kagzi.RetryPolicy{MaxAttempts: 9, Backoff: time.Hour}},
			then: func(kagzi.Context) error { return errors.New("no") }, end: func(k *kit.Kit, run *kagzi.Run[int]) {
				k.WaitStatus(run.ID(), kagzi.StatusPending, "retry")
				k.Cancel(run.ID())
			}, status: kagzi.StatusCancelled, kind: kind.Cancelled, want: kit.Compensated,
		},
		{name: "Terminated", then: kit.SleepLong, end: func(k *kit.Kit, run *kagzi.Run[int]) {
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			if err := admin.New(k.Client).Runs.Terminate(k.Ctx, run.ID()); err != nil {
				k.T.Fatal(err)
			}
		}, status: kagzi.StatusCancelled, kind: kind.Cancelled, want: "flight hotel car"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			j := &kit.Journal{}
			kit.Serve(k, kit.Travel, kit.Trip(j, tt.then))
			kit.ServeCancellations(k, j, nil)
			run := kit.Begin(k, kit.Travel, 7, tt.opts...)
			if tt.end != nil {
				tt.end(k, run)
			}
			if tt.status == kagzi.StatusCompleted {
				kit.ResultOf(k, run)
			} else if re := kit.FailureOf(k, run, tt.status); re.Kind != tt.kind {
				t.Errorf("kind %q, want %q: %v", re.Kind, tt.kind, re)
			}
			j.Want(t, tt.want)
			if tt.want == kit.Compensated {
				for _, name := range []string{"car", "hotel", "flight"} {
					a := k.Steps(run.ID())[name+"#compensation"]
					if len(a) != 1 || a[0].Status != kagzi.StatusCompleted || a[0].Type != "COMPENSATION" ||
						a[0].Child == "" {
						t.Fatalf("the compensation of %s is recorded as %+v", name, a)
					}
					if info := k.InfoOf(a[0].Child); info.Parent != run.ID() || info.ParentStep != name+
						"#compensation" || info.Workflow != "cancel-booking" || info.Status != kagzi.StatusCompleted {
						t.Errorf("the compensation of %s is the run %+v", name, info)
					}
				}
			}
		})
	}
}

// TestCompensationsNeedNoCodeOfTheRun: the worker of a run is gone, and the worker of its compensations runs them.
func TestCompensationsNeedNoCodeOfTheRun(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	stop := kit.Serve(k, kit.Travel, kit.Trip(j, kit.SleepLong))
	run := kit.Begin(k, kit.Travel, 7)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kit.ServeCancellations(k, j, nil)
	k.Cancel(run.ID(), kagzi.Reason("gone"))
	if re := kit.FailureOf(k, run, kagzi.StatusCancelled); !strings.Contains(re.Message, "gone") {
		t.Errorf("the run ended with %v", re)
	}
	j.Want(t, kit.Compensated)
}

// TestCompensatingRun: a run that waits for its compensations says so, counts as active, and is not claimed.
func TestCompensatingRun(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	kit.Serve(k, kit.Travel, kit.Trip(j, kit.Breaks))
	run := kit.Begin(k, kit.Travel, 7, kagzi.ID("trip"))
	info := k.WaitStatus(run.ID(), kagzi.StatusSleeping, "compensation car")
	if info.Kind != kind.Unknown || info.Error != "broken" || info.Attempts != 1 {
		t.Errorf("the run is %+v", info)
	}
	k.Signal(run.ID(), kagzi.DefineSignal[int]("late").With(1))
	if _, err := admin.New(k.Client).Runs.Restart(k.Ctx, run.ID()); !errors.Is(err, kagzi.ErrRunActive) {
		t.Errorf("Restart: %v", err)
	}
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, run.ID()); !errors.Is(err, kagzi.ErrRunActive) {
		t.Errorf("Resume: %v", err)
	}
	k.Cancel(run.ID())
	if info := k.InfoOf(run.ID()); info.Status != kagzi.StatusSleeping ||
		info.WaitingOn.String() != "compensation car" ||
		info.Kind != kind.Cancelled {
		t.Errorf("after a cancel the run is %+v", info)
	}
	kit.ServeCancellations(k, j, nil)
	kit.FailureOf(k, run, kagzi.StatusCancelled)
	j.Want(t, kit.Compensated)
	if !k.InfoOf(run.ID()).Compensated {
		t.Error("the run is not compensated, although all compensations have run")
	}
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, run.ID()); !errors.Is(err, admin.ErrCompensated) {
		t.Errorf("Resume: %v", err)
	}
	if _, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), "hotel"); !errors.Is(err, admin.ErrCompensated) {
		t.Errorf("Fork: %v", err)
	}
}

// TestTerminateEndsCompensations terminates a run with the compensation that is under way. Resume runs the rest.
func TestTerminateEndsCompensations(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, kit.Travel, kit.Trip(&kit.Journal{}, kit.Breaks))
	run := kit.Begin(k, kit.Travel, 7)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "compensation car")
	if err := admin.New(k.Client).Runs.Terminate(k.Ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	kit.FailureOf(k, run, kagzi.StatusCancelled)
	if k.InfoOf(run.ID()).Compensated {
		t.Error("the run is compensated, although it was terminated while its compensations ran")
	}
	for _, name := range []string{"car", "hotel", "flight"} {
		a := k.Steps(run.ID())[name+"#compensation"]
		switch {
		case len(a) != 1 || a[0].Status != kagzi.StatusCancelled || a[0].EndedAt.IsZero():
			t.Errorf("the compensation of %s is recorded as %+v", name, a)
		case name != "car" && a[0].Child != "":
			t.Errorf("the compensation of %s was started", name)
		case name == "car" && k.InfoOf(a[0].Child).Status != kagzi.StatusCancelled:
			t.Errorf("the compensation of %s is %+v", name, k.InfoOf(a[0].Child))
		}
	}
	j := &kit.Journal{}
	kit.ServeCancellations(k, j, nil)
	k.Resume(run.ID())
	if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Message != "broken" ||
		j.String() != "cancel:car7 cancel:hotel7 cancel:flight7" {
		t.Errorf("the run ended with %v; happened: %s", re, j)
	}
}

// A cancelled run that is terminated while its compensations run is not compensated either.
func TestTerminatedAfterACancel(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, kit.Travel, kit.Trip(&kit.Journal{}, kit.SleepLong))
	run := kit.Begin(k, kit.Travel, 7)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer long")
	k.Cancel(run.ID())
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "compensation car")
	if err := admin.New(k.Client).Runs.Terminate(k.Ctx, run.ID()); err != nil {
		t.Fatal(err)
	}
	kit.FailureOf(k, run, kagzi.StatusCancelled)
	if k.InfoOf(run.ID()).Compensated {
		t.Error("the run is compensated, although its compensations have not run")
	}
	k.Resume(run.ID())
}

// TestQuarantinedIsNotCompensated: a quarantined run runs no compensation before an operator resumes it.
func TestQuarantinedIsNotCompensated(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	var right atomic.Bool
	kit.Serve(k, kit.Travel, func(ctx kagzi.Context, n int) (int, error) {
		kagzi.Compensate(ctx, "flight", kit.CancelBooking.With("flight"))
		if err := kagzi.Do(ctx, "book", func(context.Context) error { return nil }); err != nil {
			return 0, err
		}
		if err := kagzi.Sleep(ctx, "night", time.Hour); err != nil {
			return 0, err
		}
		if !right.Load() {
			return 0, errors.New("not reached")
		}
		return 0, errors.New("broken")
	})
	kit.ServeCancellations(k, j, nil)
	run := kit.Begin(k, kit.Travel, 1)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer night")
	k.Exec(`UPDATE kagzi.step_runs SET step_kind = 'FUNCTION' WHERE step_id = 'night'`)
	k.Forward(run.ID())
	if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != kind.Nondeterminism || j.String() != "" {
		t.Errorf("the run ended with %v; happened: %s", re, j)
	}
	k.Exec(`UPDATE kagzi.step_runs SET step_kind = 'SLEEP' WHERE step_id = 'night'`)
	right.Store(true)
	k.Resume(run.ID())
	kit.FailureOf(k, run, kagzi.StatusFailed)
	j.Want(t, "cancel:flight")
}

// TestACoordinatorGoesOnWithCompensations: the worker that ended a compensation died before it started the next.
func TestACoordinatorGoesOnWithCompensations(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	kit.Serve(k, kit.Travel, kit.Trip(j, kit.Breaks))
	run := kit.Begin(k, kit.Travel, 7)
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "compensation car")
	// The end of the first compensation, as a worker leaves it that dies after the commit.
	k.Exec(`UPDATE kagzi.workflow_runs SET status = 'COMPLETED', started_at = now(), finished_at = now(),
		available_at = NULL WHERE workflow_type = 'cancel-booking'`)
	k.Exec(kit.WakeRun, string(run.ID()))
	kit.ServeCancellations(k, j, nil)
	kit.FailureOf(k, run, kagzi.StatusFailed)
	j.Want(t, "flight hotel car cancel:hotel7 cancel:flight7")
}
