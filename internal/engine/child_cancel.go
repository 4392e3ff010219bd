package engine

import (
	"context"
	"errors"
	"strconv"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// Cancel cancels the child for b, once. Its record follows the cancel: if the process dies in between, a replay cancels
// the child again, which changes nothing. See doc_children.go.
func (c *Child) Cancel(b *Branch) error {
	defer b.operate().done()
	if err := c.mayAsk(b); err != nil {
		return err
	}
	e := b.e
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	e.Lock()
	row := c.cancelledBefore()
	if row == nil {
		row = c.cancelled
	}
	e.Unlock()
	if row != nil {
		b.follow()
		b.advance(row.FinishedAt)
		return nil
	}
	b.lastLookup = historyLookup{id: c.step, kind: kindCancel}
	if err := b.begins(); err != nil {
		return err
	}
	b.follow()
	if err := b.writeAll(); err != nil {
		return err
	}
	if !e.cancelStarted(c.id) {
		e.exitIfStopped()
	}
	attempt := 1
	if row := e.recordOf(c.cancelStep()); row != nil {
		attempt = row.Attempt + 1
	}
	r := e.newRecord(c.cancelStep(), store.KindMarker, store.Completed, attempt, attempt)
	r.Output = strconv.AppendQuote(nil, c.id.String())
	row = b.record(r)
	e.exitIfStopped()
	e.Lock()
	c.stopped, c.cancelled = true, row
	e.Unlock()
	b.advance(row.FinishedAt)
	return nil
}

// cancelStep returns the ID of the record of Cancel.
func (c *Child) cancelStep() string { return store.CancelID(c.step) }

// cancelledBefore returns the record of Cancel that the history has, nil if it has none. A record about another run
// does not count: an earlier attempt of this run may have started one in the same step.
func (c *Child) cancelledBefore() *store.StepRow {
	row := c.by.e.recordOf(c.cancelStep())
	if row == nil || string(row.Output) != strconv.Quote(c.id.String()) {
		return nil
	}
	return row
}

// cancelChildrenBelow cancels the children that were started on the branches, which have ended, and on those below
// them. It first writes, for by, the records of how the branches ended. If the process dies meanwhile, the next
// execution cancels the children.
func (e *execution) cancelChildrenBelow(by *Branch, branches ...*Branch) {
	e.Lock()
	ids := e.stopBelowLocked(branches)
	e.Unlock()
	if by.hasLost() { // a loser enqueues nothing any more: the run's own branch does
		by = by.root()
	}
	if ids != nil && e.cancelsOthers() && by.allWritten() {
		e.cancelStarted(ids...)
	}
}

// cancelChildren cancels the children of a run that is about to end. The outcome is Lost if the run is no longer held.
func (e *execution) cancelChildren() store.Outcome {
	builds, _ := e.premisesNow()
	return e.untilAnswered(func() error {
		ended, err := e.store.Ends.CancelChildren(e.background, e.held(), builds...)
		if err == nil {
			_ = e.hints.Cancelled(e.noWait, nil, ended) // fails only in a transaction
		}
		return err
	})
}

// cancelStarted cancels children whose starts are recorded. If the lease is lost, or a record on which the run builds,
// it stops the execution and returns false.
func (e *execution) cancelStarted(children ...uuid.UUID) bool {
	builds, _ := e.premisesNow()
	outcome := e.untilAnswered(func() error {
		ended, err := e.store.Ends.CancelStarted(e.background, e.held(), builds, children)
		if err == nil {
			_ = e.hints.Cancelled(e.noWait, nil, ended) // fails only in a transaction
		}
		return err
	})
	e.stopAfter(outcome)
	return outcome == store.Done
}

// untilAnswered calls f, which asks the database, until the database answers. The outcome is Lost if the run is no
// longer held, or if the session gives up its writes.
func (e *execution) untilAnswered(f func() error) store.Outcome {
	for failures := 0; ; failures++ {
		err := f()
		switch {
		case err == nil:
			return store.Done
		case errors.Is(err, store.ErrUnfounded):
			return store.Unfounded
		case errors.Is(err, store.ErrLeaseLost) || e.closing.Load() || e.lost():
			return store.Lost
		}
		e.databaseTrouble(err)
		e.pause(outage.PauseAfter(err, failures))
	}
}
