package operations_test

import (
	"context"
	"errors"
	"fmt"
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

func telling(t *testing.T) *kit.Kit { return kit.NewWith(t, kagzi.ClientConfig{RunEvents: true}) }

// runEvents returns what the feed says of the run: the workflow, and the statuses and kinds in their order.
func runEvents(k *kit.Kit, id kagzi.RunID) string {
	k.T.Helper()
	var all []string
	for e, err := range topic.Events(k.Ctx, k.Client, topic.Runs, 0) {
		if err != nil {
			k.T.Fatal(err)
		}
		if p := e.Payload; p.Run == id {
			if len(all) == 0 {
				all = append(all, p.Workflow)
			}
			line := string(p.Status)
			if p.Kind != "" {
				line += "/" + string(p.Kind)
			}
			if p.Quarantined {
				line += "/quarantined"
			}
			all = append(all, line)
			if p.At.IsZero() || p.Queue != "default" || p.At.After(e.PublishedAt) {
				k.T.Errorf("event %+v", e)
			}
		}
	}
	return strings.Join(all, " ")
}

func wantRunEvents(k *kit.Kit, id kagzi.RunID, want string) {
	k.T.Helper()
	if got := runEvents(k, id); got != want {
		k.T.Errorf("the feed says %q, want %q", got, want)
	}
}

// The end of a run is in the feed, whatever client ends it. The invariants check that each run that publishes its
// events has both.
func TestRunEvents(t *testing.T) {
	k := telling(t)
	wf, child := kagzi.Define[string, int]("wf", kit.NoRetry), kagzi.Define[int, int]("child")
	undo := kagzi.Define[int, int]("undo")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(ctx kagzi.Context, n int) (int, error) { return n, nil })
	kagzi.Handle(w, undo, func(ctx kagzi.Context, n int) (int, error) { return n, nil })
	var resumed atomic.Bool
	kagzi.Handle(w, wf, func(ctx kagzi.Context, do string) (int, error) {
		switch do {
		case "fails":
			if resumed.Load() {
				return 1, nil
			}
			return 0, errors.New("broken")
		case "sleeps":
			return 0, kagzi.Sleep(ctx, "nap", time.Hour)
		case "is undone":
			kagzi.Compensate(ctx, "x", undo.With(1))
			return 0, errors.New("broken")
		case "is wrong":
			if resumed.Load() {
				return 0, kagzi.Do(ctx, "nap", func(context.Context) error { return nil })
			}
			return 0, kagzi.Sleep(ctx, "nap", time.Hour)
		}
		return kagzi.RunChild(ctx, "c", child, 1)
	})
	kit.StartWorker(t, w)
	other := kit.NewClient(t, k.Pool) // which does not publish on its own account

	run := kit.Begin(k, wf, "completes")
	kit.ResultOf(k, run)
	wantRunEvents(k, run.ID(), "wf PENDING COMPLETED")
	wantRunEvents(k, k.ChildOf(run.ID(), "c").ID, "child PENDING COMPLETED")
	for verb, start := range map[string]func() (kagzi.RunID, error){
		"restart": func() (kagzi.RunID, error) { return admin.New(other).Runs.Restart(k.Ctx, run.ID()) },
		"fork":    func() (kagzi.RunID, error) { return admin.New(other).Runs.Fork(k.Ctx, run.ID(), "c") },
	} {
		id, err := start()
		must(t, err)
		kit.ResultOf(k, kit.Find(t, k.Client, wf, id))
		if got := runEvents(k, id); got != "wf PENDING COMPLETED" {
			t.Errorf("%s: %s", verb, got)
		}
	}

	run = kit.Begin(k, wf, "fails", kagzi.ID("an ID"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	resumed.Store(true)
	must(t, admin.New(other).Runs.Resume(k.Ctx, run.ID()))
	kit.ResultOf(k, run)
	resumed.Store(false)
	wantRunEvents(k, run.ID(), "wf PENDING FAILED/unknown COMPLETED")

	for _, end := range []func(context.Context, kagzi.Ref, ...kagzi.ChangeOption) error{
		other.Cancel,
		admin.New(other).Runs.Terminate,
	} {
		run = kit.Begin(k, wf, "sleeps")
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap")
		must(t, end(k.Ctx, run.ID()))
		wantRunEvents(k, run.ID(), "wf PENDING CANCELLED/cancelled")
	}

	run = kit.Begin(k, wf, "is undone")
	kit.FailureOf(k, run, kagzi.StatusFailed)
	wantRunEvents(k, run.ID(), "wf PENDING FAILED/unknown")
	wantRunEvents(k, kagzi.RunID(k.Steps(run.ID())["x#compensation"][0].Child), "undo PENDING COMPLETED")

	run = kit.Begin(k, wf, "is wrong")
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer nap")
	resumed.Store(true)
	k.Wake(run.ID())
	kit.FailureOf(k, run, kagzi.StatusFailed)
	wantRunEvents(k, run.ID(), "wf PENDING FAILED/nondeterminism/quarantined")
}

// A run of a schedule publishes its events if the client that saved the schedule says so, and so does one that no
// worker executes until its deadline.
func TestRunEventsOfTheCoordinator(t *testing.T) {
	k := telling(t)
	wf := kagzi.Define[int, int]("wf")
	must(t, k.Client.Schedule(k.Ctx, kagzi.Schedule{
		Name: "s", Every: time.Hour,
		Run: wf.With(1, kagzi.Timeout(time.Second)),
	}))
	id, err := admin.New(k.Client).Schedules.Trigger(k.Ctx, "s")
	must(t, err)
	wantRunEvents(k, id, "wf PENDING")
	k.Exec(`UPDATE kagzi.workflow_runs SET deadline_at = now() - interval '1 hour'`)
	w := kit.NewWorker(t, kit.NewClient(t, k.Pool),
		kagzi.WorkerConfig{Coordinator: kagzi.CoordinatorConfig{Interval: 50 * time.Millisecond}})
	kagzi.Handle(w, kagzi.Define[int, int]("other"), func(ctx kagzi.Context, n int) (int, error) { return n, nil })
	kit.StartWorker(t, w)
	await.True(t, "the run has ended", func() bool { return k.InfoOf(id).Status == kagzi.StatusFailed })
	wantRunEvents(k, id, "wf PENDING FAILED/deadline")
}

// With InTx the start is told if the transaction commits. Concurrent starts share a statement and tell each.
func TestRunEventsOfStarts(t *testing.T) {
	k := telling(t)
	wf := kagzi.Define[int, int]("wf")
	for _, commit := range []bool{true, false} {
		tx := k.CallersTx()
		run, err := kagzi.Start(k.Ctx, k.Client, wf, 1, kagzi.InTx(tx))
		must(t, err)
		must(t, k.Client.Cancel(k.Ctx, run.ID(), kagzi.InTx(tx)))
		if commit {
			kit.CommitTx(t, tx)
			wantRunEvents(k, run.ID(), "wf PENDING CANCELLED/cancelled")
		} else {
			kit.RollbackTx(t, tx)
			wantRunEvents(k, run.ID(), "")
		}
	}
	started := make(chan kagzi.RunID, 20)
	for i := range cap(started) {
		go func() {
			run, err := kagzi.Start(k.Ctx, k.Client, wf, i, kagzi.ID(fmt.Sprint("id-", i%15)), kagzi.Delay(time.Hour))
			if err != nil {
				started <- ""
				return
			}
			started <- run.ID()
		}()
	}
	for range cap(started) {
		if id := await.Receive(t, started); id != "" {
			wantRunEvents(k, id, "wf PENDING")
		}
	}
}

// Runs of a client that does not say so do not tell, and no other client publishes in Kagzi's topics.
func TestNoRunEvents(t *testing.T) {
	k := kit.New(t)
	kit.Complete(k, func(ctx kagzi.Context) (int, error) { return 1, nil })
	if n := k.Count(`SELECT count(*) FROM kagzi.events`); n != 0 {
		t.Errorf("%d events", n)
	}
	own := topic.Define[int]("kagzi.mine")
	for _, e := range []topic.NewEvent{own.With(1), topic.Runs.With(topic.RunEvent{})} {
		kit.MustContain(t, topic.New(k.Client).Publish(k.Ctx, e), `names that begin with "kagzi."`)
	}
	for _, err := range topic.Events(k.Ctx, k.Client, own, 0) {
		kit.MustContain(t, err, `names that begin with "kagzi."`)
	}
}

// A consumer of the feed is woken by starts and ends, although no worker polls. Its own runs tell nothing.
func TestAConsumerOfRunEvents(t *testing.T) {
	k := telling(t)
	wf := kagzi.Define[int, int]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) { return n, nil })
	feed := topic.DefineConsumer("feed", topic.ConsumerConfig{Topics: []topic.AnyTopic{topic.Runs}, Queue: "feed"})
	cfg := kit.NotifiedOnly
	cfg.Queue = "feed"
	w := kit.NewWorker(t, kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{RunEvents: true}), cfg)
	seen := make(chan kagzi.Status, 100)
	topic.Consume(w, feed, func(ctx kagzi.Context, _ int) (int, error) {
		events, err := topic.Peek(ctx, "new", topic.Runs, 10)
		if err == nil {
			err = topic.Reserve(ctx, "all", events...)
		}
		for _, e := range events {
			if err == nil {
				seen <- e.Payload.Status
			}
		}
		return 0, err
	})
	kit.StartWorker(t, w)
	kit.ResultOf(k, kit.Begin(k, wf, 1))
	var got []kagzi.Status
	for !slices.Contains(got, kagzi.StatusCompleted) {
		got = append(got, await.Receive(t, seen))
	}
	if got[0] != kagzi.StatusPending {
		t.Errorf("saw %v", got)
	}
	if k.Count(`SELECT count(*) FROM kagzi.events WHERE payload::text LIKE '%feed%'`) != 0 {
		t.Error("the consumer's runs tell")
	}
}
