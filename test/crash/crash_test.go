//go:build unix

package crash_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestKillAtEachPoint kills a worker process at each point where that may do harm, the first time that it gets there,
// in a long campaign up to the third time, and lets another worker finish: every run completes with the result that its
// steps must have led to, nothing recorded is executed again, and every transactional effect exists once.
func TestKillAtEachPoint(t *testing.T) {
	t.Parallel()
	for _, point := range []string{
		"after claim", "before step", "during step", "after step", "during tx", "after record",
		"suspend", "finish", "before flush", "after flush",
	} {
		t.Run(strings.ReplaceAll(point, " ", "-"), func(t *testing.T) {
			t.Parallel()
			kit.WaitTurn(t)
			killAt(t, point, chained, chainedResult, nil, campaign.Some([]int{1, 2, 3}, 1)...)
		})
	}
}

// TestKillWhileSignalled does the same to runs that read messages, which are sent meanwhile: each is read once, the
// loser of a race reads none, and a wait that timed out has timed out.
func TestKillWhileSignalled(t *testing.T) {
	t.Parallel()
	send := func(ctx context.Context, c *kagzi.Client, r *kagzi.Run[string]) error {
		for i := 2; i <= 4; i++ {
			if err := c.Signal(ctx, r.ID(), greeted.With(fmt.Sprint("g", i))); err != nil {
				return err
			}
		}
		return c.Signal(ctx, r.ID(), parted.For("a/b").With("p"))
	}
	for _, kill := range campaign.Some([]struct {
		point string
		nth   int
	}{
		{"suspend", 1},
		{"after claim", 3},
		{"after flush", 1},
		{"after flush", 4},
		{"before step", 2},
		{"after step", 1},
		{"during tx", 1},
		{"after record", 2},
		{"finish", 1},
		{"before flush", 3},
	}, 3) {
		t.Run(fmt.Sprint(strings.ReplaceAll(kill.point, " ", "-"), kill.nth), func(t *testing.T) {
			t.Parallel()
			killAt(t, kill.point, mailed, mailedResult, send, kill.nth)
		})
	}
}

// TestKillAfterAStartInPlace kills a worker process when it has inserted a run for itself, and has not begun it.
// Another worker executes the run.
func TestKillAfterAStartInPlace(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	file := filepath.Join(t.TempDir(), "l")
	startProcess(t, workerSpec{
		DSN: db.DSN, Ledger: file, Config: kit.Quick, Starts: true, Point: "after start", Nth: 1,
		Signal: syscall.SIGKILL,
	}).killed(t)
	id := dbtest.QueryOne[string](t, db.Pool, `SELECT run_id::text FROM kagzi.workflow_runs WHERE status = 'RUNNING'`)
	before := countIn(t, file, "BEGIN")
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 hour'`) // no need to wait
	kit.StartLocal(t, localWorker(t, c, file, kit.Quick))
	if _, err := kit.Find(t, c, oneStep, kagzi.RunID(id)).Result(kit.Context(t)); err != nil {
		t.Error(err)
	}
	if n := countIn(t, file, "BEGIN") - before; n != 1 {
		t.Errorf("%d steps were executed after the kill, want 1", n)
	}
}

// killAt kills a worker process the nth time it gets to a point, for each of nths.
func killAt(t *testing.T, point string, wf kagzi.Workflow[int, string], want func(int) string,
	send func(context.Context, *kagzi.Client, *kagzi.Run[string]) error, nths ...int,
) {
	ks := make([]*killing, len(nths))
	for i, nth := range nths {
		ks[i] = newKilling(t, point, nth, wf)
		ks[i].want, ks[i].send = want, send
	}
	var wg sync.WaitGroup
	for _, k := range ks {
		wg.Go(func() { k.err = k.run() })
	}
	wg.Wait()
	for _, k := range ks {
		if k.err != nil {
			t.Errorf("%s, time %d: %v", point, k.nth, k.err)
		}
		t.Logf("time %d: %d steps were recorded at the kill, %d steps were executed again", k.nth,
			len(k.recorded), k.again)
	}
}

// A killing is a worker process that was killed at a point, and the outcome of its runs.
type killing struct {
	point   string
	nth     int
	db      *dbtest.DB
	c       *kagzi.Client
	victim  *process
	rescuer *kagzi.Worker
	files   [2]string // ledgers of victim and rescuer
	runs    []*kagzi.Run[string]
	want    func(int) string                                               // the i-th run returns
	send    func(context.Context, *kagzi.Client, *kagzi.Run[string]) error // what a run waits for; nil for nothing
	// "run step" with a result when the victim was dead
	recorded map[string]bool
	again    int
	err      error
}

