package engine

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// Cancel cancels the child for b, once. The record comes after: should the process die in between, the child is cancelled
// again, which changes nothing.
func (c *Child) Cancel(b *Branch) error {
	if err := c.mayAsk(b); err != nil {
		return err
	}
	e := b.e
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	e.mu.Lock()
	row := c.cancelledBefore()
	if row == nil {
		row = c.cancelled
	}
	e.mu.Unlock()
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
	if b.writeAll(); !e.cancelStarted(c.id) {
		e.exitIfStopped()
	}
	attempt := 1
	if row := e.history[c.cancelStep()]; row != nil {
		attempt = row.Attempt + 1
	}
	r := e.newRecord(c.cancelStep(), store.KindMarker, store.Completed, attempt, attempt)
	r.Output = strconv.AppendQuote(nil, c.id.String())
	row = b.record(r)
	e.exitIfStopped()
	e.mu.Lock()
	c.stopped, c.cancelled = true, row
	e.mu.Unlock()
	b.advance(row.FinishedAt)
	return nil
}

// cancelStep is the ID under which it is remembered that the run has cancelled the child.
func (c *Child) cancelStep() string { return store.CancelID(c.step) }

// cancelledBefore returns the record of the child's cancel, nil if there is none. One of another run of the same step, which
// an earlier attempt of this run had started, does not count.
func (c *Child) cancelledBefore() *store.StepRow {
	row := c.by.e.history[c.cancelStep()]
	if row == nil || string(row.Output) != strconv.Quote(c.id.String()) {
		return nil
	}
	return row
}

// cancelChildrenBelow cancels the children that were started on the branches, which have ended, and on those below them. Why
// the branches have ended is recorded before: by writes what is not. Of a run that dies meanwhile the next execution does it.
func (e *execution) cancelChildrenBelow(by *Branch, branches ...*Branch) {
	var ids []uuid.UUID
	e.mu.Lock()
	for _, c := range e.children {
		active := c.row.Status == store.Running && e.inbox.ends[c.id] == nil && e.inbox.endings[c.id] == nil && !c.stopped && !c.detached
		if active && slices.ContainsFunc(branches, c.by.under) {
			ids = append(ids, c.id)
			c.stopped = true
		}
	}
	e.mu.Unlock()
	if by.hasLost() { // it records nothing any more, but for the decision that it has lost
		by = by.root()
	}
	if ids != nil && e.mode.cancels() && by.allWritten() {
		e.cancelStarted(ids...)
	}
}

// cancelChildren cancels the children of a run that is about to end, and reports whether the run is still held.
func (e *execution) cancelChildren() bool {
	return e.untilAnswered(func() error {
		ended, err := e.env.store.CancelChildren(e.env.background, e.held())
		if err == nil {
			_ = e.env.hints.Cancelled(e.env.noWait, nil, ended) // fails only in a transaction
		}
		return err
	})
}

// cancelStarted cancels children whose starts are recorded. It ends the execution and returns false if the lease is lost.
func (e *execution) cancelStarted(children ...uuid.UUID) bool {
	holds := e.untilAnswered(func() error {
		ended, err := e.env.store.CancelStarted(e.env.background, e.held(), children)
		if err == nil {
			_ = e.env.hints.Cancelled(e.env.noWait, nil, ended) // fails only in a transaction
		}
		return err
	})
	if !holds {
		e.stop(stopLost, ErrLeaseLost)
	}
	return holds
}

// untilAnswered calls f, which asks the database, until that answers. It returns false if the run is not the execution's any more.
func (e *execution) untilAnswered(f func() error) bool {
	for failures := 0; ; failures++ {
		err := f()
		if err == nil {
			return true
		}
		if errors.Is(err, store.ErrLeaseLost) || e.env.closing.Load() || e.lost() {
			return false
		}
		e.env.databaseTrouble(err)
		e.env.pause(outage.PauseAfter(err, failures))
	}
}
