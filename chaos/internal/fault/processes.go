package fault

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
)

// state returns the state of a process of this machine as /proc shows it, such as 'S' or 'T', and zero if there is
// none.
func state(pid int) byte {
	f := stat(pid)
	if len(f) == 0 {
		return 0
	}
	return f[0][0]
}

// stat returns the fields of a process from its state on.
func stat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name may contain anything
}

// gone reports whether a process has ended. Its parent may not have noticed.
func gone(pid int) bool {
	s := state(pid)
	return s == 0 || s == 'Z' || s == 'X'
}

// children returns the processes whose parent is pid.
func children(pid int) (all []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		child, err := strconv.Atoi(filepath.Base(path))
		if f := stat(child); err == nil && len(f) > 1 && f[1] == strconv.Itoa(pid) {
			all = append(all, child)
		}
	}
	return all
}

// ran returns for how long a process has had a processor.
func ran(pid int) time.Duration {
	f := stat(pid)
	if len(f) < 13 {
		return 0
	}
	const tick = 10 * time.Millisecond // of Linux, as user programs see it
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * tick
}

// waited returns for how many milliseconds the threads of a process have waited for a processor so far.
func waited(pid int) (ms int) {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		if f := strings.Fields(string(b)); len(f) > 1 {
			ns, _ := strconv.Atoi(f[1])
			ms += ns / 1_000_000
		}
	}
	return ms
}

// stop freezes a process and returns once it stands still. resume lets it go on.
func stop(ctx context.Context, p *fleet.Process) (resume func(), err error) {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	resume = func() { _ = p.Signal(syscall.SIGCONT) }
	if !until(ctx, patience, func() bool { return state(p.PID()) == 'T' || !p.Alive() }) || !p.Alive() {
		resume()
		return nil, fmt.Errorf("process %s did not stop", p.Spec.Name)
	}
	return resume, nil
}

// said returns how often a file contains one of the texts after the offset, and the file's size.
func said(path string, offset int64, texts ...string) (n int, size int64) {
	b, err := os.ReadFile(path)
	if err != nil || int64(len(b)) < offset {
		return 0, 0
	}
	for _, t := range texts {
		n += bytes.Count(b[offset:], []byte(t))
	}
	return n, int64(len(b))
}
