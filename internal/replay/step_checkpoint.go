package replay

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A checkpoint is what the attempts of a step keep for those that follow. See doc_checkpoints.go.
type checkpoint struct {
	mu    sync.Mutex // held while it is written in a transaction of the step
	try   int        // counts the calls of the function, also those of one attempt. Set by next.
	open  bool       // the function is under way. Set by begin, reset by end.
	tx    *stepTx    // of the attempt; nil: it has none. Set by begin.
	data  []byte     // the last that was kept in this execution, or with tx in this attempt; nil: none
	waits bool       // data was given to the outbox, and has perhaps not left it
	// the table may have one that this execution has written
	written bool
}

// begin is called when the function of an attempt is about to be called. tx is nil or a *stepTx.
func (c *checkpoint) begin(tx pgx.Tx) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = true
	if c.tx, _ = tx.(*stepTx); c.tx != nil {
		c.data = nil
	}
}

// end is called when the function has returned.
func (c *checkpoint) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = false
}

// next is called when the context of the next call is about to be made.
func (c *checkpoint) next() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.try++
}

// errAttemptOver is returned to a goroutine that the function of a step has left behind.
var errAttemptOver = failure.BadRequest(errors.New("kagzi: checkpoint: the attempt of the step is over"))

// A reporter is what the functions of a step's attempts report to.
type reporter struct{ s *stepCall }

func (r reporter) SetProgress(text string, fraction *float64) { r.s.b.SetProgress(text, fraction) }

func (r reporter) AwaitsRun(id uuid.UUID) (ended func()) { return r.s.b.AwaitsRun(id) }

func (r reporter) SaveCheckpoint(ctx context.Context, try int, data []byte) error {
	s, c := r.s, &r.s.checkpoint
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.open || c.try != try:
		return errAttemptOver
	case c.tx != nil:
		return c.saveInTx(ctx, s, data)
	}
	waiting := s.e.withdraw(store.CheckpointID(s.id))
	if waiting != nil { // it keeps its position: a loop of many checkpoints uses up few
		waiting.Output = data
	} else {
		c.written = c.written || c.waits
		waiting = newCheckpoint(s, data)
	}
	c.data, c.waits = data, true
	s.b.deferRecord(waiting)
	return nil
}

func (r reporter) LastCheckpoint(ctx context.Context, try int) ([]byte, error) {
	s, c := r.s, &r.s.checkpoint
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.open || c.try != try:
		return nil, errAttemptOver
	case c.data != nil:
		return c.data, nil
	case c.tx != nil:
		if c.tx.failed != nil {
			return nil, c.tx.failed
		}
		return s.e.Store.Records.Checkpoint(ctx, c.tx.Tx, s.e.RunID, s.id)
	}
	if row := s.b.recordOf(store.CheckpointID(s.id)); row != nil {
		return row.Output, nil
	}
	return nil, nil
}

func newCheckpoint(s *stepCall, data []byte) *store.Record {
	r := s.e.newRecord(store.CheckpointID(s.id), store.KindCheckpoint, store.Completed, 1, 1)
	r.Output = data
	return r
}

// forgetting returns the record by which the step's success forgets the checkpoint; none if the table has no
// checkpoint.
func forgetting(s *stepCall) []*store.Record {
	c := &s.checkpoint
	if !c.waits && !c.written && !s.e.hasCheckpoints() {
		return nil
	}
	id := store.CheckpointID(s.id)
	waited := s.e.withdraw(id) != nil
	row := s.b.recordOf(id)
	if c.written || c.waits && !waited || row != nil && row.Output != nil {
		return []*store.Record{newCheckpoint(s, nil)}
	}
	return nil
}

// A checkpoint in the middle of something would commit a part of it.
var (
	errSavepointOpen = failure.BadRequest(errors.New("kagzi: checkpoint: a savepoint of the transaction is open: " +
		"call Checkpoint when it has ended"))
	errRowsOpen = failure.BadRequest(errors.New("kagzi: checkpoint: the transaction has a query whose rows are " +
		"not all read: read them, or close them, before Checkpoint"))
)

// saveInTx commits what the function has written so far, together with data, and begins another transaction.
func (c *checkpoint) saveInTx(ctx context.Context, s *stepCall, data []byte) error {
	t := c.tx
	switch {
	case t.failed != nil:
		return t.failed
	case s.b.hasLost():
		return errBranchCancelled
	case t.savepoints.Load() > 0:
		return errSavepointOpen
	case t.Conn().PgConn().IsBusy():
		return errRowsOpen
	}
	err := uncommittable(t.Tx)
	if err == nil {
		c.written = true
		err = t.commit(ctx, s, newCheckpoint(s, data))
	}
	if err == nil {
		c.data = data
		t.end(nil)
		err = t.open(s.b.context(), s) // ctx may be one of the function's own
	}
	if err != nil {
		t.failed = err
		t.end(err)
	}
	return err
}
