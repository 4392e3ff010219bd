package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func limitFaults() []Fault {
	const short = "200ms"
	return []Fault{
		// F14: all connections that the server allows are in use, and the workers have lost some of theirs.
		{Name: "F14 no connection is left", Kind: "F14", Inject: exhaust},
		// F14: a DBA's statement_timeout of 200 ms.
		{Name: "F14 statement_timeout", Kind: "F14", Inject: limiting("statement_timeout", short)},
		// F14: a DBA's lock_timeout of 200 ms.
		{Name: "F14 lock_timeout", Kind: "F14", Inject: limiting("lock_timeout", short)},
		// F14: a DBA's idle_in_transaction_session_timeout of 200 ms.
		{
			Name: "F14 idle_in_transaction_session_timeout", Kind: "F14",
			Inject: limiting("idle_in_transaction_session_timeout", short),
		},
		// F14: the server ends sessions that are idle for 200 ms.
		{Name: "F14 idle_session_timeout", Kind: "F14", Inject: limiting("idle_session_timeout", short)},
	}
}

// exhaust opens connections until the server refuses more, and ends some of the workers' so that they need new ones. It
// leaves itself one to look with.
func exhaust(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
	observer, err := w.connect(ctx)
	if err != nil {
		return 0, "", err
	}
	defer closeSession(observer)
	refused := w.errors("53300")
	cfg := w.Admin.Config().ConnConfig
	cfg.RuntimeParams["application_name"] = application
	var mine []*pgx.Conn
	defer func() {
		for _, conn := range mine {
			closeSession(conn)
		}
	}()
	begun := time.Now()
	until(ctx, d+patience, func() bool {
		for err = nil; err == nil && ctx.Err() == nil; {
			var conn *pgx.Conn
			if conn, err = pgx.ConnectConfig(ctx, cfg); err == nil {
				mine = append(mine, conn)
			}
		}
		var full *pgconn.PgError
		if !errors.As(err, &full) || full.Code != "53300" {
			return true
		}
		err = nil
		if refused() == 0 { // a process that needs a new connection competes with this fault for the free one
			_, err = observer.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM (`+sessionsNow+`) s
				WHERE random() < 0.3`)
		}
		return err != nil || time.Since(begun) >= d && refused() > 0
	})
	return refused(), fmt.Sprintf("%d connections of our own; %d of others were refused", len(mine), refused()),
		errors.Join(err, ctx.Err())
}

// limiting gives the database a default and ends all sessions, so that the new ones have it. The effect is how many
// sessions lived under it, and how often the server applied it. Kagzi sets limits of its own in each transaction, so
// most have none but on others.
func limiting(name, value string) Injection {
	return func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error) {
		hit := w.errors("57014", "55P03", "25P03", "57P05")
		lift, err := w.impose(ctx, ofDatabase, name, value)
		if err != nil {
			return 0, "", err
		}
		defer func() {
			err = errors.Join(err, lift())
			mend, cancel := mending(ctx) // sessions keep what they began with
			defer cancel()
			err = errors.Join(err, w.exec(mend, `SELECT pg_terminate_backend(pid) FROM (`+sessionsNow+`) s`))
		}()
		begun, err := ask[time.Time](ctx, w, "SELECT clock_timestamp()")
		if err != nil {
			return 0, "", err
		}
		if err := w.exec(ctx, `SELECT pg_terminate_backend(pid) FROM (`+sessionsNow+`) s`); err != nil {
			return 0, "", err
		}
		sessions, started := 0, time.Now()
		until(ctx, d+patience, func() bool {
			sessions, err = ask[int](ctx, w, `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND backend_type = 'client backend'
				AND application_name <> '`+application+`' AND backend_start > $1`, begun)
			return err != nil || time.Since(started) >= d && sessions+hit() > 0
		})
		return sessions + hit(), fmt.Sprintf("%d sessions had %s of %s; errors that may be due to it: %d", sessions,
			name, value, hit()), errors.Join(err, ctx.Err())
	}
}
