package operations_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

func mustUpdate(k *kit.Kit, ref kagzi.Ref, opts ...admin.UpdateOption) {
	k.T.Helper()
	if err := admin.New(k.Client).Runs.Update(k.Ctx, ref, opts...); err != nil {
		k.T.Fatal(err)
	}
}

// A worker that waits learns at once that a run has come to its queue: it does not poll for an hour.
func TestUpdateWakesTheWorkersOfTheQueue(t *testing.T) {
	k := kit.New(t)
	kit.ServeWith(k, kagzi.WorkerConfig{Queue: "fast", PollInterval: time.Hour}, kit.Noop, kit.Odd)
	run := kit.Begin(k, kit.Noop, 1, kagzi.Queue("slow"))
	mustUpdate(k, run, kagzi.Queue("fast"), kagzi.Reason("the slow workers are down"), kagzi.Actor("ada"))
	kit.ResultOf(k, run)
	k.WantEvents(run, admin.LogEntry{
		Event: "UPDATED", Reason: "the slow workers are down", Actor: "ada",
		Changes: []admin.LogChange{{Field: "queue", From: "slow", To: "fast"}},
	})

	tx := k.CallersTx()
	run = kit.Begin(k, kit.Noop, 3, kagzi.Queue("slow"), kagzi.Delay(time.Hour))
	mustUpdate(k, run, kagzi.Queue("fast"), kagzi.Delay(0), kagzi.InTx(tx))
	if info := k.InfoOf(run); info.Queue != "slow" {
		t.Errorf("before the commit it is in %s", info.Queue)
	}
	kit.CommitTx(t, tx)
	kit.ResultOf(k, run)
}

// A waiting run is due earlier or later; a sleep does not end early.
func TestUpdateOfTimes(t *testing.T) {
	k := kit.New(t)
	at := time.Now().Add(30 * time.Hour).Truncate(time.Second).UTC()
	run := kit.Begin(k, kit.Noop, 1, kagzi.Delay(time.Hour), kagzi.Timeout(time.Hour))
	mustUpdate(k, run, kagzi.Delay(0), kagzi.At(at))
	if info := k.InfoOf(run); !info.AvailableAt.Equal(at) || !info.DeadlineAt.Equal(at.Add(time.Hour)) {
		t.Errorf("it is due at %v, and ends at %v", info.AvailableAt, info.DeadlineAt)
	}
	log, err := admin.New(k.Client).Runs.Log(k.Ctx, run)
	if err != nil || len(log) != 1 || log[0].Changes[0].Field != "available_at" ||
		log[0].Changes[0].To != at.Format(time.RFC3339Nano) {
		t.Errorf("%+v, %v", log, err)
	}

	sleeper := kagzi.Define[int, string]("sleeper")
	kit.Serve(k, sleeper, func(ctx kagzi.Context, _ int) (string, error) {
		_, err := kagzi.WaitSignal(ctx, kit.Approved)
		return ctx.Metadata()["tenant"], err
	})
	sleeping := kit.Begin(k, sleeper, 1, kagzi.Metadata{"tenant": "acme"})
	k.WaitStatus(sleeping, kagzi.StatusSleeping)
	err = admin.New(k.Client).Runs.Update(k.Ctx, sleeping, kagzi.Delay(0))
	if kit.MustContain(t, err, "update", "signal approved", "leave At and Delay out"); !errors.Is(err,
		admin.ErrNotWaiting) {
		t.Error(err)
	}
	mustUpdate(k, sleeping, kagzi.Priority(1), kagzi.Metadata{"tenant": "other"})
	if info := k.InfoOf(sleeping); info.Priority != 1 || len(info.Metadata) != 1 || info.Metadata["tenant"] != "other" {
		t.Errorf("%+v", info)
	}
	k.Signal(sleeping, kit.Approved.With("yes"))
	if got := kit.ResultOf(k, sleeping); got != "acme" {
		t.Errorf("the code sees tenant %q", got)
	}

	tries := 0
	retried := kagzi.Define[int, int]("retried", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Hour})
	kit.Serve(k, retried, func(kagzi.Context, int) (int, error) {
		if tries++; tries == 1 {
			return 0, errors.New("once")
		}
		return tries, nil
	})
	again := kit.Begin(k, retried, 1)
	k.WaitStatus(again, kagzi.StatusPending, "retry")
	mustUpdate(k, again, kagzi.Delay(0))
	if got := kit.ResultOf(k, again); got != 2 {
		t.Errorf("attempt %d", got)
	}
}

