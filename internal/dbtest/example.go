package dbtest

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Example is [Database] for Example functions, which have no testing.TB. When the example has stopped everything that uses the
// database, it calls done, which returns an error if an invariant is violated.
func Example(ctx context.Context) (db *DB, done func() error, err error) {
	s, err := shared.Get()
	if err != nil {
		return nil, nil, err
	}
	name, err := s.take(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	db = &DB{DSN: withDatabase(s.dsn, name), Name: name}
	if db.Pool, err = pgxpool.New(ctx, db.DSN); err != nil {
		return nil, nil, err
	}
	return db, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		db.Pool.Close()
		conn, err := pgx.Connect(ctx, db.DSN)
		if err != nil {
			return errors.Join(err, s.drop(ctx, name))
		}
		defer func() { _ = conn.Close(ctx) }() // dropping the database ends it too
		found, err := violations(ctx, conn)
		if len(found) > 0 {
			err = errors.Join(err, errors.New("invariant broken: "+strings.Join(found, "; ")))
		}
		return errors.Join(err, s.giveBack(ctx, conn, name))
	}, nil
}
