package housekeeping

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// Config configures New. The caller sets every field; a field that may be left zero says what zero means.
type Config struct {
	Store  *store.Store
	Hints  *hints.Hints
	Log    *slog.Logger
	Outage *outage.Outage // of the database, shared with the worker that hosts the coordinator

	Schema   int64         // the newest migration that the program knows
	Interval time.Duration // between two passes of a loop, unless something wakes the loop
	Batch    int           // the most schedules that one transaction fires
	MaxRuns  int           // the most runs that one transaction starts

	StaleAfter time.Duration // a coordinator must have seen a worker silent for a third of it
	Grace      time.Duration // a worker is dead after this time without its connection
	NoGrace    bool          // ignore connections; zero: check them

	Keep Keep

	// Intercept wraps the ticks of a schedule with code of the application, which gives next the headers of the runs.
	// nil: nothing wraps them.
	Intercept func(ctx context.Context, t *store.Template,
		next func(ctx context.Context, headers json.RawMessage) error) error

	// end overdue runs at once, for tests whose clock stands still; zero: give workers some seconds
	NoDeadlineGrace bool

	Now func() time.Time // the clock of the failure detectors, for tests; zero: time.Now

	// a worker hosts the coordinator, so the other workers of the fleet probably host one each; zero: assume no others
	Hosted bool
}

// How long ended runs are kept unless configured otherwise.
const (
	KeepCompleted = 7 * 24 * time.Hour
	KeepFailed    = 30 * 24 * time.Hour
)

// Keep says for how long things are kept.
type Keep struct {
	Runs      store.Retention
	Elsewhere bool          // something else deletes the runs of all namespaces: see Sweep
	Forever   bool          // delete no run, and no entry of the audit log; zero: delete runs as Runs says
	Audit     time.Duration // how old the entries of the audit log become, unless Forever is set
	Events    time.Duration // how old the events of topics become at least

	PendingEvents time.Duration // the same for events that a consumer has not consumed
}

// A Coordinator does the housekeeping of one namespace. It is made by New.
type Coordinator struct {
	cfg       Config
	schedules chan struct{} // holds a value while the loop of the schedules is to make a pass at once
	deadlines chan struct{} // holds a value while the loop of the deadlines is to make a pass at once
	awaited   awaitedEvents
	failing   outage.Failures // passes that the database fails, for the log
	unfired   outage.Failures // schedules that fail while others fire, for the log
	undeleted outage.Failures // runs whose deletion fails while others are deleted, for the log
	queued    queuedRuns

	leadership *leadership
	retention
	// Each of these belongs to one loop and needs no lock. Run resets them.
	heartbeats  failureDetector
	connections failureDetector
	nextSearch  time.Time       // when the leader looks for busy queues again
	keys        store.KeyCursor // how far idle keys were looked for. Only KeepKeys uses it.
	// how far the deadlines were read, and those of runs that have not begun; nil: start with the first
	overdue, unbegun *store.Overdue
}

// New returns a coordinator. It does no I/O.
func New(cfg Config) *Coordinator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	k := &Coordinator{
		cfg: cfg, schedules: make(chan struct{}, 1), deadlines: make(chan struct{}, 1),
		awaited: awaitedEvents{wake: make(chan struct{}, 1)},
		failing: outage.Failures{
			Begins: "kagzi: the coordinator met an error and tries again",
			Ends:   "kagzi: the coordinator no longer meets that error",
		},
		unfired: outage.Failures{
			Begins: "kagzi: some schedules cannot be fired; the others are",
			Ends:   "kagzi: all schedules can be fired again",
		},
		undeleted: outage.Failures{
			Begins: "kagzi: some runs that are to be deleted cannot be; the others are",
			Ends:   "kagzi: all runs that were to be deleted are",
		},
	}
	k.leadership = newLeadership(&k.cfg)
	k.retention = retention{cfg: &k.cfg, leadership: k.leadership}
	return k
}

// WakeSchedules makes the coordinator read the schedules now. It does not block.
func (k *Coordinator) WakeSchedules() { goroutine.Signal(k.schedules) }

// WakeDeadlines makes the coordinator read the deadlines now. It does not block.
func (k *Coordinator) WakeDeadlines() { goroutine.Signal(k.deadlines) }

// WakeAwaited makes the coordinator look for events that runs wait for now. It does not block.
func (k *Coordinator) WakeAwaited() { goroutine.Signal(k.awaited.wake) }

// Refresh wakes the coordinator if a queued run waits for one of the given runs, or, with nil, if a queued run waits at
// all. It does not block.
func (k *Coordinator) Refresh(ids []uuid.UUID) {
	if k.queued.changed(ids) {
		k.WakeSchedules()
	}
}

// The names of loops in the log.
const (
	fireSchedules     = "fire schedules"
	endOverdue        = "end overdue runs"
	runCompensations  = "run compensations"
	serveLimits       = "serve limits"
	keepKeys          = "keep keys"
	rotateEvents      = "remove old events"
	recheckConsumers  = "recheck consumers"
	tellOfEvents      = "tell runs of events"
	releaseRuns       = "release the runs of dead workers"
	deleteOld         = "delete old runs"
	releaseQueuedRuns = "release queued runs" // a part of fireSchedules
	finishDeletions   = "finish deletions"
)
