package kagzi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// Options by which several starts share a run. They hold exactly, by the database's clock, however many processes start
// at once. With [InTx] the transaction must be READ COMMITTED, and other starts of the same ID or key wait for its end.
//
// They are for [Start], [StartItem] and [Client.StartMany]. A child, a compensation and the run of a schedule take
// none, and ignore those in the workflow's definition. So do restarts and forks: a new run shares nothing.
type (
	// OncePer starts at most one run of its [ID] in any such period: OncePer(24*time.Hour). The period begins with the
	// start. Until it is over, other starts with OncePer return that run, whatever became of it and whatever their
	// input: also if it failed, was cancelled or was deleted. Existed says so; a run of another workflow is
	// [ErrIDConflict]. The period is that of the start that began it. Afterwards [IfActive] decides if the run is still
	// active.
	//
	// OncePer needs an ID; as a default of [Define] it applies to the starts that have one. It takes no [IfEnded] and
	// no [Message].
	OncePer time.Duration

	// Debounce starts a run once no start with the same Key has come for Delay: the last input wins. The first start
	// makes the run, which waits. As long as it has not begun, other starts return it: each replaces its input, and
	// pushes it back. The other options stay as the first start gave them. A start that comes after the run has begun,
	// has ended, or should have begun by Max, makes another waiting run.
	//
	// Debounce takes no [ID], [Delay], [At] and [Message].
	Debounce struct {
		// Key names the debounced thing, such as a document's ID; at most 255 bytes. Keys of different workflows are
		// different.
		Key string

		// Delay is how long after the last start the run is due.
		Delay time.Duration

		// Max is how long after the first start the run is due at the latest: at least Delay. Zero means ten times
		// Delay, or a hundred years if that is less.
		Max time.Duration
	}

	// Batch collects the items of [StartItem] in runs. A run is due when it has Most items, or Within after its first
	// item. From then on, or if it was cancelled before, the next item begins another run. The options of a run, those
	// of the batch too, are those of its first item. The items of a run have at most the size of
	// ClientConfig.MaxPayload together: an item that would exceed that begins another run, and the full one is due.
	//
	// A batch takes no [ID], [Delay], [At] and [Message]. As a default of [Define] it applies to StartItem alone;
	// [Start] of a whole slice starts a run of its own.
	Batch struct {
		// Key divides the workflow's items into separate batches, for example by tenant; at most 255 bytes. It may be
		// empty.
		Key string

		// Most is how many items fill a batch, at most 1,000. Zero means 100.
		Most int

		// Within is how long a batch waits for more items after its first one. Zero means one second.
		Within time.Duration
	}
)

const maxBatch = 1000

func (p OncePer) start(c *startConfig) {
	c.oncePer = time.Duration(p)
	c.Check(p.validate())
	c.called.window, c.called.oncePer = c.name(c.called.window, true, "OncePer"), c.called.oncePer || c.ofCall
}

func (d Debounce) start(c *startConfig) {
	longest := 10 * min(d.Delay, duration.Longest/10)
	c.debounce = &store.Window{
		Policy: store.Debounce, Key: d.Key, Delay: d.Delay,
		Open: cmp.Or(d.Max, max(longest, d.Delay)),
	}
	c.Check(d.validate())
	c.called.window = c.name(c.called.window, true, "Debounce")
}

func (b Batch) start(c *startConfig) {
	c.batch = &store.Window{
		Policy: store.Batch, Key: b.Key, Open: cmp.Or(b.Within, time.Second),
		Most: cmp.Or(b.Most, 100),
	}
	c.Check(b.validate())
	c.called.window, c.called.batch = c.name(c.called.window, true, "Batch"), c.called.batch || c.ofCall
}

func (p OncePer) validate() error { return valid.Timeout("OncePer", time.Duration(p)) }

func (d Debounce) validate() error {
	errs := []error{duration.Check("Debounce.Delay", d.Delay), duration.Check("Debounce.Max", d.Max)}
	if d.Delay == 0 {
		errs = append(errs, errors.New("kagzi: Debounce.Delay is 0: give how long to wait after the last start"))
	}
	if d.Key == "" {
		errs = append(errs, errors.New("kagzi: Debounce.Key is empty: give what is debounced, such as a document's ID"))
	} else {
		errs = append(errs, valid.Name("Debounce.Key", d.Key))
	}
	if d.Max != 0 && d.Max < d.Delay {
		errs = append(errs, fmt.Errorf("kagzi: Debounce.Max is %v, less than Delay, %v: give more, or leave it out "+
			"for ten times Delay", d.Max, d.Delay))
	}
	return errors.Join(errs...)
}

func (b Batch) validate() error {
	errs := []error{duration.Check("Batch.Within", b.Within)}
	if b.Key != "" {
		errs = append(errs, valid.Name("Batch.Key", b.Key))
	}
	if b.Most < 0 || b.Most > maxBatch {
		errs = append(errs, fmt.Errorf("kagzi: Batch.Most is %d: give 1 to %d, or leave it out for 100",
			b.Most, maxBatch))
	}
	return errors.Join(errs...)
}

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
