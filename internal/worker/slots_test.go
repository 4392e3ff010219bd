package worker_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/store"
)

// holding gives w a workflow whose runs send their input to begun, and return it once open is closed.
func holding(w *kagzi.Worker) (wf kagzi.Workflow[int, int], begun chan int, open chan struct{}) {
	wf, begun, open = kagzi.Define[int, int]("wf"), make(chan int, 1000), make(chan struct{})
	kagzi.Handle(w, wf, func(_ kagzi.Context, i int) (int, error) {
		begun <- i
		<-open
		return i, nil
	})
	return wf, begun, open
}

// TestRunsAheadOfSlots claims three runs more than there are slots. They wait; as no slot is freed, they are given
// back, and keep their places in the queue. One that gets a slot begins.
func TestRunsAheadOfSlots(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	const slots, n = 2, 5
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: slots})
	wf, begun, open := holding(w)
	s, err := worker.NewHeldSession(t.Context(), configOf(t, w))
	if err != nil {
		t.Fatal(err)
	}
	pending := func() []string { // in the order of the queue
		return dbtest.QueryOne[[]string](t, db.Pool,
			`SELECT coalesce(array_agg(concat_ws(' ', run_id, available_at, version) ORDER BY available_at), '{}')
				FROM kagzi.workflow_runs WHERE status = 'PENDING'`)
	}
	runs := kit.StartRuns(t, c, wf, n)
	queue := pending()
	s.Claim(t.Context(), n+1) // so the claim finds all, and no other run is due
	if s.PlaceInAFreedSlot(&store.NewRun{
		Spec: store.Spec{Queue: "default", Type: "wf", Priority: 3}, RunID: uuid.New(),
	}) {
		t.Error("a start in place overtakes the runs that wait for a slot")
	}
	for range slots {
		await.Receive(t, begun)
	}
	for range n - slots {
		s.Flush(await.Receive(t, s.Come))
	}
	if back := pending(); !slices.Equal(back, queue[slots:]) {
		t.Errorf("given back %q, want %q", back, queue[slots:])
	}
	if waiting, free := s.Waiting(); waiting != 0 || free != 0 {
		t.Errorf("%d wait, %d slots are free; want none", waiting, free)
	}

	close(open)
	await.True(t, "a run that waits begins when a slot is freed, unless it is given back before", func() bool {
		for s.Executes() {
			s.Flush(await.Receive(t, s.Come))
		}
		s.Claim(t.Context(), n) // one that is given back once more is found by a full claim
		return !s.Executes() && len(pending()) == 0
	})
	kit.CheckResults(t, runs, func(i int) int { return i })
	if waiting, free := s.Waiting(); waiting != 0 || free != slots {
		t.Errorf("%d wait, %d slots are free; want %d", waiting, free, slots)
	}
	await.True(t, "one claim of more runs than slots is enough", func() bool {
		kit.StartRuns(t, c, wf, slots+1)
		s.Claim(t.Context(), 100)
		for s.Executes() {
			s.Flush(await.Receive(t, s.Come))
		}
		return len(pending()) == 0
	})
}

// TestNoMoreThanMaxConcurrent executes short runs, which are claimed ahead: never more than MaxConcurrent at a time.
func TestNoMoreThanMaxConcurrent(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	const most = 3
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: most})
	var under, peak atomic.Int64
	wf := kagzi.Define[int, int]("wf")
	kagzi.Handle(w, wf, func(ctx kagzi.Context, i int) (int, error) {
		n := under.Add(1)
		defer under.Add(-1)
		for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); {
			p = peak.Load()
		}
		// its record lets others begin meanwhile
		return kagzi.Step(ctx, "s", func(context.Context) (int, error) { return i, nil })
	})
	runs := kit.StartRuns(t, c, wf, 300)
	kit.StartLocal(t, w)
	kit.CheckResults(t, runs, func(i int) int { return i })
	if n := peak.Load(); n > most {
		t.Errorf("%d runs were under way at once, want %d at most", n, most)
	}
}

// TestActiveWhileStoppedRunsWait fences a worker whose claimed runs wait for its slot: they are yielded, and the
// heartbeat still reports those that are executed.
func TestActiveWhileStoppedRunsWait(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 1})
	wf, begun, open := holding(w)
	s, err := worker.NewHeldSession(t.Context(), configOf(t, w))
	if err != nil {
		t.Fatal(err)
	}
	const n = 4
	kit.StartRuns(t, c, wf, n)
	s.Claim(t.Context(), n)
	await.Receive(t, begun)
	if active := s.Active(); active != 1 {
		t.Errorf("%d runs are active, want 1", active)
	}
	s.Fence()
	for range n - 1 {
		s.Flush(await.Receive(t, s.Come))
	}
	if active := s.Active(); active < 0 {
		t.Errorf("%d runs are active", active)
	}
	close(open)
	s.Flush(await.Receive(t, s.Come))
}

