package checkup_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/checkup"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

func TestReadiness(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	pool := dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(4))
	c := newClient(t, pool)
	oddRuns{ago: time.Hour}.insert(t, db.Pool) // runs that no worker executes do not concern it
	h := admin.New(c).Readiness()
	wantHealth(t, wantProbe(t, h, http.StatusOK, health.Healthy), "writable", health.Healthy)

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

	readOnly := newClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("default_transaction_read_only", "on")))
	wantProbe(t, admin.New(readOnly).Readiness(), http.StatusServiceUnavailable, health.Unhealthy)
	wantProbe(t, admin.New(newClient(t, dbtest.Pool(t, dbtest.Empty()))).Readiness(), http.StatusServiceUnavailable,
		health.Unhealthy)

	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	pool.Reset()
	wantProbe(t, admin.New(c).Readiness(), http.StatusServiceUnavailable, health.Unhealthy)
	if w := askProbe(t, admin.New(c).Readiness(), http.MethodHead); w.Code != http.StatusServiceUnavailable {
		t.Errorf("HEAD: %d", w.Code)
	}
	wantProbe(t, admin.New(c).Liveness(), http.StatusOK, health.Healthy)
}

func TestRequestsShareReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checks := 0
		begun, goOn := make(chan struct{}), make(chan struct{})
		h := checkup.Handler(func(ctx context.Context) health.Report {
			checks++
			if checks == 1 {
				begun <- struct{}{}
				<-goOn
			}
			if ctx.Err() != nil {
				t.Error("the check ended with its first request")
			}
			return health.Report{Status: health.Healthy}
		})
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
		time.Sleep(time.Second - 1) // of the bubble's time
		get(t.Context())
		if checks != 1 {
			t.Errorf("%d checks, want 1", checks)
		}
		time.Sleep(time.Nanosecond)
		get(t.Context())
		if checks != 2 {
			t.Errorf("%d checks, want 2", checks)
		}
	})
}

// A check that panics answers the requests that wait for it, and ends its own as panics of handlers do.
func TestCheckThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, goOn := make(chan struct{}), make(chan struct{})
		h := checkup.Handler(func(context.Context) health.Report {
			close(begun)
			<-goOn
			panic("oops")
		})
		var all sync.WaitGroup
		all.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			askProbe(t, h, http.MethodGet)
		})
		<-begun
		all.Go(func() { wantProbe(t, h, http.StatusServiceUnavailable, health.Unhealthy) })
		synctest.Wait()
		close(goOn)
		all.Wait()
	})
}

func TestLiveness(t *testing.T) {
	t.Parallel()
	well, stuck := checkup.Worker{ID: "a", Queues: []string{"q"}, Silence: time.Second},
		checkup.Worker{ID: "b", Queues: []string{"q"}, Silence: 31 * time.Hour, Stuck: true}
	wantHealth(t, checkup.Liveness("shop", nil), "process", health.Healthy, "Alive, with 0 workers.")
	wantHealth(t, checkup.Liveness("shop", []checkup.Worker{well}), "process", health.Healthy, "Alive, with 1 worker.")
	r := checkup.Liveness("shop", []checkup.Worker{well, stuck})
	wantHealth(t, r, "worker", health.Unhealthy, "Worker b", `"q"`, "neither answer nor error", "31 hours")
	if r.Status != health.Unhealthy || r.Namespace != "shop" || len(r.Checks) != 1 {
		t.Errorf("report %+v", r)
	}
}
