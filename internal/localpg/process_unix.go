//go:build unix

package localpg

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Signals that shut Postgres down. An immediate shutdown also ends the server's child processes; after a SIGKILL they
// would have to notice the end by themselves.
const (
	shutdownFast      = syscall.SIGINT
	shutdownImmediate = syscall.SIGQUIT
)

// A process is a program of Postgres that ends when this process ends.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended
	err  error         // how it ended; valid once done is closed
}

// startProcess starts a program of Postgres in d, as d's owner, logging to d's log. environ has variables that are
// added to the environment.
func startProcess(path string, args []string, d *directory, environ ...string) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.socket(), d.log, d.log
	cmd.Env = append(serverEnvironment(os.Environ()), environ...)
	// A group of its own keeps a terminal's Ctrl-C from ending the server before its clients.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.owner, Setpgid: true}
	p := &process{cmd: cmd, done: make(chan struct{})}
	if err := p.start(); err != nil {
		return nil, err
	}
	return p, nil
}

// serverEnvironment removes the variables that would make the server behave differently for each developer.
func serverEnvironment(environ []string) []string {
	var env []string
	for _, e := range environ {
		if !strings.HasPrefix(e, "PG") && !strings.HasPrefix(e, "LC_") && !strings.HasPrefix(e, "LANG") {
			env = append(env, e)
		}
	}
	return append(env, "LC_ALL=C")
}

// end ends the program and waits for it. A program that does not react within 10 s is killed.
func (p *process) end(how syscall.Signal) {
	for _, signal := range []syscall.Signal{how, shutdownImmediate, syscall.SIGKILL} {
		_ = p.cmd.Process.Signal(signal)
		timeout := time.NewTimer(10 * time.Second)
		select {
		case <-p.done:
			timeout.Stop()
			return
		case <-timeout.C:
		}
	}
	<-p.done
}

func (p *process) pid() int { return p.cmd.Process.Pid }
