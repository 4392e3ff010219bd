package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// childVariable is the environment variable with the orders of a child process: it executes runs, and nothing else.
const childVariable = "KAGZI_BENCH_CHILD"

// orders are what a child process executes.
type orders struct {
	Engine, DSN string
	Server      string // the address of the engine's server; empty: it has none
	Connections int32
	Concurrency int
	Task        task
}

// A child is a worker in a process of its own. It obeys commands, and answers each with the command itself. It writes a
// line for each report: the event, the run's number and the time.
type child struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan string // closed at the end of its output
	ended   chan error  // the end of its output
}

// What a child does at a command.
const (
	beginCommand = "begin" // it begins to execute runs
	flushCommand = "flush" // see worker.flush
	trimCommand  = "trim"  // it gives unused memory back
)

// hire starts a child that executes the runs of t, and reports to the journal.
func (t *trial) hire(concurrency int, work task, j *journal) (*child, error) {
	c, err := t.launch(concurrency, work, j)
	if err == nil {
		err = c.obey(beginCommand)
	}
	return c, err
}

// launch starts a child that waits for beginCommand.
func (t *trial) launch(concurrency int, work task, j *journal) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o, err := json.Marshal(orders{
		Engine: t.engine.name(), DSN: t.lab.dsn(t.name), Server: t.address(), Connections: t.conns,
		Concurrency: concurrency, Task: work,
	})
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(o))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: stdin, answers: make(chan string, 1), ended: make(chan error, 1)}
	go func() { c.ended <- c.listen(stdout, j) }()
	return c, nil
}

func (c *child) listen(stdout io.Reader, j *journal) error {
	defer close(c.answers)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var n, at int64
		var err error
		fields := strings.Fields(lines.Text())
		if len(fields) == 1 {
			c.answers <- fields[0]
			continue
		}
		if n, err = strconv.ParseInt(fields[1], 10, 64); err == nil {
			at, err = strconv.ParseInt(fields[2], 10, 64)
		}
		if err != nil {
			return err
		}
		j.reportAt(event(fields[0][0]), int(n), time.Unix(0, at))
	}
	return lines.Err()
}

// obey returns once the child has carried out the command.
func (c *child) obey(command string) error {
	_, err := io.WriteString(c.stdin, command+"\n")
	if answer := <-c.answers; err == nil && answer != command {
		err = fmt.Errorf("the child ended instead of %s", command)
	}
	return err
}

// trim makes the child give unused memory back, and returns what it still has.
func (c *child) trim() (float64, error) {
	err := c.obey(trimCommand)
	return residentBytes(c.cmd.Process.Pid), err
}

// stop ends the child after its runs under way.
func (c *child) stop() error {
	_ = c.stdin.Close()
	if err := <-c.ended; err != nil {
		return err
	}
	return c.cmd.Wait()
}

// kill ends the child at once.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
	_ = c.cmd.Wait()
}

// executeApart is execute by processes of their own, which begin to work at the same time. The first half of the runs
// does not count: each process opens its connections meanwhile, and each of these prepares its statements.
func (t *trial) executeApart(ctx context.Context, runs, processes, concurrency int, work task,
) (took time.Duration, err error) {
	j := newJournal(runs)
	var crew []*child
	for range processes {
		c, lerr := t.launch(concurrency, work, j)
		if lerr != nil {
			err = lerr
			break
		}
		crew = append(crew, c)
	}
	all := func(do func(*child) error) error {
		next := make(chan *child, len(crew))
		for _, c := range crew {
			next <- c
		}
		return together(len(crew), func() error { return do(<-next) })
	}
	for _, command := range []string{trimCommand, beginCommand} { // they answer the first once they are running
		if err == nil {
			err = all(func(c *child) error { return c.obey(command) })
		}
	}
	warm := runs / 2
	if err == nil {
		err = j.wait(ctx, &j.nEnded, warm)
	}
	begun := time.Now()
	if err == nil {
		err = j.wait(ctx, &j.nEnded, runs)
	}
	if err == nil {
		err = all(func(c *child) error { return c.obey(flushCommand) })
	}
	took = time.Since(begun) * time.Duration(runs) / time.Duration(runs-warm)
	return took, errors.Join(err, all((*child).stop))
}

// runAsChild carries out the orders of a parent process, if there is one.
func runAsChild() {
	o := os.Getenv(childVariable)
	if o == "" {
		return
	}
	if err := obey(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func obey(ctx context.Context, text string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	e, err := engineNamed(o.Engine)
	if err != nil {
		return err
	}
	if s, ok := e.(served); ok {
		e = s.at(o.Server)
	}
	cfg, err := pgx.ParseConfig(o.DSN)
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig(cfg, o.Connections))
	if err != nil {
		return err
	}
	defer pool.Close()
	q, err := e.open(pool)
	if err != nil {
		return err
	}
	defer closeQueue(q)
	lines := make(chan string, 1<<16)
	written := make(chan struct{})
	go writeLines(lines, written)
	o.Task.document = documentOf(o.Task.Result)
	o.Task.report = func(e event, n int) {
		lines <- string(e) + " " + strconv.Itoa(n) + " " + strconv.FormatInt(time.Now().UnixNano(), 10) + "\n"
	}
	var w worker
	for commands := bufio.NewScanner(os.Stdin); err == nil && commands.Scan(); {
		switch commands.Text() {
		case beginCommand:
			w, err = q.work(ctx, defaultQueue, o.Concurrency, o.Task)
		case flushCommand:
			err = w.flush()
		case trimCommand:
			debug.FreeOSMemory()
		}
		if err == nil {
			lines <- commands.Text() + "\n"
		}
	}
	if w != nil {
		err = errors.Join(err, w.stop())
	}
	close(lines)
	<-written
	return err
}

// writeLines writes lines together as long as there are more.
func writeLines(lines <-chan string, written chan<- struct{}) {
	defer close(written)
	out := bufio.NewWriter(os.Stdout)
	for line := range lines {
		_, _ = out.WriteString(line)
		if len(lines) == 0 {
			_ = out.Flush()
		}
	}
	_ = out.Flush()
}
