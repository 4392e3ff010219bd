package fault

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/localpg"
)

// clockSource is a library that makes a program's clock one that can be set. libfaketime is one, too, but its processes
// share a semaphore: if one is killed that has it, the others wait for ever.
//
//go:embed clock/clock.c
var clockSource []byte

// A settable clock is that of a server.
type settableClock struct {
	file *os.File // from which the server's processes read how far their clock is ahead, in nanoseconds

	mu    sync.Mutex
	ahead time.Duration
}

// compiler returns the path of a C compiler, empty if none is installed.
func compiler() string {
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func lacksCompiler() error {
	if compiler() == "" {
		return errors.New("no C compiler is installed: apt-get install gcc libc6-dev")
	}
	return nil
}

// makeClock builds the library in dir, with a clock that is that of the machine at first. It returns the variables of
// the environment that give a program this clock.
func makeClock(ctx context.Context, dir string) (c *settableClock, environment []string, err error) {
	source, library, file := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so"), filepath.Join(dir, "ahead")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(source, clockSource, 0o644)); err != nil {
		return nil, nil, err
	}
	if said, err := exec.CommandContext(ctx, compiler(), "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library,
		source, "-ldl").CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("compile the clock: %w\n%s", err, said)
	}
	c = &settableClock{}
	if c.file, err = os.Create(file); err != nil {
		return nil, nil, err
	}
	return c, []string{"LD_PRELOAD=" + library, "CHAOS_CLOCK=" + file}, errors.Join(c.file.Chmod(0o644), c.set(0))
}

func openClock(ctx context.Context, o Options) (*Site, error) {
	dir, err := os.MkdirTemp(o.Dir, "clock-")
	if err != nil {
		return nil, err
	}
	c, environment, err := makeClock(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s, err := o.open(ctx, localpg.Config{Environment: environment})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.onClose(func() error { return errors.Join(c.file.Close(), os.RemoveAll(dir)) })
	s.Faults = append(s.Faults,
		// F16: the server's clock jumps ahead by 90 minutes, and stays there: all times within them are due.
		Fault{Name: "F16 clock jumps ahead", Kind: "F16", Inject: c.jump(90*time.Minute, true)},
		// F16: the server's clock jumps back by 10 minutes, and later ahead again: nothing becomes due meanwhile.
		Fault{Name: "F16 clock jumps back", Kind: "F16", Inject: c.jump(-10*time.Minute, false)},
	)
	return s, nil
}

// set moves the clock.
func (c *settableClock) set(by time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.ahead+by)), 0)
	if err == nil {
		c.ahead += by
	}
	return err
}

// offset returns how far the server's clock is ahead of this machine's.
func (w *World) offset(ctx context.Context) (time.Duration, error) {
	now, err := ask[time.Time](ctx, w, "SELECT clock_timestamp()")
	return time.Until(now), err
}

// jump moves the clock. It counts the sessions of workers and clients that have done something by the new clock.
func (c *settableClock) jump(by time.Duration, stays bool) Injection {
	return func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
		begun := time.Now()
		before, err := w.offset(ctx)
		if err != nil {
			return 0, "", err
		}
		if err := c.set(by); err != nil {
			return 0, "", err
		}
		if !stays {
			defer func() { err = errors.Join(err, c.set(-by)) }()
		}
		// Two jumps may be under way at once, so the middle between the clocks tells them apart.
		middle := time.Until(time.Now().Add(before + by/2))
		sql := `SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (ARRAY (` + sessionsNow +
			`)) AND state_change > $1`
		if by < 0 {
			sql = `SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (ARRAY (` + sessionsNow +
				`)) AND state_change < $1`
		}
		until(ctx, d+patience, func() bool {
			n, failed := ask[int](ctx, w, sql, time.Now().Add(middle))
			effect = max(effect, n)
			return failed != nil || time.Since(begun) >= d && effect > 0
		})
		return effect, fmt.Sprintf("the clock went by %v; %d sessions worked by the new one", by, effect), ctx.Err()
	}
}