// A run that executes is refused with what to do, which then works.
func TestUpdateOfARunningRun(t *testing.T) {
	k := kit.New(t)
	entered, goOn := make(chan struct{}), make(chan struct{})
	wf := kagzi.Define[int, int]("wf")
	var over atomic.Bool
	fn := func(ctx kagzi.Context, n int) (int, error) {
		if err := kagzi.Do(ctx, "first", func(context.Context) error {
			close(entered)
			await.Opened(t, goOn)
			return nil
		}); err != nil {
			return 0, err
		}
		for { // until its worker learns that it is paused
			over, err := kagzi.Step(ctx, "next", func(context.Context) (bool, error) { return over.Load(), nil })
			if over || err != nil {
				return n, err
			}
		}
	}
	kit.Serve(k, wf, fn)
	run := kit.Begin(k, wf, 1)
	await.Receive(t, entered)
	err := admin.New(k.Client).Runs.Update(k.Ctx, run, kagzi.Queue("other"))
	if kit.MustContain(t, err, "update", "admin.Runs.Pause"); !errors.Is(err, admin.ErrNotWaiting) {
		t.Error(err)
	}
	if err := admin.New(k.Client).Runs.Pause(k.Ctx, run); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	k.WaitStatus(run, kagzi.StatusPending)
	over.Store(true)
	mustUpdate(k, run, kagzi.Queue("other"))
	if err := admin.New(k.Client).Runs.Unpause(k.Ctx, run); err != nil {
		t.Fatal(err)
	}
	kit.ServeWith(k, kagzi.WorkerConfig{Queue: "other"}, wf, fn)
	kit.ResultOf(k, run)
	if err := admin.New(k.Client).Runs.Update(k.Ctx, run, kagzi.Priority(1)); !errors.Is(err, kagzi.ErrRunFinished) {
		t.Error(err)
	}
}

// A run that sleeps and keeps the slot of its group does not exceed the limit of the queue to which it is moved.
func TestUpdateOfAGroupToAFullQueue(t *testing.T) {
	k := kit.New(t)
	if err := admin.New(k.Client).Queues.Set(k.Ctx, admin.QueueLimits{Queue: "narrow", MaxRunning: 1}); err != nil {
		t.Fatal(err)
	}
	entered, goOn := make(chan struct{}), make(chan struct{})
	busy := kagzi.Define[int, int]("busy")
	sleeper := kagzi.Define[int, string]("sleeper")
	sleeps := func(ctx kagzi.Context, _ int) (string, error) { return kagzi.WaitSignal(ctx, kit.Approved) }
	kit.ServeWith(k, kagzi.WorkerConfig{Queue: "narrow"}, busy, func(ctx kagzi.Context, n int) (int, error) {
		return n, kagzi.Do(ctx, "work", func(context.Context) error {
			close(entered)
			await.Opened(t, goOn)
			return nil
		})
	})
	kit.Serve(k, sleeper, sleeps)
	other := kit.Begin(k, busy, 1, kagzi.Queue("narrow"))
	await.Receive(t, entered)
	run := kit.Begin(k, sleeper, 1, kagzi.Group("g"))
	k.WaitStatus(run, kagzi.StatusSleeping)
	err := admin.New(k.Client).Runs.Update(k.Ctx, run, kagzi.Queue("narrow"))
	if kit.MustContain(t, err, "update", `queue "narrow"`, "move it when one is free"); !errors.Is(err,
		admin.ErrNotWaiting) {
		t.Error(err)
	}
	bulk, err := admin.New(k.Client).Runs.UpdateAll(k.Ctx, kagzi.RunFilter{Workflow: "sleeper"}, kagzi.Queue("narrow"))
	if err != nil || len(bulk.Changed) != 0 || !errors.Is(bulk.Skipped[run.ID()], admin.ErrNotWaiting) {
		t.Errorf("%+v, %v", bulk, err)
	}
	close(goOn)
	kit.ResultOf(k, other)
	mustUpdate(k, run, kagzi.Queue("narrow"))
	kit.ServeWith(k, kagzi.WorkerConfig{Queue: "narrow"}, sleeper, sleeps)
	k.Signal(run, kit.Approved.With("yes"))
	if got := kit.ResultOf(k, run); got != "yes" {
		t.Errorf("result %q", got)
	}
}

