package replay

import (
	"errors"

	"github.com/kagzi/kagzi/store"
)

// checkRepeatable refuses a repeatable step whose effects would not be repeatable.
func (s *StepSpec) checkRepeatable() error {
	switch {
	case s.Repeatable && s.Tx:
		return errors.New("kagzi: Repeatable is for a step that may be executed twice, and a transactional step " +
			"takes effect once: use Step or Do, or leave the option out")
	case s.Repeatable && s.Compensation != nil:
		return errors.New("kagzi: Repeatable is for a step without an effect, and UndoneBy says that this step has " +
			"one: leave one of the two out")
	}
	return nil
}

// speculate defers r, the record of a success, and returns its row. It returns nil if r must be written before the run
// goes on: if the step has an effect that is kept in other rows, such as a compensation, a place of a limit or an
// intent, if too much waits already, or if the branch is in an undecided Race, where no other branch's write may take
// the record along.
func (s *stepCall) speculate(r *store.Record) *store.StepRow {
	if s.spec.AtMostOnce || s.spec.Compensation != nil || len(s.spec.Limits) > 0 {
		return nil
	}
	b, e := s.b, s.e
	e.Lock()
	defer e.Unlock()
	if b.mayLose() || b.hasLost() || !e.maySpeculateLocked(r) { // a loser's record must not follow the decision
		return nil
	}
	r.EndedAt = b.endsAfter(r.Elapsed, e.Now())
	row := r.StepRow // a copy: the record belongs to the flush
	row.FinishedAt = r.EndedAt
	e.speculateLocked(b.at(), r, !s.spec.Repeatable)
	return &row
}

// awaitResults is that of the branch, unless the step is repeatable.
func (s *stepCall) awaitResults() error {
	if s.spec.Repeatable {
		return nil
	}
	waited := s.e.speculates()
	err := s.b.awaitResults()
	if waited {
		s.e.Failpoint("after record", s.e.RunID)
	}
	return err
}
