package engine_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/engine"
	"github.com/kagzi/kagzi/internal/kit"
)

// wantAlive fails the test unless the liveness probe answers with the code and a body that contains all texts.
func wantAlive(t *testing.T, c *kagzi.Client, code int, texts ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	admin.New(c).Liveness().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/livez", nil))
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
	c := kit.NewClient(t, dbtest.Pool(t))
	wantAlive(t, c, http.StatusOK)
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{
		StaleAfter: 10 * time.Hour, Heartbeat: time.Hour,
		LeaseTimeout: 10 * time.Hour, NoCoordinator: true,
	})
	kit.NewGate().Handle(w)
	claimed, answer := kit.HangAt(t, w, "after claim") // the worker asks the database nothing more
	s := begun(t, w)
	defer answer()
	await.Receive(t, claimed)
	await.True(t, "the process knows of the worker", func() bool {
		answer := httptest.NewRecorder()
		admin.New(c).Liveness().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet,
			"/livez", nil))
		return strings.Contains(answer.Body.String(), "1 worker")
	})
	wantAlive(t, c, http.StatusOK, `"process"`, `"healthy"`, "Alive, with 1 worker.")
	engine.Silence(s, 29*time.Hour)
	wantAlive(t, c, http.StatusOK)
	engine.Silence(s, 31*time.Hour)
	wantAlive(t, c, http.StatusServiceUnavailable, `"worker"`, `"unhealthy"`, s.ID().String(), `\"default\"`,
		"neither answer nor error", "31 hours")
	engine.DatabaseTrouble(s, context.DeadlineExceeded) // an outage is not a reason to restart the worker
	wantAlive(t, c, http.StatusOK)
	engine.Silence(s, 31*time.Hour)
	engine.Heard(s)
	wantAlive(t, c, http.StatusOK)
}
