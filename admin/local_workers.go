package admin

import (
	"cmp"
	"slices"
)

// A LocalWorker is a worker of this process: see [Client.LocalWorkers].
type LocalWorker struct {
	ID     string   `json:"id"`               // as in the registry
	Queues []string `json:"queues,omitempty"` // from which it claims runs
	Slots  int      `json:"slots"`            // WorkerConfig.MaxConcurrent
	Free   int      `json:"free"`             // slots that no run holds
	Hung   int      `json:"hung,omitempty"`   // functions that hang: see WorkerConfig.HungAfter
	// runs that it has claimed ahead, each of which waits for a slot, as a rule for some milliseconds
	Waiting int `json:"waiting"`
}

// LocalWorkers returns the client's workers of this process that execute runs, in the order of their IDs. It queries no
// database. [Client.Workers] returns those of all processes, as of their last heartbeats. LocalWorkers is safe for
// concurrent use.
func (c *Client) LocalWorkers() []LocalWorker {
	if of(c).Made() != nil {
		return nil
	}
	workers := []LocalWorker{}
	for _, w := range of(c).Workers() {
		all, free, waiting := w.Slots()
		workers = append(workers, LocalWorker{w.ID().String(), w.Queues(), all, free, w.Hung(), waiting})
	}
	slices.SortFunc(workers, func(a, b LocalWorker) int { return cmp.Compare(a.ID, b.ID) })
	return workers
}
