package worker

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// news passes changes of the rows of runs to their executions. See doc_wakeups.go.
type news struct {
	*standing.Worker
	roster *roster
	loads  *loader
}

// Refresh marks the runs in ids for a refresh, because their rows have changed; nil marks all. It does not block. If
// ids has the worker's own ID, it was asked to drain or declared dead: Refresh asks for a heartbeat,
// which reads the worker's row.
func (n *news) Refresh(ids []uuid.UUID) {
	if ids == nil || slices.Contains(ids, n.ID()) {
		goroutine.Signal(n.Heartbeats)
	}
	n.roster.markStale(ids)
}

// refreshLoop reads the rows of the runs that are marked as stale, until stop is closed.
func (n *news) refreshLoop(stop chan struct{}) {
	for stale := n.roster.nextStale(stop); stale != nil; stale = n.roster.nextStale(stop) {
		n.readStates(stale)
	}
}

// readStates reads the rows of runs, and passes the changes to their executions.
func (n *news) readStates(held []store.HeldRun) {
	states, err := n.Store.Leases.HeldStates(context.Background(), n.Store.Pool(), held, n.RefusesOne)
	if err != nil {
		n.Trouble(err) // the next heartbeat refreshes, too
		return
	}
	n.fetch(n.apply(states))
}

// fetch reads the inboxes of runs and delivers them to their executions. If one query for all fails, each run's inbox
// is read alone, beside the refreshes.
func (n *news) fetch(ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	// Look the executions up before the query. A later execution of the same run could get a message that the earlier
	// one was about to take.
	of := make(map[uuid.UUID]*held, len(ids))
	for _, id := range ids {
		if h := n.roster.of(id); h != nil {
			of[id] = h
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), sharedTimeout)
	defer cancel()
	inboxes, err := n.Store.Messages.Inbox(ctx, ids)
	if err != nil && !n.Readable() {
		n.Trouble(err) // the next heartbeat refreshes, too
		return
	}
	for id, h := range of {
		if err != nil {
			n.loads.fetch(h)
		} else if inbox := inboxes[id]; inbox != nil {
			h.Deliver(inbox, nil)
		}
	}
}

// apply passes the rows' states to their runs, and returns the runs that have new messages or ended children.
func (n *news) apply(states []store.HeldRunState) (woken []uuid.UUID) {
	for _, st := range states {
		h := n.roster.under(store.HeldRun{RunID: st.RunID, Lease: st.Lease})
		if h != nil && h.Update(st) {
			woken = append(woken, st.RunID)
		}
	}
	return woken
}

// hasNews reads the run's row, and passes its state to the run.
func (n *news) hasNews(h *held) { n.readStates([]store.HeldRun{h.lease()}) }
