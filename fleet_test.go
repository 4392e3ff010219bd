//go:build unix

package kagzi

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// localWorker is a worker in this process that handles the workloads and writes the ledger at path.
func localWorker(t testing.TB, c *Client, path string, cfg WorkerConfig) *Worker {
	t.Helper()
	led, err := openLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = led.file.Close() })
	w := newTestWorker(t, c, cfg)
	handleWorkloads(w, led, func(string) {})
	return w
}

// startLocal runs w until the test ends, or until stop is called, which fails the test unless Run returned nil.
func startLocal(t testing.TB, w *Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(2 * patience):
			t.Error("Run has not returned")
		}
	})
	t.Cleanup(stop)
	return stop
}

func touch(t testing.TB, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// startRuns starts n runs of wf with inputs from 0 and returns their handles.
func startRuns[Out any](t testing.TB, c *Client, wf Workflow[int, Out], n int) []*Run[Out] {
	t.Helper()
	calls := make([]Call, n)
	for i := range calls {
		calls[i] = wf.With(i)
	}
	started, err := c.StartMany(t.Context(), calls)
	if err != nil {
		t.Fatal(err)
	}
	runs := make([]*Run[Out], n)
	for i, s := range started {
		runs[i] = &Run[Out]{client: c, workflow: wf.Name(), id: s.ID}
	}
	return runs
}

// checkResults waits for the runs, the i-th of which must return want(i).
func checkResults[Out comparable](t testing.TB, runs []*Run[Out], want func(i int) Out) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var wg sync.WaitGroup
	for i, r := range runs {
		wg.Go(func() {
			if got, err := r.Result(ctx); err != nil || got != want(i) {
				t.Errorf("run %d, %s, returned %v, %v; want %v", i, r.ID(), got, err, want(i))
			}
		})
	}
	wg.Wait()
}

// TestFleetSharesAQueue shows that several processes execute each step of each run once if nothing fails.
func TestFleetSharesAQueue(t *testing.T) {
	t.Parallel()
	const processes, n = 4, 2000
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	runs := startRuns(t, c, triple, n)
	dir := t.TempDir()
	var fleet []*process
	for i := range processes {
		fleet = append(fleet, startProcess(t, workerSpec{DSN: db.DSN, Ledger: filepath.Join(dir, strconv.Itoa(i)), Config: WorkerConfig{MaxConcurrent: 50}}))
	}
	begun := time.Now()
	checkResults(t, runs, tripleResult)
	t.Logf("%d runs of 3 steps in %d processes took %v, their start included", n, processes, time.Since(begun).Round(time.Millisecond))
	executed := map[string]int{}
	for i, p := range fleet {
		p.stop(t)
		lines, err := readLedger(filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		mine := 0
		for _, l := range lines {
			if l[0] == "BEGIN" {
				executed[l[1]+" "+l[2]]++
				mine++
			}
		}
		t.Logf("process %d executed %d steps", i, mine)
	}
	if len(executed) != 3*n {
		t.Errorf("%d steps were executed, want %d", len(executed), 3*n)
	}
	for step, times := range executed {
		if times != 1 {
			t.Errorf("step %s was executed %d times", step, times)
		}
	}
}
