package ports_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/value"
)

type rounds struct{ Done, Left int }

var (
	mother = kagzi.Define[int, string]("mother")
	child  = kagzi.Define[rounds, string]("child")
)

// TestChildContinues has a parent that waits for a child, which continues four times. The parent gets the result of the
// last epoch.
//
// Original: temporal samples-go/child-workflow-continue-as-new, 53 lines; here 23.
func TestChildContinues(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, mother, func(ctx kagzi.Context, n int) (string, error) {
		return kagzi.RunChild(ctx, "child", child, rounds{Left: n})
	})
	kagzi.Handle(w, child, func(ctx kagzi.Context, r rounds) (string, error) {
		if r = (rounds{r.Done + 1, r.Left - 1}); r.Left > 0 {
			return "", kagzi.Continue(ctx, r)
		}
		return fmt.Sprintf("completed after %d", r.Done), nil
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, mother, 5)
	if got := kit.ResultOf(k, run); got != "completed after 5" || k.ChildOf(run.ID(), "child").Epoch != 4 {
		t.Errorf("got %q", got)
	}
}

// A swarm looks for the minimum of a function.
type swarm struct {
	At   float64
	Step int
}

var (
	optimize = kagzi.Define[int, string]("optimize")
	search   = kagzi.Define[swarm, bool]("search")
	searches = value.Define[kagzi.RunID]("searches")
)

// searching makes twenty steps, and continues after five. It returns whether it has come to the minimum.
func searching(ctx kagzi.Context, s swarm) (bool, error) {
	for range 5 {
		if s.At < 1 || s.Step == 20 {
			return s.At < 1, nil
		}
		at, err := kagzi.Step(ctx, "move", func(context.Context) (float64, error) { return s.At / 2, nil })
		if err != nil {
			return false, err
		}
		s = swarm{at, s.Step + 1}
	}
	return false, kagzi.Continue(ctx, s)
}

// TestSearch has a run that tries a search from other points until one comes to its goal. Each search is a child that
// continues, and a value of the run says which.
//
// Original: temporal samples-go/pso, 137 lines; here 57. Its swarm is not counted.
func TestSearch(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, search, searching)
	kagzi.Handle(w, optimize, func(ctx kagzi.Context, most int) (string, error) {
		for n := range most {
			seed, err := kagzi.Step(ctx, "seed", func(context.Context) (float64, error) {
				return []float64{1e12, 1e9, 1e5}[n], nil
			})
			if err != nil {
				return "", err
			}
			c, err := kagzi.StartChild(ctx, fmt.Sprint("search-", n), search, swarm{At: seed})
			if err != nil {
				return "", err
			}
			if err := value.Set(ctx, searches, c.ID()); err != nil {
				return "", err
			}
			if found, err := c.Result(ctx); found || err != nil {
				return fmt.Sprint("found by search ", n), err
			}
		}
		return "not found", nil
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, optimize, 3)
	if got := kit.ResultOf(k, run); got != "found by search 2" {
		t.Errorf("got %q", got)
	}
	now, err := value.Get(k.Ctx, k.Client, run, searches)
	if last := k.ChildOf(run.ID(), "search-2"); err != nil || now.Value != last.ID || last.Epoch != 3 {
		t.Errorf("the last search is %s, %v, in epoch %d", now.Value, err, last.Epoch)
	}
}

var cron = kagzi.Define[time.Time, struct{}]("cron")

// TestCronLoop works every hour, each time for the time since it last succeeded, and continues. A failure ends nothing:
// the next hour deals with its time, too.
//
// Original: temporal samples-go/cron, 48 lines; here 36.
func TestCronLoop(t *testing.T) {
	k := kit.New(t)
	windows := make(chan [2]time.Time, 10)
	kit.Serve(k, cron, func(ctx kagzi.Context, last time.Time) (struct{}, error) {
		hour := ctx.Now().Truncate(time.Hour).Add(time.Hour)
		if err := kagzi.Sleep(ctx, "hour", hour.Sub(ctx.Now())); err != nil {
			return struct{}{}, err
		}
		now := ctx.Now()
		err := kagzi.Do(ctx, "work", func(context.Context) error {
			windows <- [2]time.Time{last, now}
			if len(windows) == 2 {
				return errors.New("out of order")
			}
			return nil
		}, kit.NoRetry)
		if err != nil {
			ctx.Logger().Warn("the work has failed", "error", err)
			now = last
		}
		return struct{}{}, kagzi.Continue(ctx, now)
	})
	run := kit.Begin(k, cron, time.Time{})
	for n := range 4 {
		await.True(t, "the work is done", func() bool { return len(windows) == n })
		k.WaitStatus(run, kagzi.StatusSleeping, "timer hour")
		k.Forward(run.ID())
	}
	await.True(t, "the work is done", func() bool { return len(windows) == 4 })
	a, b, c, d := <-windows, <-windows, <-windows, <-windows
	if !b[0].Equal(a[1]) || !c[0].Equal(a[1]) || !d[0].Equal(c[1]) || !d[1].After(c[1]) {
		t.Errorf("windows %v, %v, %v, %v", a, b, c, d)
	}
	k.Cancel(run)
}

