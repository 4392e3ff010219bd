package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A ChildSpec is a child as the workflow function asks for it.
type ChildSpec struct {
	Name     string
	BadName  error // what is wrong with the name, nil if nothing is
	Workflow string
	Detached bool
	// Run returns the child's run. tooLarge says that the error is about the size of its input.
	Run func() (run store.NewRun, tooLarge bool, err error)
}

// StartChild starts the child, or returns the one that the history has.
func (b *Branch) StartChild(spec ChildSpec) (*Child, error) {
	e := b.e
	id, err := b.enter(spec.Name, spec.BadName)
	if err != nil {
		return nil, err
	}
	c := &Child{by: b, step: id, workflow: spec.Workflow}
	attempt := 1
	if row := b.lookup(id, store.KindChild); row != nil {
		if known, err := c.recall(row, spec.Detached); known {
			return c, err
		}
		attempt = row.Attempt + 1
	}
	run, tooLarge, err := spec.Run()
	if err != nil {
		err = failure.Wrap(err, "child %q", id)
		if tooLarge { // that is a matter of the data, and not of the code: the function may act on it
			return nil, failure.BadRequest(err)
		}
		return nil, b.Misuse(err)
	}
	if run.Queue == "" {
		run.Queue = e.env.queue // where this run was claimed from
	}
	if err := b.begins(); err != nil {
		return nil, err
	}
	if b.hasLost() {
		return nil, errBranchCancelled
	}
	c.id = childID(e.run.RunID, id, attempt, spec.Workflow, b.now)
	r := e.newRecord(id, store.KindChild, store.Running, attempt, attempt)
	r.ChildRunID, r.Start = c.id, &run
	row := r.StepRow // what is written may still change the record's
	c.row = &row
	e.mu.Lock()
	if !run.Detached {
		e.activeChildren[c.id] = true
	}
	c.detached = run.Detached
	e.children = append(e.children, c)
	e.mu.Unlock()
	if run.ExternalID == "" {
		b.enqueue(r) // what follows is behind it, the end of the run too
		return c, nil
	}
	if b.write(store.Taken, r) == store.Taken {
		return nil, c.conflict(attempt, run.ExternalID)
	}
	e.exitIfStopped()
	return c, nil
}

// recall takes in the latest record of the child. It returns false if that is of a failure which this attempt of the run
// is to forget.
func (c *Child) recall(row *store.StepRow, detached bool) (known bool, err error) {
	b, e := c.by, c.by.e
	if row.Status == store.Failed && e.forgot(row) {
		return false, nil
	}
	if row.Status == store.Failed && row.ChildRunID == uuid.Nil {
		b.passed(row)
		return true, c.idConflict(row)
	}
	if !ofWorkflow(row.ChildRunID, c.workflow) {
		e.nondeterministic("child %q, run %s, was started as one of another workflow, and the code now uses the name for %q: give the new one another name",
			c.step, row.ChildRunID, c.workflow)
	}
	c.id, c.row = row.ChildRunID, row
	c.stopped = c.cancelledBefore() != nil
	earlier := row.RunAttempt != e.attempt && e.mode.begins() && !b.closed && !c.stopped
	if row.Status == store.Running && earlier && !c.keep(row) {
		return false, nil
	}
	e.mu.Lock()
	c.detached = detached
	e.children = append(e.children, c)
	if c.detached {
		delete(e.activeChildren, c.id)
	}
	e.mu.Unlock()
	if c.detached {
		c.pass(b, row) // nobody need ask for it
	}
	return true, nil
}

// keep takes a child over from an earlier attempt of the run, unless it failed before this one came to it.
func (c *Child) keep(row *store.StepRow) bool {
	e := c.by.e
	e.mu.Lock()
	defer e.mu.Unlock()
	end := e.inbox.ends[c.id]
	if end == nil && e.inbox.endings[c.id] != nil { // it cannot end well any more
		ending := *e.inbox.endings[c.id]
		ending.Status, ending.ErrorKind, ending.Error = store.Cancelled, string(kind.Cancelled), "run was cancelled"
		end = &ending
	}
	switch {
	case end == nil: // should it fail from now on, that is a failure of this attempt
		r := e.newRecord(c.step, store.KindChild, store.Running, row.Attempt, row.FirstAttempt)
		r.ChildRunID = c.id
		c.by.root().deferLocked(r, nil)
	case end.Status != store.Completed:
		r := c.ending(end)
		r.RunAttempt = row.RunAttempt
		c.by.root().deferLocked(r, nil)
		return false
	}
	return true
}

// conflict records that the child cannot be started in this attempt of the run.
func (c *Child) conflict(attempt int, id string) error {
	e := c.by.e
	e.mu.Lock()
	delete(e.activeChildren, c.id)
	e.mu.Unlock()
	r := e.newRecord(c.step, store.KindChild, store.Failed, attempt, attempt)
	r.ErrorKind, r.Error, r.Permanent = string(kind.BadRequest), fmt.Sprintf("the ID %q is an active run's: a child needs one that is free", id), true
	row := c.by.record(r)
	c.by.passed(row)
	e.exitIfStopped()
	return c.idConflict(row)
}

// idConflict is the error of a child whose ID was not free.
func (c *Child) idConflict(row *store.StepRow) error {
	c.by.fails(c.step)
	return c.by.e.env.errors.Recorded(row, c.workflow)
}

// childID names a child: as before, if the start is repeated because the process died before it was recorded. It has the
// form of a UUIDv7, of which 12 bits tell one workflow from another.
func childID(parent uuid.UUID, step string, attempt int, workflow string, at time.Time) (id uuid.UUID) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", parent, step, attempt))
	copy(id[8:], sum[:])
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16|7<<12|uint64(workflowBits(workflow)))
	id[8] = id[8]&0x3f | 0x80
	return id
}

