package engine

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/plainjson"
	"github.com/kagzi/kagzi/store"
)

// A stopReason says why an execution has stopped. Once it is set, every durable operation of the execution ends its
// goroutine by Goexit, so that no workflow code mistakes it for a failure.
type stopReason int

const (
	underWay       stopReason = iota
	stopReturned              // the function and its branches returned
	stopSuspended             // every branch waits for long
	stopLost                  // the lease is lost
	stopShutdown              // the worker yields the run
	stopCancelled             // the run was cancelled, as the table says
	stopCancelling            // the run is to end as cancelled
	stopFailed                // the run fails with execution.failure, whatever the function returns
	// the server has lost a row on which the run builds: it is given back, and executed from what is left
	stopUnfounded
	stopVerified // mode verify: no branch has anything left to do
)

// An execution is one claimed run in this process: its history, its branches and their waits. See docs/architecture.md,
// The life of a run.
//
// The mutex guards what changes while the execution is under way. It is locked before the session's mutex.
type execution struct {
	sync.Mutex
	*environment
	*store.ClaimedRun // The loader sets its Input before the execution begins. CancelRequested and Recoveries may change.

	host     host
	mode     mode     // set before the execution begins, and never again
	verifier verifier // in mode verify; nil in mode live

	queue   *queue // of the session; nil in mode verify
	runID   string
	headers map[string]string // of the run; nil if it has none

	journal

	interception *interception   // nil: there are no interceptors
	ctx          context.Context // step contexts descend from it
	cancel       context.CancelCauseFunc
	done         chan struct{} // closed by stopLocked when it sets reason

	// The mutex guards all that follows.

	// How it stops.
	// underWay until stopLocked sets it, once. A refused write may change it to stopFailed: see refuseLocked.
	reason     stopReason
	ending     stopReason  // reason as Session.end read it for the end that is made
	failure    error       // with which the run fails, if reason is stopFailed; set together with reason
	stoppedAt  time.Time   // set together with reason, unless that is stopReturned
	suspension *write      // to be written if reason is stopSuspended; set together with reason
	cancelBy   time.Time   // set by cancelRequested: the deadline that the cancel gave to the run's code; zero: none
	deadline   *time.Timer // of the run; set by setDeadline, nil if the run has none
	grace      *time.Timer // set by stopLocked: settles the execution if its goroutines do not end in time
	settleOnce sync.Once   // settle is called by the last goroutine, and by grace
	superseded bool        // set by supersede: this worker has claimed its run again
	hasSlot    bool        // it holds a slot of the session. Set by start, reset by release.

	// Its goroutines. busy == 0 and live > 0 means that all of them wait.
	// it waits in memory for a slot, and none of its goroutines has begun. Set by Session.begin, reset by start.
	waiting bool
	begun   bool // set by dispatch: execute was called, or is about to be, and its goroutines settle the execution
	// goroutines that have not ended. Future.start adds one, settleBranch removes one; 1 before the execution begins
	live      int
	busy      int // of them, those that do not wait. waitFor removes one, wakeLocked adds one
	waits     []*wait
	guarded   []*Branch // whose goroutines have begun and not ended. Added by init, removed by settleBranch.
	abandoned bool      // set by Session.settled: its goroutines were not waited for
	// set by noteMisuse: the first wrong call. The run does not complete, even if the function drops this error.
	misused error

	// of a run of a consumer: set before its function begins, and never again; nil: it is no such run
	consumption *Consumption

	// Its results. settleBranch sets output, err and returned.
	output   []byte          // the function's
	err      error           // the function's
	returned bool            // the function returned, or it panicked
	branches []*branchResult // begun by Go, in their order
	failures []*knownFailure // that branches were given
	children []*Child        // that the function has started, or reached in the history

	// Its writes.
	outbox   outbox
	progress progress
	deferred []deferredRecord
	aside    []*store.SetAside // messages that do not decode, for the next write
	// deferred or outbox may have results of repeatable steps. Set by speculate, reset by speculatesLocked.
	speculated bool
	premises   premises

	// Its lease, and news from outside: messages and ends of children.
	term     store.Term // of the lease, as far as is known
	seen     int64      // the wakeups of the run that history and inbox reflect
	inbox    inbox
	arrivals map[string]*event // by a message's name, or a child's ID
	anyEnd   event             // a child has ended
	// of steps that wait for a limit: each fires when the run was called, too. Added and removed by acquire.
	limited []*event
	// its children that may be active, without detached ones. Set by remember and StartChild; their ends remove them.
	activeChildren map[uuid.UUID]bool
	// its history is being read, and none of its goroutines has begun. Set by Session.begin, reset by loader.begin.
	loading       bool
	fetching      bool  // its inbox is about to be read alone. Set by loader.fetch, reset when the read begins.
	paused        bool  // its row says that the branches are to park. Set by setPaused.
	unpaused      event // paused was reset
	inboxFailures int   // how often in a row its inbox could not be read. readInbox counts and resets it.
	large         int64 // how many bytes it holds of the loader's memory for large histories
}