func newKilling(t *testing.T, point string, nth int, wf kagzi.Workflow[int, string]) *killing {
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	dbtest.Exec(t, db.Pool, createEffects)
	c := kit.NewClientWith(t, db.Pool, kagzi.ClientConfig{RunEvents: true})
	k := &killing{point: point, nth: nth, db: db, c: c, runs: kit.StartRuns(t, c, wf, 5)}
	dir := t.TempDir()
	k.files = [2]string{filepath.Join(dir, "victim"), filepath.Join(dir, "rescuer")}
	cfg := kit.Quick
	cfg.MaxConcurrent = 2 // so that it claims more than once
	k.victim = startProcess(t, workerSpec{
		DSN: db.DSN, Ledger: k.files[0], Config: cfg, Point: point, Nth: nth,
		Signal: syscall.SIGKILL,
	})
	k.rescuer = localWorker(t, c, k.files[1], kit.Quick)
	return k
}

func (k *killing) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*await.Patience)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		for _, r := range k.runs {
			if k.send == nil {
				break
			}
			if err := k.send(ctx, k.c, r); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	select {
	case <-k.victim.done:
	case <-ctx.Done():
		return errors.New("INVALID: the worker process did not die")
	}
	if ws, ok := k.victim.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		return fmt.Errorf("INVALID: the worker process ended with %v", k.victim.err)
	}
	if err := errors.Join(<-sent, k.remember(ctx)); err != nil {
		return err
	}
	rescuing, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- k.rescuer.Run(rescuing) }()
	err := k.results(ctx)
	stop()
	if err := errors.Join(err, <-done); err != nil {
		return err
	}
	return errors.Join(k.checkSteps(), k.checkEffects(ctx), checkTold(ctx, k.db))
}

