package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/localpg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

func serverFaults() []Fault {
	return slices.Concat([]Fault{
		// F4: kill -9 a session's process of the server: the server ends all sessions and replays its log.
		{Name: "F4 kill -9 a backend", Kind: "F4", Inject: killBackend},
		// F5: the sessions that listen are terminated.
		{
			Name: "F5 terminate listeners", Kind: "F5",
			Inject: terminating(func(ctx context.Context, w *World, r *rand.Rand) ([]int32, error) {
				return w.ofPlaces(ctx, r, pgproxy.Listens)
			}),
		},
		// F5: the sessions of the leading coordinator's process are terminated.
		{
			Name: "F5 terminate the coordinator's sessions", Kind: "F5",
			Inject: terminating(func(ctx context.Context, w *World, _ *rand.Rand) ([]int32, error) {
				leader, err := w.leader(ctx)
				if err != nil || leader == nil {
					return nil, err
				}
				return w.backendsOf(ctx, leader.Proxy, nil)
			}),
		},
		// F5: the sessions over which workers send heartbeats are terminated.
		{
			Name: "F5 terminate the heartbeats' sessions", Kind: "F5",
			Inject: terminating(func(ctx context.Context, w *World, _ *rand.Rand) ([]int32, error) {
				return list[int32](ctx, w, `SELECT a.pid FROM pg_stat_activity a JOIN kagzi.workers w
					ON w.backend_pid = a.pid AND w.backend_start = a.backend_start`)
			}),
		},
		// F5: some sessions are terminated.
		{
			Name: "F5 terminate sessions at random", Kind: "F5",
			Inject: terminating(func(ctx context.Context, w *World, r *rand.Rand) ([]int32, error) {
				all, err := w.sessions(ctx)
				r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				return all[:(len(all)+1)/2], err
			}),
		},
		// F6: pg_ctl -m immediate restart.
		{Name: "F6 immediate restart", Kind: "F6", Inject: restart},
		// F7: the postmaster and its children are killed, and the server is away.
		{Name: "F7 server away", Kind: "F7", Inject: away, Away: true},
		// F9: the server accepts no writes, in old and new sessions.
		{Name: "F9 read-only server", Kind: "F9", Inject: readOnly},
		// F20: a backlog that is due at once, or runs that are due at one moment.
		{Name: "F20 burst of runs", Kind: "F20", Inject: burst(false)},
		{Name: "F20 runs due at one moment", Kind: "F20", Inject: burst(true)},
	}, restartFaults(), limitFaults())
}