// A host is a session, or a verification. mayLinger is called with the execution's mutex held, the others without it.
type host interface {
	// enqueued is called when the execution's outbox gets its first write.
	enqueued(e *execution)
	// settled is called once, when the execution has stopped and its goroutines have ended, or were waited for long
	// enough. The host enqueues the last write, and does not wait for it.
	settled(e *execution)
	// mayLinger reports whether an execution that could be suspended may stay in memory for d. If so, the host suspends
	// it then, if that is still possible.
	mayLinger(e *execution, d time.Duration) bool
	// hasNews is called when the answer to a record says that the run was cancelled or paused. The host reads the
	// run's row, and passes its state to the execution.
	hasNews(e *execution)
}

// A verifier notes where the code and the history of a run differ. The execution's mutex is held.
type verifier interface {
	// unrecordedLocked notes that the branch has reached an operation missing from the history; its goroutine exits.
	unrecordedLocked(b *Branch)
	// contradictedLocked notes that code and history contradict each other about a step; the execution fails.
	contradictedLocked(step string)
}

// How long waits stay in memory, and how long the end of an execution waits for its goroutines.
const (
	memoryWait = 200 * time.Millisecond
	exitGrace  = time.Second
)

// newExecution prepares an execution. loads says that history and inbox are still to be read: they will reflect the
// wake-ups that the claim has seen.
func newExecution(env *environment, h host, run *store.ClaimedRun, loads bool) *execution {
	e := &execution{
		environment: env, ClaimedRun: run, host: h, runID: run.RunID.String(),
		journal: journal{attempt: run.Attempts + 1},
		done: make(chan struct{}), live: 1, busy: 1, activeChildren: map[uuid.UUID]bool{}, term: run.Term,
	}
	if loads {
		e.seen = run.Wakeups
	}
	if env.intercepts.Execute != nil {
		e.interception = newInterception()
	}
	if run.Headers != nil {
		_ = plainjson.Unmarshal(run.Headers, &e.headers) // the client wrote a map of strings
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e
}

// remember takes over the history. It is called before the execution begins.
func (e *execution) remember(history []*store.StepRow) {
	e.read(history)
	for _, row := range history {
		if row.Kind == store.KindChild && row.Status == store.Running && e.inbox.ends[row.ChildRunID] == nil {
			e.activeChildren[row.ChildRunID] = true
		}
	}
}

func (e *execution) log() *slog.Logger {
	if !e.mode.writes() {
		return slog.New(slog.DiscardHandler)
	}
	log := e.environment.log
	if e.interception != nil {
		log = slog.New(executionHandler{log.Handler(), e.interception})
	}
	return log.With("workflow", e.Type, "run", e.runID, "run_attempt", e.runAttempt())
}

func (e *execution) held() store.HeldRun {
	return store.HeldRun{RunID: e.RunID, Lease: e.Lease}
}

func (e *execution) stopped() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func (e *execution) exitIfStopped() {
	if e.stopped() {
		runtime.Goexit()
	}
}

func (e *execution) lost() bool {
	e.Lock()
	defer e.Unlock()
	return e.reason == stopLost || e.superseded
}
