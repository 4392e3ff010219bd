package namespaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/housekeeping"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// Run executes runs until ctx ends. Then all namespaces drain at once, as kagzi.Worker.Run says, and Run returns nil.
//
// Run returns an error if it cannot work: because of a schema that does not fit, missing rights, tables that Citus has
// distributed, or a pool that was closed. It logs an outage, also one at its beginning, and continues after it. If the
// worker of one namespace fails, Run logs that, and begins it again after some seconds; the others go on. A namespace
// whose worker an operator has drained is not served again until the next Run.
//
// A Worker may run again after Run has returned. A second call while one is under way returns an error.
func (w *Worker) Run(ctx context.Context) error {
	if w == nil || w.pool == nil {
		return errNoWorker
	}
	if !w.begin() {
		return errors.New("kagzi: namespaces: Run of this worker is under way already: call it once, or make another " +
			"worker by NewWorker")
	}
	defer w.end()
	h := &host{
		Worker: w, away: outage.New(w.log, w.line.Retry), drained: map[string]bool{}, refused: map[string]bool{},
		beginning: make(chan struct{}, max(1, min(mostBeginning, int(w.pool.Config().MaxConns)/2))),
		failing: outage.Failures{
			Begins: "kagzi: namespaces with work cannot be found; those that have a worker go on",
			Ends:   "kagzi: namespaces with work are found again",
		},
		unmade: outage.Failures{
			Begins: "kagzi: the worker of a namespace cannot be made; the others go on",
			Ends:   "kagzi: the worker of a namespace can be made again",
		},
	}
	one, err := w.Client("default")
	if err == nil {
		err = one.Core().Prepare(ctx, h.away)
	}
	if err == nil {
		err = h.connect()
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer h.heartbeats.Close()
	defer w.line.Listen()()
	defer w.line.OnAllWork(h.hear)()
	w.log.Info("kagzi: worker of all namespaces started", "queues", w.queues, "workflows", w.workflows)
	defer w.log.Info("kagzi: worker of all namespaces stopped")
	return h.run(ctx)
}

func (w *Worker) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.running
	w.running = true
	return first
}

func (w *Worker) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = false
	clear(w.wanted)
}

// A host is one call of Run. Its fields that w.mu guards are those of the Worker, and drained.
type host struct {
	*Worker
	away       *outage.Outage
	failing    outage.Failures // of searches
	unmade     outage.Failures // of Handle, by namespace
	heartbeats *pgxpool.Pool   // of all namespaces: a pool that is in use must not make a worker look dead
	beginning  chan struct{}   // a semaphore for workers that begin
	ended      sync.WaitGroup  // the tenants
	drained    map[string]bool // namespaces whose worker an operator has drained
	// namespaces with work that are not served. Only the loop of run uses it.
	refused map[string]bool
	pause   time.Duration // between the begins of two searches
}

// mostBeginning is how many workers begin at once at the most.
const mostBeginning = 8

// All heartbeats share so many connections at the most: with a server that answers after 100 ms, one is enough for 50
// namespaces with runs, and a worker that has to wait for one looks dead in the end. Those that are not needed are
// closed.
const (
	heartbeatConns     = 10
	heartbeatConnsIdle = time.Minute
)

