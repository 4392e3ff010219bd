package hints

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/batch"
	"github.com/kagzi/kagzi/notify"
	"github.com/kagzi/kagzi/store"
)

// A Worker is a worker of this process that is running. Its methods do not block.
type Worker interface {
	// Refresh makes the worker read the rows of those of these runs that it executes; nil means all that it executes.
	// If ids has the worker's own ID, it sends a heartbeat.
	Refresh(ids []uuid.UUID)
	// Offer makes the worker claim after that time, if it can execute a run of this version, and returns how many it
	// has room for now. An empty workflow and a zero version stand for any.
	Offer(queue, workflow string, version int, after time.Duration) (room int)
	// Reserve keeps a free slot for a run that is about to be inserted, if the worker can execute it and no due run
	// waits for the slot. It returns nil if not, and else sets the run's Claim.
	Reserve(run *store.NewRun) Reservation
}

// A Reservation is a worker's slot for a run that is being inserted as claimed by the worker. One of its methods must
// be called, once. They do not block.
type Reservation interface {
	// Begin executes the run: it was inserted as claimed.
	Begin(run *store.ClaimedRun)
	// Free gives up the slot: the run was not inserted as claimed, and will not be.
	Free()
	// GiveBack gives up the slot although the run may have been inserted as claimed, or may yet be: the answer to the
	// statement sent at that time is unknown. The worker returns such a run to the queue.
	GiveBack(sent time.Time)
}

// A Coordinator is a coordinator of this process that is running. Its methods do not block.
type Coordinator interface {
	// Refresh wakes the coordinator if a queued run waits for one of these runs; nil means any.
	Refresh(ids []uuid.UUID)
	// WakeSchedules makes it read the schedules.
	WakeSchedules()
	// WakeDeadlines makes it end the runs whose deadline has passed.
	WakeDeadlines()
	// WakeAwaited makes it look for events that runs wait for.
	WakeAwaited()
}

// Hints are the announcements of one client. They are safe for concurrent use.
type Hints struct {
	store     *store.Store
	log       *slog.Logger
	publisher *notify.Publisher
	listener  listener
	results   *results
	demand    demand
	replies   *batch.Batcher[store.Answer] // to runs

	// OnEnd is called for each run that this process has ended, once that is committed. The client sets it before it
	// calls anything else. Nil: no call. It is not called for an end in a transaction of the application.
	OnEnd func(store.EndedRun)

	// Only tests set these two, before the first listener or waiter. Zero means the default.
	ListenBackoff time.Duration // the pause before the listener connects again
	QueryTimeout  time.Duration // how long a query for the ends of several runs may take

	mu           sync.Mutex
	workers      map[Worker]struct{}
	coordinators map[Coordinator]struct{}
}

// New returns the Hints of s's namespace. Result first calls ready, which returns an error if this program does not
// work with the database's schema.
func New(s *store.Store, log *slog.Logger, ready func(context.Context) error) *Hints {
	log = log.With("namespace", s.Namespace())
	h := &Hints{
		store: s, log: log, publisher: notify.NewPublisher(s.Pool(), log),
		workers: map[Worker]struct{}{}, coordinators: map[Coordinator]struct{}{},
	}
	h.listener.hints = h
	h.replies = batch.New(batch.Config[store.Answer]{Flush: h.sendReplies})
	h.results = &results{hints: h, ready: ready, listening: waitingListener{hints: h}}
	return h
}

// JoinWorker passes the hints of this process to w until leave is called.
func (h *Hints) JoinWorker(w Worker) (leave func()) { return join(h, h.workers, w) }

// JoinCoordinator passes the hints of this process to k until leave is called.
func (h *Hints) JoinCoordinator(k Coordinator) (leave func()) { return join(h, h.coordinators, k) }

func join[M comparable](h *Hints, members map[M]struct{}, m M) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	members[m] = struct{}{}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(members, m)
	}
}

// refresh makes all workers and waiters of this process read the runs, because they have changed; nil means any run.
func (h *Hints) refresh(ids []uuid.UUID) {
	h.refreshMembers(ids)
	h.results.refresh(ids)
}

// refreshMembers is refresh for workers and coordinators only, without those who wait for results.
func (h *Hints) refreshMembers(ids []uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.workers {
		w.Refresh(ids)
	}
	for k := range h.coordinators {
		k.Refresh(ids)
	}
}

// WakeCoordinators makes the coordinators of this process read schedules and deadlines.
func (h *Hints) WakeCoordinators() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.coordinators {
		k.WakeSchedules()
		k.WakeDeadlines()
	}
}
