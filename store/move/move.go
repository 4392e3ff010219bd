package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A Move takes a namespace from one database to another. Its methods are the steps. They send all statements through
// the two sessions that hold the namespace's lock: a process that has lost the lock has lost these sessions, too.
type Move struct {
	namespace string
	from, to  *pgx.Conn
}

// Errors of a move that has not begun.
var (
	ErrNothing = errors.New("the namespace has no rows in the database that it is to leave: check the name, and " +
		"which database has it")
	ErrOccupied = errors.New("the other database has rows of the namespace already: move it to one that has none")
	ErrLeft     = errors.New("the namespace has moved already, to another database than this one: use a client of " +
		"that one")
	ErrBusy  = errors.New("another move of the namespace is under way, or both clients have the same database")
	ErrCitus = errors.New("the tables of one database are distributed by Citus: there a namespace is moved with " +
		"its shard")
)

const (
	lock = `SELECT pg_try_advisory_lock(hashtextextended('kagzi move ' || $1, 0))`

	unlock = `SELECT pg_advisory_unlock(hashtextextended('kagzi move ' || $1, 0))`
)

// Locked calls f while no other move of the namespace is under way in the two databases, which must have the same
// tables.
func Locked(ctx context.Context, namespace string, from, to *pgxpool.Pool, f func(Move) error) error {
	if err := checkSchemas(ctx, from, to); err != nil {
		return err
	}
	return holding(ctx, from, namespace, func(source *pgx.Conn) error {
		return holding(ctx, to, namespace, func(target *pgx.Conn) error { return f(Move{namespace, source, target}) })
	})
}

// holding calls f with a session of the pool that holds the namespace's lock.
func holding(ctx context.Context, pool *pgxpool.Pool, namespace string, f func(*pgx.Conn) error) error {
	return pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		var mine bool
		if err := conn.QueryRow(ctx, lock, namespace).Scan(&mine); err != nil {
			return err
		}
		if !mine {
			return ErrBusy
		}
		defer func() {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), pg.CallTimeout)
			defer cancel()
			if _, err := conn.Exec(late, unlock, namespace); err != nil {
				_ = conn.Conn().Close(late) // then the server lets go of the lock
			}
		}()
		return f(conn.Conn())
	})
}

// checkSchemas returns an error unless both databases have the same tables, each on one server.
func checkSchemas(ctx context.Context, from, to *pgxpool.Pool) error {
	var versions []int64
	for _, pool := range []*pgxpool.Pool{from, to} {
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

// CanBegin returns an error if the move cannot begin.
func (m Move) CanBegin(ctx context.Context) error {
	if here, err := hasRows(ctx, m.from, m.namespace); err != nil || !here {
		return cmp.Or(err, ErrNothing)
	}
	there, err := hasRows(ctx, m.to, m.namespace)
	if err == nil && there {
		err = ErrOccupied
	}
	return err
}

// Arrived reports whether the rows have been copied to the target. It returns ErrLeft if they were copied to another
// database.
func (m Move) Arrived(ctx context.Context) (bool, error) {
	id, left, err := m.fenced(ctx)
	if err != nil || id == "" {
		return false, err
	}
	arrived, err := pg.AskOne[bool](ctx, m.to, findEntry, m.namespace, id)
	if err == nil && left && !arrived {
		err = ErrLeft
	}
	return arrived, err
}

// fenced returns the ID of the move, which the source's fence has; "" if there is no fence. left says that the rows
// have been copied.
func (m Move) fenced(ctx context.Context) (id string, left bool, err error) {
	comment, err := pg.AskOne[string](ctx, m.from, readMove, pg.FenceOf(m.namespace))
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	id, left = strings.CutSuffix(comment, hasLeft)
	return id, left, err
}

// Leave notes in the source that the rows have been copied: from then on they never go on there.
func (m Move) Leave(ctx context.Context) error {
	id, left, err := m.fenced(ctx)
	if err != nil || left {
		return err
	}
	return patiently(ctx, m.from, func(tx pgx.Tx) error {
		return alter(ctx, tx, []string{commentFence}, "workflow_runs", m.namespace, id+hasLeft)
	})
}

const (
	runningRuns = `
	SELECT r.locked_by, r.available_at FROM kagzi.workflow_runs r
	WHERE r.namespace_id = $1 AND r.status = 'RUNNING' AND ` + clause.Claimable + `
	UNION ALL
	SELECT r.locked_by, r.available_at FROM kagzi.workflow_runs r
	WHERE r.namespace_id = $1 AND r.namespace_id = $1 COLLATE "POSIX" AND r.status = 'RUNNING' AND ` + clause.IsWaiting

	findRunning = `SELECT EXISTS (` + runningRuns + `
)`

	// A worker gives up its runs some time before stale_after is over.
	findHeld = `SELECT EXISTS (
	SELECT
	FROM (` + runningRuns + `
	) h
	JOIN kagzi.workers w ON w.worker_id = h.locked_by AND w.namespace_id = $1
	WHERE h.available_at > clock_timestamp() AND w.heartbeat_at + w.stale_after > clock_timestamp()
)`
)

// Idle reports whether no run of the namespace is under way in the source.
func (m Move) Idle(ctx context.Context) (bool, error) {
	running, err := pg.AskOne[bool](ctx, m.from, findRunning, m.namespace)
	return !running, err
}

// Fence keeps the source from writing rows of the namespace.
func (m Move) Fence(ctx context.Context) error { return fence(ctx, m.from, m.namespace, true) }

// Lift lets the source write rows of the namespace again.
func (m Move) Lift(ctx context.Context) error { return fence(ctx, m.from, m.namespace, false) }

// Admit lets the target write rows of the namespace, if an earlier move had taken it from there.
func (m Move) Admit(ctx context.Context) error { return fence(ctx, m.to, m.namespace, false) }

// Counts are numbers of rows by table.
type Counts map[string]int64

// Sum returns the number of rows in all tables.
func (c Counts) Sum() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// Copy copies the rows, and calls own in the two transactions. After an error, Arrived says whether it has.
func (m Move) Copy(ctx context.Context, own func(ctx context.Context, from, to pgx.Tx) error) (rows Counts, err error) {
	if err := raisePositions(ctx, m.from, m.to); err != nil {
		return nil, err
	}
	id, _, err := m.fenced(ctx)
	if err != nil {
		return nil, err
	}
	source, err := m.from.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Rollback(ctx) }()
	err = pgx.BeginFunc(ctx, m.to, func(target pgx.Tx) error {
		if rows, err = (snapshot{source, target, m.namespace}).copyAll(ctx); err != nil {
			return err
		}
		if _, err := target.Exec(ctx, writeEntry, m.namespace, id); err != nil {
			return err
		}
		if own == nil {
			return nil
		}
		return own(ctx, source, target)
	})
	return rows, err
}

// Remove deletes the rows from the source. copied has those that Copy has copied; nil if an earlier call has.
//
// It waits until the workers of the source have given up their runs. One that reads a history whose rows are deleted
// would execute its steps again.
func (m Move) Remove(ctx context.Context, copied Counts) error {
	for {
		held, err := pg.AskOne[bool](ctx, m.from, findHeld, m.namespace)
		if err != nil {
			return err
		}
		if !held {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	tables, err := tablesOf(ctx, m.from)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if err := deleteRows(ctx, m.from, t, m.namespace, copied); err != nil {
			return err
		}
	}
	_, err = m.from.Exec(ctx, removeKeeper, m.namespace)
	return err
}
