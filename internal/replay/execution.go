package replay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A Run is one claimed run in this process: its history, its branches and their waits. See docs/architecture.md,
// The life of a run.
//
// The ending, crew, mail, outbox and lease share the mutex, and no other field changes once the execution has begun. It
// is locked before the session's mutex.
type Run struct {
	sync.Mutex
	*Env
	*store.ClaimedRun // load sets its Input. CancelRequested and Recoveries may change.

	who identity
	intercepting
	consuming
	continuing

	journal
	guarded
	ending
	crew
	mail
	outbox
	lease
	suspender
}

// remember takes over the history. It is called before the execution begins.
func (e *Run) remember(history []*store.StepRow) {
	e.read(history)
	for _, row := range history {
		switch {
		case row.Kind == store.KindChild && row.Status == store.Running:
			e.expectLocked(row.ChildRunID)
		case row.Kind == store.KindCompensation:
			e.registerLocked()
		}
	}
}

func (e *Run) log() *slog.Logger {
	if !e.writesRecords() {
		return slog.New(slog.DiscardHandler)
	}
	return e.interceptedLog(e.Log).With("workflow", e.Type, "run", e.who.RunID(), "run_attempt", e.runAttempt())
}

// described returns the run for its interceptors.
func (e *Run) described(now time.Time) InterceptedRun {
	return InterceptedRun{
		ClaimedRun: e.ClaimedRun, Decoded: e.who.Headers(), Age: since(e.CreatedAt, now),
		Waited: since(e.DueAt, now),
	}
}

// newRoot returns the run's own branch.
func (e *Run) newRoot(ctx context.Context) *Branch {
	return &Branch{
		identity: &e.who,
		replayer: replayer{
			e: e,
			recorder: recorder{
				node:    node{mu: &e.Mutex, ctx: ctx, cancel: e.stopContext, result: &branchResult{}},
				journal: &e.journal, outbox: &e.outbox, ending: &e.ending,
			},
			passage: passage{now: e.StartedAt},
		},
	}
}
