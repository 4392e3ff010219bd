package language_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// calls counts, by name, how often functions of steps were called.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
}

func (c *calls) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// wantOnce fails the test unless each function was called once.
func (c *calls) wantOnce(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if n := c.of(name); n != 1 {
			t.Errorf("step %s was called %d times", name, n)
		}
	}
}

// do is a step that counts its call.
func (c *calls) do(ctx kagzi.Context, name string) error {
	return kagzi.Do(ctx, name, func(context.Context) error {
		c.add(name)
		return nil
	})
}

// stepsUntil makes steps until stop is set. A worker learns of a pause a moment after it.
func stepsUntil(ctx kagzi.Context, stop *atomic.Bool) error {
	for over := false; !over; {
		var err error
		if over, err = kagzi.Step(ctx, "poll", func(context.Context) (bool, error) {
			return stop.Load(), nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// uncoordinated is the configuration of a worker that acts only on notifications, of which no coordinator sends any.
func uncoordinated() kagzi.WorkerConfig {
	cfg := kit.NotifiedOnly
	cfg.NoCoordinator = true
	return cfg
}

// When a pause ends, workers that neither poll nor send heartbeats start what it has stopped.
func TestPausedRunsStartAtOnce(t *testing.T) {
	t.Parallel()
	wf := kagzi.Define[int, int]("wf")
	held := admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1}, Hold: true}
	for name, c := range map[string]struct {
		target admin.Target
		limits admin.QueueLimits
		option kagzi.StartOption
	}{
		"All":      {admin.Target{All: true}, admin.QueueLimits{}, kagzi.Priority(3)},
		"Queue":    {admin.Target{Queue: "default"}, admin.QueueLimits{}, kagzi.Priority(3)},
		"Workflow": {admin.Target{Workflow: "wf"}, admin.QueueLimits{}, kagzi.Priority(3)},
		"LimitedQueue": {
			admin.Target{Queue: "default"},
			admin.QueueLimits{Queue: "default", MaxRunning: 5},
			kagzi.Priority(3),
		},
		"Key":            {admin.Target{Queue: "default", Key: "a"}, admin.QueueLimits{}, kagzi.Key("a")},
		"KeyOfAll":       {admin.Target{All: true}, admin.QueueLimits{}, kagzi.Key("a")},
		"KeyOfWorkflow":  {admin.Target{Workflow: "wf"}, admin.QueueLimits{}, kagzi.Key("a")},
		"KeyInSequence":  {admin.Target{Queue: "default", Key: "a"}, held, kagzi.Key("a")},
		"Group":          {admin.Target{Group: "a"}, admin.QueueLimits{}, kagzi.Group("a")},
		"GroupInAQueue":  {admin.Target{Queue: "default"}, admin.QueueLimits{}, kagzi.Group("a")},
		"GroupAllPaused": {admin.Target{All: true}, held, kagzi.Group("a")},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			if c.limits.Queue != "" {
				if err := admin.New(k.Client).Queues.Set(k.Ctx, c.limits); err != nil {
					t.Fatal(err)
				}
			}
			var calls calls
			begun, goOn := make(chan struct{}), make(chan struct{})
			kit.ServeWith(k, uncoordinated(), wf, func(ctx kagzi.Context, n int) (int, error) {
				if n == 0 {
					if err := kagzi.Do(ctx, "hang", func(context.Context) error {
						close(begun)
						await.Opened(t, goOn)
						return nil
					}); err != nil {
						return 0, err
					}
					if err := kagzi.Sleep(ctx, "nap", 10*time.Hour); err != nil {
						return 0, err
					}
				}
				return n, calls.do(ctx, fmt.Sprint("step ", n))
			})
			first := kit.Begin(k, wf, 0, c.option)
			await.Receive(t, begun)
			if err := admin.New(k.Client).Pauses.Set(k.Ctx, c.target); err != nil {
				t.Fatal(err)
			}
			second := kit.Begin(k, wf, 1, c.option)
			close(goOn) // what is under way goes on until it suspends
			k.WaitStatus(first.ID(), kagzi.StatusSleeping)
			k.Forward(first.ID())
			await.True(t, "claims have looked at the keys", func() bool {
				return k.Count(`SELECT count(*) FROM kagzi.key_changes`) == 0
			})
			kit.WakeWorkers(t, k.Pool)
			if info := k.InfoOf(second.ID()); !info.StartedAt.IsZero() || calls.of("step 0")+calls.of("step 1") > 0 {
				t.Errorf("begun while it is paused: %+v", info)
			}
			if err := admin.New(k.Client).Pauses.End(k.Ctx, c.target); err != nil {
				t.Fatal(err)
			}
			if got := kit.ResultOf(k, first) + kit.ResultOf(k, second); got != 1 {
				t.Errorf("results %d", got)
			}
			calls.wantOnce(t, "step 0", "step 1")
		})
	}
}

