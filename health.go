package kagzi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/checkup"
	"github.com/kagzi/kagzi/internal/engine"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// Health checks whether the client can work and whether the work of its namespace goes on. It takes about ten short
// statements on one connection, whose cost does not grow with the number of runs.
//
// Unhealthy is a client that cannot work (the database is away or read-only, rights are missing, the schema does
// not fit) and a namespace in which work has been due for 15 seconds and no worker lives. Degraded is a state that somebody
// should look into: all connections of the pool in use; silent workers; work that no live worker has a
// handler for, for 15 seconds; work that was due five minutes ago although there are workers for it; schedules that are
// a minute late, or paused for an error; runs that were quarantined within the last 24 hours; a worker of this process
// whose requests the database answers and refuses.
//
// A database that is away is a report, not an error. Health returns after 5 seconds at the latest, or when ctx's
// deadline has passed, with the checks made by then; the error is that of a ctx that was cancelled. If the pool has no
// free connection for two seconds, it opens one. Health is safe for concurrent use; for probes see [Client.Readiness].
func (c *Client) Health(ctx context.Context) (health.Report, error) {
	if err := c.made(); err != nil {
		return health.Report{}, failure.Wrap(err, "health")
	}
	report := c.process().Health(ctx)
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return report, failure.Wrap(err, "health")
	}
	return report, nil
}

// Readiness returns a handler that says whether the client can work: 200 if it can, 503 if the database is away or
// read-only, rights are missing, or the schema does not fit. It does not ask whether work goes on, as [Client.Health]
// does: taking a process that starts runs out of service because no worker lives would lose the starts as well.
//
// The body is a [health.Report] as JSON, for people. An answer is shared by concurrent requests and is a second old at
// most; it comes within 5 seconds, so give the probe a longer timeout. Methods other than GET and HEAD get 405.
func (c *Client) Readiness() http.Handler {
	return checkup.Handler(func(ctx context.Context) health.Report {
		if err := c.made(); err != nil {
			return checkup.Unusable(err)
		}
		return c.process().Readiness(ctx)
	})
}

// Liveness returns a handler that says whether the process should go on: 200, or 503 if a worker in it is stuck, which
// is one that for three times its StaleAfter, and a minute at the least, has neither had an answer from the database
// nor been refused one. It asks the database nothing, and does not fail because that is away: starting
// every process again would not bring it back. Body and methods are as for [Client.Readiness].
func (c *Client) Liveness() http.Handler {
	return checkup.Handler(func(context.Context) health.Report {
		if err := c.made(); err != nil {
			return checkup.Unusable(err)
		}
		return checkup.Liveness(c.cfg.Namespace, c.localWorkers())
	})
}

// process returns what a checkup asks of this process.
func (c *Client) process() checkup.Process {
	return checkup.Process{Store: c.store, Namespace: c.cfg.Namespace, Ready: &c.ready, Failures: c.failures, MaxLoadFailures: engine.MaxLoadFailures}
}

// failures returns what the database refuses to the client's workers in this process.
func (c *Client) failures() (all []outage.Failure) {
	c.mu.Lock()
	sessions := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	for _, s := range sessions {
		all = append(all, s.Failures()...)
	}
	return all
}

// localWorkers returns the client's workers in this process. It blocks as long as one of their locks is held: a probe fails if
// that is for ever.
func (c *Client) localWorkers() []checkup.Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	workers := make([]checkup.Worker, 0, len(c.sessions))
	for s := range c.sessions {
		silence, stuck := s.Stuck()
		workers = append(workers, checkup.Worker{ID: s.ID().String(), Queue: s.Queue(), Silence: silence, Stuck: stuck})
	}
	return workers
}

// A StrandedRuns has the runs of one version of a workflow that wait in a queue in which no live worker can execute them.
type StrandedRuns struct {
	Workflow string    `json:"workflow"`
	Version  int       `json:"version"` // zero: runs that name none and were never executed
	Queue    string    `json:"queue"`
	Count    int       `json:"count"`
	More     bool      `json:"more,omitempty"`  // there may be more: see Client.Stranded
	Oldest   time.Time `json:"oldest,omitzero"` // when the oldest of those counted was started
	DueAt    time.Time `json:"due_at,omitzero"` // when the first of them became due, or will; zero if time alone makes none due
}

// Stranded returns the active runs that no live worker of their queue has a handler for, in their version, by queue,
// workflow and version. Live is a worker that is ONLINE and was heard of within its own StaleAfter; one that drains
// is not. Runs that sleep count, because nobody will execute them when they wake; so do runs that a draining worker
// executes still.
//
// Ask before the last workers of an old version are removed for good: drain them, and if Stranded then lists that
// version, start them again. Nothing is lost meanwhile: a stranded run waits for a worker.
//
// It does not read through millions of rows: of each workflow in each queue it reads the 25,000 runs of each priority
// that are due first, or fewer if there are more than four workflows, of 100 at least. With fewer active runs the
// answer is complete. With more, Count is the number found among these, and a version that occurs only behind them, among
// runs that sleep for longer, is not listed yet; stranded runs that are due are, because they are due the longest.
// As in [Client.Health], at most a thousand queues and a thousand workflows are read.
func (c *Client) Stranded(ctx context.Context) ([]StrandedRuns, error) {
	err := c.checkSchema(ctx, nil)
	var stranded []store.ActiveWork
	if err == nil {
		stranded, err = checkup.Stranded(ctx, c.store)
	}
	if err != nil {
		return nil, failure.Wrap(c.public(ctx, err), "stranded runs")
	}
	var out []StrandedRuns
	for _, a := range stranded {
		out = append(out, StrandedRuns{Workflow: a.Type, Version: a.Version, Queue: a.Queue, Count: a.Count, More: a.More, Oldest: a.Oldest, DueAt: a.DueAt})
	}
	return out, nil
}
