package kagzi

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/testhook"
)

// unwatched is a configuration of a worker of which only the test says that it is dead: while a test lasts it extends no
// lease and judges nobody.
var unwatched = WorkerConfig{PollInterval: 50 * time.Millisecond, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour, LeaseTimeout: 24 * time.Hour, NoCoordinator: true}

// hooks are those of workers that are not started yet: see hooksOf.
var hooks sync.Map // *Worker to *testhook.Hooks

// hooksOf returns the hooks with which startWorker and startLocal run the worker. The test sets them before.
func hooksOf(t testing.TB, w *Worker) *testhook.Hooks {
	h, found := hooks.LoadOrStore(w, &testhook.Hooks{})
	if !found {
		t.Cleanup(func() { hooks.Delete(w) })
	}
	return h.(*testhook.Hooks)
}

// failpoint calls reached at each named point of the worker's way, with the run that gets there if it is one run.
func failpoint(t testing.TB, w *Worker, reached func(point string, run uuid.UUID)) {
	hooksOf(t, w).Point = reached
}

// hookedContext returns ctx, for the Run of w, with the worker's hooks.
func hookedContext(ctx context.Context, w *Worker) context.Context {
	if h, ok := hooks.Load(w); ok {
		return testhook.With(ctx, h.(*testhook.Hooks))
	}
	return ctx
}

// hangAt lets the worker, which is not started yet, hang from when it first comes to the point, and when holds if it is
// given: hung is closed then. All that comes there hangs until release is called.
func hangAt(t testing.TB, w *Worker, point string, when ...func() bool) (hung <-chan struct{}, release func()) {
	reached, open := make(chan struct{}), make(chan struct{})
	var first sync.Once
	failpoint(t, w, func(at string, _ uuid.UUID) {
		if at == point && (len(when) == 0 || when[0]()) {
			first.Do(func() {
				close(reached)
				<-open
			})
		}
	})
	return reached, sync.OnceFunc(func() { close(open) })
}

// takeAway makes the run due for the rescuer. Its worker does not hold it any more, and cannot extend its lease.
func (k *kit) takeAway(id RunID) {
	k.t.Helper()
	k.exec(`UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), available_at = now(), task_queue = 'rescue' WHERE run_id = $1`, string(id))
}

// rescue starts the worker that executes, with this code, what was taken away from another.
func rescue[In, Out any](k *kit, wf Workflow[In, Out], fn func(Context, In) (Out, error)) {
	k.t.Helper()
	cfg := unwatched
	cfg.Queue = "rescue"
	serveWith(k, cfg, wf, fn)
}

// mute is a worker whose heartbeats come too rarely for a test to see one that nothing has caused.
var mute = WorkerConfig{Heartbeat: 10 * time.Minute, StaleAfter: 30 * time.Minute, LeaseTimeout: time.Hour}

// quick is a fleet that finds its dead within a second.
var quick = WorkerConfig{MaxConcurrent: 4, Heartbeat: 200 * time.Millisecond, StaleAfter: time.Second, PollInterval: 200 * time.Millisecond}
