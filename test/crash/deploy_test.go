//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
)

// rolling is the workflow whose versions a rolling deploy mixes. Its input names the file that lets its runs end.
var rolling = kagzi.Define[string, string]("rolling", kit.NoRetry)

// handleRolling gives the worker one handler of it for each version. Every step returns the version whose code it is.
func handleRolling(w *kagzi.Worker, l workload, versions []int) {
	for _, version := range versions {
		kagzi.Handle(w, rolling, func(ctx kagzi.Context, release string) (string, error) {
			step := func(name string, wait bool) (string, error) {
				lease := ctx.(testhook.Branch).Lease()
				return kagzi.Step(ctx, name, func(ctx context.Context) (string, error) {
					defer l.begin(ctx, lease)()
					l.led.write("VERSION", kagzi.CurrentStep(ctx).Run, version)
					for wait {
						if _, err := os.Stat(release); err == nil {
							break
						}
						select {
						case <-ctx.Done():
							return "", context.Cause(ctx)
						case <-time.After(5 * time.Millisecond):
						}
					}
					return fmt.Sprint(version), nil
				})
			}
			first, err := step("first", false)
			if err != nil {
				return "", err
			}
			if err := kagzi.Sleep(ctx, "nap", 300*time.Millisecond); err != nil { // any worker of the version goes on
				return "", err
			}
			hold, err := step("hold", true)
			if err != nil {
				return "", err
			}
			last, err := step("last", false)
			return strings.Join([]string{fmt.Sprint(version), first, hold, last}, " "), err
		}, kagzi.Version(version))
	}
}

// A rollout is a database and the worker processes of a deploy.
type rollout struct {
	t       *testing.T
	db      *dbtest.DB
	c       *kagzi.Client
	dir     string
	release string // the file that lets runs end
}

func newRollout(t *testing.T) *rollout {
	db, dir := dbtest.Database(t), t.TempDir()
	dbtest.Audit(t, db.Pool)
	return &rollout{t, db, kit.NewClient(t, db.Pool), dir, filepath.Join(dir, "release")}
}

func (r *rollout) ledger(name string) string { return filepath.Join(r.dir, name) }

// start starts a worker process and waits until it is registered.
func (r *rollout) start(name string, versions ...int) *process {
	p := startProcess(r.t, workerSpec{DSN: r.db.DSN, Ledger: r.ledger(name), Config: roomy, Rolling: versions})
	await.True(r.t, "worker "+name+" is registered", func() bool {
		return dbtest.QueryOne[int](r.t, r.db.Pool, `SELECT count(*) FROM kagzi.workers WHERE pid = $1`,
			p.cmd.Process.Pid) == 1
	})
	return p
}

// roomy has room for all runs of a test, so that the worker left over can take them, and notices by their connections
// that others have died: on a busy machine one that lives is silent for long.
var roomy = kagzi.WorkerConfig{
	MaxConcurrent: 32, Heartbeat: time.Second, StaleAfter: 20 * time.Second, PollInterval: 200 * time.Millisecond,
	Coordinator: kagzi.CoordinatorConfig{Interval: 200 * time.Millisecond},
}

