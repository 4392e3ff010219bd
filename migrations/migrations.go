// Package migrations holds Kagzi's tables as embedded SQL, and brings a database up to them.
//
// It is exported for Kagzi's own packages and carries no compatibility promise. Programs call kagzi.Migrate.
package migrations

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed *.sql
var files embed.FS

// What Check finds wrong. The errors it returns wrap these and name both versions.
var (
	// ErrMissing reports that the database has no Kagzi tables.
	ErrMissing = errors.New("kagzi: schema missing: call kagzi.Migrate")
	// ErrOlder reports that the database lacks migrations that this program relies on.
	ErrOlder = errors.New("kagzi: schema older than this program: call kagzi.Migrate")
	// ErrNewer reports that a newer program has migrated the database.
	ErrNewer = errors.New("kagzi: schema newer than this program: upgrade this program's Kagzi")
)

const (
	// lockID is the advisory lock held while migrating: the bytes of "kagzi". It is not goose's default,
	// because the application may use goose too.
	lockID int64 = 0x6b61677a69

	lockInterval = 100 * time.Millisecond

	versionTable = "kagzi.schema_migrations"
)

// A Querier sends one query; pools, connections and transactions do.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Version returns the newest version that this program knows.
func Version() int64 {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var newest int64
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			panic(err) // the names are embedded, and a test looks at them
		}
		newest = max(newest, version)
	}
	return newest
}

const currentVersion = `SELECT coalesce(max(version_id), 0) FROM kagzi.schema_migrations WHERE is_applied`

// Check compares the schema in the database with the one this program was written for. It returns nil if they
// are the same, else ErrMissing, ErrOlder or ErrNewer. It sends one query, which fails if the schema is
// missing: a transaction that q belongs to is of no use then.
func Check(ctx context.Context, q Querier) error { return checkVersion(ctx, q, Version()) }

func checkVersion(ctx context.Context, q Querier, want int64) error {
	var found int64
	err := q.QueryRow(ctx, currentVersion).Scan(&found)
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && (pgErr.Code == "42P01" || pgErr.Code == "3F000"): // no such table, no such schema
		return fmt.Errorf("%w (this program needs version %d)", ErrMissing, want)
	case err != nil:
		return fmt.Errorf("read the schema's version: %w", err)
	case found == 0:
		return fmt.Errorf("%w (this program needs version %d)", ErrMissing, want)
	case found < want:
		return fmt.Errorf("%w (it has version %d, this program needs version %d)", ErrOlder, found, want)
	case found > want:
		return fmt.Errorf("%w (it has version %d, this program knows version %d)", ErrNewer, found, want)
	}
	return nil
}

// Up creates Kagzi's schema, or brings it up to date, and returns once that is done. If nothing is pending it
// takes no lock. Any number of processes may call it at once: one of them does the work, on a connection of its
// own outside the pool, and the others wait for it. It returns ErrNewer if the database is ahead of this
// program. Once ctx has ended, a migration under way is rolled back.
//
// The pool must lead to Postgres directly, or through a pooler in session mode: a pooler that hands out
// connections by transaction makes the lock meaningless.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	if err := Check(ctx, pool); !errors.Is(err, ErrMissing) && !errors.Is(err, ErrOlder) {
		return err
	}
	return migrate(ctx, pool, func(ctx context.Context, db *sql.DB) error {
		if err := createSchema(ctx, db); err != nil {
			return err
		}
		provider, err := newProvider(db)
		if err != nil {
			return err
		}
		_, err = provider.Up(ctx)
		return err
	})
}

// Down drops Kagzi's tables with everything in them. It leaves the schema kagzi, empty: whoever owns the
// database may have created it, and may not let this program do it again.
func Down(ctx context.Context, pool *pgxpool.Pool) error {
	return migrate(ctx, pool, func(ctx context.Context, db *sql.DB) error {
		var exists bool
		if err := db.QueryRowContext(ctx, `SELECT to_regclass('kagzi.schema_migrations') IS NOT NULL`).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			return nil // asked for its versions, goose would create the table
		}
		provider, err := newProvider(db)
		if err != nil {
			return err
		}
		if _, err := provider.DownTo(ctx, 0); err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, `DROP TABLE kagzi.schema_migrations`)
		return err
	})
}

// createSchema creates the schema unless it is there. Even with IF NOT EXISTS it would ask for the right to
// create schemas in the database, which a program whose schema was created for it may not have.
func createSchema(ctx context.Context, db *sql.DB) error {
	var exists bool
	if err := db.QueryRowContext(ctx, `SELECT to_regnamespace('kagzi') IS NOT NULL`).Scan(&exists); err != nil {
		return err
	}
	if exists {
		return nil
	}
	_, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS kagzi`)
	return err
}

// newProvider returns a goose provider for one use: after a failure it would not look for its table again. It
// takes no lock, because goose's own would not cover the creation of that table.
func newProvider(db *sql.DB) (*goose.Provider, error) {
	return goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable),
		goose.WithDisableGlobalRegistry(true), // else the application's own migrations would run as ours
		goose.WithLogger(goose.NopLogger()),
	)
}

// migrate calls work with a database that consists of one connection, which holds the lock. The connection is
// closed afterwards, and the lock with it.
func migrate(ctx context.Context, pool *pgxpool.Pool, work func(context.Context, *sql.DB) error) (err error) {
	cfg := pool.Config()
	cfg.ConnConfig.ConnectTimeout = cmp.Or(cfg.ConnConfig.ConnectTimeout, time.Minute)
	options := []stdlib.OptionOpenDB{
		// The lock is taken where a connection begins, so that none is ever without it: database/sql may
		// replace a broken connection without a word.
		stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) (err error) {
			defer func() {
				if err != nil {
					_ = conn.Close(context.WithoutCancel(ctx)) // stdlib would forget it, still open
				}
			}()
			if cfg.AfterConnect != nil {
				if err := cfg.AfterConnect(ctx, conn); err != nil {
					return err
				}
			}
			return lock(ctx, conn)
		}),
	}
	if cfg.BeforeConnect != nil {
		options = append(options, stdlib.OptionBeforeConnect(cfg.BeforeConnect))
	}
	db := stdlib.OpenDB(*cfg.ConnConfig, options...)
	db.SetMaxOpenConns(1)
	defer func() {
		if closeErr := db.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("migrate: %w", closeErr)
		}
	}()
	if err := work(ctx, db); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	// The lock would end with the connection, but that takes the server a moment longer.
	if _, err := db.ExecContext(ctx, unlock, lockID); err != nil {
		return fmt.Errorf("migrate: unlock: %w", err)
	}
	return nil
}

// noTimeouts lifts what a database's owner may have set for programs that answer users. It leaves lock_timeout,
// which keeps a migration that waits for a table from stopping everybody else who wants it.
const noTimeouts = `SELECT set_config('statement_timeout', '0', false),
	set_config('idle_in_transaction_session_timeout', '0', false)`

const unlock = `SELECT pg_advisory_unlock($1)`

const tryLock = `SELECT pg_try_advisory_lock($1)`

// lock waits for the lock. It asks again and again instead of waiting inside Postgres: a statement that waits
// holds a snapshot, and CREATE INDEX CONCURRENTLY in the process that has the lock would wait for that.
func lock(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, noTimeouts); err != nil {
		return err
	}
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for {
		var locked bool
		if err := conn.QueryRow(ctx, tryLock, lockID).Scan(&locked); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if locked {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for another process that migrates: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}
