//go:build unix

package crash_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

var limited = kagzi.Define[int, int]("limited")

// limited executes limited steps on branches. They write down when they enter and exit.
func (l workload) limited(ctx kagzi.Context, n int) (int, error) {
	out, err := kagzi.Map(ctx, "each", make([]int, n), func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.Step(ctx, "call", func(ctx context.Context) (int, error) {
			l.led.write("ENTER", os.Getpid())
			defer l.led.write("EXIT", os.Getpid())
			l.reach("during step")
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
			return 1, nil
		}, kagzi.Limit("api"))
	})
	return len(out), err
}

// mostInside returns the most functions that were executed at the same time. The lines of all processes are in one file, in the
// order in which they were written.
func mostInside(t *testing.T, file string) (most int) {
	t.Helper()
	lines, err := readLedger(file)
	if err != nil {
		t.Fatal(err)
	}
	all, inside := 0, map[string]int{}
	for _, l := range lines {
		switch l[0] {
		case "ENTER":
			inside[l[1]]++
			all++
		case "EXIT":
			inside[l[1]]--
			all--
		case "DEAD":
			all -= inside[l[1]]
			delete(inside, l[1])
		}
		most = max(most, all)
	}
	return most
}

// TestLimitHoldsThroughAllTroubles has three worker processes with two slots between them. Meanwhile processes are killed,
// connections ended, answers lost and runs cancelled. There are never more than two functions under way, and no slot is lost.
func TestLimitHoldsThroughAllTroubles(t *testing.T) {
	t.Parallel()
	const slots, runs, each = 2, 60, 4
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	c := kit.NewClient(t, db.Pool)
	if err := c.SetLimit(t.Context(), kagzi.StepLimit{Name: "api", MaxRunning: slots}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ledger")
	led, err := openLedger(file)
	if err != nil {
		t.Fatal(err)
	}
	cfg := kit.Quick
	cfg.MaxConcurrent = 10
	start := func() *process {
		return startProcess(t, workerSpec{DSN: proxy.DSN(), Ledger: file, Config: cfg})
	}
	processes := []*process{start(), start(), start()}
	var started []*kagzi.Run[int]
	for range runs {
		run, err := kagzi.Start(t.Context(), c, limited, each)
		if err != nil {
			t.Fatal(err)
		}
		started = append(started, run)
	}
	random := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	cancelled := map[int]bool{}
	for round := range 8 {
		await.True(t, "the workers go on", func() bool { return countIn(t, file, "EXIT") >= 12*(round+1) || left(t, db) == 0 })
		switch round % 4 {
		case 0:
			p := processes[0]
			_ = p.cmd.Process.Kill()
			p.killed(t)
			led.write("DEAD", p.cmd.Process.Pid)
			processes = append(processes[1:], start())
		case 1:
			dbtest.Exec(t, db.Pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5`)
		case 2:
			i := random.IntN(runs)
			cancelled[i] = true
			if err := c.Cancel(t.Context(), started[i].ID()); err != nil {
				t.Log("cancel: ", err)
			}
		case 3:
			proxy.DropAck(pgproxy.Contains("INSERT INTO kagzi.limit_places"))
		}
	}
	for i, run := range started {
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		got, err := run.Result(ctx)
		cancel()
		if !cancelled[i] && (err != nil || got != each) {
			t.Errorf("run %d: %v, %v", i, got, err)
		}
	}
	for _, p := range processes {
		p.stop(t)
	}
	if most := mostInside(t, file); most != slots {
		t.Errorf("%d functions at the same time, want at most %d, and all slots used", most, slots)
	}
}

func left(t *testing.T, db *dbtest.DB) int {
	return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE finished_at IS NULL`)
}
