package dbtest

import (
	"context"
	"errors"
	"strings"
)

// Example is [Database] for Example functions, which have no testing.TB. When the example has stopped everything that
// uses the database, it calls done, which returns an error if an invariant is violated.
func Example(ctx context.Context, opts ...Option) (db *DB, done func() error, err error) {
	s, err := shared.Get()
	if err != nil {
		return nil, nil, err
	}
	d, err := s.take(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if o.owner {
		d.toOwner()
	}
	db = &DB{DSN: d.appDSN, Name: d.name}
	if db.Pool, err = d.open(ctx, poolConns); err != nil {
		return nil, nil, err
	}
	return db, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		s.closeOwner(d.name)
		db.Pool.Close() // not for the next test: a Client of the example may still use it
		c, err := d.clean(ctx)
		if err != nil {
			return errors.Join(err, s.drop(ctx, d))
		}
		found, err := violations(ctx, c, true)
		if len(found) > 0 {
			err = errors.Join(err, errors.New("invariant broken: "+strings.Join(found, "; ")))
		}
		return errors.Join(err, s.giveBack(ctx, d, c))
	}, nil
}
