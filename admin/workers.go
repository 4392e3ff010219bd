package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// Workers has the verbs for the workers of all processes: admin.New(client).Workers.
type Workers struct{ core *core.Client }

// workerStatuses are the values of WorkerInfo.Status.
var workerStatuses = []string{"ONLINE", "DRAINING", "OFFLINE"}

// WorkerInfo is one row of the registry of workers. Its counters are those of the last heartbeat, and final once the
// worker has stopped. If a worker was declared dead, they lack what it did after its last heartbeat, which those of its
// next row have.
type WorkerInfo struct {
	// a UUID, new with each start; a live worker that was declared dead registers again under a new one
	ID     string   `json:"id"`
	Queues []string `json:"queues,omitempty"` // from which it claims runs
	// from which it claims no more, and of which it may still execute runs
	LeftQueues []string `json:"left_queues,omitempty"`
	Workflows  []string `json:"workflows,omitempty"` // the workflows that it has handlers for
	Handlers   []string `json:"handlers,omitempty"`  // with their versions: "checkout/2"
	// ONLINE, then DRAINING, then OFFLINE; a worker that died goes OFFLINE from either
	Status string `json:"status"`
	// it has sent no heartbeat for its StaleAfter: it is probably dead, and no coordinator has noticed yet
	Silent        bool              `json:"silent,omitempty"`
	Hostname      string            `json:"hostname,omitempty"`
	PID           int               `json:"pid,omitempty"`
	Build         string            `json:"build,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	MaxConcurrent int               `json:"max_concurrent"`
	Active        int               `json:"active"`    // runs under way
	Completed     int64             `json:"completed"` // runs that it ended so, since StartedAt
	Failed        int64             `json:"failed"`    // the same
	// attempts of steps that it executed and recorded, since StartedAt
	Steps       int64     `json:"steps"`
	Watched     bool      `json:"watched"` // whether its connection shows if it lives: false behind a pooler
	StartedAt   time.Time `json:"started_at,omitzero"`
	HeartbeatAt time.Time `json:"heartbeat_at,omitzero"`
	StoppedAt   time.Time `json:"stopped_at,omitzero"` // when it went offline
}

func workerInfo(w inspect.WorkerRow) WorkerInfo {
	info := WorkerInfo{
		ID: w.ID.String(), Queues: w.Queues, LeftQueues: w.LeftQueues, Workflows: w.Types, Handlers: w.Handlers,
		Status: w.Status, Silent: w.Silent, Hostname: w.Hostname,
		PID: w.PID, Build: w.Build, MaxConcurrent: w.MaxConcurrent, Active: w.Active, Completed: w.Counts.Completed,
		Failed: w.Counts.Failed,
		Steps:  w.Counts.Steps, Watched: w.Watched, StartedAt: w.StartedAt, HeartbeatAt: w.HeartbeatAt,
		StoppedAt: w.StoppedAt,
	}
	_ = json.Unmarshal(w.Labels, &info.Labels) // written by registration, from a map of strings
	return info
}

// A WorkerFilter selects workers; the zero value selects all. A worker must match all fields that are set.
type WorkerFilter struct {
	Status   []string // ONLINE, DRAINING, OFFLINE
	Queue    string
	Workflow string            // workers that have a handler for it
	Labels   map[string]string // workers that have all of these
	After    string            // the last worker of the page before
	Limit    int               // zero: 100
}

// choice validates f.
func (f WorkerFilter) choice() (inspect.WorkerFilter, error) {
	limit, err := valid.Listed(f.Limit)
	sf := inspect.WorkerFilter{Queue: f.Queue, Type: f.Workflow, Limit: limit}
	if err != nil {
		return sf, err
	}
	for _, s := range f.Status {
		if !slices.Contains(workerStatuses, s) {
			return sf, fmt.Errorf("kagzi: a worker has no status %s: give %s", text.Quote(s),
				strings.Join(workerStatuses, ", "))
		}
		sf.Status = append(sf.Status, s)
	}
	for field, text := range map[string]string{"queue": f.Queue, "workflow name": f.Workflow} {
		if text == "" {
			continue
		}
		if err := valid.Name(field, text); err != nil {
			return sf, err
		}
	}
	if len(f.Labels) > 0 {
		if err := valid.Metadata(f.Labels); err != nil {
			return sf, err
		}
		sf.Labels, _ = json.Marshal(f.Labels) // a map of strings always encodes
	}
	if f.After != "" {
		id, err := parseWorkerID(f.After)
		if err != nil {
			return sf, err
		}
		sf.After = id
	}
	return sf, nil
}

func parseWorkerID(id string) (uuid.UUID, error) {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return uuid.Nil, fmt.Errorf("%w: %.60q is not a worker ID", core.ErrWorkerNotFound, id)
	}
	return parsed, nil
}

// List returns the workers that f selects, those started last first, and their total number. For the next page, set
// f.After to the ID of the last one: even if workers start or stop between two pages, none is skipped or listed twice.
// List returns [kagzi.ErrNotFound] if the worker of f.After no longer exists.
func (w Workers) List(ctx context.Context, f WorkerFilter) (page []WorkerInfo, total int, err error) {
	chosen, err := f.choice()
	if err == nil {
		err = w.core.CheckSchema(ctx, nil)
	}
	var rows []inspect.WorkerRow
	if err == nil {
		rows, total, err = w.core.Inspect.Workers(ctx, chosen)
	}
	if err != nil {
		return nil, 0, failure.Wrap(w.core.Public(ctx, err), "list workers")
	}
	page = make([]WorkerInfo, len(rows))
	for i, row := range rows {
		page[i] = workerInfo(row)
	}
	return page, total, nil
}

// Get returns the row of a worker, or [kagzi.ErrNotFound].
func (w Workers) Get(ctx context.Context, id string) (WorkerInfo, error) {
	parsed, err := w.id(ctx, nil, id)
	var row inspect.WorkerRow
	if err == nil {
		row, err = w.core.Inspect.Worker(ctx, parsed)
	}
	if err != nil {
		return WorkerInfo{}, failure.Wrap(w.core.Public(ctx, err), "get worker %.60s", cmp.Or(id, "without an ID"))
	}
	return workerInfo(row), nil
}

// Log returns the log of a worker, oldest first, or [kagzi.ErrNotFound].
func (w Workers) Log(ctx context.Context, id string) ([]LogEntry, error) {
	parsed, err := w.id(ctx, nil, id)
	var rows []inspect.WorkerEvent
	if err == nil {
		rows, err = w.core.Inspect.WorkerEvents(ctx, parsed)
	}
	if err != nil {
		return nil, failure.Wrap(w.core.Public(ctx, err), "log of worker %.60s", cmp.Or(id, "without an ID"))
	}
	events := make([]LogEntry, len(rows))
	for i, e := range rows {
		events[i] = LogEntry{Event: e.Event, At: e.At, Reason: e.Detail}
	}
	return events, nil
}

// id validates the client and id, and then the schema.
func (w Workers) id(ctx context.Context, tx pgx.Tx, id string) (uuid.UUID, error) {
	if err := w.core.Made(); err != nil {
		return uuid.Nil, err
	}
	parsed, err := parseWorkerID(id)
	if err == nil {
		err = w.core.CheckSchema(ctx, tx)
	}
	return parsed, err
}

// Drain asks a worker, wherever it runs, to drain: as if the context of its Run had ended, it claims no more runs, lets
// those under way finish, returns the rest to the queue, and its Run returns nil. Drain returns once the request is
// stored. The worker learns of it at once by a notification, or with its next heartbeat. Drain does nothing if the
// worker already drains or is offline. It returns [kagzi.ErrNotFound] if the client's namespace has no such worker.
//
// A process manager that restarts a worker whenever it ends will do so after a drain, too.
func (w Workers) Drain(ctx context.Context, id string, opts ...kagzi.ChangeOption) error {
	cfg, err := core.Changes(opts, core.EveryVerb)
	var parsed uuid.UUID
	if err == nil {
		parsed, err = w.id(ctx, cfg.Tx, id)
	}
	if err == nil {
		err = w.core.Store.Workers.Drain(ctx, cfg.Tx, parsed, cfg.Why)
	}
	if err == nil {
		err = w.core.Hints.Changed(ctx, cfg.Tx, parsed)
	}
	if err != nil {
		return failure.Wrap(w.core.Public(ctx, err), "drain worker %.60s", cmp.Or(id, "without an ID"))
	}
	return nil
}

// DrainQueue asks all workers of a queue to drain, like [Workers.Drain], and returns the number of those that were not
// draining before. They drain as a whole, with their other queues. It does not affect workers that start later.
func (w Workers) DrainQueue(ctx context.Context, queue string, opts ...kagzi.ChangeOption) (n int, err error) {
	cfg, err := core.Changes(opts, core.EveryVerb)
	if err == nil {
		err = valid.Queue(queue)
	}
	if err == nil {
		err = w.core.CheckSchema(ctx, cfg.Tx)
	}
	var asked []uuid.UUID
	if err == nil {
		asked, err = w.core.Store.Workers.DrainQueue(ctx, cfg.Tx, queue, cfg.Why)
	}
	if err == nil {
		err = w.core.Hints.Changed(ctx, cfg.Tx, asked...)
	}
	if err != nil {
		if queue == "" {
			return 0, failure.Wrap(err, "drain queue")
		}
		return 0, failure.Wrap(w.core.Public(ctx, err), "drain queue %s", text.Quote(queue))
	}
	return len(asked), nil
}

// ForceOffline declares a worker dead before a coordinator does: its runs are available to others at once, and it is
// offline, with a LOST event "forced offline". A live worker that was forced offline learns of it by a notification, or
// with its next heartbeat or write: it gives up its runs, and registers again under a new ID. If the worker is already
// offline, ForceOffline releases runs that it may still hold. It returns [kagzi.ErrNotFound] if the client's namespace
// has no such worker. With [kagzi.InTx] the worker cannot send heartbeats until the transaction ends, so commit soon.
func (w Workers) ForceOffline(ctx context.Context, id string, opts ...kagzi.ChangeOption) error {
	cfg, err := core.Changes(opts, core.EveryVerb)
	var parsed uuid.UUID
	if err == nil {
		parsed, err = w.id(ctx, cfg.Tx, id)
	}
	var lost store.LostWorker
	if err == nil {
		lost, err = w.core.Store.Workers.ForceOffline(ctx, cfg.Tx, parsed, "forced offline", cfg.Why)
	}
	if err == nil {
		err = w.core.Hints.Changed(ctx, cfg.Tx, parsed)
	}
	if err == nil && lost.Released > 0 {
		err = w.core.Hints.Due(ctx, cfg.Tx, lost.Due()...)
	}
	if err != nil {
		return failure.Wrap(w.core.Public(ctx, err), "force worker %.60s offline", cmp.Or(id, "without an ID"))
	}
	return nil
}

// A LocalWorker is a worker of this process: see [Workers.Local].
type LocalWorker struct {
	ID     string   `json:"id"`               // as in the registry
	Queues []string `json:"queues,omitempty"` // from which it claims runs
	Slots  int      `json:"slots"`            // WorkerConfig.MaxConcurrent
	Free   int      `json:"free"`             // slots that no run holds
	Hung   int      `json:"hung,omitempty"`   // functions that hang: see WorkerConfig.HungAfter
	// runs that it has claimed ahead, each of which waits for a slot, as a rule for some milliseconds
	Waiting int `json:"waiting"`
}

// Local returns the client's workers of this process that execute runs, in the order of their IDs. It queries no
// database. [Workers.List] returns those of all processes, as of their last heartbeats. Local is safe for
// concurrent use.
func (w Workers) Local() []LocalWorker {
	if w.core.Made() != nil {
		return nil
	}
	workers := []LocalWorker{}
	for _, local := range w.core.Workers() {
		all, free, waiting := local.Slots()
		workers = append(workers, LocalWorker{
			local.ID().String(), local.Queues(), all, free, local.Hung(), waiting,
		})
	}
	slices.SortFunc(workers, func(a, b LocalWorker) int { return cmp.Compare(a.ID, b.ID) })
	return workers
}
