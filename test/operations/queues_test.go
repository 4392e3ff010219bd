package operations_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// startIn starts n runs of the gate in the queue.
func startIn(t *testing.T, c *kagzi.Client, g *kit.Gate, queue string, n int) (runs []*kagzi.Run[string]) {
	t.Helper()
	for i := range n {
		run, err := kagzi.Start(t.Context(), c, g.Workflow, i, kagzi.Queue(queue))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	return runs
}

// Queues with due runs have their shares of the slots, and the worker uses all of its slots. When the runs of one queue
// are over, the others get its slots.
func TestSharesOfSlots(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	g := kit.NewGate()
	g.Begun = make(chan int, 1000)
	runs := map[string][]*kagzi.Run[string]{
		"a": startIn(t, c, g, "a", 40), "b": startIn(t, c, g, "b", 7),
		"c": startIn(t, c, g, "c", 3),
	}
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{Queues: map[string]int{"a": 1, "b": 3, "c": 4}, MaxConcurrent: 16})
	g.Handle(w)
	kit.StartLocal(t, w)
	for range 16 {
		await.Receive(t, g.Begun)
	}
	// c needs only three of its eight slots. Of the other thirteen, b takes its seven, less than three quarters, and a
	// has the rest.
	got := dbtest.QueryOne[string](t, db.Pool, `SELECT string_agg(task_queue || ' ' || n, ', ' ORDER BY task_queue)
		FROM (
		SELECT task_queue, count(*) AS n FROM kagzi.workflow_runs WHERE status = 'RUNNING' GROUP BY 1) r`)
	if got != "a 6, b 7, c 3" {
		t.Errorf("%s hold slots", got)
	}
	close(g.Open)
	for _, rs := range runs {
		for _, r := range rs {
			if _, err := r.Result(kit.Context(t)); err != nil {
				t.Error(err)
			}
		}
	}
}

// No queue starves, even if there are more queues with long backlogs than slots.
func TestMoreQueuesThanSlots(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	wf := kagzi.Define[int, int]("wf")
	shares := map[string]int{"a": 2, "b": 1, "c": 1}
	var calls []kagzi.Call
	for i := range 1000 {
		calls = append(calls, wf.With(i, kagzi.Queue([]string{"a", "b", "c"}[i%3])))
	}
	if _, err := c.StartMany(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{Queues: shares, MaxConcurrent: 1})
	order := make(chan string, len(calls))
	kagzi.Handle(w, wf, func(ctx kagzi.Context, i int) (int, error) {
		order <- []string{"a", "b", "c"}[i%3]
		return i, nil
	})
	stop := kit.StartLocal(t, w)
	count := map[string]int{}
	for range 500 {
		count[await.Receive(t, order)]++
	}
	stop()
	for queue, share := range shares {
		if want := 125 * share; count[queue] < want/2 || count[queue] > want*3/2 {
			t.Errorf("of 500 runs, %d were of queue %q with share %d of 4", count[queue], queue, share)
		}
	}
}

// Queues are added to a worker that runs, and removed from it. The registry shows that. When the worker is lost, its
// runs in a queue that it has left are released, too.
func TestQueuesOfARunningWorker(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	g := kit.NewGate()
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{Queue: "a", Heartbeat: time.Minute, StaleAfter: time.Hour})
	g.Handle(w)
	kit.StartLocal(t, w)
	wantQueues := func(want string) {
		t.Helper()
		await.True(t, "the row names "+want, func() bool {
			page, _, err := admin.New(c).Workers.List(t.Context(), admin.WorkerFilter{Status: []string{"ONLINE"}})
			return err == nil && len(page) == 1 && fmt.Sprint(page[0].Queues, page[0].LeftQueues) == want
		})
	}
	change := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	wantQueues("[a] []")
	under := startIn(t, c, g, "b", 1)[0]
	change(w.AddQueue("b", 2))
	await.Receive(t, g.Begun)
	wantQueues("[a b] []")

	change(w.RemoveQueue("b"))
	wantQueues("[a] [b]")
	startIn(t, c, g, "a", 1) // its claim comes after one of queue b that may have been under way
	await.Receive(t, g.Begun)
	waits := startIn(t, c, g, "b", 1)[0]
	startIn(t, c, g, "a", 1)
	await.Receive(t, g.Begun)
	if info, err := waits.Info(t.Context()); err != nil || info.Status != kagzi.StatusPending {
		t.Errorf("the run in a queue that the worker has left is %s, %v", info.Status, err)
	}
	if info, err := under.Info(t.Context()); err != nil || info.Status != kagzi.StatusRunning {
		t.Errorf("the run that was under way is %s, %v", info.Status, err)
	}
	if err := w.RemoveQueue("a"); err == nil || !strings.Contains(err.Error(), "only queue") {
		t.Errorf("removing the only queue: %v", err)
	}

	row := kit.Only(t, c, admin.WorkerFilter{Queue: "a"})
	change(admin.New(c).Workers.ForceOffline(t.Context(), row.ID))
	// at once, but for a run whose row a worker has locked: a release passes over it, and comes again
	await.True(t, "both runs are due in the queue that the dead worker had left", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE task_queue = 'b'
			AND available_at <= now()`) == 2
	})
	await.Receive(t, g.Begun) // the run of a, on the same worker under its new ID
	change(w.AddQueue("b", 1))
	close(g.Open)
	for _, run := range []*kagzi.Run[string]{under, waits} {
		if _, err := run.Result(kit.Context(t)); err != nil {
			t.Error(err)
		}
	}
}
