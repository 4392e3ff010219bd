package operations

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// Get says which limit or pause holds up a run that is due.
func TestWhatADueRunWaitsFor(t *testing.T) {
	k := kit.New(t)
	c, ctx := k.Client, k.Ctx
	for _, q := range []admin.QueueLimits{
		{Queue: "keyed", EachKey: admin.KeyLimits{MaxRunning: 2}},
		{Queue: "small", MaxRunning: 1},
		{Queue: "slow", Rate: admin.Rate{Starts: 1, Per: time.Hour}},
		{Queue: "slow keys", EachKey: admin.KeyLimits{Rate: admin.Rate{Starts: 1, Per: time.Hour}}},
		{Queue: "sequence", EachKey: admin.KeyLimits{MaxRunning: 1}, Hold: true},
	} {
		if err := admin.New(c).Queues.Set(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	begun, goOn := make(chan struct{}, 10), make(chan struct{})
	wf := kagzi.Define[int, int]("wait")
	w := kit.NewWorker(t, c,
		kagzi.WorkerConfig{Queues: map[string]int{"keyed": 1, "small": 1, "slow": 1, "slow keys": 1, "sequence": 1}})
	kagzi.Handle(w, wf, func(kctx kagzi.Context, n int) (int, error) {
		err := kagzi.Do(kctx, "wait", func(ctx context.Context) error {
			begun <- struct{}{}
			select {
			case <-goOn:
			case <-ctx.Done():
			}
			return nil
		})
		return n, err
	})
	kit.StartWorker(t, w)
	start := func(opts ...kagzi.StartOption) *kagzi.Run[int] {
		t.Helper()
		return kit.Begin(k, wf, 1, opts...)
	}
	wants := map[kagzi.RunID]string{}
	want := func(text string, opts ...kagzi.StartOption) *kagzi.Run[int] {
		t.Helper()
		run := start(opts...)
		wants[run.ID()] = text
		return run
	}
	var holders []kagzi.RunID
	for _, busy := range [][]kagzi.StartOption{
		{kagzi.Queue("keyed"), kagzi.Key("a")},
		{kagzi.Queue("keyed"), kagzi.Key("a")},
		{kagzi.Queue("keyed"), kagzi.Group("mail"), kagzi.ID("mail-1")},
		{kagzi.Queue("small")},
		{kagzi.Queue("slow")},
		{kagzi.Queue("slow keys"), kagzi.Key("a")},
	} {
		holders = append(holders, start(busy...).ID())
		await.Receive(t, begun)
	}
	want("key a (2 of 2 running), behind "+string(holders[0]), kagzi.Queue("keyed"), kagzi.Key("a"))
	want("group mail (1 of 1 running), behind mail-1", kagzi.Queue("keyed"), kagzi.Group("mail"))
	want("queue small (1 of 1 running)", kagzi.Queue("small"))
	want("queue small (1 of 1 running)", kagzi.Queue("small"), kagzi.Key("a"))
	want("rate of queue slow", kagzi.Queue("slow"))
	want("rate of key a", kagzi.Queue("slow keys"), kagzi.Key("a"))
	want("", kagzi.Queue("nobody")) // waits for a worker
	want("", kagzi.Queue("nobody"), kagzi.Key("a"))
	want("", kagzi.Queue("small"), kagzi.Delay(time.Hour))

	for _, target := range []admin.Target{
		{Queue: "paused"},
		{Workflow: "paused"},
		{Queue: "nobody", Key: "b"},
		{Group: "paused"},
	} {
		if err := admin.New(c).Pauses.Set(ctx, target); err != nil {
			t.Fatal(err)
		}
	}
	want("pause of queue paused", kagzi.Queue("paused"))
	want("pause of key b", kagzi.Queue("nobody"), kagzi.Key("b"))
	want("pause of group paused", kagzi.Queue("nobody"), kagzi.Group("paused"))
	other := kit.Begin(k, kagzi.Define[int, int]("paused"), 1, kagzi.Queue("nobody"))
	wants[other.ID()] = "pause of workflow paused"
	if err := admin.New(c).Runs.Pause(ctx, want("pause", kagzi.Queue("nobody"))); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for id, text := range wants {
			if got := k.InfoOf(id); got.WaitingOn.String() != text || got.Status != kagzi.StatusPending {
				t.Errorf("%s run of queue %q, key %q waits on %q, want %q", got.Status, got.Queue, got.Key,
					got.WaitingOn, text)
			}
		}
	}
	check()
	if err := admin.New(c).Pauses.Set(ctx, admin.Target{All: true}); err != nil {
		t.Fatal(err)
	}
	wants = map[kagzi.RunID]string{}
	want("pause of all runs", kagzi.Queue("small"))
	check()
	close(goOn)
	if list, err := c.List(ctx, kagzi.RunFilter{}); err != nil ||
		slices.ContainsFunc(list, func(r kagzi.RunInfo) bool { return r.WaitingOn != nil }) {
		t.Errorf("List looks for what runs wait for, error %v", err)
	}
}

// A run that holds its slot until its end waits for no slot.
func TestWhatAHolderWaitsFor(t *testing.T) {
	k := kit.New(t, dbtest.Unchecked())
	if err := admin.New(k.Client).Queues.Set(k.Ctx, admin.QueueLimits{
		Queue: "default", MaxRunning: 1,
		EachKey: admin.KeyLimits{MaxRunning: 1}, Hold: true,
	}); err != nil {
		t.Fatal(err)
	}
	run := kit.Begin(k, kagzi.Define[int, int]("wait"), 1, kagzi.Key("a"))
	k.Exec(`UPDATE kagzi.workflow_runs SET slot = 2, status = 'SLEEPING', 
		waiting_on = '[{"kind": "timer", "name": "nap"}]', available_at = now()
		WHERE run_id = $1`, run.ID())
	if got := k.InfoOf(run.ID()).WaitingOn.String(); got != "timer nap" {
		t.Errorf("waits on %q", got)
	}
	next := kit.Begin(k, kagzi.Define[int, int]("wait"), 1, kagzi.Key("a"))
	if got := k.InfoOf(next.ID()).WaitingOn.String(); got != "key a (1 of 1 running), behind "+string(run.ID()) {
		t.Errorf("the next one waits on %q", got)
	}
}
