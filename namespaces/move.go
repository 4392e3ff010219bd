package namespaces

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/move"
)

// ErrMoved reports a write by a client of a database that the namespace leaves, or has left. Use a client of the
// database to which it moves.
var ErrMoved = store.ErrMoved

// A MoveConfig configures [Move]. The zero value is a good one.
type MoveConfig struct {
	// Wait is how long executions that are under way may take to their next step. Those that take longer are lost, as
	// in a crash: the step under way executes again in the other database. Zero means 10 seconds.
	Wait time.Duration

	// Own copies the application's rows of the namespace, in the transactions in which Move reads and writes those of
	// Kagzi. An error of it ends the move. from only reads.
	Own func(ctx context.Context, from, to pgx.Tx) error
}

// Moved says what [Move] did.
type Moved struct {
	// Rows is the number of Kagzi's rows that were copied. It is zero if an earlier call had copied them.
	Rows int64 `json:"rows"`

	// Away is how long no database took writes of the namespace.
	Away time.Duration `json:"away"`
}

// Move takes the namespace of from, with all that belongs to it, to the database of to. Both are clients of the same
// namespace. Afterwards the database of from has none of its rows, and refuses new ones with [ErrMoved].
//
// Move pauses the namespace and waits for executions under way. While it copies, starts and other writes return
// ErrMoved.
//
// If Move fails, the namespace goes on where it was. If its process dies, or the error says so, the namespace stays
// paused: call Move again, which goes on from there, or [CancelMove].
//
// It needs the rights of the tables' owner, the same schema version in both databases, no transaction pooler, and three
// connections of each pool. The other database must have no rows of the namespace.
func Move(ctx context.Context, from, to *kagzi.Client, cfg MoveConfig) (Moved, error) {
	m, err := newMove(from, to)
	if err != nil {
		return Moved{}, err
	}
	if cfg.Wait < 0 {
		return Moved{}, fmt.Errorf("kagzi: namespaces: MoveConfig.Wait is %v: give a positive time, or zero for 10 "+
			"seconds", cfg.Wait)
	}
	if err := duration.CheckLength("Wait", cfg.Wait); err != nil {
		return Moved{}, err
	}
	if cfg.Wait == 0 {
		cfg.Wait = 10 * time.Second
	}
	var moved Moved
	err = m.Locked(ctx, func() error {
		arrived, err := m.Arrived(ctx)
		var copied move.Counts
		if err == nil && !arrived {
			var away time.Time
			if copied, away, err = m.carry(ctx, cfg); err == nil {
				moved = Moved{copied.Sum(), time.Since(away)}
			}
		}
		if err != nil {
			return err
		}
		if err := unpause(ctx, to); err != nil {
			return err
		}
		return m.Remove(ctx, copied)
	})
	if err != nil {
		err = fmt.Errorf("kagzi: namespaces: move %s: %w", from.Namespace(), err)
	}
	return moved, err
}

// CancelMove ends a [Move] that was interrupted: the namespace goes on where it was. It returns an error if the rows
// have arrived in the other database, or if a call of Move is under way.
func CancelMove(ctx context.Context, from, to *kagzi.Client) error {
	m, err := newMove(from, to)
	if err != nil {
		return err
	}
	err = m.Locked(ctx, func() error {
		arrived, err := m.InTarget(ctx)
		if err != nil {
			return err
		}
		if arrived {
			return errors.New("the rows have arrived in the other database: call Move again, which ends the move")
		}
		return m.giveUp(ctx)
	})
	if err != nil {
		return fmt.Errorf("kagzi: namespaces: cancel the move of %s: %w", from.Namespace(), err)
	}
	return nil
}

// A mover moves the namespace of two clients.
type mover struct {
	move.Move
	from, to *kagzi.Client
}

func newMove(from, to *kagzi.Client) (mover, error) {
	for _, c := range []*kagzi.Client{from, to} {
		if err := c.Core().Made(); err != nil {
			return mover{}, err
		}
	}
	if from.Namespace() != to.Namespace() {
		return mover{}, fmt.Errorf("kagzi: namespaces: the clients are of the namespaces %q and %q: make both of the "+
			"one that moves", from.Namespace(), to.Namespace())
	}
	return mover{
		move.Move{Namespace: from.Namespace(), From: from.Core().Store.Pool(), To: to.Core().Store.Pool()}, from, to,
	}, nil
}

// carry pauses the namespace, and copies its rows. It returns how many, and since when no database takes writes.
func (m mover) carry(ctx context.Context, cfg MoveConfig) (copied move.Counts, away time.Time, err error) {
	if err := pause(ctx, m.from); err != nil {
		return nil, away, err
	}
	sure := true
	if err = m.waitIdle(ctx, cfg.Wait); err == nil {
		away = time.Now()
		if err = m.Fence(ctx); err == nil {
			copied, sure, err = m.Copy(ctx, cfg.Own)
		}
	}
	switch {
	case err == nil:
		return copied, away, nil
	case !sure:
		return nil, away, fmt.Errorf("%w; whether the rows have arrived is not known, and the namespace is paused: "+
			"call Move again", err)
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if failed := m.giveUp(late); failed != nil {
		err = fmt.Errorf("%w; the namespace is still paused: call CancelMove, or Move again (%w)", err, failed)
	}
	return nil, away, err
}

// giveUp lets the namespace go on in the database where it is.
func (m mover) giveUp(ctx context.Context) error {
	if err := m.Lift(ctx); err != nil {
		return err
	}
	return unpause(ctx, m.from)
}

// waitIdle waits until no run is under way, or the time for that is over. It searches for at most half of the time.
func (m mover) waitIdle(ctx context.Context, wait time.Duration) error {
	for end := time.Now().Add(wait); time.Now().Before(end); {
		begun := time.Now()
		if idle, err := m.Idle(ctx); err != nil || idle {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(20*time.Millisecond, time.Since(begun))):
		}
	}
	return nil
}

const (
	movedBy = kagzi.Actor("namespaces.Move")
	moving  = kagzi.Reason("the namespace moves to another database")
)

// pausedBy returns the pause of the whole namespace, nil if there is none.
func pausedBy(ctx context.Context, c *kagzi.Client) (*admin.Pause, error) {
	all, err := admin.New(c).Pauses.List(ctx)
	for _, p := range all {
		if p.All {
			return &p, err
		}
	}
	return nil, err
}

// pause pauses the namespace, unless it is paused already.
func pause(ctx context.Context, c *kagzi.Client) error {
	p, err := pausedBy(ctx, c)
	if err != nil || p != nil {
		return err
	}
	return admin.New(c).Pauses.Set(ctx, admin.Target{All: true}, movedBy, moving, admin.Park())
}

// unpause ends the pause that Move has made. One that an operator had made before stays.
func unpause(ctx context.Context, c *kagzi.Client) error {
	p, err := pausedBy(ctx, c)
	if err != nil || p == nil || p.Actor != string(movedBy) {
		return err
	}
	err = admin.New(c).Pauses.End(ctx, admin.Target{All: true}, movedBy, moving)
	if errors.Is(err, kagzi.ErrNotFound) {
		return nil
	}
	return err
}