func (r *rollout) begin(opts ...kagzi.StartOption) *kagzi.Run[string] {
	r.t.Helper()
	run, err := kagzi.Start(r.t.Context(), r.c, rolling, r.release, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

// versions returns the version of each run.
func (r *rollout) versions() map[kagzi.RunID]int {
	r.t.Helper()
	rows, _ := r.db.Pool.Query(r.t.Context(), `SELECT run_id::text, coalesce(version, 0) FROM kagzi.workflow_runs`)
	out := map[kagzi.RunID]int{}
	var id string
	var version int
	if _, err := pgx.ForEachRow(rows, []any{&id, &version}, func() error {
		out[kagzi.RunID(id)] = version
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// held waits until all runs of the version are held by one of the processes.
func (r *rollout) held(version int, by ...*process) {
	r.t.Helper()
	var pids []int
	for _, p := range by {
		pids = append(pids, p.cmd.Process.Pid)
	}
	await.True(r.t, fmt.Sprintf("all runs of version %d are held", version), func() bool {
		return dbtest.QueryOne[bool](r.t, r.db.Pool, `SELECT coalesce(bool_and(r.status = 'RUNNING' AND w.pid = ANY ($2)
			AND w.status = 'ONLINE' AND
			EXISTS (SELECT FROM kagzi.step_runs s WHERE s.run_id = r.run_id AND s.step_id = 'nap'
				AND s.wake_at <= clock_timestamp())), false)
			FROM kagzi.workflow_runs r LEFT JOIN kagzi.workers w ON w.worker_id = r.locked_by
				WHERE r.version = $1`, version, pids)
	})
}

// holds returns how many runs the process holds.
func (r *rollout) holds(p *process) int {
	r.t.Helper()
	return dbtest.QueryOne[int](r.t, r.db.Pool, `SELECT count(*) FROM kagzi.workflow_runs r JOIN kagzi.workers w
		ON w.worker_id = r.locked_by WHERE w.pid = $1`, p.cmd.Process.Pid)
}

func (r *rollout) kill(p *process) {
	r.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		r.t.Fatal(err)
	}
	p.killed(r.t)
}

// TestRollingDeploy lets workers of an old version and of a new one run side by side, with runs begun before and
// meanwhile, and kills one of each in turn: every run completes on the version that it began with.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	a1, a2 := r.start("a1", 1), r.start("a2", 1)
	var runs []*kagzi.Run[string]
	for range 6 {
		runs = append(runs, r.begin())
	}
	r.held(1, a1, a2)
	before := r.versions()

	b1, b2 := r.start("b1", 1, 2), r.start("b2", 2) // one of the new program has both, until no run of the old is left
	for range 4 {
		runs = append(runs, r.begin(), r.begin(kagzi.Version(1)), r.begin(kagzi.Version(2)))
	}
	await.True(t, "all runs have begun", func() bool { return !slices.Contains(slicesOf(r.versions()), 0) })
	r.held(1, a1, a2, b1)
	r.held(2, b1, b2)
	begun := r.versions()

	if r.holds(a1) < r.holds(a2) {
		a1, a2 = a2, a1
	}
	r.kill(a1) // which has three of the first six at least
	r.held(1, a2, b1)
	r.kill(b2)
	r.held(2, b1)
	b3 := r.start("b3", 2)
	r.kill(b1) // of no run it is the third worker to die, which would make it suspect
	r.held(1, a2)
	r.held(2, b3)
	if list, err := admin.New(r.c).Stranded(t.Context()); err != nil || list != nil {
		t.Errorf("stranded with workers of both: %+v, %v", list, err)
	}
	kit.Touch(t, r.release)

	for _, run := range runs {
		version := begun[run.ID()]
		if was := before[run.ID()]; was != 0 && was != version {
			t.Errorf("run %s began on version %d and went on on %d", run.ID(), was, version)
		}
		got, err := run.Result(kit.Context(t))
		if want := strings.TrimSpace(strings.Repeat(fmt.Sprint(version, " "), 4)); err != nil || got != want {
			t.Errorf("run %s of version %d returned %q, %v", run.ID(), version, got, err)
		}
	}
	for id, version := range r.versions() {
		if version != begun[id] {
			t.Errorf("run %s began on version %d and ended on %d", id, begun[id], version)
		}
	}
	if count(begun, 1) < 10 || count(begun, 2) < 4 {
		t.Errorf("INVALID: %d runs of version 1, %d of version 2", count(begun, 1), count(begun, 2))
	}
	r.checkLedgers(begun, "a1", "a2", "b1", "b2", "b3")
	t.Logf("%d runs of version 1, %d of version 2", count(begun, 1), count(begun, 2))
}

// checkLedgers compares what the processes executed with the versions of the runs: no step by other code, and none that
// was recorded before a kill again.
func (r *rollout) checkLedgers(versions map[kagzi.RunID]int, names ...string) {
	r.t.Helper()
	first := map[string]int{}
	for _, name := range names {
		lines, err := readLedger(r.ledger(name))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, l := range lines {
			switch {
			case l[0] == "VERSION" && l[2] != fmt.Sprint(versions[kagzi.RunID(l[1])]):
				r.t.Errorf("worker %s executed a step of run %s by version %s, not %d", name, l[1], l[2],
					versions[kagzi.RunID(l[1])])
			case l[0] == "BEGIN" && l[2] == "first":
				first[l[1]]++
			}
		}
	}
	for id := range versions {
		if first[string(id)] != 1 {
			r.t.Errorf("the first step of run %s was executed %d times", id, first[string(id)])
		}
	}
}

func count(versions map[kagzi.RunID]int, of int) (n int) {
	for _, v := range versions {
		if v == of {
			n++
		}
	}
	return n
}

func slicesOf(versions map[kagzi.RunID]int) (out []int) {
	for _, v := range versions {
		out = append(out, v)
	}
	return out
}

// TestStrandedRunWaitsForItsVersion lets a run fall asleep, replaces the workers of its version by those of another,
// and brings one back.
func TestStrandedRunWaitsForItsVersion(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	a := r.start("a", 1)
	run := r.begin()
	r.held(1, a)
	r.start("b", 2)
	r.kill(a)
	await.True(t, "the old worker is given up", func() bool {
		list, err := admin.New(r.c).Stranded(t.Context())
		return err == nil && len(list) == 1
	})
	list, err := admin.New(r.c).Stranded(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	info, err := run.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s := list[0]; s.Workflow != "rolling" || s.Version != 1 || s.Queue != "default" || s.Count != 1 || s.More ||
		!s.Oldest.Equal(info.CreatedAt) {
		t.Errorf("stranded %+v", s)
	}
	kit.Touch(t, r.release)
	other := r.begin() // it goes to the version that is there
	if got, err := other.Result(kit.Context(t)); err != nil || got != "2 2 2 2" {
		t.Errorf("got %q, %v", got, err)
	}
	if info, err := run.Info(t.Context()); err != nil || info.Status.Ended() || info.Version != 1 {
		t.Errorf("the run of version 1 is %+v, %v", info, err)
	}
	r.start("c", 1, 2)
	if got, err := run.Result(kit.Context(t)); err != nil || got != "1 1 1 1" {
		t.Errorf("got %q, %v", got, err)
	}
	if list, err := admin.New(r.c).Stranded(t.Context()); err != nil || list != nil {
		t.Errorf("stranded afterwards: %+v, %v", list, err)
	}
}
