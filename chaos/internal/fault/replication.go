package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A replicated is a site with a standby.
type replicated struct {
	*Site
	synchronous bool
	standby     *localpg.Cluster
	vip         *pgproxy.Proxy // leads the administrator to the server that accepts writes
}

func openReplicated(synchronous bool) func(context.Context, Options) (*Site, error) {
	return func(ctx context.Context, o Options) (_ *Site, err error) {
		s, err := o.open(ctx, localpg.Config{})
		if err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, s.Close())
			}
		}()
		site := &replicated{Site: s, synchronous: synchronous}
		if site.standby, err = s.Server.Standby(ctx); err != nil {
			return nil, err
		}
		s.onClose(func() error { return site.standby.Stop() })
		if site.vip, err = pgproxy.Listen(s.Server.DSN()); err != nil {
			return nil, err
		}
		s.onClose(site.vip.Close)
		s.Admin = site.vip.DSN()
		if err := site.follow(ctx, s.Server); err != nil {
			return nil, err
		}
		// F8: the server is killed, and its standby takes over.
		s.Faults = append(s.Faults, Fault{Name: "F8 failover", Kind: "F8", Inject: site.failover(false), Away: true})
		if !synchronous {
			// F8: the server is killed when the standby has not received the latest commits.
			s.Faults = append(s.Faults, Fault{
				Name: "F8 failover with loss", Kind: "F8", Inject: site.failover(true),
				Away: true,
			})
			s.Losing = true
		}
		return s, nil
	}
}

// on executes a statement on a server, past everything.
func on(ctx context.Context, server *localpg.Cluster, statements ...string) error {
	conn, err := pgx.Connect(ctx, server.DSN())
	if err != nil {
		return err
	}
	defer closeSession(conn)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// value returns the only value of a query of a server.
func value[T any](ctx context.Context, server *localpg.Cluster, sql string) (v T, err error) {
	conn, err := pgx.Connect(ctx, server.DSN())
	if err != nil {
		return v, err
	}
	defer closeSession(conn)
	return v, conn.QueryRow(ctx, sql).Scan(&v)
}

// follow waits until the standby receives what the server writes, and then makes it a synchronous one, if it is to be.
func (s *replicated) follow(ctx context.Context, server *localpg.Cluster) error {
	var streaming bool
	var err error
	if !until(ctx, mendTime, func() bool {
		streaming, err = value[bool](ctx, server, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = "+
			"'streaming')")
		return err == nil && streaming
	}) {
		return errors.Join(errors.New("the standby does not follow"), err, ctx.Err())
	}
	if !s.synchronous {
		return nil
	}
	if err := on(ctx, server, "ALTER SYSTEM SET "+standbyNames+" = '*'", "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	if !until(ctx, mendTime, func() bool {
		streaming, err = value[bool](ctx, server, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = "+
			"'sync')")
		return err == nil && streaming
	}) {
		return errors.Join(errors.New("the standby does not become synchronous"), err, ctx.Err())
	}
	return nil
}

const (
	walSender  = `SELECT pid FROM pg_stat_replication WHERE state = 'streaming'`
	writtenLog = `SELECT (pg_current_wal_lsn() - '0/0')::bigint`
	// What a standby has received, or replayed if it has received nothing since its start.
	receivedLog = `SELECT (GREATEST(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0')::bigint`
)

// failover kills the server, promotes the standby, and after d gives it a standby of its own. If losing, the standby
// receives nothing for d before that.
func (s *replicated) failover(losing bool) Injection {
	return func(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (effect int, note string, err error) {
		mend, cancel := mending(ctx)
		defer cancel()
		old := s.Server
		from, err := s.safe(ctx, old)
		if err != nil {
			return 0, "", err
		}
		if losing {
			sender, err := value[int](ctx, old, walSender)
			if err != nil {
				return 0, "", err
			}
			if err := syscall.Kill(sender, syscall.SIGSTOP); err != nil {
				return 0, "", err
			}
			defer func() { _ = syscall.Kill(sender, syscall.SIGCONT) }() // should it not be killed below
			pause(ctx, d)
		}
		written, err := value[int64](mend, old, writtenLog)
		if err != nil {
			return 0, "", err
		}
		lost, err := s.promote(mend, w, written)
		if err != nil && s.Server == old {
			return 0, "", errors.Join(err, old.Restart(mend, localpg.Immediate))
		}
		if err != nil {
			return 0, "", err
		}
		if !s.synchronous {
			w.lose(from, max(0, lost))
		}
		if losing {
			note = fmt.Sprintf("at least %d bytes of the log were lost; ", max(0, lost))
		}
		pause(ctx, d)
		if err := s.replace(mend, old); err != nil {
			return 1, note, err
		}
		if losing && lost <= 0 {
			return 0, note + "the standby had everything", nil
		}
		return 1, note + "the standby took over", ctx.Err()
	}
}

// safe waits until the standby has received all that the server had committed at some moment, and returns this moment.
func (s *replicated) safe(ctx context.Context, server *localpg.Cluster) (at time.Duration, err error) {
	at = evidence.Now()
	written, err := value[int64](ctx, server, writtenLog)
	if err != nil {
		return 0, err
	}
	if !until(ctx, patience, func() bool {
		var received int64
		received, err = value[int64](ctx, s.standby, receivedLog)
		return err == nil && received >= written
	}) {
		return 0, errors.Join(errors.New("the standby does not catch up"), err, ctx.Err())
	}
	return at, nil
}

// promote kills the server and has all use the standby, once it accepts writes. It returns how many bytes of the log,
// up to written, the standby did not have.
func (s *replicated) promote(ctx context.Context, w *World, written int64) (lost int64, err error) {
	if err := killServer(ctx, s.Server); err != nil {
		return 0, err
	}
	received, err := value[int64](ctx, s.standby, receivedLog)
	if err != nil {
		return 0, err
	}
	// The new server has no standby yet, so it must not wait for one.
	if err := on(ctx, s.standby, "ALTER SYSTEM RESET "+standbyNames, "SELECT pg_reload_conf()",
		"SELECT pg_promote()"); err != nil {
		return 0, err
	}
	s.Server = s.standby
	if err := on(ctx, s.Server, "ALTER SYSTEM RESET primary_conninfo"); err != nil {
		return 0, err
	}
	return written - received, w.redirect(s.vip, s.Server)
}

// replace starts a standby for the new server, and removes the old server.
func (s *replicated) replace(ctx context.Context, old *localpg.Cluster) (err error) {
	standby, err := s.Server.Standby(ctx)
	if err != nil {
		return err
	}
	s.standby = standby
	return errors.Join(s.follow(ctx, s.Server), old.Stop())
}