// ofPlaces returns the server's processes behind those connections of all places that match.
func (w *World) ofPlaces(ctx context.Context, _ *rand.Rand, only func(pgproxy.Conn) bool) (all []int32, err error) {
	for _, p := range w.Places {
		some, err := w.backendsOf(ctx, p.Proxy, only)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// ended returns how many of these processes of the server have ended.
func ended(pids []int32) (n int) {
	for _, pid := range pids {
		if gone(int(pid)) {
			n++
		}
	}
	return n
}

func killBackend(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (int, string, error) {
	pause(ctx, time.Duration(r.Int64N(int64(d)+1)))
	var all []int32
	var err error
	if !until(ctx, patience, func() bool { all, err = w.sessions(ctx); return err != nil || len(all) > 0 }) ||
		err != nil {
		return 0, "no session was there", errors.Join(err, ctx.Err())
	}
	if err := syscall.Kill(int(all[r.IntN(len(all))]), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return 0, "", err
	}
	begun := time.Now()
	mend, cancel := mending(ctx)
	defer cancel()
	until(mend, patience, func() bool { return ended(all) == len(all) })
	n := ended(all)
	_, err = ask[int](mend, w, "SELECT 1") // the server is there again
	return n, fmt.Sprintf("%d of %d sessions ended; the server accepted others after %v", n, len(all),
		time.Since(begun).Round(time.Millisecond)), err
}

// terminating ends sessions a few times within d.
func terminating(choose func(context.Context, *World, *rand.Rand) ([]int32, error)) Injection {
	return func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
		begun := time.Now()
		for ctx.Err() == nil && (effect == 0 && time.Since(begun) < d+patience || time.Since(begun) < d) {
			pids, err := choose(ctx, w, r)
			if err != nil {
				return effect, note, err
			}
			asked, err := list[int32](ctx, w, `SELECT p FROM unnest($1::int[]) p WHERE p <> pg_backend_pid()
				AND pg_terminate_backend(p)`, pids)
			if err != nil {
				return effect, note, err
			}
			until(ctx, time.Second, func() bool { return ended(asked) == len(asked) })
			effect += ended(asked)
			pause(ctx, 20*time.Millisecond+time.Duration(r.Int64N(int64(time.Second))))
		}
		return effect, fmt.Sprintf("%d sessions", effect), ctx.Err()
	}
}

const startOfServer = "SELECT pg_postmaster_start_time()"

// restartNow ends the server as a crash would, starts it again, and reports whether that was seen.
func (w *World) restartNow(ctx context.Context) (bool, error) {
	mend, cancel := mending(ctx)
	defer cancel()
	before, err := ask[time.Time](mend, w, startOfServer)
	if err != nil {
		return false, err
	}
	if err := w.Server.Restart(mend, localpg.Immediate); err != nil {
		return false, err
	}
	after, err := ask[time.Time](mend, w, startOfServer)
	return after.After(before), err
}

func restart(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (int, string, error) {
	pause(ctx, time.Duration(r.Int64N(int64(d)+1)))
	begun := time.Now()
	again, err := w.restartNow(ctx)
	if !again {
		return 0, "", err
	}
	return 1, fmt.Sprintf("it took %v", time.Since(begun).Round(time.Millisecond)), err
}

// restartFaults: F6 in the middle of each kind of statement: it waits for a lock when the server ends.
func restartFaults() (all []Fault) {
	for _, s := range statements {
		all = append(all, Fault{
			Name: "F6 restart in the middle of " + s.name, Kind: "F6",
			Inject: func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (int, string, error) {
				pause(ctx, time.Duration(r.Int64N(int64(d)+1)))
				return restartDuring(ctx, w, s)
			},
		})
	}
	return all
}

const executing = `SELECT EXISTS (SELECT FROM pg_stat_activity a
	WHERE a.state = 'active' AND a.wait_event_type = 'Lock' AND $1 = ANY (pg_blocking_pids(a.pid))
		AND position($2 IN a.query) > 0)`

func restartDuring(ctx context.Context, w *World, s statement) (int, string, error) {
	limit, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	seen := false
	err := w.with(limit, func(conn *pgx.Conn) error {
		observer, err := w.connect(limit)
		if err != nil {
			return err
		}
		defer closeSession(observer)
		for !seen && limit.Err() == nil {
			tx, err := conn.Begin(limit)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(limit, "LOCK TABLE "+s.table+" IN EXCLUSIVE MODE"); err != nil {
				return err
			}
			var failed error
			until(limit, time.Second, func() bool {
				failed = observer.QueryRow(limit, executing, conn.PgConn().PID(), s.part).Scan(&seen)
				return seen || failed != nil
			})
			if failed != nil {
				return failed
			}
			if seen {
				_, err = w.restartNow(ctx)
				return err
			}
			if err := tx.Rollback(limit); err != nil { // so that work goes on, and another statement of the kind comes
				return err
			}
			pause(limit, 20*time.Millisecond)
		}
		return nil
	})
	if !seen {
		return 0, "no such statement was seen", errors.Join(err, ctx.Err())
	}
	return 1, s.name + " was waiting for a lock when the server ended", err
}

// away kills the postmaster and all of its children, and starts the server again after d.
func away(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (effect int, note string, err error) {
	failed := w.meter((*pgproxy.Proxy).Unreachable)
	mend, cancel := mending(ctx)
	defer cancel()
	defer func() { err = errors.Join(err, w.Server.Restart(mend, localpg.Immediate)) }()
	if err := killServer(mend, w.Server); err != nil {
		return 0, "", err
	}
	begun := time.Now()
	until(ctx, d+patience, func() bool { return time.Since(begun) >= d && failed() > 0 })
	return failed(), fmt.Sprintf("%d attempts to connect failed", failed()), ctx.Err()
}

// killServer kills the postmaster and all of its children, and waits until they are gone.
func killServer(ctx context.Context, server *localpg.Cluster) error {
	postmaster := server.PID()
	pids := append([]int{postmaster}, children(postmaster)...)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // one that has ended needs none
	}
	if !until(ctx, patience, func() bool {
		return !slices.ContainsFunc(pids, func(pid int) bool { return !gone(pid) })
	}) {
		return errors.New("a process of the server survived SIGKILL")
	}
	return nil
}

func readOnly(ctx context.Context, w *World, _ *rand.Rand, d time.Duration) (effect int, note string, err error) {
	refused := w.errors("25006")
	lift, err := w.impose(ctx, ofServer, "default_transaction_read_only", "on")
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, lift()) }()
	begun := time.Now()
	until(ctx, d+patience, func() bool { return time.Since(begun) >= d && refused() > 0 })
	return refused(), fmt.Sprintf("%d writes were refused", refused()), ctx.Err()
}

// burst starts many runs, which are due at once, or some time later at the same moment.
func burst(later bool) Injection {
	return func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (int, string, error) {
		n := 100 << r.IntN(4)
		var at time.Time
		if later {
			now, err := ask[time.Time](ctx, w, "SELECT clock_timestamp()")
			if err != nil {
				return 0, "", err
			}
			at = now.Add(d)
		}
		started, err := w.burst(ctx, n, at)
		return started, fmt.Sprintf("%d runs", started), err
	}
}
