package kagzi

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// unwatched is a configuration of a worker of which only the test says that it is dead: while a test lasts it extends no
// lease and judges nobody.
var unwatched = WorkerConfig{PollInterval: 50 * time.Millisecond, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour, LeaseTimeout: 24 * time.Hour, NoCoordinator: true}

// hangAt lets the worker, which is not started yet, hang from when it first comes to the point, and when holds if it is
// given: hung is closed then. All that comes there hangs until release is called.
func hangAt(w *Worker, point string, when ...func() bool) (hung <-chan struct{}, release func()) {
	reached, open := make(chan struct{}), make(chan struct{})
	var first sync.Once
	w.failpoint = func(at string, _ uuid.UUID) {
		if at == point && (len(when) == 0 || when[0]()) {
			first.Do(func() {
				close(reached)
				<-open
			})
		}
	}
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
