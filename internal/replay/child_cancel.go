package replay

import (
	"strconv"

	"github.com/kagzi/kagzi/store"
)

// Cancel cancels the child for b, once. Its record follows the cancel: if the process dies in between, a replay cancels
// the child again, which changes nothing. See doc_children.go.
func (c *Child) Cancel(b *Branch) error {
	defer b.operate().done()
	if err := b.mayUse(c.e); err != nil {
		return err
	}
	e := c.e
	if err := b.Err(); err != nil {
		return err
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
	b.looksFor(c.step, kindCancel)
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
	row := c.e.recordOf(c.cancelStep())
	if row == nil || string(row.Output) != strconv.Quote(c.id.String()) {
		return nil
	}
	return row
}

// cancelChildrenBelow cancels the children that were started on the branches, which have ended, and on those below
// them. It first writes, for by, the records of how the branches ended. If the process dies meanwhile, the next
// execution cancels the children.
func (e *Run) cancelChildrenBelow(by *node, branches ...*node) {
	e.Lock()
	ids := e.stopBelowLocked(branches)
	e.Unlock()
	if by.hasLost() { // a loser enqueues nothing any more: the run's own branch does
		by = by.root()
	}
	if ids != nil && e.cancelsOthers() && e.allWritten(by) {
		e.cancelStarted(ids...)
	}
}