// Of a paused backlog some runs are paused themselves. The others begin when the pause of all ends, and these once they
// are unpaused.
func TestPausedRunsOfABacklog(t *testing.T) {
	for name, option := range map[string]func(i int) kagzi.StartOption{
		"Plain":  func(int) kagzi.StartOption { return kagzi.Priority(3) },
		"Keys":   func(i int) kagzi.StartOption { return kagzi.Key(fmt.Sprint(i % 10)) },
		"Groups": func(i int) kagzi.StartOption { return kagzi.Group(fmt.Sprint(i % 10)) },
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			var calls calls
			wf := kagzi.Define[int, int]("wf")
			kit.ServeWith(k, uncoordinated(), wf, func(ctx kagzi.Context, n int) (int, error) {
				return n, calls.do(ctx, fmt.Sprint(n))
			})
			all := admin.Target{All: true}
			if err := admin.New(k.Client).Pauses.Set(k.Ctx, all); err != nil {
				t.Fatal(err)
			}
			var runs []*kagzi.Run[int]
			for i := range 40 {
				runs = append(runs, kit.Begin(k, wf, i, option(i)))
			}
			for _, run := range runs[:7] {
				if err := admin.New(k.Client).Runs.Pause(k.Ctx, run.ID()); err != nil {
					t.Fatal(err)
				}
			}
			if err := admin.New(k.Client).Pauses.End(k.Ctx, all); err != nil {
				t.Fatal(err)
			}
			for _, run := range runs[7:] {
				kit.ResultOf(k, run)
			}
			if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`); n != 33 {
				t.Errorf("%d runs have ended, want 33", n)
			}
			late := kit.Begin(k, wf, 40, option(40), kagzi.Delay(time.Hour))
			unpaused, err := admin.New(k.Client).Runs.UnpauseAll(k.Ctx, kagzi.RunFilter{Workflow: "wf"})
			if err != nil || len(unpaused.Changed) != 7 || len(unpaused.Skipped) != 1 ||
				unpaused.Skipped[late.ID()] == nil {
				t.Fatalf("%+v, %v", unpaused, err)
			}
			over, err := admin.New(k.Client).Runs.UnpauseAll(k.Ctx,
				kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusCompleted}, Limit: 2})
			if err != nil || len(over.Changed) != 0 || len(over.Skipped) != 2 {
				t.Errorf("of runs that are over: %+v, %v", over, err)
			}
			for id, err := range over.Skipped {
				if !errors.Is(err, kagzi.ErrRunFinished) {
					t.Errorf("%s is skipped because %v", id, err)
				}
			}
			for i, run := range runs {
				kit.ResultOf(k, run)
				calls.wantOnce(t, fmt.Sprint(i))
			}
		})
	}
}

// In a caller's transaction, a pause and its end count once the transaction is committed, and not at all if it is
// rolled back.
func TestPausesInTx(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	kit.ServeWith(k, uncoordinated(), wf, func(_ kagzi.Context, n int) (int, error) { return n, nil })
	target := admin.Target{Queue: "default"}
	ends := map[bool]func(*testing.T, pgx.Tx){true: kit.CommitTx, false: kit.RollbackTx}

	for _, commits := range []bool{false, true} {
		tx := k.CallersTx()
		if err := admin.New(k.Client).Pauses.Set(k.Ctx, target, kagzi.InTx(tx), admin.Park()); err != nil {
			t.Fatal(err)
		}
		kit.ResultOf(k, kit.Begin(k, wf, 1)) // no worker waits for the transaction
		ends[commits](t, tx)
		if pauses, err := admin.New(k.Client).Pauses.List(k.Ctx); err != nil || len(pauses) == 1 != commits {
			t.Errorf("committed %t: paused are %+v, %v", commits, pauses, err)
		}
	}
	stopped := kit.Begin(k, wf, 2)
	for _, commits := range []bool{false, true} {
		tx := k.CallersTx()
		if err := admin.New(k.Client).Pauses.End(k.Ctx, target, kagzi.InTx(tx)); err != nil {
			t.Fatal(err)
		}
		if info := k.InfoOf(stopped.ID()); !info.StartedAt.IsZero() {
			t.Errorf("it begins before the commit: %+v", info)
		}
		ends[commits](t, tx)
	}
	kit.ResultOf(k, stopped)

	gate := kit.NewGate()
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: "gates"})
	gate.Handle(w)
	kit.StartWorker(t, w)
	run := kit.Begin(k, gate.Workflow, 1, kagzi.Queue("gates"), kagzi.Delay(time.Hour))
	for _, do := range []func(context.Context, kagzi.Ref, ...kagzi.ChangeOption) error{
		admin.New(k.Client).Runs.Pause,
		admin.New(k.Client).Runs.Unpause,
	} {
		for _, commits := range []bool{false, true} {
			before := k.InfoOf(run.ID()).PausedAt
			tx := k.CallersTx()
			if err := do(k.Ctx, run.ID(), kagzi.InTx(tx)); err != nil {
				t.Fatal(err)
			}
			ends[commits](t, tx)
			if after := k.InfoOf(run.ID()).PausedAt; after.Equal(before) == commits {
				t.Errorf("committed %t: paused at %v, and then at %v", commits, before, after)
			}
		}
	}
}

// A run that is parked gives its slot to the next one of its key, and gets one again when the pause ends. With Hold it
// keeps the slot.
func TestSlotOfAParkedRun(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]bool{"GivenUp": false, "Kept": true} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			if err := admin.New(k.Client).Queues.Set(k.Ctx,
				admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1}, Hold: hold}); err != nil {
				t.Fatal(err)
			}
			wf := kagzi.Define[int, int]("wf")
			var calls calls
			begun := make(chan int, 2)
			var goOn atomic.Bool
			kit.ServeWith(k, uncoordinated(), wf, func(ctx kagzi.Context, n int) (int, error) {
				if err := kagzi.Do(ctx, "begin", func(context.Context) error { begun <- n; return nil }); err != nil {
					return 0, err
				}
				if err := stepsUntil(ctx, &goOn); err != nil {
					return 0, err
				}
				return n, calls.do(ctx, fmt.Sprint(n))
			})
			first, second := kit.Begin(k, wf, 1, kagzi.Key("a")), kit.Begin(k, wf, 2, kagzi.Key("a"))
			if n := await.Receive(t, begun); n != 1 {
				t.Errorf("run %d is the first", n)
			}
			if err := admin.New(k.Client).Runs.Pause(k.Ctx, first.ID()); err != nil {
				t.Fatal(err)
			}
			k.WaitStatus(first.ID(), kagzi.StatusPending, "pause")
			goOn.Store(true)
			if hold {
				if keys, err := admin.New(k.Client).Keys.List(k.Ctx, admin.KeyFilter{Queue: "default"}); err != nil ||
					len(keys) != 1 ||
					keys[0].Running != 1 || keys[0].Waiting != 1 {
					t.Errorf("keys %+v, %v", keys, err)
				}
			} else if got := kit.ResultOf(k, second); got != 2 || calls.of("1") != 0 {
				t.Errorf("the second run returned %d; the first has gone on %d times", got, calls.of("1"))
			}
			if err := admin.New(k.Client).Runs.Unpause(k.Ctx, first.ID()); err != nil {
				t.Fatal(err)
			}
			if got := kit.ResultOf(k, first) + kit.ResultOf(k, second); got != 3 {
				t.Errorf("results %d", got)
			}
			calls.wantOnce(t, "1", "2")
		})
	}
}
