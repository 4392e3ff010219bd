package move

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/migrations"
)

// A Move takes a namespace from one database to another. Its methods are the steps.
type Move struct {
	Namespace string
	From, To  *pgxpool.Pool
}

// Errors of a move that has not begun.
var (
	ErrNothing = errors.New("the namespace has no rows in the database that it is to leave: check the name, and " +
		"which database has it")
	ErrOccupied = errors.New("the other database has rows of the namespace already: move it to one that has none")
	ErrBusy     = errors.New("another move of the namespace is under way, or both clients have the same database")
	ErrCitus    = errors.New("the tables of one database are distributed by Citus: there a namespace is moved with " +
		"its shard")
)

const (
	lock = `SELECT pg_try_advisory_lock(hashtextextended('kagzi move ' || $1, 0))`

	unlock = `SELECT pg_advisory_unlock(hashtextextended('kagzi move ' || $1, 0))`
)

// Locked calls f while no other move of the namespace is under way in the two databases, which must have the same
// tables.
func (m Move) Locked(ctx context.Context, f func() error) error {
	if err := m.checkSchemas(ctx); err != nil {
		return err
	}
	return m.holding(ctx, m.From, func() error { return m.holding(ctx, m.To, f) })
}

// holding calls f while a session of the pool holds the namespace's lock.
func (m Move) holding(ctx context.Context, pool *pgxpool.Pool, f func() error) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		var mine bool
		if err := conn.QueryRow(ctx, lock, m.Namespace).Scan(&mine); err != nil {
			return err
		}
		if !mine {
			return ErrBusy
		}
		defer func() {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.CallTimeout)
			defer cancel()
			if _, err := conn.Exec(late, unlock, m.Namespace); err != nil {
				_ = conn.Conn().Close(late) // then the server lets go of the lock
			}
		}()
		return f()
	})
}

// checkSchemas returns an error unless both databases have the same tables, each on one server.
func (m Move) checkSchemas(ctx context.Context) error {
	var versions []int64
	for _, pool := range []*pgxpool.Pool{m.From, m.To} {
		version, err := migrations.Check(ctx, pool)
		if err != nil {
			return err
		}
		versions = append(versions, version)
		if distributed, err := pg.IsOnCitus(ctx, pool); err != nil {
			return err
		} else if distributed {
			return ErrCitus
		}
	}
	if versions[0] != versions[1] {
		return fmt.Errorf("the databases have the schema versions %d and %d: migrate both to the same", versions[0],
			versions[1])
	}
	return nil
}

// Arrived reports whether the rows are in the target already. It returns an error if the move can neither begin nor go
// on.
func (m Move) Arrived(ctx context.Context) (bool, error) {
	have, err := fenced(ctx, m.From, m.Namespace)
	if err != nil {
		return false, err
	}
	there, err := m.InTarget(ctx)
	switch {
	case err != nil:
		return false, err
	case there && len(have) == 0:
		return false, ErrOccupied
	case there:
		return true, nil
	}
	here, err := hasRows(ctx, m.From, m.Namespace)
	if err == nil && !here {
		err = ErrNothing
	}
	return false, err
}

// InTarget reports whether the target has rows of the namespace.
func (m Move) InTarget(ctx context.Context) (bool, error) { return hasRows(ctx, m.To, m.Namespace) }

const readRunning = `
SELECT count(*) FROM (
	SELECT FROM kagzi.workflow_runs r WHERE r.namespace_id = $1 AND r.status = 'RUNNING' LIMIT 1
) x`

// Idle reports whether no run of the namespace is under way in the source.
func (m Move) Idle(ctx context.Context) (bool, error) {
	running, err := pg.AskOne[int](ctx, m.From, readRunning, m.Namespace)
	return running == 0, err
}

// Fence keeps both databases from writing rows of the namespace, but for the copy.
func (m Move) Fence(ctx context.Context) error {
	if err := fence(ctx, m.From, m.Namespace, true); err != nil {
		return err
	}
	return fence(ctx, m.To, m.Namespace, false) // of an earlier move
}

// Lift lets the source write rows of the namespace again.
func (m Move) Lift(ctx context.Context) error { return fence(ctx, m.From, m.Namespace, false) }

// Counts are numbers of rows by table.
type Counts map[string]int64

// Sum returns the number of rows in all tables.
func (c Counts) Sum() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// Copy copies the rows, and calls own in the two transactions. After an error, sure reports whether the target
// certainly has none of them.
func (m Move) Copy(ctx context.Context, own func(ctx context.Context, from, to pgx.Tx) error) (
	rows Counts, sure bool, err error,
) {
	if err := raisePositions(ctx, m.From, m.To); err != nil {
		return nil, true, err
	}
	sure = true
	err = pgx.BeginTxFunc(ctx, m.From, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(source pgx.Tx) error {
		target, err := m.To.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = target.Rollback(ctx) }()
		s := snapshot{source, target, m.Namespace}
		if rows, err = s.copyAll(ctx); err == nil && own != nil {
			err = own(ctx, source, target)
		}
		if err != nil {
			return err
		}
		err = target.Commit(ctx)
		sure = err == nil || !pg.Unavailable(err)
		return err
	})
	return rows, sure, err
}

// Remove deletes the rows from the source. copied has those that Copy has copied; nil if an earlier call has.
func (m Move) Remove(ctx context.Context, copied Counts) error {
	tables, err := tablesOf(ctx, m.From)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if err := deleteRows(ctx, m.From, t.name, m.Namespace, copied); err != nil {
			return err
		}
	}
	_, err = m.From.Exec(ctx, removeKeeper, m.Namespace)
	return err
}
