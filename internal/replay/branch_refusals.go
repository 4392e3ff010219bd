package replay

import (
	"strconv"

	"github.com/kagzi/kagzi/store"
)

// A refusal is an operation that was refused for a reason which a replay need not come to again: a limit of this
// program, say, or an interceptor. The function may handle the error. So it is recorded as a failure, and a replay
// returns the same error. Its output is a JSON string, which no other MARKER has.

// refuse records that the operation was refused with err, and returns the error of the record.
func (b *Branch) refuse(id, kind string, attempt int, err error) error {
	if err := b.begins(); err != nil {
		return err
	}
	if b.hasLost() {
		return errBranchCancelled
	}
	class := b.e.errors().Classify(err)
	r := b.newRecord(id, kind, store.Failed, attempt, attempt)
	describe(r, class, err)
	r.Output = strconv.AppendQuote(nil, class.Cause)
	row := b.record(r)
	b.e.exitIfStopped()
	return b.refusal(row)
}

// refusal returns the error of a recorded refusal.
func (b *Branch) refusal(row *store.StepRow) error {
	b.passed(row)
	b.fails(row.StepID)
	return recordedError(b.execution(), row, "")
}
