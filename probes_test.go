package kagzi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// askProbe sends h a request and returns its answer.
func askProbe(t *testing.T, h http.Handler, method string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/readyz", nil))
	return w
}

// wantProbe fails the test unless h answers GET with the code and a report of the status.
func wantProbe(t *testing.T, h http.Handler, code int, status HealthStatus) HealthReport {
	t.Helper()
	w := askProbe(t, h, http.MethodGet)
	var r HealthReport
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if w.Code != code || r.Status != status || len(r.Checks) == 0 {
		t.Errorf("answer %d %+v, want %d and %s", w.Code, r, code, status)
	}
	return r
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	c := newTestClient(t, openPool(t, proxy.DSN(), 4))
	oddRuns{ago: time.Hour}.insert(t, db.Pool) // that nobody executes does not concern it
	h := c.Readiness()
	wantHealth(t, wantProbe(t, h, http.StatusOK, Healthy), "writable", Healthy)

	w := askProbe(t, h, http.MethodHead)
	if w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("HEAD: %d, %d bytes", w.Code, w.Body.Len())
	}
	if got := w.Header(); got.Get("Content-Type") != "application/json" || got.Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", got)
	}
	w = askProbe(t, h, http.MethodPost)
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d, %v", w.Code, w.Header())
	}

	readOnly := newTestClient(t, poolWith(t, db.DSN, "default_transaction_read_only", "on"))
	wantProbe(t, readOnly.Readiness(), http.StatusServiceUnavailable, Unhealthy)
	wantProbe(t, newTestClient(t, dbtest.Pool(t, dbtest.Empty())).Readiness(), http.StatusServiceUnavailable, Unhealthy)

	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	c.store.Pool().Reset()
	wantProbe(t, c.Readiness(), http.StatusServiceUnavailable, Unhealthy)
	if w := askProbe(t, c.Readiness(), http.MethodHead); w.Code != http.StatusServiceUnavailable {
		t.Errorf("HEAD: %d", w.Code)
	}
	wantProbe(t, c.Liveness(), http.StatusOK, Healthy)
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, dbtest.Pool(t))
	wantProbe(t, c.Liveness(), http.StatusOK, Healthy)
	s := newSession(newTestWorker(t, c, WorkerConfig{StaleAfter: 10 * time.Hour, Heartbeat: time.Hour, LeaseTimeout: 10 * time.Hour}).session())
	c.sessions[s] = struct{}{} // as the worker does that runs
	wantHealth(t, wantProbe(t, c.Liveness(), http.StatusOK, Healthy), "process", Healthy, "Alive, with 1 worker.")
	quiet := func(d time.Duration) {
		s.clock.mu.Lock()
		defer s.clock.mu.Unlock()
		s.clock.heard = time.Now().Add(-d)
		s.troubled.Store(new(time.Now().Add(-d)))
	}
	quiet(29 * time.Hour)
	wantProbe(t, c.Liveness(), http.StatusOK, Healthy)
	quiet(31 * time.Hour)
	wantHealth(t, wantProbe(t, c.Liveness(), http.StatusServiceUnavailable, Unhealthy), "worker", Unhealthy, "neither answer nor error", "31 hours")
	s.databaseTrouble(context.DeadlineExceeded) // an outage is no reason
	wantProbe(t, c.Liveness(), http.StatusOK, Healthy)
	quiet(31 * time.Hour)
	s.clock.set(time.Now(), time.Now(), time.Now())
	wantProbe(t, c.Liveness(), http.StatusOK, Healthy)
}

func TestProbesShareLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		begun, goOn := make(chan struct{}), make(chan struct{})
		h := &probe{look: func(ctx context.Context) HealthReport {
			looks++
			if looks == 1 {
				begun <- struct{}{}
				<-goOn
			}
			if ctx.Err() != nil {
				t.Error("the look ended with its first caller")
			}
			return HealthReport{Status: Healthy}
		}}
		get := func(ctx context.Context) int {
			w := httptest.NewRecorder()
			w.Code = 0
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			return w.Body.Len()
		}
		var all sync.WaitGroup
		first, leave := context.WithCancel(t.Context())
		all.Go(func() { get(first) })
		<-begun
		for range 100 {
			all.Go(func() {
				if get(t.Context()) == 0 {
					t.Error("no answer")
				}
			})
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if get(gone) != 0 { // does not wait
			t.Error("an answer for nobody")
		}
		synctest.Wait()
		leave()
		close(goOn)
		all.Wait()
		time.Sleep(probeFresh - 1) // of the bubble's time
		get(t.Context())
		if looks != 1 {
			t.Errorf("%d looks, want 1", looks)
		}
		time.Sleep(time.Nanosecond)
		get(t.Context())
		if looks != 2 {
			t.Errorf("%d looks, want 2", looks)
		}
	})
}
