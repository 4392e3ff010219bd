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

// Unmonitored is the configuration of a worker that only the test declares dead. During a test the worker extends no
// lease and hosts no coordinator, so that it declares no other worker dead either.
var Unmonitored = kagzi.WorkerConfig{
	PollInterval: 50 * time.Millisecond, Heartbeat: time.Hour,
	StaleAfter: 24 * time.Hour, LeaseTimeout: 24 * time.Hour, NoCoordinator: true,
}

// hooks has the hooks of workers that are not started yet: see HooksOf.
var hooks sync.Map // *Worker to *testhook.Hooks

// HooksOf returns the hooks with which StartWorker and StartLocal run the worker. The test sets them before that.
func HooksOf(t testing.TB, w *kagzi.Worker) *testhook.Hooks {
	h, found := hooks.LoadOrStore(w, &testhook.Hooks{})
	if !found {
		t.Cleanup(func() { hooks.Delete(w) })
	}
	return h.(*testhook.Hooks)
}

// Failpoint makes the worker call reached at each named point, with the run if the point concerns one run.
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

// HangAt makes a worker that is not started yet hang when it first reaches the point while when, if given, returns
// true. hung is closed then. Every goroutine that reaches the point waits until release is called.
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

// TakeAway makes the run due for the worker of Rescue. Its present worker loses the run and cannot extend the lease.
func (k *Kit) TakeAway(id kagzi.RunID) {
	k.T.Helper()
	k.Exec(`UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), available_at = now(), task_queue = 'rescue'
		WHERE run_id = $1`, string(id))
}

// Rescue starts a worker that executes runs after TakeAway.
func Rescue[In, Out any](k *Kit, wf kagzi.Workflow[In, Out], fn func(kagzi.Context, In) (Out, error)) {
	k.T.Helper()
	cfg := Unmonitored
	cfg.Queue = "rescue"
	ServeWith(k, cfg, wf, fn)
}

// RareHeartbeats is the configuration of a worker whose regular heartbeats are rarer than a test is long, so that
// something has caused each heartbeat that a test sees.
var RareHeartbeats = kagzi.WorkerConfig{
	Heartbeat: 10 * time.Minute, StaleAfter: 30 * time.Minute,
	LeaseTimeout: time.Hour,
}

// Quick is the configuration of workers that find a dead worker within a few seconds. With a StaleAfter of a second,
// the workers of a busy machine would declare each other dead again and again.
var Quick = kagzi.WorkerConfig{
	MaxConcurrent: 4, Heartbeat: 300 * time.Millisecond, StaleAfter: 3 * time.Second,
	PollInterval: 200 * time.Millisecond,
}
