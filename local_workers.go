package kagzi

import (
	"cmp"
	"maps"
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
	if c.made() != nil {
		return nil
	}
	c.mu.Lock()
	sessions := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	workers := make([]LocalWorker, len(sessions))
	for i, s := range sessions {
		all, free, waiting := s.Slots()
		workers[i] = LocalWorker{s.ID().String(), s.Queues(), all, free, s.Hung(), waiting}
	}
	slices.SortFunc(workers, func(a, b LocalWorker) int { return cmp.Compare(a.ID, b.ID) })
	return workers
}
