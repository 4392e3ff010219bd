package replay

import "github.com/kagzi/kagzi/store"

// recordedError returns the failure that row records. workflow is the child's.
func recordedError(e *Run, row *store.StepRow, workflow string) error {
	return e.errors().Recorded(row, workflow, wrongDetails(e, row.StepID))
}

// WrongDetails returns what is called if the details of a step's failure do not decode into what b's workflow expects:
// it quarantines the run, as if a result did not decode.
func WrongDetails(b *Branch, step string) func(error) { return wrongDetails(b.execution(), step) }

func wrongDetails(e *Run, step string) func(error) {
	return func(err error) {
		if !e.stopped() {
			e.nondeterministic(step, "the recorded details of the failure of step %q do not decode: %v", step, err)
		}
	}
}
