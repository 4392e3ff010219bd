package replay

import (
	"cmp"
	"slices"

	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// Result waits for the child to end and returns the record of its end. It returns an error if the child did not
// complete.
func (c *Child) Result(b *Branch) (*store.StepRow, error) {
	defer b.operate().done()
	if err := b.mayUse(c.e); err != nil {
		return nil, err
	}
	row, err := c.end(b)
	if err == nil && row.Status != store.Completed {
		return nil, c.failure(b, row)
	}
	return row, err
}

// A ChildEnd is the end of one of several children.
type ChildEnd struct {
	Step string
	Row  *store.StepRow // if it completed
	Err  error          // if it did not
}

// ChildResults waits for all of the children to end.
func (b *Branch) ChildResults(all []*Child) ([]ChildEnd, error) {
	e := b.execution()
	defer b.operate().done()
	for _, c := range all {
		if c.e != e {
			return nil, b.Misuse(errOtherRun)
		}
	}
	if err := awaitChildren(e, b, all); err != nil {
		return nil, err
	}
	ends := make([]ChildEnd, len(all))
	for i, c := range all {
		row, err := c.end(b) // does not wait
		if err != nil {
			return nil, err
		}
		if ends[i] = (ChildEnd{Step: c.step, Row: row}); row.Status != store.Completed {
			ends[i].Row, ends[i].Err = nil, c.failure(b, row)
		}
	}
	return ends, nil
}

// end waits for the child's end and returns the record of it.
func (c *Child) end(b *Branch) (*store.StepRow, error) {
	for {
		row, on, err := c.readEnd(b)
		if err != nil {
			return nil, err
		}
		if row != nil && b.outlived(row.FinishedAt) {
			return nil, errBranchCancelled
		}
		if row != nil {
			c.pass(b, row)
			return row, nil
		}
		w := &wait{what: waits.Wait{Kind: waits.Child, Name: c.step}, need: 1, child: true}
		if err := b.waitFor(w, on); err != nil {
			return nil, err
		}
	}
}

// bigOutput is the size in bytes beyond which a child's output is enqueued at once: a smaller one is deferred to the
// next write.
const bigOutput = 64 << 10

// readEnd returns the record of the child's end if that is known, and otherwise the event to wait for. The end that is
// read first counts. It is recorded for the run's own branch, because any branch may have received it.
func (c *Child) readEnd(b *Branch) (*store.StepRow, next, error) {
	e := c.e
	e.Lock()
	if c.row.Status != store.Running {
		defer e.Unlock()
		return c.row, next{}, nil
	}
	end, _ := e.endOfLocked(c.id)
	if end == nil {
		defer e.Unlock()
		return nil, firstOf(e.arrivalLocked(c.id.String())), nil
	}
	if b.isOver() {
		e.Unlock()
		return nil, next{}, cmp.Or[error](b.cancelled(), errBranchCancelled)
	}
	r := c.ending(end)
	r.EndedAt = b.notBefore(r.EndedAt)
	row := r.StepRow
	row.FinishedAt = r.EndedAt
	c.row = &row
	b.goLive()
	big := len(r.Output) > bigOutput
	if !big {
		b.deferForRunLocked(r)
	}
	e.Unlock()
	if big {
		b.enqueueForRun(r)
	}
	return &row, next{}, nil
}

// ending prepares the record of the child's end. See [store.ChildFailure].
func (c *Child) ending(end *store.ChildEnd) *store.Record {
	r := c.e.newRecord(c.step, store.KindChild, store.Completed, c.row.Attempt, c.row.FirstAttempt)
	r.ChildRunID, r.Output, r.EndedAt = c.id, end.Output, end.FinishedAt
	if !end.Ending {
		r.Read = end.FinishedAt
	}
	if end.Status != store.Completed {
		r.Status, r.Output = store.Failed, store.ChildFailure(end.Status, end.Output)
		r.ErrorKind, r.Error = end.ErrorKind, end.Error
	}
	return r
}

// failure returns the error of a child that did not complete.
func (c *Child) failure(b *Branch, row *store.StepRow) error {
	c.e.Lock()
	if c.failed == nil {
		c.failed = b.failsLocked(c.step)
	} else { // given before: what another branch has followed stays followed
		b.knowsFailure(c.failed)
	}
	c.e.Unlock()
	return recordedError(c.e, row, c.workflow)
}

// pass notes that b has passed the child's record.
func (c *Child) pass(b *Branch, row *store.StepRow) {
	b.advance(row.FinishedAt)
	if b == c.by && !c.passed {
		c.passed = true
		b.replay()
	}
}

// awaitChildren waits until all of the children have ended. A suspended run is claimed once for all of them, when the
// last has ended.
func awaitChildren(e *Run, b *Branch, children []*Child) error {
	if !b.owned() {
		return b.foreign()
	}
	e.exitIfStopped()
	left, seen := slices.Clone(children), map[*Child]bool{}
	left = slices.DeleteFunc(left, func(c *Child) bool {
		again := seen[c] // counted twice, it would need a wake-up that never comes
		seen[c] = true
		return again
	})
	for {
		e.Lock()
		on := e.anyEndLocked().nextLocked()
		left = slices.DeleteFunc(left, func(c *Child) bool {
			end, _ := e.endOfLocked(c.id)
			return c.row.Status != store.Running || end != nil
		})
		e.Unlock()
		if len(left) == 0 {
			return nil
		}
		what := waits.Wait{Kind: waits.Child, Name: left[0].step}
		if len(left) > 1 {
			what.Count = len(left)
		}
		if err := b.waitFor(&wait{what: what, need: len(left), child: true}, on); err != nil {
			return err
		}
	}
}
