package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/worker"
)

// A run that is RUNNING under a worker that has never heard of it is given back within beats, and executed.
func TestStraysAreGivenBack(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]kagzi.StartOption{
		"Plain": nil, "Group": {kagzi.Group("g")},
		"Key": {kagzi.Key("k")}, "Deadline": {kagzi.Timeout(10 * time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("stray")
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{
				Heartbeat:    20 * time.Millisecond,
				PollInterval: time.Hour, LeaseTimeout: time.Hour,
			})
			kagzi.Handle(w, wf, func(_ kagzi.Context, n int) (int, error) { return n + 1, nil })
			s := begun(t, w)
			kit.ResultOf(k, kit.Begin(k, wf, 1)) // the worker has claimed something
			k.Exec(`INSERT INTO kagzi.queues (task_queue, namespace_id, key_max_running)
				VALUES ('default', 'default', 1)`)
			run := kit.Begin(k, wf, 1, append(opts, kagzi.Delay(time.Hour))...)
			k.Exec(`UPDATE kagzi.workflow_runs SET status = 'RUNNING', locked_by = $2, lease = gen_random_uuid(),
				started_at = now(), version = 1,
				deadline_at = CASE WHEN deadline_at IS NOT NULL THEN now() + interval '10 minutes' END,
					slot = CASE WHEN run_key IS NULL THEN NULL WHEN key_scope = '' THEN 2 ELSE 1 END,
					available_at = now() + CASE WHEN deadline_at IS NULL THEN interval '1 hour'
					ELSE interval '603 seconds' END
				WHERE run_id = $1`, string(run.ID()), s.ID())
			worker.SearchStrays(s, 0)
			if got := kit.ResultOf(k, run); got != 2 {
				t.Errorf("result %d", got)
			}
		})
	}
}

// A run that a worker executes is no stray, however often the leases are searched, nor is one of another worker.
func TestExecutedRunsAreNoStrays(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("stray")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Heartbeat: 10 * time.Millisecond, LeaseTimeout: time.Hour})
	under, end := make(chan struct{}, 2), make(chan struct{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
		return kagzi.Step(ctx, "wait", func(context.Context) (int, error) {
			under <- struct{}{}
			<-end
			return n, nil
		})
	})
	s := begun(t, w)
	first, second := kit.Begin(k, wf, 1), kit.Begin(k, wf, 2, kagzi.Group("g"))
	<-under
	<-under
	for range 3 {
		worker.SearchStrays(s, 0)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'RUNNING'`); n != 2 {
		t.Errorf("%d runs are running", n)
	}
	close(end)
	if a, b := kit.ResultOf(k, first), kit.ResultOf(k, second); a != 1 || b != 2 {
		t.Errorf("results %d and %d", a, b)
	}
}
