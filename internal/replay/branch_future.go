package replay

import (
	"fmt"
	"runtime"
	"time"

	"github.com/kagzi/kagzi/waits"
)

// A Future is the result of a branch. See doc_groups.go.
type Future struct {
	value  any // of the function. The execution's mutex guards it, and the result.
	result *branchResult
	branch *Branch // nil if it was never started
	// the branch that started it has counted it as passed in its history. Only that branch's goroutine uses it.
	passed bool
}

// Go begins fn as a branch, on a goroutine of its own. badName is the error of a wrong name, nil if it is right. A nil
// fn is refused.
func (b *Branch) Go(name string, badName error, fn func(*Branch) (any, error)) *Future {
	defer b.operate().done()
	id, err := b.enter(name, badName)
	if err == nil && fn == nil {
		err = b.Misuse(fmt.Errorf("kagzi: branch %q: the function is nil", name))
	}
	if err == nil {
		err = b.beginsBranch(id)
	}
	f := &Future{}
	if err != nil {
		// A cancelled branch counts as asked for: its canceller does not wait for it. So does one with a wrong
		// name, which the run fails for anyway, and which nothing else may have.
		if badName != nil {
			name = ""
		}
		f.result = &branchResult{
			name: name, done: event{fired: 1}, past: event{fired: 1}, err: err,
			asked: b.ctx.Err() != nil || badName != nil,
		}
	} else {
		f.start(b.newBranch(id), fn)
	}
	b.e.Lock()
	b.e.addBranchLocked(f.result)
	b.e.Unlock()
	return f
}

// start runs fn on child, a new branch, in a new goroutine.
func (f *Future) start(child *Branch, fn func(*Branch) (any, error)) {
	e := child.e
	f.result, f.branch = child.result, child
	child.parent.started = true
	e.Lock()
	if !e.underWayLocked() {
		e.Unlock()
		runtime.Goexit()
	}
	e.startLocked()
	e.Unlock()
	go func() {
		var value any
		e.guard(child, func() (err error) {
			value, err = fn(child)
			return refuseEnd(child, err)
		}, func() { f.value = value })
	}()
}

// Await waits for the branch and returns the value and error of its function. b is the caller's branch.
func (f *Future) Await(b *Branch) (any, error) {
	defer b.operate().done()
	if !b.owned() {
		return nil, b.foreign()
	}
	b.e.exitIfStopped()
	if err := f.wait(b); err != nil {
		return nil, err
	}
	value, now, err := f.take(b)
	b.advance(now)
	b.learn(f.branch)
	if of := f.result.of; of != nil && of.parent == &b.node && !f.passed {
		f.passed = true
		b.passedBranch(f.result.name)
	}
	return value, err
}

// wait waits until the branch has ended. A closed b does not see an end that came after its own. If b waits for a
// branch that has passed its history, b passes its history, too.
func (f *Future) wait(b *Branch) error {
	if b.closed || !b.pastHistory.Load() {
		err := b.wait(time.Time{}, waits.Wait{}, firstOf(&f.result.past))
		if err != nil && b.behind() {
			b.waitAnyway(firstOf(&f.result.past))
			if f.doneFor(b) {
				return nil
			}
		}
		if err != nil || f.doneFor(b) {
			return err
		}
		if b.closed {
			return errBranchCancelled
		}
		b.passHistory(b.e.fire)
	}
	return b.wait(time.Time{}, waits.Wait{}, firstOf(&f.result.done))
}

// doneFor reports whether the branch has ended and, if b is closed, had ended before b did.
func (f *Future) doneFor(b *Branch) bool {
	b.e.Lock()
	defer b.e.Unlock()
	return f.result.done.hasFiredLocked() && !b.outlived(f.result.now)
}

// take returns the value and the error of the branch, which has ended, and its Now.
func (f *Future) take(b *Branch) (any, time.Time, error) {
	b.e.Lock()
	defer b.e.Unlock()
	f.result.asked = true
	return f.value, f.result.now, f.result.err
}

// failureOf describes the failure of a branch of a group, under its name there, and those that came with it.
func (f *Future) failureOf(name string, err error, others []BranchFailure) BranchFailure {
	return BranchFailure{Name: name, Index: f.result.index, ID: f.result.name, Err: err, Others: others}
}
