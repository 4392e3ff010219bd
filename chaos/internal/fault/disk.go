package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kagzi/kagzi/internal/localpg"
)

// lacksProgram returns an error if a program is not installed.
func lacksProgram(program, of string) error {
	for _, path := range []string{program, "/usr/sbin/" + program} {
		if _, err := exec.LookPath(path); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s is not installed: apt-get install %s", program, of)
}

// diskSize is the size of a small disk. A server without data takes a tenth of it.
const diskSize = 700 << 20

// A smallDisk is a site whose server is on a disk of its own, in memory.
type smallDisk struct{ dir string }

// lacksMount returns an error if this process may not mount a file system.
func lacksMount() error {
	dir, err := os.MkdirTemp("", "kagzi-disk-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := mount(dir, 1<<20); err != nil {
		return fmt.Errorf("mount a file system: %w", err)
	}
	return unmount(dir)
}

func openSmallDisk(ctx context.Context, o Options) (_ *Site, err error) {
	dir, err := os.MkdirTemp("", "kagzi-disk-") // a path that is short enough for sockets
	if err != nil {
		return nil, err
	}
	if err := mount(dir, diskSize); err != nil {
		return nil, errors.Join(err, os.Remove(dir))
	}
	unmount := func() error { return errors.Join(unmount(dir), os.Remove(dir)) }
	disk := smallDisk{dir}
	s, err := o.open(ctx,
		localpg.Config{Dir: dir, Settings: map[string]string{"min_wal_size": "32MB", "max_wal_size": "64MB"}})
	if err != nil {
		return nil, errors.Join(err, unmount())
	}
	s.closers = slices.Insert(s.closers, 0, unmount)
	// F13: the disk is full, for tables and for the log.
	s.Faults = append(s.Faults, Fault{Name: "F13 disk full", Kind: "F13", Inject: disk.fill, Away: true})
	return s, nil
}

// fill fills the disk with a file. The server refuses writes, or ends if it cannot write its log; then it is started
// again once there is room.
func (s smallDisk) fill(ctx context.Context, w *World, _ *rand.Rand,
	d time.Duration,
) (effect int, note string, err error) {
	refused := w.errors("53100")
	file := filepath.Join(s.dir, "ballast")
	defer func() {
		mend, cancel := mending(ctx)
		defer cancel()
		err = errors.Join(err, os.Remove(file), w.revive(mend))
	}()
	f, err := os.Create(file)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	begun, dead := time.Now(), 0
	var size int64
	until(ctx, d+2*patience, func() bool {
		for piece := int64(64 << 20); piece >= 4<<10; piece /= 2 { // again and again: a checkpoint may remove files
			for allocate(f, size, piece) == nil {
				size += piece
			}
		}
		if gone(w.Server.PID()) {
			dead = 1
		}
		return time.Since(begun) >= d && refused()+dead > 0
	})
	note = fmt.Sprintf("%d writes were refused", refused())
	if dead > 0 {
		note += ", and the server ended"
	}
	return refused() + dead, note, ctx.Err()
}

// revive starts the server if it has ended, and waits until it answers.
func (w *World) revive(ctx context.Context) error {
	if gone(w.Server.PID()) {
		if err := w.Server.Restart(ctx, localpg.Immediate); err != nil {
			return err
		}
	}
	_, err := ask[int](ctx, w, "SELECT 1")
	return err
}

// lacksStrace returns an error if this process may not interfere with the system calls of others.
func lacksStrace() error {
	if err := lacksProgram("strace", "strace"); err != nil {
		return err
	}
	if out, err := exec.Command("strace", "-f", "-qq", "-e", "trace=none", "/bin/true").CombinedOutput(); err != nil {
		return fmt.Errorf("strace: %w: %s", err, out)
	}
	return nil
}

// A badDisk is a site whose server waits for its disk at each commit.
type badDisk struct{}

func openBadDisk(ctx context.Context, o Options) (*Site, error) {
	s, err := o.open(ctx, localpg.Config{Durable: true, Settings: map[string]string{
		"max_wal_size":    "256MB",
		"wal_sync_method": "fdatasync",
	}})
	if err != nil {
		return nil, err
	}
	var disk badDisk
	s.Faults = append(s.Faults,
		// F12: each fsync takes 50 to 500 ms longer.
		Fault{Name: "F12 slow disk", Kind: "F12", Inject: disk.slow},
		// F12: an fsync fails. The server ends all sessions and replays its log.
		Fault{Name: "F12 disk with errors", Kind: "F12", Inject: disk.fail},
	)
	return s, nil
}

func (badDisk) slow(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (int, string, error) {
	late := 50 + r.IntN(450)
	n, err := w.interfere(ctx, fmt.Sprintf("delay_exit=%d", late*1000), "(DELAYED)", d, 1<<30)
	return n, fmt.Sprintf("%d times fsync took %d ms longer", n, late), err
}

func (badDisk) fail(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (int, string, error) {
	pause(ctx, time.Duration(r.Int64N(int64(d)+1)))
	n, err := w.interfere(ctx, fmt.Sprintf("error=EIO:when=%d", 1+r.IntN(5)), "(INJECTED)", d, 1)
	mend, cancel := mending(ctx)
	defer cancel()
	return n, fmt.Sprintf("%d times fsync failed", n), errors.Join(err, w.revive(mend))
}

// interfere has strace do something to the fsyncs of the server's processes, for d, until it has happened, and no
// longer than until it has happened enough times. It returns how often it did.
func (w *World) interfere(ctx context.Context, how, trace string, d time.Duration, enough int) (n int, err error) {
	log, err := os.CreateTemp(w.Dir, "strace-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, log.Close(), os.Remove(log.Name())) }()
	server := w.Server.PID()
	args := []string{"-f", "-qq", "-o", log.Name(), "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:" +
		how, "-p", strconv.Itoa(server)}
	for _, child := range children(server) {
		args = append(args, "-p", strconv.Itoa(child))
	}
	cmd := exec.Command("strace", args...)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	begun := time.Now()
	until(ctx, d+patience, func() bool {
		n, _ = said(log.Name(), 0, trace)
		select {
		case <-ended: // all that it traced has ended
			return true
		default:
			return n >= enough || time.Since(begun) >= d && n > 0
		}
	})
	_ = cmd.Process.Signal(syscall.SIGTERM) // it lets go of all processes
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-ended
	}
	if n, _ = said(log.Name(), 0, trace); n == 0 {
		return 0, errors.Join(fmt.Errorf("strace: %s", output.String()), ctx.Err())
	}
	return n, ctx.Err()
}
