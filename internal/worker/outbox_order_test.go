package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi/topic"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/worker"
)

// TestFlushIsBounded has one run start more children than a flush may write, another record more bytes, and a third
// record a step behind them: all are written, in bounded transactions.
func TestFlushIsBounded(t *testing.T) {
	t.Parallel()
	payload := strings.Repeat("x", worker.MostBytes*2/5)
	t.Run("Outputs", func(t *testing.T) { testFlushIsBounded(t, payload) })
	t.Run("Inputs", func(t *testing.T) { testFlushIsBounded(t, "", kagzi.Input(payload)) })
}

// testFlushIsBounded has large steps whose result is output, with opts.
func testFlushIsBounded(t *testing.T, output string, opts ...kagzi.StepOption) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	child := kagzi.Define[int, int]("child", kagzi.Queue("kids"))
	many, large, small := kagzi.Define[int, int]("many"), kagzi.Define[int, int]("large"),
		kagzi.Define[int, int]("small")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	const children = 2*worker.MostWrites + 500
	kagzi.Handle(w, many, func(ctx kagzi.Context, _ int) (int, error) {
		for i := range children {
			if _, err := kagzi.StartChild(ctx, fmt.Sprint("c", i), child, i); err != nil {
				return 0, err
			}
		}
		return kagzi.WaitSignal(ctx, kagzi.DefineSignal[int]("never"))
	})
	kagzi.Handle(w, large, func(ctx kagzi.Context, _ int) (int, error) {
		_, err := kagzi.Map(ctx, "map", []int{0, 1, 2}, func(ctx kagzi.Context, _ int) (string, error) {
			return kagzi.Step(ctx, "s", func(context.Context) (string, error) { return output, nil }, opts...)
		})
		return 0, err
	})
	kagzi.Handle(w, small, func(ctx kagzi.Context, _ int) (int, error) {
		if err := kagzi.Do(ctx, "s", func(context.Context) error { return nil }); err != nil {
			return 0, err
		}
		return 0, kagzi.Do(ctx, "next", func(context.Context) error { return nil }) // begins once "s" is written
	})
	runs := map[kagzi.RunID]string{}
	for name, wf := range map[string]kagzi.Workflow[int, int]{"many": many, "large": large, "small": small} {
		run, err := kagzi.Start(ctx, c, wf, 1)
		if err != nil {
			t.Fatal(err)
		}
		runs[run.ID()] = name
	}
	var written []string // after each transaction
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "after flush" {
			written = append(written,
				dbtest.QueryOne[string](t, db.Pool, `SELECT concat_ws(' ', count(*) FILTER (WHERE step_id LIKE 'c%'),
					count(*) FILTER (WHERE length(output) > 1000 OR length(input) > 1000),
					count(*) FILTER (WHERE step_id = 's' AND status = 'COMPLETED')) FROM kagzi.step_runs`))
		}
	})
	s := newHeldSession(t, w)
	s.Claim(ctx, 3)
	by := map[string]worker.HeldExecution{}
	for len(by) < 3 {
		e := await.Receive(t, s.Come)
		by[runs[kagzi.RunID(e.Run())]] = e
	}
	for name, n := range map[string]int{"many": children, "large": 3, "small": 1} {
		await.True(t, name+" has recorded", func() bool { return by[name].Records() == n })
	}
	s.Flush(by["many"], by["large"], by["small"])
	if want := []string{"1000 0 0", "1000 2 1"}; !slices.Equal(written, want) {
		t.Errorf("written after each transaction: %q, want %q", written, want)
	}
	written = nil
	for range 2 {
		s.Flush(await.Receive(t, s.Come))
	}
	if len(written) != 2 || !strings.HasPrefix(written[1], "2000 3 ") {
		t.Errorf("written after the next two: %q", written)
	}
}

