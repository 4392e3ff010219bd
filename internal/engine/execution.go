package engine

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A stopReason is why an execution stopped. Once one is set, every durable operation of the execution ends its
// goroutine by Goexit, so that no workflow code mistakes it for a failure.
type stopReason int

const (
	underWay       stopReason = iota
	stopReturned              // the function and its branches returned
	stopSuspended             // every branch waits for long
	stopLost                  // the lease is lost
	stopShutdown              // the worker gives the run back
	stopCancelled             // the run was cancelled, as the table says
	stopCancelling            // the run is to end as cancelled
	stopFailed                // the run fails whatever the function says: see failure
	stopVerified              // of Worker.Replay: no branch has more to do
)

// An execution is one claimed run in this process: its history, its branches and what they wait for.
type execution struct {
	env       *environment
	host      host
	run       *store.ClaimedRun
	runID     string
	attempt   int                       // of the run, from 1
	history   map[string]*store.StepRow // the latest attempt of each step, as it was at the claim
	own       map[string]int            // see ownOf
	copied    map[string]int            // own, of what a fork has from the other run; nil if it has nothing
	positions atomic.Int64              // the place of the run's last record in its order
	seen      int64                     // the wakeups that history, inbox and ends reflect
	ctx       context.Context           // what step contexts descend from
	cancel    context.CancelCauseFunc
	done      chan struct{} // closed when reason is set
	deadline  *time.Timer   // of the run

	mu         sync.Mutex
	term       store.Term // of the lease, as far as is known
	reason     stopReason
	failure    error // of stopFailed
	loading    bool  // its history is being read, and none of its goroutines has begun
	begins     bool  // execute was called: its goroutines settle it
	fetching   bool  // what reached its run is about to be read alone
	unread     int   // how often that could not be read, since it last was
	large      int64 // bytes that it holds of the loader's memory for large histories
	live       int   // goroutines that have not ended
	busy       int   // of them, those that do not wait
	waits      []*wait
	suspension *write           // of stopSuspended
	deferred   []deferredRecord // see there
	outbox     outbox
	branches   []*branchResult
	failures   []*knownFailure // that the function was told of
	children   []*Child        // that the function has come to
	output     []byte          // the function's
	err        error           // the function's
	returned   bool            // the function did, or it panicked
	misused    error           // the first wrong call: the run does not complete, even if the function drops this error
	superseded bool            // its run is claimed again, by this worker
	released   bool            // its slot is free again
	alone      bool            // it is the one suspect of its session
	begun      int             // how often its session had stopped all executions when it began. The session's mutex guards it.
	grace      *time.Timer
	cancelBy   time.Time // of stopCancelling: the deadline that the cancel has set

	inbox     inbox
	arrivals  map[string]*event  // by a message's name, or a child's ID
	anyEnd    event              // of a child
	offspring map[uuid.UUID]bool // its children that may not be over, but for detached ones
	registers bool               // a compensation, or may do so: it has begun a step with UndoneBy

	mode     mode     // set before the execution begins, and never again
	verifier verifier // of mode verify; nil in live

	settleOnce sync.Once // settle is called by the last goroutine, and by the timer grace
}

// A host is what executes executions: a session, or a verification. Each method may be called with the execution's mutex
// held, but for settled.
type host interface {
	// enqueued is called when the execution's outbox, which had nothing to write, has.
	enqueued(e *execution)
	// settled is called once, when the execution has stopped and its goroutines are gone, or were waited for long enough. The
	// host has its outcome written, and does not wait for that.
	settled(e *execution)
	// mayLinger reports whether the execution may stay in memory for so long although it could be suspended. If so, the host
	// has it suspended then, if it still can be.
	mayLinger(e *execution, d time.Duration) bool
}

// A verifier is told where code and history of a run part. The execution's mutex is held.
type verifier interface {
	// unrecordedLocked notes that the branch has come to what the history does not have; its goroutine exits.
	unrecordedLocked(b *Branch)
	// contradictedLocked notes that code and history cannot both be right about a step; the execution fails.
	contradictedLocked(step string)
}

// How long waits stay in memory, and how long the end of an execution waits for its goroutines.
const (
	memoryWait = 200 * time.Millisecond
	exitGrace  = time.Second
)

func newExecution(env *environment, h host, run *store.ClaimedRun, looked bool) *execution {
	e := &execution{
		env: env, host: h, run: run, runID: run.RunID.String(), attempt: run.Attempts + 1,
		done: make(chan struct{}), live: 1, busy: 1, offspring: map[uuid.UUID]bool{}, term: run.Term,
	}
	if looked {
		e.seen = run.Wakeups
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e
}

// remember takes in the history, before anything else goes by it.
func (e *execution) remember(history []*store.StepRow) {
	e.history = historyOf(history)
	e.own = ownOf(e.history)
	isCopied := func(r *store.StepRow) bool { return r.RunAttempt == 0 && !e.forgot(r) }
	if slices.ContainsFunc(history, isCopied) {
		e.copied = ownOf(historyOf(slices.DeleteFunc(slices.Clone(history), func(r *store.StepRow) bool { return !isCopied(r) })))
	}
	for _, row := range history {
		e.positions.Store(max(e.positions.Load(), row.Position))
		e.registers = e.registers || row.Kind == store.KindCompensation
		if row.Kind == store.KindChild && row.Status == store.Running && e.inbox.ends[row.ChildRunID] == nil {
			e.offspring[row.ChildRunID] = true
		}
	}
}

// hasCopied reports whether the execution's run, a fork, has a step or branch from the other run. What it has forgotten it is
// to execute itself.
func (e *execution) hasCopied(id string) bool {
	_, below := e.copied[id+"/"]
	row := e.history[id]
	return below || row != nil && row.RunAttempt == 0 && !e.forgot(row)
}

// forgot reports whether an attempt of the run before this one has forgotten the failure that row is.
func (e *execution) forgot(row *store.StepRow) bool {
	return row.ForgottenBy > 0 && row.ForgottenBy < e.attempt
}

// nextPosition returns the place of another record in the run's order.
func (e *execution) nextPosition() int64 { return e.positions.Add(1) }

func (e *execution) log() *slog.Logger {
	if !e.mode.writes() {
		return slog.New(slog.DiscardHandler)
	}
	return e.env.log.With("workflow", e.run.Type, "run", e.runID, "run_attempt", e.attempt)
}

func (e *execution) held() store.HeldRun {
	return store.HeldRun{RunID: e.run.RunID, Lease: e.run.Lease}
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
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.reason == stopLost || e.superseded
}
