package replay

import (
	"cmp"
	"context"
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

// A ChildSpec describes a child as the workflow function asked for it.
type ChildSpec struct {
	Name     string
	BadName  error // the error of a wrong name, nil if it is right
	Workflow string
	Detached bool
	// Run returns the child's run. refused reports that err is no mistake of the code, such as an input that is too
	// large.
	Run func() (run store.NewRun, refused bool, err error)
	// Intercept is called before the start of the child is recorded. It may change the run's headers. nil: nothing is
	// called.
	Intercept func(ctx context.Context, run *store.NewRun, as ChildIdentity) error
}

// A ChildIdentity names a child that is about to be started.
type ChildIdentity struct {
	Run        uuid.UUID
	Parent     uuid.UUID
	ParentStep string
}

// StartChild starts the child, or returns the one that the history has. See doc_children.go.
func (b *Branch) StartChild(spec ChildSpec) (*Child, error) {
	defer b.operate().done()
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
	run, refused, err := spec.Run()
	switch {
	case refused:
		return nil, b.refuse(id, store.KindChild, attempt, err)
	case err != nil:
		return nil, b.Misuse(failure.Wrap(err, "child %q", id))
	}
	if run.Queue == "" {
		run.Queue = e.Queue // where this run was claimed from
	}
	if err := b.begins(); err != nil {
		return nil, err
	}
	if b.hasLost() {
		return nil, errBranchCancelled
	}
	c.id = childID(e.RunID, id, attempt, spec.Workflow, b.now)
	if spec.Intercept != nil {
		if err := spec.Intercept(b.ctx, &run, ChildIdentity{c.id, e.RunID, id}); err != nil {
			return nil, b.refuse(id, store.KindChild, attempt, err)
		}
	}
	r := e.newRecord(id, store.KindChild, store.Running, attempt, attempt)
	r.ChildRunID, r.Start = c.id, &run
	row := r.StepRow // a copy: the flush may change the record's row
	c.row = &row
	e.Lock()
	if !run.Detached {
		e.expectLocked(c.id)
	}
	c.detached = run.Detached
	e.meetLocked(c)
	e.Unlock()
	if run.ExternalID == "" {
		b.enqueue(r) // no branch waits: every later write stays behind it, also the end of the run
		return c, nil
	}
	if b.write(store.Taken, r) == store.Taken {
		return nil, c.conflict(attempt, run.ExternalID)
	}
	e.exitIfStopped()
	return c, nil
}

// recall takes over the newest record of the child. It returns false if the child is to be started anew: its failure is
// forgotten, or it failed before this attempt of the run reached it.
func (c *Child) recall(row *store.StepRow, detached bool) (known bool, err error) {
	b, e := c.by, c.by.e
	if row.Status == store.Failed && e.forgot(row) {
		return false, nil
	}
	if isRefusal(row) {
		return true, b.refusal(row)
	}
	if !ofWorkflow(row.ChildRunID, c.workflow) {
		e.nondeterministic(c.step, "child %q, run %s, was started as one of another workflow, and the code now uses "+
			"the name for %q: give the new one another name",
			c.step, row.ChildRunID, c.workflow)
	}
	c.id, c.row = row.ChildRunID, row
	c.stopped = c.cancelledBefore() != nil
	earlier := row.RunAttempt != e.runAttempt() && e.beginsNew() && !b.closed && !c.stopped
	if row.Status == store.Running && earlier && !c.keep(row) {
		return false, nil
	}
	e.Lock()
	c.detached = detached
	e.meetLocked(c)
	if c.detached {
		e.forgetLocked(c.id)
	}
	e.Unlock()
	if c.detached {
		c.pass(b, row) // the function need not ask for its end
	}
	return true, nil
}

// keep takes over a RUNNING child of an earlier attempt of the run. It returns false if the child has failed, or can
// only fail: then this attempt starts another.
func (c *Child) keep(row *store.StepRow) bool {
	e := c.by.e
	e.Lock()
	defer e.Unlock()
	end, soon := e.endOfLocked(c.id)
	if end == nil && soon != nil { // it can no longer complete
		ending := *soon
		ending.Status, ending.ErrorKind, ending.Error = store.Cancelled, string(kind.Cancelled), "run was cancelled"
		end = &ending
	}
	switch {
	case end == nil: // a failure from now on belongs to this attempt
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

// conflict records that this attempt of the run cannot start the child, because an active run has its external ID.
func (c *Child) conflict(attempt int, id string) error {
	e := c.by.e
	e.Lock()
	e.forgetLocked(c.id)
	e.Unlock()
	err := failure.Explain(fmt.Sprintf("the ID %q is an active run's: a child needs one that is free", id),
		store.ErrIDConflict)
	return c.by.refuse(c.step, store.KindChild, attempt, failure.BadRequest(err))
}

// childID returns the run ID of a child. It is the same when the start is repeated because the process died before the
// record. It has the form of a UUIDv7, and 12 of its bits distinguish workflows.
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

// ofWorkflow reports whether a child's run ID may be that of a run of workflow.
func ofWorkflow(id uuid.UUID, workflow string) bool {
	return binary.BigEndian.Uint16(id[6:])&0xfff == workflowBits(workflow)
}

// Result waits for the child to end and returns the record of its end. It returns an error if the child did not
// complete.
func (c *Child) Result(b *Branch) (*store.StepRow, error) {
	defer b.operate().done()
	if err := c.mayAsk(b); err != nil {
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
	defer b.operate().done()
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

// mayAsk returns the error if b may not ask for the child. It exits the goroutine if the execution has stopped.
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
		if err := b.waitFor(&wait{why: "child " + c.step, need: 1, child: true}, on, 0); err != nil {
			return nil, err
		}
	}
}

// bigOutput is the size in bytes beyond which a child's output is enqueued at once: a smaller one is deferred to the
// next write.
const bigOutput = 64 << 10

// readEnd returns the record of the child's end if that is known, and otherwise the event to wait for. The end that is
// read first counts. It is recorded for the run's own branch, because any branch may have received it.
func (c *Child) readEnd(b *Branch) (*store.StepRow, *event, error) {
	e := b.e
	e.Lock()
	if c.row.Status != store.Running {
		defer e.Unlock()
		return c.row, nil, nil
	}
	end, _ := e.endOfLocked(c.id)
	if end == nil {
		defer e.Unlock()
		return nil, e.arrivalLocked(c.id.String()), nil
	}
	if b.hasLost() || b.closed || b.ctx.Err() != nil {
		e.Unlock()
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
	e.Unlock()
	if big {
		b.root().enqueue(r) // which is in no race
	}
	return &row, nil, nil
}

// ending prepares the record of the child's end. The output of a child that did not complete is its status.
func (c *Child) ending(end *store.ChildEnd) *store.Record {
	r := c.by.e.newRecord(c.step, store.KindChild, store.Completed, c.row.Attempt, c.row.FirstAttempt)
	r.ChildRunID, r.Output, r.EndedAt = c.id, end.Output, end.FinishedAt
	if !end.Ending {
		r.Read = end.FinishedAt
	}
	if end.Status != store.Completed {
		r.Status, r.Output, r.ErrorKind, r.Error = store.Failed, fmt.Appendf(nil, "%q", end.Status),
			end.ErrorKind, end.Error
	}
	return r
}

// failure returns the error of a child that did not complete.
func (c *Child) failure(b *Branch, row *store.StepRow) error {
	e := b.e
	e.Lock()
	if c.failed == nil {
		c.failed = b.failsLocked(c.step)
	} else { // given before: what another branch has followed stays followed
		b.unfollowed = append(b.unfollowed, c.failed)
	}
	e.Unlock()
	return e.errors().Recorded(row, c.workflow)
}

// pass notes that b has passed the child's record.
func (c *Child) pass(b *Branch, row *store.StepRow) {
	b.advance(row.FinishedAt)
	if b == c.by && !c.passed {
		c.passed = true
		b.replay()
	}
}

// awaitAll waits until all of the children have ended. A suspended run is claimed once for all of them, when the last
// has ended.
func (b *Branch) awaitAll(children []*Child) error {
	e := b.e
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
		on := e.anyEndLocked()
		past := on.fired
		left = slices.DeleteFunc(left, func(c *Child) bool {
			end, _ := e.endOfLocked(c.id)
			return c.row.Status != store.Running || end != nil
		})
		e.Unlock()
		if len(left) == 0 {
			return nil
		}
		why := "child " + left[0].step
		if len(left) > 1 {
			why += fmt.Sprintf(" and %d more", len(left)-1)
		}
		if err := b.waitFor(&wait{why: why, need: len(left), child: true}, on, past); err != nil {
			return err
		}
	}
}