// A window says how many records of the batch are dealt with at a time, and how far it has come.
type window struct{ Size, Page, Next, End, Open, Done int }

type job struct {
	Batch  kagzi.RunID
	Record int
}

var (
	batch    = kagzi.Define[window, int]("batch")
	record   = kagzi.Define[job, int]("record")
	finished = kagzi.DefineSignal[int]("finished")
	progress = value.Define[window]("progress")
)

// slide returns how many records were dealt with. As soon as one is, the next one begins.
func slide(ctx kagzi.Context, w window) (int, error) {
	for range w.Page {
		if err := value.Set(ctx, progress, w); err != nil {
			return 0, err
		}
		switch {
		case w.Next < w.End && w.Open < w.Size:
			name, next := fmt.Sprint("record-", w.Next), job{ctx.RunID(), w.Next}
			if _, err := kagzi.StartChild(ctx, name, record, next, kagzi.Detached()); err != nil {
				return 0, err
			}
			w.Next, w.Open = w.Next+1, w.Open+1
		case w.Open > 0:
			if _, err := kagzi.WaitSignal(ctx, finished); err != nil {
				return 0, err
			}
			w.Open, w.Done = w.Open-1, w.Done+1
		default:
			return w.Done, nil
		}
	}
	return 0, kagzi.Continue(ctx, w)
}

// TestSlidingWindow deals with the records of a batch, a few at a time, each in a run of its own. The batch continues
// while these run, and no report is lost.
//
// Original: temporal samples-go/batch-sliding-window, 223 lines; here 59. Its partitions and its loader are not
// counted.
func TestSlidingWindow(t *testing.T) {
	k := kit.New(t)
	var open, most atomic.Int64
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, batch, slide)
	kagzi.Handle(w, record, func(ctx kagzi.Context, j job) (int, error) {
		err := kagzi.Do(ctx, "process", func(context.Context) error {
			most.Store(max(most.Load(), open.Add(1)))
			return nil
		})
		return j.Record, errors.Join(err, kagzi.Do(ctx, "report", func(ctx context.Context) error {
			open.Add(-1)
			return k.Client.Signal(ctx, j.Batch, finished.With(j.Record))
		}))
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, batch, window{Size: 4, Page: 10, End: 30})
	if got := kit.ResultOf(k, run); got != 30 || most.Load() > 4 {
		t.Errorf("%d records, up to %d at once", got, most.Load())
	}
	now, err := value.Get(k.Ctx, k.Client, run, progress)
	if err != nil || now.Value.Done != 30 || k.InfoOf(run).Epoch != 6 {
		t.Errorf("progress %+v, %v", now.Value, err)
	}
}

var everyStatus = kagzi.Define[string, struct{}]("every-status", kit.NoRetry)