// A run goes to the handlers of another version, or to any.
func TestUpdateOfVersions(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	for v := 2; v <= 3; v++ {
		kagzi.Handle(w, wf, func(kagzi.Context, int) (int, error) { return v, nil }, kagzi.Version(v))
	}
	kit.StartWorker(t, w)
	a, b := kit.Begin(k, wf, 1, kagzi.Version(1)), kit.Begin(k, wf, 1, kagzi.Version(1))
	mustUpdate(k, a, kagzi.Version(2))
	mustUpdate(k, b, kagzi.DefaultVersion())
	if got := []int{kit.ResultOf(k, a), kit.ResultOf(k, b)}; !slices.Equal(got, []int{2, 3}) {
		t.Errorf("versions %v", got)
	}
	k.WantEvents(b, admin.LogEntry{Event: "UPDATED", Changes: []admin.LogChange{{Field: "version", From: "1"}}})
}

// A run of a consumer waits for its next attempt. It goes on in another queue, and the next ones are in the consumer's.
func TestUpdateOfAConsumersRun(t *testing.T) {
	k := kit.New(t)
	about := topic.Define[int]("orders")
	down := true
	counter := topic.DefineConsumer("counter", topic.ConsumerConfig{
		Topics:      []topic.AnyTopic{about},
		RetryPolicy: kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Hour},
	})
	consume := func(ctx kagzi.Context, state int) (int, error) {
		if down {
			return 0, errors.New("down")
		}
		events, err := topic.Peek(ctx, "take", about, 10)
		if err != nil {
			return state, err
		}
		return state + len(events), topic.Reserve(ctx, "take", events...)
	}
	serve := func(queue string) (stop func() error) {
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: queue})
		topic.Consume(w, counter, consume)
		return kit.StartWorker(t, w)
	}
	stop := serve("default")
	if err := topic.New(k.Client).Publish(k.Ctx, about.With(1)); err != nil {
		t.Fatal(err)
	}
	await.True(t, "a run", func() bool { return k.Count(`SELECT count(*) FROM kagzi.workflow_runs`) > 0 })
	run := k.WaitStatus(kagzi.ID("consumer counter"), kagzi.StatusPending, "retry")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	down = false
	mustUpdate(k, run, kagzi.Queue("other"), kagzi.Delay(0))
	serve("other")
	k.WaitStatus(run.ID, kagzi.StatusCompleted)
}

