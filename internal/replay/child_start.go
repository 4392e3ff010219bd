package replay

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
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
	e := b.execution()
	defer b.operate().done()
	id, err := b.enter(spec.Name, spec.BadName)
	if err != nil {
		return nil, err
	}
	c := &Child{e: e, by: b, step: id, workflow: spec.Workflow}
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
	c.id = childID(e.RunID, id, attempt, spec.Workflow, b.Now())
	if spec.Intercept != nil {
		if err := spec.Intercept(b.context(), &run, ChildIdentity{c.id, e.RunID, id}); err != nil {
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
	if b.record(r, store.Taken); r.Outcome == store.Taken {
		return nil, c.conflict(attempt, run.ExternalID)
	}
	e.exitIfStopped()
	return c, nil
}

// recall takes over the newest record of the child. It returns false if the child is to be started anew: its failure is
// forgotten, or it failed before this attempt of the run reached it.
func (c *Child) recall(row *store.StepRow, detached bool) (known bool, err error) {
	b, e := c.by, c.e
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
	earlier := row.RunAttempt != e.runAttempt() && e.beginsNew() && !b.Closed() && !c.stopped
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
	e := c.e
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
		c.by.deferForRunLocked(r)
	case end.Status != store.Completed:
		r := c.ending(end)
		r.RunAttempt = row.RunAttempt
		c.by.deferForRunLocked(r)
		return false
	}
	return true
}

// conflict records that this attempt of the run cannot start the child, because an active run has its external ID.
func (c *Child) conflict(attempt int, id string) error {
	e := c.e
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
