package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/pgbouncer"
)

// A pooled is a site whose workers and clients reach the server through pgbouncer, in transaction mode.
type pooled struct{ pooler *pgbouncer.Pooler }

// noPooler has the faults that see nothing through a pooler: they find the server's sessions by the ports of the
// proxies, need notifications, which there are none, or wait for errors that the pooler keeps to itself.
var noPooler = []string{
	"F5 terminate listeners", "F5 terminate the coordinator's sessions", "F5 terminate the heartbeats' sessions",
	"F7 server away",
	"F14 no connection is left", "F25 kill the coordinator", "F25 freeze the coordinator", "F27 deaf listeners",
	"F27 lost hints",
}

func openPooled(ctx context.Context, o Options) (*Site, error) {
	s, err := o.open(ctx, localpg.Config{})
	if err != nil {
		return nil, err
	}
	var p pooled
	if p.pooler, err = pgbouncer.Start(ctx, s.DSN); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.onClose(p.pooler.Stop)
	s.DSN = p.pooler.DSN
	s.Faults = append(slices.DeleteFunc(s.Faults, func(f Fault) bool { return slices.Contains(noPooler, f.Name) }),
		// F17: pgbouncer is killed, and started again.
		Fault{Name: "F17 kill pgbouncer", Kind: "F17", Inject: p.kill},
		// F17: pgbouncer stands still.
		Fault{Name: "F17 freeze pgbouncer", Kind: "F17", Inject: p.freeze},
	)
	return s, nil
}

// kill counts the connections that ended with pgbouncer.
func (p pooled) kill(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (int, string, error) {
	pause(ctx, time.Duration(r.Int64N(int64(d)+1)))
	conns := func() (n int) {
		for _, p := range w.proxies() {
			n += p.Connections()
		}
		return n
	}
	mend, cancel := mending(ctx)
	defer cancel()
	if !until(ctx, patience, func() bool { return conns() > 0 }) {
		return 0, "nobody was connected", ctx.Err()
	}
	before, old := conns(), p.pooler.PID()
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return 0, "", err
	}
	if !until(mend, patience, func() bool { return p.pooler.PID() != old }) {
		return 0, "", errors.New("pgbouncer was not started again")
	}
	return before, fmt.Sprintf("%d connections ended", before), mend.Err()
}

// freeze counts the messages that the pooler did not answer.
func (p pooled) freeze(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (int, string, error) {
	pid := p.pooler.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return 0, "", err
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	waits := func() (n int) {
		for _, p := range w.proxies() {
			n += p.Unanswered()
		}
		return n
	}
	begun, most := time.Now(), 0
	until(ctx, d+patience, func() bool {
		most = max(most, waits())
		return time.Since(begun) >= d && most > 0
	})
	return most, fmt.Sprintf("%d requests waited at once", most), ctx.Err()
}

func lacksPooler() error { return lacksProgram("pgbouncer", "pgbouncer") }