// TestEveryStatus makes runs that end in each way, or go on. One that continues is no run of its own.
//
// Original: temporal samples-go/temporal-fixtures/rainbow-statuses, 112 lines; here 33.
func TestEveryStatus(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, everyStatus, func(ctx kagzi.Context, way string) (struct{}, error) {
		switch way {
		case "continued":
			return struct{}{}, kagzi.Continue(ctx, "completed")
		case "completed":
			return struct{}{}, nil
		case "failed":
			return struct{}{}, errors.New("as it was told")
		}
		return struct{}{}, kit.SleepLong(ctx)
	})
	runs := map[string]*kagzi.Run[struct{}]{}
	for _, way := range []string{"completed", "failed", "continued", "cancelled", "terminated", "running"} {
		runs[way] = kit.Begin(k, everyStatus, way, kagzi.Metadata{"way": way})
	}
	runs["timed out"] = kit.Begin(k, everyStatus, "timed out", kagzi.Timeout(time.Millisecond))
	k.Cancel(runs["cancelled"])
	if err := admin.New(k.Client).Runs.Terminate(k.Ctx, runs["terminated"]); err != nil {
		t.Fatal(err)
	}
	for way, want := range map[string]kagzi.Status{
		"completed": kagzi.StatusCompleted, "failed": kagzi.StatusFailed, "continued": kagzi.StatusCompleted,
		"cancelled": kagzi.StatusCancelled, "terminated": kagzi.StatusCancelled, "timed out": kagzi.StatusFailed,
	} {
		if info := kit.EndsAs(k, runs[way], want); way == "timed out" && info.Kind != kind.Deadline {
			t.Errorf("timed out with kind %s", info.Kind)
		}
	}
	k.WaitStatus(runs["running"], kagzi.StatusSleeping)
}

// A service is down until it was called as often as it says.
type service struct{ calls, downFor atomic.Int64 }

func (s *service) get(context.Context) (string, error) {
	if s.calls.Add(1) <= s.downFor.Load() {
		return "", errors.New("the service is down")
	}
	return "OK", nil
}

var polling = kagzi.Define[struct{}, string]("polling")

// TestFrequentPolling polls a service many times a second, in one step. It needs no heartbeat: if its worker dies, the
// next one executes the step.
//
// Original: temporal samples-go/polling/frequent, 73 lines; here 31. Its service is counted.
func TestFrequentPolling(t *testing.T) {
	k := kit.New(t)
	s := &service{}
	s.downFor.Store(4)
	kit.Serve(k, polling, func(ctx kagzi.Context, _ struct{}) (string, error) {
		return kagzi.Step(ctx, "poll", func(ctx context.Context) (string, error) {
			for {
				if out, err := s.get(ctx); err == nil {
					return out, nil
				}
				select {
				case <-ctx.Done():
					return "", ctx.Err()
				case <-time.After(time.Millisecond):
				}
			}
		}, kagzi.Timeout(24*time.Hour))
	})
	run := kit.Begin(k, polling, struct{}{})
	if got := kit.ResultOf(k, run); got != "OK" || len(k.Steps(run)["poll"]) != 1 {
		t.Errorf("got %q", got)
	}
}

// TestInfrequentPolling polls a service every minute, by the retries of a step. Meanwhile the run holds nothing.
//
// Original: temporal samples-go/polling/infrequent, 46 lines; here 18.
func TestInfrequentPolling(t *testing.T) {
	k := kit.New(t)
	s := &service{}
	s.downFor.Store(4)
	kit.Serve(k, polling, func(ctx kagzi.Context, _ struct{}) (string, error) {
		return kagzi.Step(ctx, "poll", s.get, kagzi.Timeout(2*time.Second),
			kagzi.RetryPolicy{Forever: true, Backoff: time.Minute, Factor: 1})
	})
	run := kit.Begin(k, polling, struct{}{})
	for n := range s.downFor.Load() {
		await.True(t, "it has polled", func() bool { return s.calls.Load() == n+1 })
		k.WaitStatus(run, kagzi.StatusSleeping, "retry poll")
		k.Forward(run.ID())
	}
	if got := kit.ResultOf(k, run); got != "OK" {
		t.Errorf("got %q", got)
	}
}

// TestPeriodicSequence polls a service by a sequence of steps with pauses between them, and continues after ten of
// these. It needs no child for that.
//
// Original: temporal samples-go/polling/periodic_sequence, 67 lines; here 20.
func TestPeriodicSequence(t *testing.T) {
	k := kit.New(t)
	s := &service{}
	s.downFor.Store(24)
	kit.Serve(k, polling, func(ctx kagzi.Context, _ struct{}) (string, error) {
		for range 10 {
			if out, err := kagzi.Step(ctx, "poll", s.get, kit.NoRetry); err == nil {
				return out, nil
			}
			if err := kagzi.Sleep(ctx, "pause", time.Millisecond); err != nil {
				return "", err
			}
		}
		return "", kagzi.Continue(ctx, struct{}{})
	})
	run := kit.Begin(k, polling, struct{}{})
	if got := kit.ResultOf(k, run); got != "OK" || k.InfoOf(run).Epoch != 2 {
		t.Errorf("got %q in epoch %d", got, k.InfoOf(run).Epoch)
	}
}
