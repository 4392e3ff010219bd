package kagzi

import (
	"errors"
	"maps"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/internal/worker"
)

// AddQueue makes the worker claim runs from one more queue, or changes the share of one of its queues: see
// [WorkerConfig] Queues. If the worker is running, it first adds the queue to its row in the registry, at once, and
// then claims from it. AddQueue does not wait for that. Without a Run, the next one begins with the queue. AddQueue is
// safe for concurrent use.
func (w *Worker) AddQueue(queue string, share int) error {
	err := w.made()
	if err == nil {
		err = valid.Share(queue, share)
	}
	if err != nil {
		return failure.Wrap(err, "add queue")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues[queue] = share
	w.setQueues()
	return nil
}

// RemoveQueue makes the worker claim no more runs from a queue. The runs under way go on; those that were claimed and
// have not begun are returned to the queue. The worker's row in the registry lists the queue among those that it has
// left until all of them have ended. RemoveQueue does nothing if the worker does not have the queue, and returns an
// error if it has no other one. It is safe for concurrent use.
func (w *Worker) RemoveQueue(queue string) error {
	err := w.made()
	if err == nil {
		err = valid.Queue(queue)
	}
	if err != nil {
		return failure.Wrap(err, "remove queue")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queues[queue] == 0 {
		return nil
	}
	if len(w.queues) == 1 {
		return failure.Wrap(errors.New("kagzi: it is the worker's only queue: add another one first, or end Run"),
			"remove queue %s", text.Quote(queue))
	}
	delete(w.queues, queue)
	w.setQueues()
	return nil
}

// setQueues tells the session. The caller holds w.mu.
func (w *Worker) setQueues() {
	if w.current != nil {
		w.current.SetQueues(w.queues)
	}
}

// begin returns a new session, which learns of changes of the queues from now on, until end is called.
func (w *Worker) begin(cfg worker.Config) *worker.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	cfg.Queues = maps.Clone(w.queues)
	w.current = worker.New(cfg)
	return w.current
}

func (w *Worker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current = nil
}