// So are events that runs publish: their payloads count, and their number.
func TestFlushOfEventsIsBounded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		branches, events, size, want int
	}{"Large": {3, 1, worker.MostBytes * 2 / 5, 2}, "Many": {9, 1000, 1, 8}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := kit.Context(t)
			db := dbtest.Database(t)
			c := kit.NewClient(t, db.Pool)
			about, wf := topic.Define[string]("topic"), kagzi.Define[int, int]("wf")
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
				_, err := kagzi.Map(ctx, "map", make([]int, tt.branches), func(ctx kagzi.Context, _ int) (int, error) {
					events := make([]topic.NewEvent, tt.events)
					for i := range events {
						events[i] = about.With(strings.Repeat("x", tt.size))
					}
					return 0, topic.Publish(ctx, "tell", events...)
				})
				return 0, err
			})
			if _, err := kagzi.Start(ctx, c, wf, 1); err != nil {
				t.Fatal(err)
			}
			var written []int // after each transaction
			kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
				if point == "after flush" {
					written = append(written, dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs
						WHERE step_kind = 'PUBLISH'`))
				}
			})
			s := newHeldSession(t, w)
			s.Claim(ctx, 1)
			e := await.Receive(t, s.Come)
			await.True(t, "all branches publish", func() bool { return e.Records() == tt.branches })
			s.Flush(e)
			if !slices.Equal(written, []int{tt.want}) {
				t.Errorf("after the flushes %v records were written, want %d", written, tt.want)
			}
			for dbtest.QueryOne[string](t, db.Pool, `SELECT status FROM kagzi.workflow_runs`) != "COMPLETED" {
				s.Flush(await.Receive(t, s.Come))
			}
		})
	}
}

// A workflow goes on while a small event is written, and waits for the write of a large one.
func TestLargeEventsAreWaitedFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ size, want int }{"Small": {1, 2}, "Large": {300 << 10, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := kit.Context(t)
			db := dbtest.Database(t)
			c := kit.NewClient(t, db.Pool)
			about, wf := topic.Define[string]("topic"), kagzi.Define[int, int]("wf")
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
			var passed atomic.Int32
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
				for range 2 {
					if err := topic.Publish(ctx, "tell", about.With(strings.Repeat("x", tt.size))); err != nil {
						return 0, err
					}
					passed.Add(1)
				}
				return 0, kagzi.Sleep(ctx, "nap", time.Hour)
			})
			if _, err := kagzi.Start(ctx, c, wf, 1); err != nil {
				t.Fatal(err)
			}
			s := newHeldSession(t, w)
			s.Claim(ctx, 1)
			e := await.Receive(t, s.Come)
			await.True(t, "the run publishes", func() bool { return e.Records() == tt.want })
			if n := passed.Load(); tt.want == 1 && n != 0 {
				t.Errorf("%d calls have returned before the write", n)
			}
			s.Flush(e)
			for dbtest.QueryOne[string](t, db.Pool, `SELECT status FROM kagzi.workflow_runs`) != "SLEEPING" {
				s.Flush(await.Receive(t, s.Come))
			}
		})
	}
}

// TestChildOfABusyStartIsCancelled has a run start a child and end at once, while another open transaction keeps the
// start from being written: the end of the run cancels the child, as any child that no run awaits.
func TestChildOfABusyStartIsCancelled(t *testing.T) {
	k := kit.New(t)
	child, wf := kagzi.Define[struct{}, string]("child", kagzi.Queue("kids")), kagzi.Define[struct{}, string]("wf")
	locked, busy := make(chan bool), make(chan bool, 1)
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool), kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		await.Opened(t, locked)
		_, err := kagzi.StartChild(ctx, "child", child, struct{}{})
		return "", err
	})
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "after flush" {
			select {
			case busy <- true:
			default:
			}
		}
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusRunning)
	tx := dbtest.BeginWith(t, k.Pool, kit.LockRun, string(run.ID()))
	close(locked)
	await.Receive(t, busy)
	kit.RollbackTx(t, tx)
	kit.ResultOf(k, run)
	if got := k.ChildOf(run.ID(), "child").Status; got != kagzi.StatusCancelled {
		t.Errorf("the child is %s", got)
	}
}

// TestRegistrationsAreBounded has one run register compensations with more bytes of input than a flush may write.
func TestRegistrationsAreBounded(t *testing.T) {
	t.Parallel()
	ctx := kit.Context(t)
	db := dbtest.Database(t)
	wf := kagzi.Define[int, int]("wf")
	c := kit.NewClient(t, db.Pool)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		for i := range 3 {
			kagzi.Go(ctx, fmt.Sprint("b", i), func(ctx kagzi.Context) (int, error) {
				kagzi.Compensate(ctx, "s", kit.CancelBooking.With(strings.Repeat("x", worker.MostBytes*2/5)))
				return 0, nil
			})
		}
		return 0, nil
	})
	kit.StartRuns(t, c, wf, 1)
	s := newHeldSession(t, w)
	s.Claim(ctx, 1)
	e := await.Receive(t, s.Come)
	await.True(t, "the registrations are to be written", func() bool { return e.Writes() == 3 })
	for _, want := range []int{2, 3} {
		s.Flush(e)
		if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs
			WHERE step_kind = 'COMPENSATION'`); n != want {
			t.Errorf("%d are written, want %d", n, want)
		}
		e = await.Receive(t, s.Come)
	}
	s.Flush(e)
}
