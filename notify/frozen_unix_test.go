//go:build unix

package notify

import (
	"syscall"
	"testing"
	"time"
)

func TestFrozenServerIsReplaced(t *testing.T) {
	t.Parallel()
	l := start(t, ListenerConfig{ProbeEvery: 10 * time.Millisecond, ProbeTimeout: time.Second}, false)
	woken := make(mailbox, 100)
	l.OnRuns("acme", woken.runs("runs"))
	pid := int(l.conn.Load().PgConn().PID())
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Skipf("the server's processes are out of reach: %v", err)
	}
	defer syscall.Kill(pid, syscall.SIGCONT)
	woken.expect(t, "runs all")
	l.logs.await(t, 1, "kagzi: listening again")
}
