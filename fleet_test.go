//go:build unix

package kagzi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// workerEnv makes the test binary a worker process instead; its value is a workerSpec. See TestMain.
const workerEnv = "KAGZI_TEST_WORKER"

// A workerSpec is what a worker process is told.
type workerSpec struct {
	DSN    string
	Ledger string // the file it appends to
	Config WorkerConfig
	Point  string         // where the process sends itself Signal: a failpoint, or "during step" or "during tx"
	Nth    int            // time it gets there
	Signal syscall.Signal // zero for none

	Coordinate bool  // the process hosts a coordinator and no worker
	Rolling    []int // the versions of the workflow rolling that the worker has
}

// A ledger is what a process did, one line for each event. Each is one write to a file opened for appending, so
// what was written stays when the process is killed.
type ledger struct{ file *os.File }

func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	return &ledger{f}, err
}

func (l *ledger) write(event string, fields ...any) {
	line := event
	for _, f := range fields {
		line += "\t" + strings.ReplaceAll(fmt.Sprint(f), "\n", " ")
	}
	if _, err := l.file.WriteString(line + "\n"); err != nil {
		panic(err)
	}
}

// readLedger returns the fields of each line of a ledger; a file that is not there yet has none.
func readLedger(path string) (lines [][]string, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		lines = append(lines, strings.Split(s.Text(), "\t"))
	}
	return lines, nil
}

// countIn returns how many of the ledger's lines begin with fields.
func countIn(t testing.TB, path string, fields ...string) int {
	t.Helper()
	lines, err := readLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, l := range lines {
		if strings.HasPrefix(strings.Join(l, "\t")+"\t", strings.Join(fields, "\t")+"\t") {
			n++
		}
	}
	return n
}

// ---- the process ----

// workerProcess is main of a worker process.
func workerProcess(text string) int {
	if err := runWorkerProcess(text); err != nil {
		fmt.Fprintln(os.Stderr, "worker process:", err)
		return 1
	}
	return 0
}

func runWorkerProcess(text string) error {
	var spec workerSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	led, err := openLedger(spec.Ledger)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test that started the process
		os.Exit(3)
	}()
	ctx, stop := ossignal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := pgxpool.ParseConfig(spec.DSN)
	if err != nil {
		return err
	}
	cfg.MaxConns = 6
	cfg.ConnConfig.Tracer = refusals{led}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	c, err := NewClient(pool, ClientConfig{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	if spec.Coordinate {
		k, err := NewCoordinator(c, spec.Config.Coordinator)
		if err != nil {
			return err
		}
		return k.Run(ctx)
	}
	w, err := NewWorker(c, spec.Config)
	if err != nil {
		return err
	}
	var hits atomic.Int64
	continued := make(chan os.Signal, 1)
	ossignal.Notify(continued, syscall.SIGCONT)
	reach := func(point string) {
		if spec.Signal == 0 || point != spec.Point || hits.Add(1) != int64(spec.Nth) {
			return
		}
		led.write("REACHED", point)
		self, _ := os.FindProcess(os.Getpid()) // always succeeds
		_ = self.Signal(spec.Signal)
		<-continued // the signal takes effect when the process's other threads see it
	}
	w.failpoint = func(point string, _ uuid.UUID) { reach(point) }
	handleWorkloads(w, led, reach)
	handleRolling(w, workload{led, reach}, spec.Rolling)
	var most atomic.Int64
	counting, counted := context.WithCancel(ctx)
	defer counted()
	go func() {
		for counting.Err() == nil {
			most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
			time.Sleep(time.Millisecond)
		}
	}()
	led.write("STARTED", os.Getpid())
	err = w.Run(ctx)
	counted()
	led.write("STOPPED", most.Load())
	return err
}

// refusals notes the fenced writes that changed nothing.
type refusals struct{ led *ledger }

func (r refusals) look(sql string, rows int64) {
	for name, part := range map[string]string{
		"record": "INSERT INTO kagzi.step_runs AS s", "park": "SET status = l.status,\n\tavailable_at", "finish": "SET status = l.status, finished_at",
	} {
		if rows == 0 && strings.Contains(sql, part) {
			r.led.write("REFUSED", name)
		}
	}
}

type tracedSQL struct{}

func (r refusals) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, tracedSQL{}, d.SQL)
}

func (r refusals) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	if sql, ok := ctx.Value(tracedSQL{}).(string); ok && d.Err == nil {
		r.look(sql, d.CommandTag.RowsAffected())
	}
}

func (r refusals) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r refusals) TraceBatchQuery(_ context.Context, _ *pgx.Conn, d pgx.TraceBatchQueryData) {
	if d.Err == nil {
		r.look(d.SQL, d.CommandTag.RowsAffected())
	}
}
func (r refusals) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// A process is a worker process under way.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *bytes.Buffer
	done   chan struct{} // closed when it has ended
	err    error         // then
}

