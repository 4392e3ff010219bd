//go:build unix

package crash_test

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// localWorker is a worker in this process that handles the workloads and writes the ledger at path.
func localWorker(t testing.TB, c *kagzi.Client, path string, cfg kagzi.WorkerConfig) *kagzi.Worker {
	t.Helper()
	led, err := openLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = led.file.Close() })
	w := kit.NewWorker(t, c, cfg)
	handleWorkloads(w, led, func(string) {})
	return w
}

// TestFleetSharesAQueue shows that several processes execute each step of each run once if nothing fails.
func TestFleetSharesAQueue(t *testing.T) {
	t.Parallel()
	processes, n := 4, campaign.Size(400, 2000)
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	runs := kit.StartRuns(t, c, triple, n)
	dir := t.TempDir()
	var fleet []*process
	for i := range processes {
		fleet = append(fleet, startProcess(t, workerSpec{
			DSN: db.DSN, Ledger: filepath.Join(dir, strconv.Itoa(i)),
			Config: kagzi.WorkerConfig{MaxConcurrent: 50},
		}))
	}
	begun := time.Now()
	kit.CheckResults(t, runs, tripleResult)
	t.Logf("%d runs of 3 steps in %d processes took %v, their start included", n, processes,
		time.Since(begun).Round(time.Millisecond))
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
