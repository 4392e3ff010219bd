package ui

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi/admin"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/ui/internal/demo"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// benchNamespace returns a client of a durable server with BENCH_RUNS runs (zero: 100,000) of the last 30 days, without
// workers.
func benchNamespace(b *testing.B) (*pgxpool.Pool, *kagzi.Client) {
	b.Helper()
	n := 100_000
	if text := os.Getenv("BENCH_RUNS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	server, err := localpg.Config{Durable: true, Settings: map[string]string{
		"shared_buffers": "512MB",
		"max_wal_size":   "4GB",
	}}.Start(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Stop() })
	cfg, err := pgxpool.ParseConfig(server.SocketDSN())
	if err != nil {
		b.Fatal(err)
	}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if err := kagzi.Migrate(b.Context(), pool); err != nil {
		b.Fatal(err)
	}
	if err := demo.Many(b.Context(), pool, n, 30*24*time.Hour); err != nil {
		b.Fatal(err)
	}
	return pool, kit.NewClientWith(b, pool, kagzi.ClientConfig{})
}

// BenchmarkPages measures the first look of each page: the dashboard has no answer of it yet.
//
//	BENCH_RUNS=2000000 go test -run '^$' -bench Pages -benchtime 20x .
func BenchmarkPages(b *testing.B) {
	_, client := benchNamespace(b)
	for _, path := range []string{
		"/", "/runs", "/runs?status=failed&ended-since=1h", "/runs?status=sleeping", "/runs?workflow=workflow-1",
		"/runs?kind=network&status=failed", "/schedules", "/topics", "/limits",
		"/workers", "/stranded",
	} {
		b.Run(strings.ReplaceAll(path, "/", ":"), func(b *testing.B) {
			best := time.Hour
			for b.Loop() {
				d, err := newDashboard(client, Config{})
				if err != nil {
					b.Fatal(err)
				}
				begun, w := time.Now(), httptest.NewRecorder()
				d.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/kagzi"+path, nil))
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
				best = min(best, time.Since(begun))
			}
			b.ReportMetric(float64(best.Microseconds())/1000, "best-ms")
		})
	}
}

// BenchmarkThroughput measures the first count of an hour, and those that follow each minute.
//
//	BENCH_RUNS=2000000 go test -run '^$' -bench Throughput -benchtime 10x .
func BenchmarkThroughput(b *testing.B) {
	_, client := benchNamespace(b)
	rates := &throughput{admin: admin.New(client)}
	for _, c := range []struct {
		name string
		ago  int64 // minutes since all ends were counted
	}{{"all", endsEvery}, {"lately", 1}} {
		b.Run(c.name, func(b *testing.B) {
			best := time.Hour
			for b.Loop() {
				now := time.Now().Unix() / 60
				rates.counted, rates.among = now-1, now-c.ago
				begun := time.Now()
				if _, err := rates.look(b.Context(), web.Query{}); err != nil {
					b.Fatal(err)
				}
				best = min(best, time.Since(begun))
			}
			b.ReportMetric(float64(best.Microseconds())/1000, "best-ms")
		})
	}
}

// BenchmarkHundredBrowsers measures what the streams of a hundred browsers on one page cost the server in a second of
// time.
//
//	BENCH_RUNS=2000000 go test -run '^$' -bench HundredBrowsers -benchtime 1x .
func BenchmarkHundredBrowsers(b *testing.B) {
	pool, client := benchNamespace(b)
	for _, path := range []string{"/", "/runs", "/workers"} {
		b.Run(strings.ReplaceAll(path, "/", ":"), func(b *testing.B) {
			server := httptest.NewServer(Handler(client, Config{}))
			defer server.Close()
			ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
			defer cancel()
			meter, begun := kit.NewCPUMeter(b, pool), time.Now()
			var browsers sync.WaitGroup
			for range 100 {
				browsers.Go(func() {
					r, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/kagzi"+path, nil)
					r.Header.Set("Accept", "text/event-stream")
					if w, err := http.DefaultClient.Do(r); err == nil {
						_, _ = io.Copy(io.Discard, w.Body)
						w.Body.Close()
					}
				})
			}
			browsers.Wait()
			b.ReportMetric(meter.Seconds()/time.Since(begun).Seconds(), "cpu-s/s")
		})
	}
}
