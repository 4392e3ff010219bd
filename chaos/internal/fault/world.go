package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

const (
	// patience is how long a fault waits, beyond the time that it was given, for its first effect.
	patience = 10 * time.Second
	// mendTime bounds the mending, also when the fault's context has ended.
	mendTime = 2 * time.Minute
	// look is the pause between two looks at the same thing.
	look = 5 * time.Millisecond
)

// application is the application_name of the faults' own sessions, so that no fault takes them for a worker's.
const application = "chaos"

// mending returns a context in which things are mended even if ctx has ended.
func mending(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), mendTime)
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// until looks again and again until seen returns true. It reports whether it did within limit, and before ctx ended.
func until(ctx context.Context, limit time.Duration, seen func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ctx.Err() == nil {
		if seen() {
			return true
		}
		pause(ctx, look)
	}
	return false
}

// connect opens a session past all proxies. Faults' settings for other sessions do not apply to it. While the server
// is away, or accepts no connections, connect tries again until ctx ends.
func (w *World) connect(ctx context.Context) (conn *pgx.Conn, err error) {
	cfg := w.Admin.Config().ConnConfig
	cfg.RuntimeParams["application_name"] = application
	for _, name := range []string{
		"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout",
		"idle_session_timeout",
	} {
		cfg.RuntimeParams[name] = "0"
	}
	cfg.RuntimeParams["default_transaction_read_only"] = "off"
	cfg.RuntimeParams["synchronous_commit"] = "local" // does not wait for a standby that is gone
	for {
		attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
		conn, err = pgx.ConnectConfig(attempt, cfg)
		cancel()
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// with calls do with a session of its own. If the session dies, it calls do again with another one, until ctx ends: so
// do must bear to be repeated.
func (w *World) with(ctx context.Context, do func(*pgx.Conn) error) error {
	for {
		conn, err := w.connect(ctx)
		if err != nil {
			return err
		}
		err = do(conn)
		closeSession(conn)
		var answered *pgconn.PgError
		if err == nil || ctx.Err() != nil || errors.As(err, &answered) && !ending(answered.Code) ||
			errors.Is(err, pgx.ErrNoRows) {
			return err
		}
	}
}

// ending reports whether the error says that the session ends, or that the server does not accept any.
func ending(sqlstate string) bool { return sqlstate[:3] == "57P" || sqlstate == "53300" }

// closeSession closes a session, and does not wait long for a server that is gone.
func closeSession(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// exec executes one statement in a session of its own.
func (w *World) exec(ctx context.Context, sql string, args ...any) error {
	return w.with(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// ask returns the only value of a query.
func ask[T any](ctx context.Context, w *World, sql string, args ...any) (v T, err error) {
	err = w.with(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, sql, args...).Scan(&v) })
	return v, err
}

// list returns the values of a query with one column.
func list[T any](ctx context.Context, w *World, sql string, args ...any) (all []T, err error) {
	err = w.with(ctx, func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, sql, args...)
		all, err = pgx.CollectRows(rows, pgx.RowTo[T])
		return err
	})
	return all, err
}

// burst is w.Burst.
func (w *World) burst(ctx context.Context, n int, at time.Time) (started int, err error) {
	if w.Burst == nil {
		return 0, nil
	}
	return w.Burst(ctx, n, at)
}

// cancel is w.Cancel.
func (w *World) cancel(ctx context.Context, run uuid.UUID) bool {
	return w.Cancel != nil && w.Cancel(ctx, run)
}

// proxies returns the proxies of all workers and of the clients.
func (w *World) proxies() (all []*pgproxy.Proxy) {
	for _, p := range w.Places {
		all = append(all, p.Proxy)
	}
	if w.Client != nil {
		all = append(all, w.Client.Proxy)
	}
	return all
}

// meter returns a function that says how many more things there are by then, over all proxies.
func (w *World) meter(count func(*pgproxy.Proxy) int) func() int {
	sum := func() (n int) {
		for _, p := range w.proxies() {
			n += count(p)
		}
		return n
	}
	before := sum()
	return func() int { return sum() - before }
}

// errors returns a meter of the errors with these codes that the server has sent to workers and clients.
func (w *World) errors(sqlstates ...string) func() int {
	return w.meter(func(p *pgproxy.Proxy) (n int) {
		for _, s := range sqlstates {
			n += p.Errors(s)
		}
		return n
	})
}

// somePlaces returns some places that r chooses: one, all, or any number, and at times the clients' proxy, too.
func (w *World) somePlaces(r *rand.Rand) []*fleet.Place {
	all := append([]*fleet.Place(nil), w.Places...)
	if w.Client != nil {
		all = append(all, w.Client)
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:[]int{1, len(all), 1 + r.IntN(len(all))}[r.IntN(3)]]
}

// take returns a place with a live process that no other fault uses, one that r chooses if want allows it. release
// gives it back. While there is none, take waits.
func (w *World) take(ctx context.Context, r *rand.Rand,
	want func(*fleet.Place) bool,
) (_ *fleet.Place, release func(), err error) {
	order := r.Perm(len(w.Places))
	var place *fleet.Place
	if !until(ctx, patience, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, i := range order {
			p := w.Places[i]
			if process := p.Process(); !w.taken[p.Number] && process != nil && process.Alive() &&
				(want == nil || want(p)) {
				if w.taken == nil {
					w.taken = map[int]bool{}
				}
				w.taken[p.Number], place = true, p
				return true
			}
		}
		return false
	}) {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, nil, fmt.Errorf("no place had a process that is free within %v", patience)
	}
	return place, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.taken, place.Number)
	}, nil
}

// backendsOf returns the server's processes behind the connections of a proxy that match.
func (w *World) backendsOf(ctx context.Context, p *pgproxy.Proxy, only func(pgproxy.Conn) bool) ([]int32, error) {
	var ports []int32
	for _, c := range p.Conns() {
		if c.Port != 0 && (only == nil || only(c)) {
			ports = append(ports, int32(c.Port))
		}
	}
	return list[int32](ctx, w,
		`SELECT pid FROM pg_stat_activity WHERE client_port = ANY ($1) AND application_name <> '`+application+
			`' ORDER BY 1`, ports)
}

// sessions returns the server's processes of all sessions of workers and clients.
func (w *World) sessions(ctx context.Context) ([]int32, error) {
	return list[int32](ctx, w, sessionsNow)
}

const sessionsNow = `SELECT pid FROM pg_stat_activity
	WHERE datname = current_database() AND backend_type = 'client backend'
	AND application_name <> '` + application + `' ORDER BY pid`