// TestLargeInputsAheadOfSlots claims runs ahead of slots: their large inputs are not in memory until they have a slot.
func TestLargeInputsAheadOfSlots(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 1})
	wf := kagzi.Define[string, int]("wf")
	begun, open := make(chan int, 10), make(chan struct{})
	kagzi.Handle(w, wf, func(_ kagzi.Context, in string) (int, error) {
		begun <- len(in)
		await.Opened(t, open)
		return len(in), nil
	})
	s, err := worker.NewHeldSession(t.Context(), configOf(t, w))
	if err != nil {
		t.Fatal(err)
	}
	var runs []*kagzi.Run[int]
	for _, n := range []int{1, 2, 1 << 20} {
		run, err := kagzi.Start(t.Context(), c, wf, strings.Repeat("x", n))
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	s.Claim(t.Context(), len(runs))
	await.Receive(t, begun)
	if bytes := s.InputsAhead(); bytes > 1000 {
		t.Errorf("the runs that wait have %d bytes of inputs", bytes)
	}
	close(open)
	await.True(t, "all runs end, also those that are given back meanwhile", func() bool {
		for s.Executes() {
			s.Flush(await.Receive(t, s.Come))
		}
		s.Claim(t.Context(), len(runs)) // one that is given back once more is found by a full claim
		return dbtest.QueryOne[bool](t, db.Pool, `SELECT bool_and(status = 'COMPLETED') FROM kagzi.workflow_runs`)
	})
	for i, n := range []int{1, 2, 1 << 20} {
		if got, err := runs[i].Result(t.Context()); got != n || err != nil {
			t.Errorf("run %d: %d, %v", i, got, err)
		}
	}
}

// TestEndOfARunAheadOfSlots cancels and terminates runs that wait for a slot, and lets the deadline of one pass. None
// of them begins.
func TestEndOfARunAheadOfSlots(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{MaxConcurrent: 1})
	begun, open := make(chan string, 10), make(chan struct{})
	wf := kagzi.Define[string, string]("wf")
	kagzi.Handle(w, wf, func(_ kagzi.Context, name string) (string, error) {
		begun <- name
		await.Opened(t, open)
		return name, nil
	})
	runs := map[string]*kagzi.Run[string]{}
	for _, name := range []string{"first", "cancelled", "terminated", "late", "last"} {
		var opts []kagzi.StartOption
		if name == "late" {
			opts = append(opts, kagzi.Timeout(200*time.Millisecond))
		}
		run, err := kagzi.Start(t.Context(), c, wf, name, opts...)
		if err != nil {
			t.Fatal(err)
		}
		runs[name] = run
	}
	s, err := worker.NewHeldSession(t.Context(), configOf(t, w))
	if err != nil {
		t.Fatal(err)
	}
	s.KeepAhead()
	s.Claim(t.Context(), len(runs))
	if name := await.Receive(t, begun); name != "first" {
		t.Errorf("%q has begun", name)
	}
	if err := c.Cancel(t.Context(), runs["cancelled"].ID()); err != nil {
		t.Error(err)
	}
	if err := admin.New(c).Runs.Terminate(t.Context(), runs["terminated"].ID()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"cancelled", "terminated"} {
		s.Refresh(uuid.MustParse(string(runs[name].ID())))
	}
	await.True(t, "the deadline has passed, by the worker's clock, too", func() bool {
		return dbtest.QueryOne[bool](t, db.Pool, `SELECT deadline_at + interval '300 ms' < now()
			FROM kagzi.workflow_runs WHERE deadline_at IS NOT NULL`)
	})
	close(open)
	await.True(t, "all runs end", func() bool {
		for len(s.Come) > 0 {
			s.Flush(<-s.Come)
		}
		if !s.Executes() {
			s.Claim(t.Context(), len(runs))
		}
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs
			WHERE finished_at IS NULL`) == 0
	})
	for name, want := range map[string]kagzi.Status{
		"first": kagzi.StatusCompleted, "cancelled": kagzi.StatusCancelled, "terminated": kagzi.StatusCancelled,
		"late": kagzi.StatusFailed, "last": kagzi.StatusCompleted,
	} {
		if info, err := runs[name].Info(t.Context()); err != nil || info.Status != want {
			t.Errorf("%s: %s, %v; want %s", name, info.Status, err, want)
		}
	}
	if name := await.Receive(t, begun); name != "last" || len(begun) > 0 {
		t.Errorf("%q has begun, and %d more", name, len(begun))
	}
}
