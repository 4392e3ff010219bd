package replay

import (
	"context"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// cancelChildren cancels the children of a run that is about to end. The outcome is Lost if the run is no longer held.
func (o *outbox) cancelChildren() store.Outcome {
	builds, _ := o.premisesNow()
	return o.ending.untilAnswered(func() error {
		ended, err := o.env.Store.Ends.CancelChildren(context.Background(), o.of, builds...)
		if err == nil {
			_ = o.env.Hints.Cancelled(standing.NoWait, nil, ended) // fails only in a transaction
		}
		return err
	})
}

// cancelStarted cancels children whose starts are recorded. If the lease is lost, or a record on which the run builds,
// it stops the execution and returns false.
func (o *outbox) cancelStarted(children ...uuid.UUID) bool {
	builds, _ := o.premisesNow()
	outcome := o.ending.untilAnswered(func() error {
		ended, err := o.env.Store.Ends.CancelStarted(context.Background(), o.of, builds, children)
		if err == nil {
			_ = o.env.Hints.Cancelled(standing.NoWait, nil, ended) // fails only in a transaction
		}
		return err
	})
	o.ending.stopAfter(outcome)
	return outcome == store.Done
}
