package replay

import (
	"errors"
	"fmt"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// AskToEnd notes that the function has called Continue or Rollback. It returns an error if the caller may not: it is
// not b's goroutine, or a branch.
func (b *Branch) AskToEnd(call string) error {
	switch {
	case !b.owned():
		return b.foreign()
	case !b.isRoot():
		return b.Misuse(fmt.Errorf("a branch cannot end the run: return its result, and call %s with the Context of "+
			"the workflow function", call))
	}
	e := b.execution()
	e.Lock()
	defer e.Unlock()
	e.askLocked(call)
	return nil
}

// An EndOfRun is an error that only the workflow function may return: a replay could not have it from the record of a
// branch's failure.
type EndOfRun interface {
	error
	EndsRun()
}

// refuseEnd returns err, the error of b's function. If an EndOfRun is in its chain, the call was wrong.
func refuseEnd(b *Branch, err error) error {
	if endsRun(err) {
		return b.Misuse(errors.New("a branch has returned the error of Continue or Rollback: only the workflow " +
			"function may"))
	}
	return err
}

func endsRun(err error) (ends bool) {
	defer func() { _ = recover() }() // a method of a user's error
	return failure.Walk(err, func(err error) bool {
		_, ends := err.(EndOfRun)
		return ends
	})
}

// Continue lets the run begin again with next, once its function and all branches have returned without an error. See
// package store, doc_continue.go.
func (b *Branch) Continue(next *store.Continuation) error {
	e := b.execution()
	e.Lock()
	defer e.Unlock()
	if e.consumed() != nil {
		return failure.Permanent(kind.Validation, errors.New("kagzi: a run of a consumer cannot continue: its end "+
			"hands its state to the next one"))
	}
	next.Epoch = e.Epoch
	e.continueLocked(next)
	return nil
}

// RollBack lets the compensations of b's run run before it completes, once its function and all branches have returned
// without an error.
func RollBack(b *Branch) error {
	e := b.execution()
	e.Lock()
	defer e.Unlock()
	if e.consumed() != nil {
		return failure.Permanent(kind.Validation, errors.New("kagzi: a run of a consumer cannot be rolled back: its "+
			"end consumes events; return an error, or do what is to be undone in a child"))
	}
	e.rollBackLocked()
	return nil
}

// outcomeOf returns e's outcome. A run fails that has called Continue or Rollback and does not return its error. So
// does one that would continue and has something to undo: a branch may have registered that after the function had
// returned.
func outcomeOf(e *Run) error {
	err := e.outcome()
	e.Lock()
	defer e.Unlock()
	switch {
	case err != nil:
		return err
	case e.droppedLocked() != "":
		return failure.Permanent(kind.Validation, fmt.Errorf("kagzi: the workflow function has called %s, and "+
			"returned no error: return %[1]s's error", e.droppedLocked()))
	case e.nextLocked() != nil && e.registersLocked():
		return failure.Permanent(kind.Validation, errors.New("kagzi: a run that has begun a step with UndoneBy, or "+
			"called Compensate, cannot continue: the next epoch would not know what to undo; do what is to be undone "+
			"in a child"))
	}
	return nil
}
