package engine

import (
	"encoding/json"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// asRecorded returns err, with which the function of the branch has ended, unless the branch has failed before and err says
// that it was stopped: then it returns the failure that is recorded, with those in its chain.
func (b *Branch) asRecorded(err error) error {
	if err == nil || b.row == nil || !b.e.env.errors.Classify(err).Cancelled || failure.Text(err) == b.row.Error {
		return err
	}
	var causes []error
	var ids []string
	_ = json.Unmarshal(b.row.Output, &ids) // written by newFailure
	for _, id := range ids {
		row := b.e.history[id]
		if row != nil && row.Status == store.Failed && (row.Kind == store.KindFunction || row.Kind == store.KindChild) {
			causes = append(causes, b.e.env.errors.Recorded(row, "")) // the record of a child does not say of which workflow it is
		}
	}
	return b.e.env.errors.RecordedBranch(b.row, causes)
}
