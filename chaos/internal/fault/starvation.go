package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
)

func starvationFaults() []Fault {
	all := []Fault{
		// F3: four busy processes for each processor compete with workers, server and driver.
		{Name: "F3 busy machine", Kind: "F3", Inject: busyMachine, Local: true},
		// F3: a worker runs for a tenth of the time only: SIGSTOP and SIGCONT, ten times a second.
		{Name: "F3 stuttering worker", Kind: "F3", Inject: stutter, Local: true},
	}
	if cpuGroups() != nil {
		// F3: a worker gets a twentieth of a processor from its cgroup.
		all = append(all, Fault{Name: "F3 worker with a small quota", Kind: "F3", Inject: smallQuota, Local: true})
	}
	return all
}

// busyMachine counts the milliseconds for which workers that could run waited for a processor, if the busy processes
// had at least half of a processor.
func busyMachine(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (effect int, note string, err error) {
	delays := func() (ms int) {
		for _, p := range w.Places {
			if process := p.Process(); process != nil {
				ms += waited(process.PID())
			}
		}
		return ms
	}
	var busy []*exec.Cmd
	defer func() {
		for _, cmd := range busy {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	for range 4 * runtime.NumCPU() {
		cmd := exec.Command("/bin/sh", "-c", "while kill -0 $1; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); "+
			"done; done", "sh", strconv.Itoa(os.Getpid()))
		if err := cmd.Start(); err != nil {
			return 0, "", err
		}
		busy = append(busy, cmd)
	}
	start, begun := delays(), time.Now()
	var ms int
	var used time.Duration
	if until(ctx, d+patience, func() bool {
		ms, used = delays()-start, 0
		for _, cmd := range busy {
			used += ran(cmd.Process.Pid)
		}
		return time.Since(begun) >= d && used >= d/2 && ms > 0
	}) {
		effect = ms
	}
	return effect, fmt.Sprintf("workers waited %d ms for a processor, of which the busy processes had %v", ms,
		used), ctx.Err()
}

func stutter(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	place, release, err := w.take(ctx, r, nil)
	if err != nil {
		return 0, "", err
	}
	defer release()
	process := place.Process()
	for end := time.Now().Add(d); ctx.Err() == nil && process.Alive() && (effect == 0 || time.Now().Before(end)); {
		resume, err := stop(ctx, process)
		if err != nil {
			if !process.Alive() {
				break
			}
			return effect, "", err
		}
		effect++
		pause(ctx, 90*time.Millisecond)
		resume()
		pause(ctx, 10*time.Millisecond)
	}
	return effect, fmt.Sprintf("worker %s", process.Spec.Name), ctx.Err()
}

// A groups is the way to make control groups for processors on this machine.
type groups struct {
	root, quota, text, throttled string
}

// cpuGroups returns nil if this process may not make control groups.
func cpuGroups() *groups {
	for _, g := range []*groups{
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "5000", "nr_throttled "},
		{"/sys/fs/cgroup", "cpu.max", "5000 100000", "nr_throttled "},
	} {
		dir, err := os.MkdirTemp(g.root, "kagzi-chaos-")
		if err != nil {
			continue
		}
		_, err = os.Stat(filepath.Join(dir, g.quota))
		_ = os.Remove(dir)
		if err == nil {
			return g
		}
	}
	return nil
}

// of returns the group of a process, as a directory.
func (g *groups) of(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (f[1] == "" && g.quota == "cpu.max" || strings.Contains(","+f[1]+",", ",cpu,")) {
			return filepath.Join(g.root, f[2]), nil
		}
	}
	return "", errors.New("the process has no group for processors")
}

func smallQuota(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	place, release, err := w.take(ctx, r, nil)
	if err != nil {
		return 0, "", err
	}
	defer release()
	process, g := place.Process(), cpuGroups()
	home, err := g.of(process.PID())
	if err != nil {
		return 0, "", err
	}
	small, err := os.MkdirTemp(g.root, "kagzi-chaos-")
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, g.leave(small, home, process)) }()
	if err := os.WriteFile(filepath.Join(small, g.quota), []byte(g.text), 0o600); err != nil {
		return 0, "", err
	}
	if err := join(small, process); err != nil {
		return 0, "", err
	}
	begun := time.Now()
	until(ctx, d+patience, func() bool {
		effect = g.throttles(small)
		return !process.Alive() || time.Since(begun) >= d && effect > 0
	})
	return effect, fmt.Sprintf("worker %s was stopped %d times because its quota was used up", process.Spec.Name,
		effect), ctx.Err()
}

// join moves a process with all its threads into a group. One that has ended needs none.
func join(dir string, p *fleet.Process) error {
	err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.PID())), 0o600)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// leave moves the process back and removes the group, once it is empty.
func (g *groups) leave(small, home string, p *fleet.Process) error {
	err := join(home, p)
	ctx, cancel := mending(context.Background())
	defer cancel()
	var removed error
	if !until(ctx, patience, func() bool { removed = os.Remove(small); return removed == nil }) {
		err = errors.Join(err, removed)
	}
	return err
}

// throttles returns how often a group has used up its quota.
func (g *groups) throttles(dir string) int {
	b, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	for line := range strings.Lines(string(b)) {
		if n, found := strings.CutPrefix(line, g.throttled); found {
			times, _ := strconv.Atoi(strings.TrimSpace(n))
			return times
		}
	}
	return 0
}
