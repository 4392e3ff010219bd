package kagzi_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

// A keyed says by how many keys the runs of a benchmark are limited; none: they have no key.
type keyed struct{ keys, limit int }

func (k keyed) String() string {
	if k.keys == 0 {
		return "plain"
	}
	return fmt.Sprintf("keys=%d/limit=%d", k.keys, k.limit)
}

// start sets the limit, and starts n runs whose keys alternate.
func (k keyed) start(b *testing.B, c *kagzi.Client, wf kagzi.Workflow[int, int], n int) {
	b.Helper()
	if k.keys == 0 {
		startCalls(b, c, n, func(i int) kagzi.Call { return wf.With(i) })
		return
	}
	setQueue(b, c, kagzi.QueueLimits{EachKey: kagzi.KeyLimits{MaxRunning: k.limit}})
	startCalls(b, c, n, func(i int) kagzi.Call { return wf.With(i, kagzi.Key("key-"+strconv.Itoa(i%k.keys))) })
}

// setQueue sets the limits of the default queue.
func setQueue(b *testing.B, c *kagzi.Client, l kagzi.QueueLimits) {
	b.Helper()
	l.Queue = "default"
	if err := c.SetQueue(b.Context(), l); err != nil {
		b.Fatal(err)
	}
}

// settle makes the server begin a measurement with nothing left to do.
func settle(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	for _, sql := range []string{"VACUUM ANALYZE", "CHECKPOINT", "SELECT pg_stat_statements_reset()"} {
		if _, err := pool.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKeys executes b.N runs that wait in the queue: runs without keys, runs of many keys with one slot each, and runs of one key with
// many slots. It reports the processor time of a run, which other programs on the machine change less than the rate:
// go test -run '^$' -bench Keys/ -benchtime 20000x .
func BenchmarkKeys(b *testing.B) {
	for _, k := range []keyed{{}, {1000, 1}, {1, 100}} {
		for _, concurrency := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%s/concurrency=%d", k, concurrency), func(b *testing.B) {
				c, pool := benchClient(b, 8)
				wf := kagzi.Define[int, int]("drained")
				k.start(b, c, wf, b.N)
				settle(b, pool)
				w := benchWorker(b, c, concurrency)
				ctx, cancel := context.WithCancel(b.Context())
				handleDrained(b, w, wf, 0, cancel)
				measureDrain(b, pool, func() {
					if err := w.Run(ctx); err != nil {
						b.Fatal(err)
					}
				})
			})
		}
	}
}

// measureDrain reports what drain, which executes b.N runs, costs for each run.
func measureDrain(b *testing.B, pool *pgxpool.Pool, drain func()) {
	b.Helper()
	cpu := newCPUMeter(b, pool)
	b.ResetTimer()
	drain()
	b.StopTimer()
	cpu.report(b, b.N)
	printStatements(b, pool)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}

// A cpuMeter measures the processor time of this process and of the server. It works on Linux only.
type cpuMeter struct {
	postmaster string
	before     float64
}

func newCPUMeter(b *testing.B, pool *pgxpool.Pool) *cpuMeter {
	b.Helper()
	var backend int
	if err := pool.QueryRow(b.Context(), "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		b.Fatal(err)
	}
	m := &cpuMeter{}
	if stat := processStat(filepath.Join("/proc", strconv.Itoa(backend), "stat")); stat != nil {
		m.postmaster = stat[1]
		m.before = m.seconds()
	}
	return m
}

// report reports the time since newCPUMeter, for each of n runs.
func (m *cpuMeter) report(b *testing.B, n int) {
	if m.postmaster != "" {
		b.ReportMetric((m.seconds()-m.before)*1e6/float64(n), "cpu-us/run")
	}
}

// seconds returns the processor time used so far. What a process of the server has used is added to its parent's time when it ends.
func (m *cpuMeter) seconds() (s float64) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		stat := processStat(file)
		pid := filepath.Base(filepath.Dir(file))
		if stat == nil || pid != m.postmaster && pid != strconv.Itoa(os.Getpid()) && stat[1] != m.postmaster {
			continue
		}
		used := stat[11:13] // by itself, in user and system mode
		if pid == m.postmaster {
			used = stat[11:15] // and by children that have ended
		}
		for _, ticks := range used {
			n, _ := strconv.Atoi(ticks)
			s += float64(n) / 100
		}
	}
	return s
}

// processStat returns the fields of a process after its name, or nil if it has ended: its state, its parent and so on.
func processStat(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return strings.Fields(after)
}
