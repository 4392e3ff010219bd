// Package fleet runs the worker processes of a round of chaos. Each has a place with a proxy of its own, so that a
// fault reaches one worker and no other, and a ledger of its own, which outlives it.
package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// Env makes this program a worker process instead; its value is a Spec.
const Env = "KAGZI_CHAOS_WORKER"

// A Spec is what a worker process is told.
type Spec struct {
	Name       string // "3.2": the second process in place 3
	DSN        string
	Ledger     string // the file that it appends to
	Seed       uint64 // of the round
	Config     kagzi.WorkerConfig
	Version    int   // of the code
	Conns      int32 // of the pool
	Coordinate bool  // the process hosts a coordinator and no worker
	Routed     bool  // the process serves the namespaces of both databases, by the routes
	Move       *Move // the process moves a namespace, and ends

	// The process does something to itself when its code comes to Point for the Nth time: Signal is sent, or Exit is
	// called.
	Point  string
	Nth    int
	Signal syscall.Signal
}

// A Move is what a process does instead of work: it moves a namespace.
type Move struct {
	Namespace string
	From, To  int // as indexes of Databases
	Wait      time.Duration
	Cancel    bool // the process cancels such a move
}

// A Place is where one worker process runs at a time.
type Place struct {
	Number int
	Proxy  *pgproxy.Proxy

	dir  string
	base Spec

	mu      sync.Mutex
	process *Process // nil: none was started
	started int
}

// NewPlace returns a place without a process. Its processes connect to the server of dsn through a proxy, and get the
// rest of base.
func NewPlace(number int, dsn, dir string, base Spec) (*Place, error) {
	proxy, err := pgproxy.Listen(dsn)
	if err != nil {
		return nil, err
	}
	base.DSN = proxy.DSN()
	return &Place{Number: number, Proxy: proxy, dir: dir, base: base}, nil
}

// Base returns what the place's processes are told.
func (p *Place) Base() Spec {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.base
}

// SetBase changes what the processes are told that start from now on.
func (p *Place) SetBase(change func(*Spec)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.base)
}

// Start starts a process, after change has changed its Spec; nil changes nothing. It is an error if there is one
// already.
func (p *Place) Start(change func(*Spec)) (*Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process != nil && p.process.Alive() {
		return nil, fmt.Errorf("place %d has a process", p.Number)
	}
	p.started++
	spec := p.base
	spec.Name = fmt.Sprintf("%d.%d", p.Number, p.started)
	if change != nil {
		change(&spec)
	}
	process, err := Launch(p.dir, spec)
	if err == nil {
		p.process = process
	}
	return process, err
}

// Process returns the place's process, nil if there never was one.
func (p *Place) Process() *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// Ensure starts a process if there is none that lives.
func (p *Place) Ensure() error {
	if process := p.Process(); process != nil && process.Alive() {
		return nil
	}
	_, err := p.Start(nil)
	return err
}

// Close kills the place's process and closes its proxy.
func (p *Place) Close() error {
	if process := p.Process(); process != nil {
		process.Kill()
		<-process.Done()
	}
	return p.Proxy.Close()
}

// A Process is a worker process.
type Process struct {
	Spec Spec

	cmd   *exec.Cmd
	stdin io.Closer
	log   *os.File
	done  chan struct{}
	err   error // once done is closed
}

// Launch starts a process with files in dir.
func Launch(dir string, spec Spec) (*Process, error) {
	spec.Ledger = filepath.Join(dir, "worker-"+spec.Name+".ledger")
	return start(spec, filepath.Join(dir, "worker-"+spec.Name+".log"))
}

func start(spec Spec, log string) (*Process, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{Spec: spec, cmd: exec.Command(exe), done: make(chan struct{})}
	if p.log, err = os.Create(log); err != nil {
		return nil, err
	}
	p.cmd.Env = append(os.Environ(), Env+"="+string(text), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := p.cmd.StdinPipe() // its end tells the process that the driver has gone
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, p.log.Close())
	}
	p.stdin = stdin
	go func() {
		p.err = p.cmd.Wait()
		_ = p.log.Close()
		close(p.done)
	}()
	return p, nil
}

// PID returns the process's ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns what the process ended with, once Done is closed.
func (p *Process) Err() error { return p.err }

// Alive reports whether the process has not ended. A frozen process is alive.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal. A process that has ended gets none.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process as kill -9 does.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Killed reports whether the process has ended by SIGKILL.
func (p *Process) Killed() bool {
	if p.Alive() {
		return false
	}
	ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && ws.Signal() == syscall.SIGKILL
}

// Drain sends SIGTERM and waits until the process has ended. It returns an error if that takes longer than patience, or
// if the process did not end with success.
func (p *Process) Drain(patience time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		return fmt.Errorf("worker %s has not ended %v after SIGTERM", p.Spec.Name, patience)
	}
}

// Held is the file in which the process says which leases it holds in memory, one a line, ten times a second.
func (p *Process) Held() string { return HeldFile(p.Spec.Ledger) }

// HeldFile is the file in which the process of a ledger says which leases it holds in memory.
func HeldFile(ledger string) string { return strings.TrimSuffix(ledger, ".ledger") + ".held" }

// Gauges is the file in which the process says how many goroutines it has, and how many bytes of heap, ten times a
// second.
func (p *Process) Gauges() string { return GaugesFile(p.Spec.Ledger) }

// GaugesFile is Process.Gauges by the process's ledger.
func GaugesFile(ledger string) string { return strings.TrimSuffix(ledger, ".ledger") + ".gauges" }
