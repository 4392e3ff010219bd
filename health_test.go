package kagzi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// wantAlive fails the test unless the liveness probe answers with the code, and with a body that contains all of the texts.
func wantAlive(t *testing.T, c *Client, code int, texts ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	c.Liveness().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/livez", nil))
	if w.Code != code {
		t.Errorf("answer %d, want %d: %s", w.Code, code, w.Body)
	}
	for _, text := range texts {
		if !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s does not contain %q", w.Body, text)
		}
	}
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, dbtest.Pool(t))
	wantAlive(t, c, http.StatusOK)
	s := newSession(newTestWorker(t, c, WorkerConfig{StaleAfter: 10 * time.Hour, Heartbeat: time.Hour, LeaseTimeout: 10 * time.Hour}).session())
	c.sessions[s] = struct{}{} // as the worker does that runs
	wantAlive(t, c, http.StatusOK, `"process"`, `"healthy"`, "Alive, with 1 worker.")
	quiet := func(d time.Duration) {
		s.clock.mu.Lock()
		defer s.clock.mu.Unlock()
		s.clock.heard = time.Now().Add(-d)
		s.troubled.Store(new(time.Now().Add(-d)))
	}
	quiet(29 * time.Hour)
	wantAlive(t, c, http.StatusOK)
	quiet(31 * time.Hour)
	wantAlive(t, c, http.StatusServiceUnavailable, `"worker"`, `"unhealthy"`, s.workerID().String(), `\"default\"`, "neither answer nor error", "31 hours")
	s.databaseTrouble(context.DeadlineExceeded) // an outage is no reason
	wantAlive(t, c, http.StatusOK)
	quiet(31 * time.Hour)
	s.clock.set(time.Now(), time.Now(), time.Now())
	wantAlive(t, c, http.StatusOK)
}