func workflowBits(workflow string) uint16 {
	sum := sha256.Sum256([]byte(workflow))
	return binary.BigEndian.Uint16(sum[:]) & 0xfff
}

// ofWorkflow reports whether id, a child's, may be of a run of workflow.
func ofWorkflow(id uuid.UUID, workflow string) bool {
	return binary.BigEndian.Uint16(id[6:])&0xfff == workflowBits(workflow)
}

// Result waits for the child to end and returns the record of that; an error if it did not complete.
func (c *Child) Result(b *Branch) (*store.StepRow, error) {
	if err := c.mayAsk(b); err != nil {
		return nil, err
	}
	row, err := c.end(b)
	if err == nil && row.Status != store.Completed {
		return nil, c.failure(b, row)
	}
	return row, err
}

// A ChildEnd is what one of several children came to.
type ChildEnd struct {
	Step string
	Row  *store.StepRow // of one that completed
	Err  error          // of another
}

// ChildResults waits for all of the children to end.
func (b *Branch) ChildResults(all []*Child) ([]ChildEnd, error) {
	for _, c := range all {
		if c.by.e != b.e {
			return nil, b.Misuse(errOtherRun)
		}
	}
	if err := b.awaitAll(all); err != nil {
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

// mayAsk says what is wrong if b must not ask for the child's end. It exits the goroutine if the execution has ended.
func (c *Child) mayAsk(b *Branch) error {
	if !b.owned() {
		return b.foreign()
	}
	b.e.exitIfStopped()
	if c.by.e != b.e {
		return b.Misuse(errOtherRun)
	}
	return nil
}

// end returns the record of the child's end, waiting for it.
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
		if err := b.waitFor(&wait{why: "child " + c.step, need: 1, child: true}, on, 0); err != nil {
			return nil, err
		}
	}
}

// bigOutput is how many bytes of a child's output are written at once, instead of with what follows.
const bigOutput = 64 << 10

// readEnd returns the record of the child's end if that is known, and else the event of it. The end that is taken
// first is the one that counts, so that is recorded, with whatever the execution writes next, because any branch may have seen
// it.
func (c *Child) readEnd(b *Branch) (*store.StepRow, *event, error) {
	e := b.e
	e.mu.Lock()
	if c.row.Status != store.Running {
		defer e.mu.Unlock()
		return c.row, nil, nil
	}
	end := e.inbox.ends[c.id]
	if end == nil {
		defer e.mu.Unlock()
		return nil, e.arrivalLocked(c.id.String()), nil
	}
	if b.hasLost() || b.closed || b.ctx.Err() != nil {
		e.mu.Unlock()
		return nil, nil, cmp.Or[error](b.cancelled(), errBranchCancelled)
	}
	r := c.ending(end)
	if b.now.After(r.EndedAt) {
		r.EndedAt = b.now
	}
	row := r.StepRow
	row.FinishedAt = r.EndedAt
	c.row = &row
	b.live.Store(true)
	big := len(r.Output) > bigOutput
	if !big {
		b.root().deferLocked(r, nil)
	}
	e.mu.Unlock()
	if big {
		b.root().enqueue(r) // which is in no race
	}
	return &row, nil, nil
}

// ending prepares the record of the child's end. What did not complete has its status for an output.
func (c *Child) ending(end *store.ChildEnd) *store.Record {
	r := c.by.e.newRecord(c.step, store.KindChild, store.Completed, c.row.Attempt, c.row.FirstAttempt)
	r.ChildRunID, r.Output, r.EndedAt = c.id, end.Output, end.FinishedAt
	if end.Status != store.Completed {
		r.Status, r.Output, r.ErrorKind, r.Error = store.Failed, fmt.Appendf(nil, "%q", end.Status), end.ErrorKind, end.Error
	}
	return r
}

// failure is the error of a child that did not complete.
func (c *Child) failure(b *Branch, row *store.StepRow) error {
	e := b.e
	e.mu.Lock()
	if c.failed == nil {
		c.failed = b.failsLocked(c.step)
	} else { // what has followed the first time has followed
		b.unfollowed = append(b.unfollowed, c.failed)
	}
	e.mu.Unlock()
	return e.env.errors.Recorded(row, c.workflow)
}

// pass notes that b has come past the child's record.
func (c *Child) pass(b *Branch, row *store.StepRow) {
	b.advance(row.FinishedAt)
	if b == c.by && !c.passed {
		c.passed = true
		b.replay()
	}
}

// awaitAll waits until all of the children have ended, with one wake-up for all of them.
func (b *Branch) awaitAll(children []*Child) error {
	e := b.e
	if !b.owned() {
		return b.foreign()
	}
	e.exitIfStopped()
	left, seen := slices.Clone(children), map[*Child]bool{}
	left = slices.DeleteFunc(left, func(c *Child) bool {
		again := seen[c] // who is counted twice would be waited for in vain
		seen[c] = true
		return again
	})
	for {
		e.mu.Lock()
		past := e.anyEnd.fired
		left = slices.DeleteFunc(left, func(c *Child) bool {
			return c.row.Status != store.Running || e.inbox.ends[c.id] != nil
		})
		e.mu.Unlock()
		if len(left) == 0 {
			return nil
		}
		why := "child " + left[0].step
		if len(left) > 1 {
			why += fmt.Sprintf(" and %d more", len(left)-1)
		}
		if err := b.waitFor(&wait{why: why, need: len(left), child: true}, &e.anyEnd, past); err != nil {
			return err
		}
	}
}
