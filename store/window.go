package store

import "time"

// The policies of a Window.
const (
	OncePer  = "once_per" // the window has one run, whatever becomes of it
	Debounce = "debounce" // each start pushes the run back and replaces its input, until the run begins
	Batch    = "batch"    // each start adds an item to the run's input, until the run begins or the batch is full

	whenFull = "when_full" // no run is shared: the row is the lock of starts with a WhenFull of this key
)

// A Window makes starts share a run: the first one opens the window with its run, which the others join while the
// window is open. It closes some time after it was opened, by the database's clock.
type Window struct {
	Policy string
	// of OncePer, the external ID; of the others, a name among the windows of the workflow, which may be empty
	Key       string
	Open      time.Duration // how long after the first start the window closes
	Delay     time.Duration // of Debounce: how long after the last start the run is due; the closing is the latest time
	Most      int           // of Batch: so many items fill it
	MostBytes int           // of Batch: an item with which the items would have more bytes begins another batch
}

// inputOfRun is the input of the run q: its own, or the items of a batch.
const inputOfRun = `coalesce(q.input, (
		SELECT string_agg(i.input, ''::bytea ORDER BY i.place) FROM kagzi.start_items i WHERE i.run_id = q.run_id
			AND i.namespace_id = $1
	))`