// startProcess starts a worker process, which ends at the latest with the test.
func startProcess(t testing.TB, spec workerSpec) *process {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe), stderr: &bytes.Buffer{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text), "GORACE=atexit_sleep_ms=0") // else each takes a second to exit
	p.cmd.Stderr = p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
		if t.Failed() && p.stderr.Len() > 0 {
			t.Logf("worker process %d said:\n%s", p.cmd.Process.Pid, p.stderr)
		}
	})
	return p
}

// turns are those of tests that kill worker processes at each of many points. With all of them at work at once workers
// get no processor time, and look dead.
var turns = make(chan struct{}, runtime.GOMAXPROCS(0)+1)

// waitTurn returns when it is the test's turn, which lasts until its end.
func waitTurn(t *testing.T) {
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

// ended waits until the process has ended.
func (p *process) ended(t testing.TB) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("the worker process has not ended after %v", patience)
	}
}

// killed waits until the process has ended, and fails the test unless it ended by SIGKILL.
func (p *process) killed(t testing.TB) {
	t.Helper()
	p.ended(t)
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("INVALID: the worker process ended with %v, not by SIGKILL", p.err)
	}
}

// stop ends the process with SIGTERM and fails the test unless its worker drained.
func (p *process) stop(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.ended(t)
	if p.err != nil {
		t.Fatalf("the worker process ended with %v", p.err)
	}
}

// ---- helpers ----

// ---- the workload ----

// link is what a step makes of its predecessor's result. A lost, doubled or swapped result changes all that follow.
func link(previous, name string) string {
	sum := sha256.Sum256([]byte(previous + ">" + name))
	return hex.EncodeToString(sum[:8])
}

var (
	chained = Define[int, string]("chained", RetryPolicy{Backoff: 10 * time.Millisecond})
	triple  = Define[int, string]("triple")
	napping = Define[time.Duration, string]("napping")
	oneStep = Define[int, string]("one-step")
	oneTx   = Define[int, string]("one-tx")
	nothing = Define[int, string]("nothing")
	relapse = Define[int, string]("relapse", RetryPolicy{Backoff: 300 * time.Millisecond, NoJitter: true})
	holding = Define[string, string]("holding")
	mailed  = Define[int, string]("mailed", greeted.With("g1"))
)

var (
	greeted = DefineSignal[string]("greeted")
	parted  = DefineSignal[string]("parted")
)

// chainedResult is what a chained run must return.
func chainedResult(n int) string {
	h := link(link(link(strconv.Itoa(n), "first"), "ledger"), "flaky")
	return link(link(link(h, "left"), "left2")+link(h, "right"), "last")
}

func tripleResult(n int) string {
	return link(link(link(strconv.Itoa(n), "one"), "two"), "three")
}

// mailedResult is what a mailed run must return to which g1 to g4 and p were sent.
func mailedResult(n int) string {
	h := strconv.Itoa(n)
	for i := 1; i <= 3; i++ {
		h = link(link(h, fmt.Sprint("g", i)), "read")
	}
	return link(link(link(h, "g4"), "p"), "last")
}

// createEffects makes the table that transactional steps write. It has no unique index: a step that committed twice
// is to be seen.
const createEffects = `CREATE TABLE effects (run_id text NOT NULL, step text NOT NULL)`

const insertEffect = `INSERT INTO effects (run_id, step) VALUES ($1, $2)`

// A workload's steps write down when they begin and end, and under which lease.
type workload struct {
	led   *ledger
	reach func(point string)
}

func (l workload) begin(ctx context.Context, lease uuid.UUID) (end func()) {
	s := CurrentStep(ctx)
	l.led.write("BEGIN", s.Run, s.Step, s.Attempt, lease)
	return func() { l.led.write("END", s.Run, s.Step, s.Attempt, lease) }
}

func (l workload) step(ctx Context, name, previous string) (string, error) {
	lease := ctx.(*branch).e.run.Lease
	return Step(ctx, name, func(ctx context.Context) (string, error) {
		defer l.begin(ctx, lease)()
		l.reach("during step")
		return link(previous, name), nil
	})
}

func (l workload) tx(ctx Context, name, previous string) (string, error) {
	lease := ctx.(*branch).e.run.Lease
	return StepTx(ctx, name, func(ctx context.Context, tx pgx.Tx) (string, error) {
		defer l.begin(ctx, lease)()
		s := CurrentStep(ctx)
		if _, err := tx.Exec(ctx, insertEffect, s.Run, s.Step); err != nil {
			return "", err
		}
		l.reach("during tx")
		return link(previous, name), nil
	})
}

// flaky fails in its first attempt.
func (l workload) flaky(ctx Context, name, previous string) (string, error) {
	lease := ctx.(*branch).e.run.Lease
	return Step(ctx, name, func(ctx context.Context) (string, error) {
		defer l.begin(ctx, lease)()
		if CurrentStep(ctx).Attempt == 1 {
			return "", errors.New("not yet")
		}
		return link(previous, name), nil
	}, RetryPolicy{Backoff: 5 * time.Millisecond})
}

