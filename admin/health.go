package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/checkup"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store/inspect"
)

// Health checks whether the client can work and whether the work of its namespace progresses. It sends about ten short
// statements, whose cost does not grow with the number of runs.
//
// The report is Unhealthy if the client cannot work, or if work of the namespace has been due for 15 seconds and no
// worker lives. It is Degraded if an operator should investigate. docs/health.md has the checks.
//
// If the database is away, Health reports that and returns no error. It returns after 5 seconds at the latest, or at
// ctx's deadline, with the checks made by then. Its error is that of a cancelled ctx. If no connection of the pool is
// free for two seconds, Health opens one.
func (c *Client) Health(ctx context.Context) (health.Report, error) {
	if err := c.core.Made(); err != nil {
		return health.Report{}, failure.Wrap(err, "health")
	}
	report := c.process().Health(ctx)
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return report, failure.Wrap(err, "health")
	}
	return report, nil
}

// Readiness returns a handler that answers 200 if the client can work, and 503 if the database is away or read-only,
// rights are missing, or the schema does not fit. Unlike [Client.Health] it does not check whether work progresses: if
// a process that starts runs were taken out of service because no worker lives, the starts would be lost as well.
//
// The body is a [health.Report] as JSON, for people. Concurrent requests share an answer, which is at most a second
// old. It comes within 5 seconds, so give the probe a longer timeout. Methods other than GET and HEAD get 405.
func (c *Client) Readiness() http.Handler {
	return checkup.Handler(func(ctx context.Context) health.Report {
		if err := c.core.Made(); err != nil {
			return checkup.Unusable(err)
		}
		return c.process().Readiness(ctx)
	})
}

// Liveness returns a handler that answers 200, or 503 if a worker of the process is stuck and the process should be
// restarted. A worker is stuck if for three times its StaleAfter, and at least a minute, it has got neither an answer
// nor a refusal from the database. The handler does not query the database, and does not fail if the database is away:
// restarting every process would not bring it back. Body and methods are as for [Client.Readiness].
func (c *Client) Liveness() http.Handler {
	return checkup.Handler(func(context.Context) health.Report {
		if err := c.core.Made(); err != nil {
			return checkup.Unusable(err)
		}
		return checkup.Liveness(c.core.Namespace, c.localWorkers())
	})
}

// process returns the data that a checkup needs of this process.
func (c *Client) process() checkup.Process {
	return checkup.Process{
		Store: c.core.Store, Inspect: c.core.Inspect, Namespace: c.core.Namespace, Ready: c.core.Ready(),
		Needs: c.core.Needs(), Failures: c.failures, MaxLoadFailures: c.core.MaxLoadFailures,
	}
}

// failures returns the requests that the database refuses to the client's workers in this process.
func (c *Client) failures() (all []outage.Failure) {
	for _, w := range c.core.Workers() {
		all = append(all, w.Failures()...)
	}
	return all
}

// localWorkers returns the client's workers in this process. It blocks as long as one of their locks is held, so that a
// probe fails if a lock is never released.
func (c *Client) localWorkers() (workers []checkup.Worker) {
	for _, w := range c.core.Workers() {
		silence, stuck := w.Stuck()
		workers = append(workers, checkup.Worker{
			ID: w.ID().String(), Queues: w.Queues(), Silence: silence, Stuck: stuck,
		})
	}
	return workers
}

// A StrandedRuns counts the runs of one version of a workflow that wait in a queue in which no live worker can execute
// them.
type StrandedRuns struct {
	Workflow string    `json:"workflow"`
	Version  int       `json:"version"` // zero for runs that name none and were never executed
	Queue    string    `json:"queue"`
	Count    int       `json:"count"`
	More     bool      `json:"more,omitempty"`  // there may be more: see admin.Client.Stranded
	Oldest   time.Time `json:"oldest,omitzero"` // when the oldest of those counted was started
	// when the first of them became or becomes due; zero if none becomes due by time alone
	DueAt time.Time `json:"due_at,omitzero"`
}

// Stranded counts the active runs for whose version no live worker of their queue has a handler, by queue, workflow and
// version. A worker is live if it is ONLINE and sent a heartbeat within its own StaleAfter; a draining worker is not.
//
// Sleeping runs count, because no worker could execute them when they wake. So do runs that wait for a slot of their
// key, paused ones, and those that a draining worker still executes.
//
// Call it before the last workers of an old version are removed for good. A stranded run waits for a worker.
//
// With more than 25,000 active runs the answer may be incomplete, but stranded runs that are due are listed. See
// docs/versions.md.
func (c *Client) Stranded(ctx context.Context) ([]StrandedRuns, error) {
	err := c.core.CheckSchema(ctx, nil)
	var stranded []inspect.ActiveWork
	if err == nil {
		stranded, err = checkup.Stranded(ctx, c.core.Inspect, c.core.Store.Pool())
	}
	if err != nil {
		return nil, failure.Wrap(c.core.Public(ctx, err), "stranded runs")
	}
	var out []StrandedRuns
	for _, a := range stranded {
		out = append(out, StrandedRuns{
			Workflow: a.Type, Version: a.Version, Queue: a.Queue, Count: a.Count,
			More: a.More, Oldest: a.Oldest, DueAt: a.DueAt,
		})
	}
	return out, nil
}
