package replay

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// asRecorded returns err, the error of the branch's function. If err is only a cancellation, and the history has a
// failure of the branch, it returns that failure with its recorded causes.
func (f *failedBefore) asRecorded(e *Run, err error) error {
	if err == nil || f.row == nil || !e.errors().Classify(err).Cancelled || failure.Text(err) == f.row.Error {
		return err
	}
	var causes []error
	var ids []string
	_ = json.Unmarshal(f.row.Output, &ids) // written by newFailure
	for _, id := range ids {
		row := e.recordOf(id)
		if row != nil && row.Status == store.Failed && (row.Kind == store.KindFunction || row.Kind == store.KindChild ||
			isRefusal(row)) {
			// the record of a child does not name its workflow
			causes = append(causes, recordedError(e, row, ""))
		}
	}
	return e.errors().RecordedBranch(f.row, causes)
}

// failedName returns the name of a branch of which the history has a failure.
func (b *Branch) failedName() (name string, failed bool) { return b.result.name, b.row != nil }

// isRefusal reports whether row records a refusal.
func isRefusal(row *store.StepRow) bool {
	if row.Status != store.Failed {
		return false
	}
	switch row.Kind {
	case store.KindChild:
		return row.ChildRunID == uuid.Nil
	case store.KindMarker:
		return len(row.Output) > 0 && row.Output[0] == '"'
	}
	return row.Kind == store.KindPublish
}
