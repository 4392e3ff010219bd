package checkup

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/kagzi/kagzi/health"
)

// Handler returns a handler for probes that answers with the report of check as JSON: 503 if it is Unhealthy, else 200.
// Requests share a report while it is made and for a second after. Methods other than GET and HEAD get 405.
func Handler(check func(context.Context) health.Report) http.Handler {
	return &handler{check: check}
}

type handler struct {
	check   func(context.Context) health.Report
	reports Shared[health.Report]
}

// panicked is the report for the requests that wait for a check that panics.
var panicked = health.Report{
	Status: health.Unhealthy,
	Checks: []health.Check{{Name: "process", Status: health.Unhealthy, Detail: "The check ended in a panic."}},
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "GET or HEAD only", http.StatusMethodNotAllowed)
		return
	}
	report, ok := h.reports.Get(r.Context(), panicked, h.check)
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
