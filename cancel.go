package kagzi

import (
	"context"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
)

// Cancel ends an active run, and its children except [Detached] ones: at once in the table, and within milliseconds on
// its worker, where the contexts of its steps end.
//
// A run that executes with a slot of a key or queue with limits stays active, and keeps the slot, until its steps under
// way have returned, or their [Grace] is over. A run with compensations ([Compensate]) stays active until they have
// run. They begin when the steps have returned, or the Grace is over.
//
// A run that has failed, and whose compensations are under way, ends as cancelled. A run that is already cancelled
// stays so.
//
// Cancel returns [ErrNotFound], and [ErrRunFinished] if the run completed or failed before. See docs/compensation.md.
func (c *Client) Cancel(ctx context.Context, ref Ref, opts ...ChangeOption) error {
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.Takes("Grace"))
	if err != nil {
		return failure.Wrap(err, "cancel %v", at)
	}
	return c.Core().Cancel(ctx, at, &cfg)
}
