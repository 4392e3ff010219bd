//go:build unix

package crash_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

var (
	grinding = kagzi.Define[int, string]("grinding")
	fanning  = kagzi.Define[int, string]("fanning")
	mapping  = kagzi.Define[int, string]("mapping")
	raising  = kagzi.Define[int, string]("raising")
)

func grindingResult(n int) string { return kit.Link(strconv.Itoa(n), "grind") }

// allGround is what a parent of n children must return.
func allGround(n int) string {
	h := ""
	for i := range n {
		h = kit.Link(h+grindingResult(i), "all")
	}
	return h
}

// raisingResult is what a family of three generations must return.
func raisingResult(n int) string {
	h := kit.Link(strconv.Itoa(n), "first")
	if n >= 100 { // the grandchild
		return h
	}
	return kit.Link(grindingResult(n)+grindingResult(n+1)+raisingResult(n+100)+h, "ledger")
}

// handleFamilies handles workflows that have children.
func handleFamilies(w *kagzi.Worker, l workload) {
	kagzi.Handle(w, grinding, func(ctx kagzi.Context, n int) (string, error) {
		return l.step(ctx, "grind", strconv.Itoa(n))
	})
	kagzi.Handle(w, fanning, func(ctx kagzi.Context, n int) (h string, err error) {
		children := make([]*kagzi.Child[string], n)
		for i := range children {
			if children[i], err = kagzi.StartChild(ctx, fmt.Sprint("c", i), grinding, i); err != nil {
				return "", err
			}
		}
		out, err := kagzi.Results(ctx, children)
		for _, s := range out {
			h = kit.Link(h+s, "all")
		}
		return h, err
	})
	kagzi.Handle(w, mapping, func(ctx kagzi.Context, n int) (h string, err error) {
		items := make([]int, n)
		for i := range items {
			items[i] = i
		}
		out, err := kagzi.Map(ctx, "all", items, func(ctx kagzi.Context, i int) (string, error) {
			return kagzi.RunChild(ctx, "c", grinding, i)
		})
		for _, s := range out {
			h = kit.Link(h+s, "all")
		}
		return h, err
	})
	kagzi.Handle(w, raising, func(ctx kagzi.Context, n int) (string, error) {
		h, err := l.step(ctx, "first", strconv.Itoa(n))
		if err != nil || n >= 100 {
			return h, err
		}
		a, err1 := kagzi.StartChild(ctx, "a", grinding, n)
		b, err2 := kagzi.StartChild(ctx, "b", grinding, n+1, kagzi.ID(fmt.Sprint("b-", n)))
		if err := errors.Join(err1, err2); err != nil {
			return "", err
		}
		low, err := kagzi.RunChild(ctx, "low", raising, n+100)
		if err != nil {
			return "", err
		}
		out, err := kagzi.Results(ctx, []*kagzi.Child[string]{a, b})
		if err != nil {
			return "", err
		}
		return l.tx(ctx, "ledger", out[0]+out[1]+low+h)
	})
}

// endedOnce fails the test unless n runs of typ ended, each completed and only once, according to the audit.
func endedOnce(t *testing.T, db *dbtest.DB, typ string, n int) {
	t.Helper()
	if runs := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = $1
		AND status = 'COMPLETED'`, typ); runs != n {
		t.Errorf("%d runs of %s completed, want %d", runs, typ, n)
	}
	if ends := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi_audit.changes
		WHERE relation = 'workflow_runs' AND new->>'workflow_type' = $1
		AND new_status IN ('COMPLETED', 'FAILED', 'CANCELLED') AND old_status <> new_status`, typ); ends != n {
		t.Errorf("runs of %s ended %d times, want %d", typ, ends, n)
	}
}

// TestThousandChildrenOnTwoWorkersOneKilled kills one of two worker processes while they execute the thousand children
// of one parent: each child, and the parent, completes exactly once.
func TestThousandChildrenOnTwoWorkersOneKilled(t *testing.T) {
	t.Parallel()
	for _, wf := range []kagzi.Workflow[int, string]{fanning, mapping} {
		t.Run(wf.Name(), func(t *testing.T) {
			t.Parallel()
			n := campaign.Size(250, 1000)
			db := dbtest.Database(t)
			dbtest.Audit(t, db.Pool)
			c := kit.NewClient(t, db.Pool)
			cfg := kit.Quick
			cfg.MaxConcurrent = 20
			var files [2]string
			var workers [2]*process
			for i := range workers {
				files[i] = filepath.Join(t.TempDir(), "l")
				spec := workerSpec{DSN: db.DSN, Ledger: files[i], Config: cfg}
				if i == 0 { // it dies in a step of a child
					spec.Point, spec.Nth, spec.Signal = "during step", n/10, syscall.SIGKILL
				}
				workers[i] = startProcess(t, spec)
				await.True(t, "the worker begins", func() bool { return countIn(t, files[i], "STARTED") == 1 })
			}
			run, err := kagzi.Start(t.Context(), c, wf, n)
			if err != nil {
				t.Fatal(err)
			}
			workers[0].killed(t)
			kit.CheckResults(t, []*kagzi.Run[string]{run}, func(int) string { return allGround(n) })
			endedOnce(t, db, "grinding", n)
			endedOnce(t, db, wf.Name(), 1)
			claims := dbtest.QueryOne[int](t, db.Pool, `SELECT count(DISTINCT new_lease) FROM kagzi_audit.changes
				WHERE relation = 'workflow_runs' AND run_id = $1`, string(run.ID()))
			again := countIn(t, files[0], "BEGIN") + countIn(t, files[1], "BEGIN") - n
			if again == 0 || countIn(t, files[1], "BEGIN") == 0 {
				t.Error("INVALID: no child was under way at the kill, or the other worker executed none")
			}
			t.Logf("%d executions begun twice; the parent was claimed %d times", again, claims)
		})
	}
}

// TestKillAFamilyAtEachPoint kills the one worker of families of three generations at each point where that may do
// harm, and lets another finish.
func TestKillAFamilyAtEachPoint(t *testing.T) {
	t.Parallel()
	for _, point := range []string{
		"after claim", "during step", "during tx", "after record", "suspend", "finish", "before flush", "after flush",
	} {
		t.Run(strings.ReplaceAll(point, " ", "-"), func(t *testing.T) {
			t.Parallel()
			kit.WaitTurn(t)
			for _, nth := range campaign.Some([]int{1, 3}, 1) {
				killFamily(t, point, nth)
			}
		})
	}
}

func killFamily(t *testing.T, point string, nth int) {
	t.Helper()
	const families = 3
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	dbtest.Exec(t, db.Pool, createEffects)
	c := kit.NewClient(t, db.Pool)
	var runs []*kagzi.Run[string]
	for i := range families {
		run, err := kagzi.Start(t.Context(), c, raising, 2*i)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	dir := t.TempDir()
	cfg := kit.Quick
	cfg.MaxConcurrent = 2
	victim := startProcess(t, workerSpec{
		DSN: db.DSN, Ledger: filepath.Join(dir, "victim"), Config: cfg, Point: point,
		Nth: nth, Signal: syscall.SIGKILL,
	})
	victim.killed(t)
	stop := kit.StartLocal(t, localWorker(t, c, filepath.Join(dir, "rescuer"), kit.Quick))
	kit.CheckResults(t, runs, func(i int) string { return raisingResult(2 * i) })
	stop()
	endedOnce(t, db, "grinding", 2*families)
	endedOnce(t, db, "raising", 2*families)
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM effects`); n != families {
		t.Errorf("%s, time %d: %d effects of %d families", point, nth, n, families)
	}
}
