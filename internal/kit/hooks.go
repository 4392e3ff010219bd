package kit

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/testhook"
)

// Unwatched is a configuration of a worker of which only the test says that it is dead: while a test lasts it extends no
// lease and judges nobody.
var Unwatched = kagzi.WorkerConfig{PollInterval: 50 * time.Millisecond, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour, LeaseTimeout: 24 * time.Hour, NoCoordinator: true}

// hooks are those of workers that are not started yet: see hooksOf.
var hooks sync.Map // *Worker to *testhook.Hooks

// HooksOf returns the hooks with which startWorker and startLocal run the worker. The test sets them before.
func HooksOf(t testing.TB, w *kagzi.Worker) *testhook.Hooks {
	h, found := hooks.LoadOrStore(w, &testhook.Hooks{})
	if !found {
		t.Cleanup(func() { hooks.Delete(w) })
	}
	return h.(*testhook.Hooks)
}

// Failpoint calls reached at each named point of the worker's way, with the run that gets there if it is one run.
func Failpoint(t testing.TB, w *kagzi.Worker, reached func(point string, run uuid.UUID)) {
	HooksOf(t, w).Point = reached
}

// HookedContext returns ctx, for the Run of w, with the worker's hooks.
func HookedContext(ctx context.Context, w *kagzi.Worker) context.Context {
	if h, ok := hooks.Load(w); ok {
		return testhook.With(ctx, h.(*testhook.Hooks))
	}
	return ctx
}

// HangAt lets the worker, which is not started yet, hang from when it first comes to the point, and when holds if it is
// given: hung is closed then. All that comes there hangs until release is called.
func HangAt(t testing.TB, w *kagzi.Worker, point string, when ...func() bool) (hung <-chan struct{}, release func()) {
	reached, open := make(chan struct{}), make(chan struct{})
	var first sync.Once
	Failpoint(t, w, func(at string, _ uuid.UUID) {
		if at == point && (len(when) == 0 || when[0]()) {
			first.Do(func() {
				close(reached)
				<-open
			})
		}
	})
	return reached, sync.OnceFunc(func() { close(open) })
}

// TakeAway makes the run due for the rescuer. Its worker does not hold it any more, and cannot extend its lease.
func (k *Kit) TakeAway(id kagzi.RunID) {
	k.T.Helper()
	k.Exec(`UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), available_at = now(), task_queue = 'rescue' WHERE run_id = $1`, string(id))
}

// Rescue starts the worker that executes, with this code, what was taken away from another.
func Rescue[In, Out any](k *Kit, wf kagzi.Workflow[In, Out], fn func(kagzi.Context, In) (Out, error)) {
	k.T.Helper()
	cfg := Unwatched
	cfg.Queue = "rescue"
	ServeWith(k, cfg, wf, fn)
}

// Mute is a worker whose heartbeats come too rarely for a test to see one that nothing has caused.
var Mute = kagzi.WorkerConfig{Heartbeat: 10 * time.Minute, StaleAfter: 30 * time.Minute, LeaseTimeout: time.Hour}

// Quick is a fleet that finds its dead within a second.
var Quick = kagzi.WorkerConfig{MaxConcurrent: 4, Heartbeat: 200 * time.Millisecond, StaleAfter: time.Second, PollInterval: 200 * time.Millisecond}