func TestUpdateAll(t *testing.T) {
	k := kit.New(t)
	for i := range 5 {
		kit.Begin(k, kit.Noop, i, kagzi.Queue("q"), kagzi.Metadata{"tenant": []string{"a", "b"}[i%2]})
	}
	f := kagzi.RunFilter{Metadata: kagzi.Metadata{"tenant": "a"}}
	dry, err := admin.New(k.Client).Runs.UpdateAll(k.Ctx, f, kagzi.Queue("other"), admin.DryRun())
	if err != nil || len(dry.Changed) != 3 ||
		k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE task_queue = 'other'`) != 0 {
		t.Errorf("%+v, %v", dry, err)
	}
	got, err := admin.New(k.Client).Runs.UpdateAll(k.Ctx, f, kagzi.Queue("other"), kagzi.Actor("ada"))
	if err != nil || !slices.Equal(got.Changed, dry.Changed) ||
		k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE task_queue = 'other'`) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	k.Exec(`UPDATE kagzi.workflow_runs SET status = 'SLEEPING' WHERE run_id = $1`, string(got.Changed[0]))
	// those that sleep are not among them
	got, err = admin.New(k.Client).Runs.UpdateAll(k.Ctx, f, kagzi.Delay(time.Hour))
	if err != nil || got.Matched != 2 || len(got.Changed) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	f.Status = []kagzi.Status{kagzi.StatusSleeping}
	got, err = admin.New(k.Client).Runs.UpdateAll(k.Ctx, f, kagzi.Delay(time.Hour))
	if err != nil || len(got.Skipped) != 1 || !errors.Is(got.Skipped[dry.Changed[0]], admin.ErrNotWaiting) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBadUpdatesAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	c := kit.NewClient(t, kit.Unreachable(t))
	for says, opts := range map[string][]admin.UpdateOption{
		"there is nothing to change": {kagzi.Reason("why"), kagzi.Actor("who")},
		"the queue's name is empty":  {kagzi.Queue("")},
		"Priority is 5":              {kagzi.Priority(5)},
		"Version is 0":               {kagzi.Version(0)},
		"At is the zero time":        {kagzi.At(time.Time{})},
		"delay":                      {kagzi.Delay(-1)},
		"Metadata":                   {kagzi.Metadata{"k": strings.Repeat("x", 20<<10)}},
		"begin a transaction":        {kagzi.Queue("q"), kagzi.InTx(nil)},
		"nil option":                 {nil},
		"DryRun is for the verbs":    {kagzi.Queue("q"), admin.DryRun()},
	} {
		err := admin.New(c).Runs.Update(t.Context(), kagzi.ID("x"), opts...)
		kit.MustContain(t, err, "kagzi: update x: ", says)
	}
	_, err := admin.New(c).Runs.UpdateAll(t.Context(), kagzi.RunFilter{}, kagzi.Queue("q"))
	kit.MustContain(t, err, "kagzi: update all: ")
	_, err = admin.New(c).Runs.UpdateAll(t.Context(), kagzi.RunFilter{Queue: "q"})
	kit.MustContain(t, err, "kagzi: update all: ", "there is nothing to change")
}

// Whatever changes a run says who does it.
func TestActorsOfVerbs(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kit.Noop, 1, kagzi.ID("x"))
	who := kagzi.Actor("ada")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(admin.New(k.Client).Runs.Pause(k.Ctx, run, who))
	must(admin.New(k.Client).Runs.Unpause(k.Ctx, run, who))
	must(admin.New(k.Client).Runs.Update(k.Ctx, run, kagzi.Priority(1), who))
	must(k.Client.Cancel(k.Ctx, run, who))
	must(admin.New(k.Client).Runs.Resume(k.Ctx, run, who))
	must(admin.New(k.Client).Runs.Terminate(k.Ctx, run, who))
	as, err := admin.New(k.Client).Runs.Restart(k.Ctx, run, who, kagzi.ID("y"))
	must(err)
	for _, id := range []kagzi.RunID{run.ID(), as} {
		log, err := admin.New(k.Client).Runs.Log(k.Ctx, id)
		must(err)
		for _, e := range log {
			if e.Actor != "ada" {
				t.Errorf("%+v", e)
			}
		}
		if want := map[kagzi.RunID]int{run.ID(): 7, as: 1}[id]; len(log) != want {
			t.Errorf("%d events, want %d", len(log), want)
		}
	}
	bulk, err := admin.New(k.Client).Runs.CancelAll(k.Ctx, kagzi.RunFilter{ID: "y"}, who)
	must(err)
	if log, err := admin.New(k.Client).Runs.Log(k.Ctx, bulk.Changed[0]); err != nil || log[1].Actor != "ada" {
		t.Errorf("%+v, %v", log, err)
	}
	_, err = kagzi.Start(k.Ctx, k.Client, kit.Noop, 1)
	must(err)
	must(k.Client.Signal(k.Ctx, kit.Begin(k, kit.Noop, 1), kit.Approved.With("yes")))
}
