//go:build unix

package localpg

import (
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// watch starts a shell that sends SIGQUIT to pid once this process has ended. The shell learns of the end from its
// standard input, whose other side only this process holds. unwatch ends the shell.
func watch(pid int) (unwatch func(), err error) {
	cmd := exec.Command("/bin/sh", "-c", `read _; kill -QUIT "$1"`, "sh", strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stdin io.WriteCloser
	if stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() {
		// Kill the shell before its input is closed: it would signal pid, which another process may have by now.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = stdin.Close()
	}, nil
}