// connect makes the pool of the heartbeats.
func (h *host) connect() error {
	cfg := h.pool.Config()
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = heartbeatConns, 0, 0
	cfg.MaxConnIdleTime = heartbeatConnsIdle
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return fmt.Errorf("kagzi: namespaces: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heartbeats, h.shared.Heartbeats = pool, pool
	return nil
}

// hear notes that there is work in a queue of a namespace. Empty names say that the listener may have missed some. The
// listener's lock is held.
func (h *host) hear(namespace, queue string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	coordinators := queue == "" || queue == store.AwaitedQueue
	if namespace != "" && !coordinators && !slices.Contains(h.queues, queue) {
		return
	}
	if t := h.tenants[namespace]; t != nil {
		t.heard = true
		return
	}
	h.wanted[namespace] = true // "": search
	goroutine.Signal(h.hinted)
}

// run begins and ends the workers of namespaces until ctx ends, and waits for the last to end.
func (h *host) run(ctx context.Context) error {
	defer h.ended.Wait()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	h.ended.Go(func() { h.sweep(ctx) })
	next := time.Now() // when the next search begins
	h.pause = h.cfg.Every
	for ctx.Err() == nil {
		wanted, search := h.takeWanted()
		for _, namespace := range wanted {
			h.serve(ctx, stop, namespace)
		}
		if now := time.Now(); search || !now.Before(next) {
			if err := h.search(ctx, stop); errors.Is(err, inspect.ErrDistributed) || pg.Closed(err) {
				stop(err)
			}
			h.pause = max(h.cfg.Every, 10*time.Since(now)) // of it, the search takes a tenth at the most
			next = now.Add(h.pause)
		}
		select {
		case <-ctx.Done():
		case <-h.hinted:
		case <-time.After(time.Until(next)):
		}
	}
	switch cause := context.Cause(ctx); {
	case pg.Closed(cause):
		return errors.New("kagzi: namespaces: the pool was closed while the worker was running: close it once Run " +
			"has returned")
	case errors.Is(cause, inspect.ErrDistributed):
		return fmt.Errorf("kagzi: namespaces: %w", cause)
	}
	return nil
}

// sweep deletes old runs until ctx ends.
func (h *host) sweep(ctx context.Context) {
	cfg := h.cfg.Worker.Coordinator
	if cfg.KeepForever {
		return
	}
	sweep := housekeeping.Sweep{Pool: h.pool, Log: h.log, Serves: h.serves, Keep: store.Retention{
		Completed: cmp.Or(cfg.KeepCompleted, housekeeping.KeepCompleted),
		Failed:    cmp.Or(cfg.KeepFailed, housekeeping.KeepFailed), Workflows: cfg.Keep,
	}}
	sweep.Run(ctx)
}

// takeWanted returns the namespaces of which a notification has come, and whether to search now.
func (h *host) takeWanted() (namespaces []string, search bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for namespace := range h.wanted {
		if namespace == "" {
			search = true
		} else {
			namespaces = append(namespaces, namespace)
		}
	}
	clear(h.wanted)
	return namespaces, search
}

// longestSearch bounds a search. Old snapshots make it slow.
const longestSearch = 5 * time.Second

// search finds the namespaces with work, begins their workers, and ends those that have been idle.
func (h *host) search(ctx context.Context, stop context.CancelCauseFunc) error {
	began := time.Now()
	due, err := inspect.DueNamespaces(ctx, h.pool, inspect.Search{
		Queues: h.queues, Types: h.workflows, Soon: 2*h.pause + h.cfg.Every, Most: longestSearch, Except: h.unserved(),
	})
	switch {
	case ctx.Err() != nil:
		return nil
	case pg.Unavailable(err) && !pg.Answered(err):
		h.away.Begin(err)
		return err
	case err != nil:
		h.failing.Note(h.log, "search", err)
		return err
	}
	h.away.End()
	h.failing.Over(h.log, "search")
	for _, namespace := range due {
		if !h.serve(ctx, stop, namespace) {
			h.refused[namespace] = true
		}
	}
	h.endIdle(due, began)
	return nil
}

// unserved returns the namespaces with work that are not served.
func (h *host) unserved() []string {
	maps.DeleteFunc(h.refused, func(namespace string, _ bool) bool { return h.isServed(namespace) })
	return slices.Collect(maps.Keys(h.refused))
}

// isServed reports whether the namespace is to have a worker when it has work.
func (h *host) isServed(namespace string) bool {
	h.mu.Lock()
	drained := h.drained[namespace]
	h.mu.Unlock()
	return !drained && h.serves(namespace)
}

// endIdle ends the workers of namespaces that have had no work for some time, or are not to be served any more. due are
// those in which a search, which began then, has found some.
func (h *host) endIdle(due []string, began time.Time) {
	refused := map[string]bool{} // Serve may call the Worker
	for _, namespace := range h.Active() {
		refused[namespace] = !h.serves(namespace)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for namespace, t := range h.tenants {
		_, found := slices.BinarySearch(due, namespace)
		switch {
		case t.stopped: // what it hears is for the next worker
		case refused[namespace]:
			t.end()
		case found || t.heard || t.held() > 0:
			t.busy, t.heard = time.Now(), false
		case began.Sub(t.busy) > h.cfg.Idle:
			t.end()
		}
	}
}
