package checkup

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/kagzi/kagzi/health"
)

// fresh is for how long a report answers further requests, so that many probes cost the database as much as one.
const fresh = time.Second

// Handler returns a handler for probes that answers with the report of check as JSON: 503 if it is Unhealthy, else 200.
// Requests share a report while it is made and for a second after. Methods other than GET and HEAD get 405.
func Handler(check func(context.Context) health.Report) http.Handler {
	return &handler{check: check}
}

type handler struct {
	check func(context.Context) health.Report

	mu   sync.Mutex
	last *answer // the newest one, which may still be in progress; under mu
}

// An answer is one report. It is in progress until done is closed.
type answer struct {
	done   chan struct{}
	report health.Report // written before done is closed, read after
	ended  time.Time     // when the report was made; zero while in progress; under the handler's mu
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "GET or HEAD only", http.StatusMethodNotAllowed)
		return
	}
	report, ok := h.get(r.Context())
	if !ok {
		return // the client has gone
	}
	body, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if report.Status == health.Unhealthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if r.Method == http.MethodGet {
		_, _ = w.Write(append(body, '\n')) // the client may have gone
	}
}

// get returns a fresh report, the one that is in progress, or a new one; false if ctx ended first.
func (h *handler) get(ctx context.Context) (health.Report, bool) {
	h.mu.Lock()
	a := h.last
	mine := a == nil || !a.ended.IsZero() && time.Since(a.ended) >= fresh
	if mine {
		a = &answer{done: make(chan struct{})}
		h.last = a
	}
	h.mu.Unlock()
	if !mine {
		select {
		case <-a.done:
			return a.report, true
		case <-ctx.Done():
			return health.Report{}, false
		}
	}
	defer func() {
		h.mu.Lock()
		a.ended = time.Now()
		h.mu.Unlock()
		close(a.done)
	}()
	// Other requests wait for the report, so it does not end with the first request. This one stands if check panics.
	a.report = health.Report{Status: health.Unhealthy, Checks: []health.Check{{Name: "process", Status: health.Unhealthy, Detail: "The check ended in a panic."}}}
	a.report = h.check(context.WithoutCancel(ctx))
	return a.report, true
}
