package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/checkup"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store/inspect"
)

// Stats are numbers of a namespace: see [Client.Stats].
type Stats struct {
	Namespace string          `json:"namespace"`
	At        time.Time       `json:"at,omitzero"`         // by the database's clock
	Workflows []WorkflowStats `json:"workflows,omitempty"` // by queue and workflow
	Queues    []QueueStats    `json:"queues,omitempty"`    // that live workers serve
	// Most is the sum of their slots, Active how many of these are in use
	Workers health.Workers `json:"workers"`
	Rates   Rates          `json:"rates"`
}

// WorkflowStats count the runs of one workflow in one queue.
type WorkflowStats struct {
	Queue    string    `json:"queue"`
	Workflow string    `json:"workflow"`
	Due      int       `json:"due"`                // runs that no worker executes although their time has come
	DueMore  bool      `json:"due_more,omitempty"` // there may be more of them
	DueSince time.Time `json:"due_since,omitzero"` // when the first of those counted became due
	// of Due, those that wait for a slot of their key, whether it has a free one or not
	Keyed    int  `json:"keyed"`
	Running  int  `json:"running"`
	Sleeping int  `json:"sleeping"`       // that sleep or wait, also for their compensations
	Delayed  int  `json:"delayed"`        // pending until a time: of a Delay, or of another attempt
	More     bool `json:"more,omitempty"` // there may be more that are running, sleeping or delayed
	// that are paused, and due ones that a pause of their queue, workflow or key stops: they are in no other count
	Paused int         `json:"paused"`
	Failed []FailStats `json:"failed,omitempty"` // within the last hour, the most frequent kinds first
}

// FailStats count runs that failed with one kind within the last hour.
type FailStats struct {
	Kind string `json:"kind"` // as in package kind
	Runs int    `json:"runs"` // those that were resumed or deleted since do not count
	// there may be more: of each kind the last 250 are counted, or fewer if there are many kinds
	More bool      `json:"more,omitempty"`
	Last time.Time `json:"last,omitzero"` // when the last of them failed
}

// QueueStats are the live workers of a queue. A worker of several queues counts in each of them, with all its slots.
type QueueStats struct {
	Queue   string `json:"queue"`
	Workers int    `json:"workers"`
	Slots   int    `json:"slots"` // the sum of their MaxConcurrent
	Used    int    `json:"used"`  // slots in use at their last heartbeats
}

// Rates are how many there were in a second.
type Rates struct {
	Starts    float64 `json:"starts"`    // runs that were started, by any client
	Completed float64 `json:"completed"` // runs that workers completed
	Failed    float64 `json:"failed"`    // runs that failed in a worker
	Steps     float64 `json:"steps"`     // attempts of steps that workers executed and recorded
}

// statsTimeout is the timeout of the query, and failedWithin the time over which failures are counted.
const (
	statsTimeout = 5 * time.Second
	failedWithin = time.Hour
)

// Stats counts the runs of the namespace that are due, and since when, those that are running, sleeping, paused and
// failed, the work done in a second, and the workers with their slots. It is for dashboards, metrics and autoscalers.
//
// It reads a bounded number of rows, in three round trips. DueMore and More say that a count is a lower bound; DueSince
// is exact nevertheless. docs/statistics.md says how exact counts and rates are.
//
// Callers in this process share an answer while it is found, and for a second after. The end of ctx ends only the
// caller's wait. A request that the database refuses or does not answer within 5 seconds fails, for all callers that
// share it.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	err := c.core.CheckSchema(ctx, nil)
	var read inspect.Stats
	if err == nil {
		read, err = c.readStats(ctx)
	}
	if err != nil {
		return Stats{}, failure.Wrap(c.core.Public(ctx, err), "statistics")
	}
	st := Stats{
		Namespace: c.core.Namespace, At: read.Now, Workers: checkup.CountWorkers(read.Workers),
		Workflows: workflowStats(read), Queues: queueStats(read.Workers),
	}
	st.Rates.Starts = float64(read.Started) / read.Within.Seconds()
	for _, w := range read.Workers {
		if !w.Silent {
			st.Rates.Completed += w.Rates.Completed
			st.Rates.Failed += w.Rates.Failed
			st.Rates.Steps += w.Rates.Steps
		}
	}
	return st, nil
}

// readStats returns the shared answer, or ctx's error if ctx ends first. Then its goroutine ends with the answer.
func (c *Client) readStats(ctx context.Context) (inspect.Stats, error) {
	told := make(chan core.StatsAnswer, 1)
	go func() {
		a, _ := c.core.Stats.Get(context.WithoutCancel(ctx), core.StatsAnswer{},
			func(ctx context.Context) (a core.StatsAnswer) {
				ctx, cancel := context.WithTimeout(ctx, statsTimeout)
				defer cancel()
				a.Stats, a.Err = c.core.Inspect.Stats(ctx, c.core.Store.Pool(), failedWithin)
				return a
			})
		told <- a
	}()
	select {
	case a := <-told:
		return a.Stats, a.Err
	case <-ctx.Done():
		return inspect.Stats{}, ctx.Err()
	}
}

// workflowStats joins counts and failures.
func workflowStats(read inspect.Stats) (out []WorkflowStats) {
	for _, r := range read.Routes {
		out = append(out, WorkflowStats{
			Queue: r.Queue, Workflow: r.Type, Due: r.Due, DueMore: r.DueMore, DueSince: r.Since, Keyed: r.Keyed,
			Running: r.Running, Sleeping: r.Sleeping,
			Delayed: r.Delayed, More: r.More, Paused: r.Paused,
		})
	}
	order := func(a, b WorkflowStats) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Workflow, b.Workflow))
	}
	for _, f := range read.Failures {
		w := WorkflowStats{Queue: f.Queue, Workflow: f.Type}
		i, ok := slices.BinarySearchFunc(out, w, order)
		if !ok {
			out = slices.Insert(out, i, w)
		}
		out[i].Failed = append(out[i].Failed, FailStats{Kind: f.Kind, Runs: f.Count, More: f.More, Last: f.Last})
	}
	return out
}

// queueStats sums up the live workers by queue.
func queueStats(workers []inspect.LiveWorker) (out []QueueStats) {
	for _, w := range workers {
		if !w.Live() {
			continue
		}
		for _, name := range w.Queues {
			i, ok := slices.BinarySearchFunc(out, name, func(q QueueStats, name string) int {
				return cmp.Compare(q.Queue, name)
			})
			if !ok {
				out = slices.Insert(out, i, QueueStats{Queue: name})
			}
			out[i].Workers, out[i].Slots, out[i].Used = out[i].Workers+1, out[i].Slots+w.Most, out[i].Used+w.Active
		}
	}
	return out
}