func (l workload) chained(ctx Context, n int) (string, error) {
	h, err := l.step(ctx, "first", strconv.Itoa(n))
	if err != nil {
		return "", err
	}
	if h, err = l.tx(ctx, "ledger", h); err != nil {
		return "", err
	}
	if h, err = l.flaky(ctx, "flaky", h); err != nil {
		return "", err
	}
	if err := Sleep(ctx, "nap", 250*time.Millisecond); err != nil {
		return "", err
	}
	left := Go(ctx, "l", func(ctx Context) (string, error) {
		h, err := l.step(ctx, "left", h)
		if err != nil {
			return "", err
		}
		return l.step(ctx, "left2", h)
	})
	right := Go(ctx, "r", func(ctx Context) (string, error) { return l.step(ctx, "right", h) })
	a, err := left.Result(ctx)
	if err != nil {
		return "", err
	}
	b, err := right.Result(ctx)
	if err != nil {
		return "", err
	}
	return l.step(ctx, "last", a+b)
}

func (l workload) triple(ctx Context, n int) (h string, err error) {
	h = strconv.Itoa(n)
	for _, name := range []string{"one", "two", "three"} {
		if h, err = l.step(ctx, name, h); err != nil {
			return "", err
		}
	}
	return h, nil
}

// mailed reads three messages one by one, races for two others, of which the loser's is read after, and waits in vain.
func (l workload) mailed(ctx Context, n int) (string, error) {
	h := strconv.Itoa(n)
	for range 3 {
		v, err := WaitSignal(ctx, greeted)
		if err != nil {
			return "", err
		}
		if h, err = l.step(ctx, "read", link(h, v)); err != nil {
			return "", err
		}
	}
	read := func(s Signal[string]) func(Context) (string, error) {
		return func(ctx Context) (string, error) { return WaitSignal(ctx, s) }
	}
	either := map[string]func(Context) (string, error){"greeted": read(greeted), "parted": read(parted.For("a/b"))}
	winner, v, err := Race(ctx, "either", either)
	if err != nil {
		return "", err
	}
	got := map[string]string{winner: v}
	delete(either, winner)
	for loser, read := range either {
		if got[loser], err = read(ctx); err != nil {
			return "", err
		}
	}
	if v, err := WaitSignal(ctx, parted, Timeout(300*time.Millisecond)); !errors.Is(err, KindTimeout) {
		return "", fmt.Errorf("a wait in vain got %q, %w", v, err)
	}
	return l.tx(ctx, "last", link(link(h, got["greeted"]), got["parted"]))
}

// hold waits in a step until its context ends, or until the file named by its input is there.
func (l workload) hold(ctx Context, release string) (string, error) {
	lease := ctx.(*branch).e.run.Lease
	return Step(ctx, "hold", func(ctx context.Context) (string, error) {
		defer l.begin(ctx, lease)()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				l.led.write("CAUSE", CurrentStep(ctx).Run, context.Cause(ctx))
				return "", context.Cause(ctx)
			case <-tick.C:
			}
			if _, err := os.Stat(release); err == nil {
				return "held", nil
			}
		}
	})
}

func handleWorkloads(w *Worker, led *ledger, reach func(string)) {
	l := workload{led, reach}
	handleFamilies(w, l)
	Handle(w, chained, l.chained)
	Handle(w, triple, l.triple)
	Handle(w, mailed, l.mailed)
	Handle(w, holding, l.hold)
	Handle(w, saga, l.saga)
	Handle(w, oneStep, func(ctx Context, n int) (string, error) { return l.step(ctx, "one", strconv.Itoa(n)) })
	Handle(w, oneTx, func(ctx Context, n int) (string, error) { return l.tx(ctx, "one", strconv.Itoa(n)) })
	Handle(w, nothing, func(_ Context, n int) (string, error) { return strconv.Itoa(n), nil })
	Handle(w, napping, func(ctx Context, d time.Duration) (string, error) {
		if err := Sleep(ctx, "nap", d); err != nil {
			return "", err
		}
		return "rested", nil
	})
	Handle(w, relapse, func(ctx Context, n int) (string, error) {
		if ctx.Attempt() == 1 {
			return "", errors.New("not yet")
		}
		return strconv.Itoa(n), nil
	})
}

// localWorker is a worker in this process that handles the workloads and writes the ledger at path.
func localWorker(t testing.TB, c *Client, path string, cfg WorkerConfig) *Worker {
	t.Helper()
	led, err := openLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = led.file.Close() })
	w, err := NewWorker(c, cfg)
	if err != nil {
		t.Fatal(err)
	}
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

// ---- many processes ----

// TestFleetSharesAQueue shows that several processes execute each step of each run once if nothing fails.
func TestFleetSharesAQueue(t *testing.T) {
	t.Parallel()
	const processes, n = 4, 2000
	db := dbtest.Database(t)
	c := quietClient(t, db.Pool)
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
