package replay

import (
	"log/slog"
	"sync"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A Run is one claimed run in this process: its history, its branches and their waits. See docs/architecture.md,
// The life of a run.
//
// The journal, ending, crew, mail, outbox and lease share the mutex, and no other field changes once the execution
// has begun. It is locked before the session's mutex.
type Run struct {
	sync.Mutex
	*Env
	*store.ClaimedRun // load sets its Input. CancelRequested and Recoveries may change.

	mode         // set before the execution begins, and never again
	host         Host
	verifier     verifier // in mode verify; nil in mode live
	runID        string
	headers      map[string]string // of the run; nil if it has none
	interception *interception     // nil: there are no interceptors
	// of a run of a consumer: set before its function begins, and never again; nil: it is no such run
	consumption *Consumption

	journal
	ending
	crew
	mail
	outbox
	lease
}

// A Host is the worker that holds a run, or a verification. MayLinger is called with the run's mutex held, the others
// without it.
type Host interface {
	// Enqueued is called when the run's outbox gets its first write.
	Enqueued()
	// Released is called when the run needs its slot no longer: its last write is enqueued, or is not to be made. It
	// may be called again.
	Released()
	// Ended is called once, when the run's last write is written, or is given up.
	Ended()
	// Abandoned is called when the run has stopped, and was not waited for any longer: some of its code has not
	// returned.
	Abandoned()
	// MayLinger reports whether a run that could be suspended may stay in memory for d. If so, the host calls
	// TrySuspend then.
	MayLinger(d time.Duration) bool
	// HasNews is called when the answer to a record says that the run was cancelled or paused. The host reads the run's
	// row, and passes it to Update.
	HasNews()
	// Stepped is called when the ends of so many steps are written.
	Stepped(steps int)
}

// A verifier notes where the code and the history of a run differ. The execution's mutex is held.
type verifier interface {
	// unrecordedLocked notes that the branch has reached an operation missing from the history; its goroutine exits.
	unrecordedLocked(b *Branch)
	// contradictedLocked notes that code and history contradict each other about a step; the execution fails.
	contradictedLocked(step string)
	// settled is called once, without the mutex, when the execution has stopped and its goroutines have ended, or were
	// waited for long enough.
	settled()
}

// How long waits stay in memory, and how long the end of an execution waits for its goroutines.
const (
	memoryWait = 200 * time.Millisecond
	exitGrace  = time.Second
)

// verifyBy sets mode verify, before the execution begins. v is told where code and history differ.
func (e *Run) verifyBy(v verifier) { e.mode, e.verifier = verify, v }

// id returns the run's ID as a text.
func (e *Run) id() string { return e.runID }

// decodedHeaders returns the run's headers, nil if it has none. They must not be changed.
func (e *Run) decodedHeaders() map[string]string { return e.headers }

// remember takes over the history. It is called before the execution begins.
func (e *Run) remember(history []*store.StepRow) {
	e.read(history)
	for _, row := range history {
		if row.Kind == store.KindChild && row.Status == store.Running {
			e.expectLocked(row.ChildRunID)
		}
	}
}

func (e *Run) log() *slog.Logger {
	if !e.writesRecords() {
		return slog.New(slog.DiscardHandler)
	}
	log := e.Log
	if e.interception != nil {
		log = slog.New(executionHandler{log.Handler(), e.interception})
	}
	return log.With("workflow", e.Type, "run", e.runID, "run_attempt", e.runAttempt())
}

func (e *Run) held() store.HeldRun {
	return store.HeldRun{RunID: e.RunID, Lease: e.Lease}
}
