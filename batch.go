package kagzi

import (
	"context"

	"github.com/kagzi/kagzi/internal/payloads"
)

// StartItem adds an item to the batch of wf that is collected, or begins a batch, as its [Batch] says: a run whose
// input is the slice of all items. It returns that run once the item is stored: Existed reports whether the batch had
// other items, and Result is the result of the whole batch. Items are in the order in which the calls, or their
// transactions with [InTx], locked the batch. An item is in exactly one batch, also if an answer of the database is
// lost. A step that calls StartItem may be repeated after a crash, and then adds its item twice.
//
// StartItem is otherwise like [Start].
func StartItem[Item, Out any](ctx context.Context, c *Client, wf Workflow[[]Item, Out], item Item,
	opts ...StartOption,
) (*Run[Out], error) {
	return startCall[Out](ctx, c, ItemOf(wf, item, opts...))
}

// ItemOf binds an item to the workflow that processes batches of them, for [Client.StartMany], which adds its items in
// the order of the calls. It starts nothing.
func ItemOf[Item, Out any](wf Workflow[[]Item, Out], item Item, opts ...StartOption) Call {
	return Call{
		workflow: wf.name, input: item, decodable: payloads.DecodableAs(item), defaults: wf.defaults, opts: opts,
		item: true,
	}
}