// remember reads the records after the death of the victim, while no other worker runs.
func (k *killing) remember(ctx context.Context) error {
	rows, _ := k.db.Pool.Query(ctx, `SELECT run_id || ' ' || step_id FROM kagzi.step_runs WHERE status = 'COMPLETED'`)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	k.recorded = map[string]bool{}
	for _, s := range steps {
		k.recorded[s] = true
	}
	var over int
	if err == nil {
		err = k.db.Pool.QueryRow(ctx, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`).Scan(&over)
	}
	if err == nil && over == len(k.runs) {
		err = errors.New("INVALID: every run was over before the kill")
	}
	return err
}

func (k *killing) results(ctx context.Context) error {
	for i, r := range k.runs {
		if got, err := r.Result(ctx); err != nil || got != k.want(i) {
			return fmt.Errorf("run %s returned %q, %v; want %q", r.ID(), got, err, k.want(i))
		}
	}
	return nil
}

// checkSteps compares the steps that the processes executed with those recorded between.
func (k *killing) checkSteps() error {
	var errs []error
	begun := map[string]int{}
	reached := false
	for i, file := range k.files {
		lines, err := readLedger(file)
		if err != nil {
			return err
		}
		for _, l := range lines {
			reached = reached || l[0] == "REACHED"
			if l[0] != "BEGIN" {
				continue
			}
			step := l[1] + " " + l[2]
			begun[step+" "+l[3]]++
			if i == 1 && k.recorded[step] {
				errs = append(errs, fmt.Errorf("step %s was recorded and is executed again", step))
			}
		}
	}
	if !reached {
		errs = append(errs, errors.New("INVALID: the point was not reached"))
	}
	for attempt, n := range begun {
		k.again += n - 1
		if n > 2 {
			errs = append(errs, fmt.Errorf("attempt %s was executed %d times with one kill", attempt, n))
		}
	}
	if k.again > 2 { // the victim had two slots; a run's branches are under way together
		errs = append(errs, checkAgain(begun))
	}
	return errors.Join(errs...)
}

// checkAgain allows that each of the victim's two runs repeats its last step, or the last of each branch.
func checkAgain(begun map[string]int) error {
	runs := map[string]int{}
	for attempt, n := range begun {
		run, _, _ := strings.Cut(attempt, " ")
		if runs[run] += n - 1; runs[run] > 2 {
			return fmt.Errorf("%d attempts of run %s were executed again after one kill", runs[run], run)
		}
	}
	return nil
}

func (k *killing) checkEffects(ctx context.Context) error {
	var rows, runs int
	err := k.db.Pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT run_id) FROM effects`).Scan(&rows, &runs)
	if err == nil && (rows != len(k.runs) || runs != len(k.runs)) {
		err = fmt.Errorf("%d effects of %d runs, want one of each of %d", rows, runs, len(k.runs))
	}
	return err
}

// A takeover is a run in a step that lasts until the test lets it end: the worker process that executed it was killed,
// and another one executes it.
type takeover struct {
	db      *dbtest.DB
	c       *kagzi.Client
	run     *kagzi.Run[string]
	victim  *process
	release string
}

// takeOver kills the one of two worker processes that executes a run. Workers counts those that have started. The other
// one begins the run's step within most, and the run has lost a worker and no attempt.
func takeOver(t *testing.T, cfg kagzi.WorkerConfig, workers string, most time.Duration) *takeover {
	t.Helper()
	db := dbtest.Database(t)
	dir := t.TempDir()
	ledgers := [2]string{filepath.Join(dir, "victim"), filepath.Join(dir, "rescuer")}
	o := &takeover{db: db, c: kit.NewClient(t, db.Pool), release: filepath.Join(dir, "release")}
	o.victim = startProcess(t, workerSpec{DSN: db.DSN, Ledger: ledgers[0], Config: cfg})
	var err error
	if o.run, err = kagzi.Start(t.Context(), o.c, holding, o.release); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the step begins", func() bool { return countIn(t, ledgers[0], "BEGIN") == 1 })
	startProcess(t, workerSpec{DSN: db.DSN, Ledger: ledgers[1], Config: cfg})
	await.True(t, "the other worker starts", func() bool { return dbtest.QueryOne[int](t, db.Pool, workers) == 2 })
	if err := o.victim.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	o.victim.killed(t)
	await.True(t, "the step begins elsewhere", func() bool { return countIn(t, ledgers[1], "BEGIN") == 1 })
	took := time.Since(killed)
	t.Logf("executing elsewhere %v after the kill", took.Round(time.Millisecond))
	if took > most {
		t.Errorf("that took %v", took)
	}
	if info, err := o.run.Info(t.Context()); err != nil || info.Recoveries != 1 || info.Attempts != 0 {
		t.Errorf("recoveries %d, attempts %d, %v; want 1 and 0", info.Recoveries, info.Attempts, err)
	}
	return o
}

// complete lets the step end, and with it the run.
func (o *takeover) complete(t *testing.T) {
	t.Helper()
	kit.Touch(t, o.release)
	if got, err := o.run.Result(kit.Context(t)); err != nil || got != "held" {
		t.Errorf("got %q, %v", got, err)
	}
}

// The runs of a killed process are executed elsewhere within seconds.
func TestCrashIsDetected(t *testing.T) {
	t.Parallel()
	cfg := kagzi.WorkerConfig{Heartbeat: time.Second, StaleAfter: 3 * time.Second} // the lease timeout is 5 minutes
	o := takeOver(t, cfg, `SELECT count(*) FROM kagzi.workers`, await.Patience)
	if n := dbtest.QueryOne[int](t, o.db.Pool, `SELECT count(*) FROM kagzi.workers w JOIN kagzi.worker_events e
		USING (worker_id)
		WHERE w.status = 'OFFLINE' AND w.pid = $1 AND e.event = 'LOST'`, o.victim.cmd.Process.Pid); n != 1 {
		t.Errorf("%d OFFLINE rows with a LOST event, want 1", n)
	}
	o.complete(t)
}

// A silent worker is declared dead after its own StaleAfter.
func TestDefaultsDetectACrashWithinAMinute(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	run, err := kagzi.Start(t.Context(), c, oneStep, 1)
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET status = 'RUNNING', locked_by = gen_random_uuid(),
		lease = gen_random_uuid(),
		available_at = now() + interval '4 minutes', started_at = now()`)
	// The last heartbeats of both were 31 s ago. One held the run; the other may be silent for longer.
	dbtest.Exec(t, db.Pool, `INSERT INTO kagzi.workers (worker_id, namespace_id, task_queues, workflow_types, status,
		lease_timeout, stale_after, heartbeat_at)
		SELECT locked_by, 'default', ARRAY['default'], ARRAY['one-step'], 'ONLINE', interval '5 minutes',
			interval '30 s', now() - interval '31 s' FROM kagzi.workflow_runs
		UNION ALL SELECT gen_random_uuid(), 'default', ARRAY['default'], ARRAY['one-step'], 'ONLINE',
			interval '5 minutes', interval '5 minutes', now() - interval '31 s'`)
	kit.StartLocal(t, localWorker(t, c, filepath.Join(t.TempDir(), "l"), kagzi.WorkerConfig{}))
	if _, err := run.Result(kit.Context(t)); err != nil {
		t.Error(err)
	}
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.workers WHERE status = 'OFFLINE'`); n != 1 {
		t.Errorf("%d workers were declared dead, want the one", n)
	}
}

// TestKillIsNoticedByTheConnection kills a worker process of default settings: another one, of default settings too,
// executes its run long before a coordinator could miss a heartbeat.
func TestKillIsNoticedByTheConnection(t *testing.T) {
	t.Parallel()
	// It takes 5 seconds on an idle machine. After 30 seconds the heartbeats would be missed.
	o := takeOver(t, kagzi.WorkerConfig{}, `SELECT count(*) FROM kagzi.workers WHERE backend_pid IS NOT NULL`,
		30*time.Second)
	c := o.c
	page, total, err := admin.New(c).Workers.List(t.Context(), admin.WorkerFilter{Status: []string{"OFFLINE"}})
	if err != nil || total != 1 || page[0].PID != o.victim.cmd.Process.Pid || page[0].StoppedAt.IsZero() ||
		page[0].Active != 0 {
		t.Fatalf("offline %+v, %v; want the victim", page, err)
	}
	events, err := admin.New(c).Workers.Log(t.Context(), page[0].ID)
	if err != nil || len(events) != 2 || events[1].Event != "LOST" || events[1].Reason != "connection gone" {
		t.Errorf("events %+v, %v", events, err)
	}
	o.complete(t)
}
