package namespaces

import (
	"context"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/pg"
)

// A tenant is a namespace that has a worker. The host's mutex guards its fields.
type tenant struct {
	namespace string
	client    *kagzi.Client
	stop      context.CancelFunc // ends the worker, which drains
	stopped   bool               // stop was called. Set by end.
	busy      time.Time          // when it last had work, as far as is known
	heard     bool               // a notification came since the last search. Set by hear, reset by endIdle.
}

// serve begins a worker of the namespace, unless it has one. It returns false if the namespace is not to be served.
func (h *host) serve(ctx context.Context, stop context.CancelCauseFunc, namespace string) bool {
	h.mu.Lock()
	active := h.tenants[namespace] != nil
	h.mu.Unlock()
	if active {
		return true
	}
	if !h.isServed(namespace) {
		return false
	}
	worker, err := h.newWorker(namespace)
	making := "namespace " + namespace
	if err != nil { // of Handle
		h.unmade.Note(h.log, making, err)
		return true
	}
	h.unmade.Over(h.log, making)
	h.mu.Lock()
	defer h.mu.Unlock()
	t := &tenant{namespace: namespace, client: h.clients[namespace], busy: time.Now()}
	t.client.Core().Shared = h.shared
	ctx, t.stop = context.WithCancel(ctx)
	h.tenants[namespace] = t
	h.ended.Go(func() { h.execute(ctx, stop, t, worker) })
	return true
}

// execute runs the worker of a namespace until it is idle, or ctx ends.
func (h *host) execute(ctx context.Context, stop context.CancelCauseFunc, t *tenant, worker *kagzi.Worker) {
	defer t.stop()
	drained, err := h.runs(ctx, worker)
	switch {
	case pg.Closed(err):
		stop(err)
	case err != nil:
		h.log.Error("kagzi: the worker of a namespace has failed; it begins again soon", "namespace", t.namespace,
			"error", err)
		select { // the namespace stays among those that are served
		case <-ctx.Done():
		case <-time.After(failurePause):
		}
	case drained:
		h.log.Info("kagzi: the worker of a namespace was drained: the namespace is not served any more", "namespace",
			t.namespace)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.tenants, t.namespace)
	h.drained[t.namespace] = h.drained[t.namespace] || drained
	if t.heard && !drained { // while it stopped
		h.wanted[t.namespace] = true
		goroutine.Signal(h.hinted)
	}
}

// runs runs a worker until ctx ends, or an operator has drained it. Few workers begin at once: each needs several
// statements, and all namespaces may get work at the same time.
func (h *host) runs(ctx context.Context, worker *kagzi.Worker) (drained bool, err error) {
	select {
	case h.beginning <- struct{}{}:
	case <-ctx.Done():
		return false, nil
	}
	err = worker.Start(ctx)
	<-h.beginning
	if err != nil {
		if ctx.Err() != nil {
			err = nil
		}
		return false, err
	}
	select {
	case <-ctx.Done():
	case <-worker.Done():
		drained = true
	}
	err = worker.Stop(context.WithoutCancel(ctx))
	return drained && err == nil, err
}

const failurePause = 10 * outage.Pause

// end ends the worker, which drains.
func (t *tenant) end() {
	t.stopped = true
	t.stop()
}

// held returns how many runs the worker executes.
func (t *tenant) held() (n int) {
	for _, w := range t.client.Core().Workers() {
		n += w.Held()
	}
	return n
}
