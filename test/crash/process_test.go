//go:build unix

package crash_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	ossignal "os/signal"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
)

// workerEnv makes the test binary a worker process instead; its value is a workerSpec. See TestMain.
const workerEnv = "KAGZI_TEST_WORKER"

// A workerSpec is the configuration of a worker process.
type workerSpec struct {
	DSN    string
	Ledger string // the file it appends to
	Config kagzi.WorkerConfig
	Point  string         // where the process sends itself Signal: a failpoint, or "during step" or "during tx"
	Nth    int            // time it gets there
	Signal syscall.Signal // zero for none

	Starts     bool  // the process starts runs of oneStep, one after the other
	Coordinate bool  // the process hosts a coordinator and no worker
	Rolling    []int // the versions of the workflow rolling that the worker has
	Consumers  int   // the worker has the functions of so many consumers

	Deletes kagzi.RunID // the process deletes this run and hosts no worker
}

// A ledger is what a process did, one line for each event. Each is one write to a file opened for appending, so
// the lines stay when the process is killed.
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
	cfg.ConnConfig.Tracer = kit.Refusals(func(write string) { led.write("REFUSED", write) })
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	c, err := kagzi.NewClient(pool, kagzi.ClientConfig{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	if spec.Deletes != "" {
		return admin.New(c).Runs.Delete(ctx, spec.Deletes, kagzi.Actor("ada"))
	}
	if spec.Coordinate {
		k, err := kagzi.NewCoordinator(c, spec.Config.Coordinator)
		if err != nil {
			return err
		}
		return k.Run(ctx)
	}
	w, err := kagzi.NewWorker(c, spec.Config)
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
		led.write("REACHED", point, os.Getpid())
		self, _ := os.FindProcess(os.Getpid()) // always succeeds
		_ = self.Signal(spec.Signal)
		<-continued // the signal takes effect when the process's other threads see it
	}
	handleWorkloads(w, led, reach)
	handleRolling(w, workload{led, reach}, spec.Rolling)
	handleConsumers(w, workload{led, reach}, spec.Consumers)
	var most atomic.Int64
	counting, counted := context.WithCancel(ctx)
	defer counted()
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for counting.Err() == nil {
			most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
			<-tick.C
		}
	}()
	if spec.Starts {
		go func() {
			for n := 0; ctx.Err() == nil; n++ {
				if run, err := kagzi.Start(ctx, c, oneStep, n); err == nil {
					_, _ = run.Result(ctx)
				}
			}
		}()
	}
	led.write("STARTED", os.Getpid())
	err = w.Run(testhook.With(ctx, &testhook.Hooks{Point: func(point string, _ uuid.UUID) { reach(point) }}))
	counted()
	led.write("STOPPED", most.Load())
	return err
}

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
	kit.WaitTurn(t)
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe), stderr: &bytes.Buffer{}, done: make(chan struct{})}
	// else each takes a second to exit
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text), "GORACE=atexit_sleep_ms=0")
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

// ended waits until the process has ended.
func (p *process) ended(t testing.TB) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(await.Patience):
		t.Fatalf("the worker process has not ended after %v", await.Patience)
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
