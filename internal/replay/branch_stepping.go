package replay

import (
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// A stepping is the step of a branch that is under way.
type stepping struct {
	display display
	awaits  awaitedRuns
	inStep  atomic.Bool // a step's function is being executed. Its goroutine sets and resets it.
	// a step's function called a durable operation of this branch. Set by foreign, reset for each attempt.
	misusedInStep error
}

// shows lets by show the attempt, which begins at that time, once it has run for visibleAfter.
func (s *stepping) shows(a attemptUnderWay, begun time.Time, by shower) {
	s.display.begin(a, begun, by)
}

// showsLittle is shows for an attempt that the table never shows.
func (s *stepping) showsLittle(a attemptUnderWay) { s.display.beginHidden(a) }

// hides is called when the attempt is over.
func (s *stepping) hides() { s.display.end() }

// function returns the attempt under way, and whether its function is being executed.
func (s *stepping) function() (a attemptUnderWay, executed bool) { return s.display.current(&s.inStep) }

// beginFunction notes that a step's function is about to be executed.
func (s *stepping) beginFunction() {
	s.misusedInStep = nil
	s.inStep.Store(true)
}

// endFunction notes that the step's function has returned, panicked or exited.
func (s *stepping) endFunction() { s.inStep.Store(false) }

// misusedInFunction returns the error if the step's function called a durable operation of this branch.
func (s *stepping) misusedInFunction() error { return s.misusedInStep }

// awaited returns the run for whose result the step's function has waited for longest, nil if it waits for none.
func (s *stepping) awaited() *awaitedRun { return s.awaits.first() }

// AwaitsRun notes that the function of the branch's step waits for the result of a run, until the caller calls ended.
func (s *stepping) AwaitsRun(id uuid.UUID) (ended func()) { return s.awaits.begin(id) }
