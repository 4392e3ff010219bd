package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

// ---- in the worker's process ----

// workerEnv makes a process a worker. It has the worker's name, journal and namespace. The database's URL is in urlEnv.
const (
	workerEnv = "KAGZI_QUICKSTART_WORKER"
	urlEnv    = "KAGZI_QUICKSTART_URL"
)

// work runs a worker process. It stops when its standard input ends, because the parent closed it or died.
func work(ctx context.Context) error {
	signal.Ignore(os.Interrupt) // Ctrl-C goes to all processes of a terminal, but the parent decides when to stop
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // returns when the input ends, with or without an error
		stop()
		time.Sleep(10 * time.Second) // a drain takes less, unless the database ended with the parent
		os.Exit(1)
	}()

	env := strings.Split(os.Getenv(workerEnv), "\n")
	name, path, shop := env[0], env[1], env[2]
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	pool, err := pgxpool.New(ctx, os.Getenv(urlEnv))
	if err != nil {
		return err
	}
	defer pool.Close()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("by", name)
	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{Namespace: shop, Logger: logger})
	if err != nil {
		return err
	}
	// By default a worker is declared dead after 30 s without heartbeats. That is too long for a demonstration.
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{
		MaxConcurrent: 8, Heartbeat: 500 * time.Millisecond, StaleAfter: 2 * time.Second, DrainTimeout: 3 * time.Second,
	})
	if err != nil {
		return err
	}
	shopkeeper := &app{journal: &journal{worker: name, file: file}}
	kagzi.Handle(worker, Checkout, shopkeeper.checkout)
	return worker.Run(ctx)
}

// A journal records every execution of a step before its effects, each with one write to a file, so that the executions
// of a killed process can be read.
type journal struct {
	worker string
	file   *os.File

	mu    sync.Mutex
	count int
}

// begin records an execution of the step of ctx, and returns the number of the note.
func (j *journal) begin(ctx context.Context) (note string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.count++
	e := execution{
		note: fmt.Sprintf("%s/%d", j.worker, j.count), worker: j.worker, at: time.Now(),
		step: stepOf(kagzi.CurrentStep(ctx)),
	}
	if _, err := j.file.WriteString(e.line()); err != nil {
		panic(err) // fails the step, visibly
	}
	return e.note
}

// An attempt identifies an attempt of a step.
type step struct {
	run     kagzi.RunID
	name    string
	attempt int
}

func stepOf(s kagzi.StepInfo) step { return step{s.Run, s.Step, s.Attempt} }

// An execution is a line of a journal.
type execution struct {
	note   string // worker-1/17
	worker string
	at     time.Time
	step   step
}

func (e execution) line() string {
	return fmt.Sprintf("%s\t%d\t%s\t%s\t%d\n", e.note, e.at.UnixNano(), e.step.run, e.step.name, e.step.attempt)
}

func parseExecution(line string) (e execution, err error) {
	f := strings.Split(line, "\t")
	if len(f) != 5 {
		return e, fmt.Errorf("journal: %q", line)
	}
	nanos, err1 := strconv.ParseInt(f[1], 10, 64)
	attempt, err2 := strconv.Atoi(f[4])
	e = execution{note: f[0], at: time.Unix(0, nanos), step: step{kagzi.RunID(f[2]), f[3], attempt}}
	e.worker, _, _ = strings.Cut(e.note, "/")
	return e, errors.Join(err1, err2)
}

// ---- in the parent ----

// A process is a worker seen from outside.
type process struct {
	cmd  *exec.Cmd
	in   io.Closer     // the worker stops when it is closed
	done chan struct{} // closed when the worker has ended
	err  error         // how it ended; valid once done is closed
}

// hire starts a worker: this program again, with workerEnv in its environment.
func (s *show) hire(name string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerEnv+"="+strings.Join([]string{name, s.journal(name), s.shop}, "\n"),
		urlEnv+"="+s.url)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		if p.err = cmd.Wait(); p.err == nil {
			p.err = errors.New("exit status 0")
		}
	}()
	return p, nil
}

func (p *process) gone() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the worker as a crash would.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	return err
}

// stop drains the worker, and kills it if that takes too long.
func (p *process) stop() error {
	_ = p.in.Close() // of no consequence if the worker has ended
	select {
	case <-p.done:
		return nil
	case <-time.After(5 * time.Second):
		_ = p.kill()
		return fmt.Errorf("process %d did not stop when it was told to", p.cmd.Process.Pid)
	}
}
