package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi/internal/localpg"
)

// A faketime is a site whose server has a clock that can be set.
type faketime struct {
	file string // from which the server's processes read how far their clock is ahead

	mu    sync.Mutex
	ahead time.Duration
}

// library returns the path of libfaketime, empty if it is not installed.
func library() string {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return slices.Max(found)
		}
	}
	return ""
}

func lacksFaketime() error {
	if library() == "" {
		return errors.New("libfaketime is not installed: apt-get install libfaketime")
	}
	return nil
}

func openFaketime(ctx context.Context, o Options) (*Site, error) {
	dir, err := os.MkdirTemp(o.Dir, "clock-")
	if err != nil {
		return nil, err
	}
	f := &faketime{file: filepath.Join(dir, "ahead")}
	if err := errors.Join(os.Chmod(dir, 0o755), f.set(0)); err != nil {
		return nil, err
	}
	s, err := o.open(ctx, localpg.Config{Environment: []string{
		"LD_PRELOAD=" + library(), "FAKETIME_TIMESTAMP_FILE=" + f.file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.onClose(func() error { return os.RemoveAll(dir) })
	s.Faults = append(s.Faults,
		// F16: the server's clock jumps ahead by 90 minutes, and stays there: what became due meanwhile is due.
		Fault{Name: "F16 clock jumps ahead", Kind: "F16", Inject: f.jump(90*time.Minute, true)},
		// F16: the server's clock jumps back by 10 minutes, and later ahead again: nothing becomes due meanwhile.
		Fault{Name: "F16 clock jumps back", Kind: "F16", Inject: f.jump(-10*time.Minute, false)},
	)
	return s, nil
}

// set moves the clock. The server's processes read the file whenever they read the clock, so it is replaced as a whole.
func (f *faketime) set(by time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += by
	if err := os.WriteFile(f.file+".new", fmt.Appendf(nil, "%+d\n", int(f.ahead.Seconds())), 0o644); err != nil {
		return err
	}
	return os.Rename(f.file+".new", f.file)
}

// offset returns how far the server's clock is ahead of this machine's.
func (w *World) offset(ctx context.Context) (time.Duration, error) {
	now, err := ask[time.Time](ctx, w, "SELECT clock_timestamp()")
	return time.Until(now), err
}

// jump moves the clock. It counts the sessions of workers and clients that have done something by the new clock.
func (f *faketime) jump(by time.Duration, stays bool) Injection {
	return func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
		begun := time.Now()
		before, err := w.offset(ctx)
		if err != nil {
			return 0, "", err
		}
		if err := f.set(by); err != nil {
			return 0, "", err
		}
		if !stays {
			defer func() { err = errors.Join(err, f.set(-by)) }()
		}
		// Two jumps may be under way at once, so the middle between the clocks tells them apart.
		middle := time.Until(time.Now().Add(before + by/2))
		sql := `SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (ARRAY (` + sessionsNow + `)) AND state_change > $1`
		if by < 0 {
			sql = `SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (ARRAY (` + sessionsNow + `)) AND state_change < $1`
		}
		until(ctx, d+patience, func() bool {
			n, failed := ask[int](ctx, w, sql, time.Now().Add(middle))
			effect = max(effect, n)
			return failed != nil || time.Since(begun) >= d && effect > 0
		})
		return effect, fmt.Sprintf("the clock went by %v; %d sessions worked by the new one", by, effect), ctx.Err()
	}
}
