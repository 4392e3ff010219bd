package namespaces

import (
	"cmp"
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

// ErrMoved reports a write by a client of a database that the namespace leaves or has left, or a call about a run or
// a schedule that was there. Use a client of the database to which it moves.
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

// Move takes the namespace of from, with its runs, schedules, events and all else, to the database of to, which must
// have none of its rows. Both are clients of the same namespace. Afterwards the database of from refuses it with
// [ErrMoved], until it moves back.
//
// Move pauses the namespace, waits for executions under way, and copies in one transaction. Meanwhile writes return
// ErrMoved.
//
// If Move fails, the namespace goes on where it was. If the process dies, or the error says so, call Move again, which
// goes on from there, or [CancelMove].
//
// It needs the rights of the tables' owner, the same schema version in both databases, no transaction pooler, and two
// connections of each pool.
func Move(ctx context.Context, from, to *kagzi.Client, cfg MoveConfig) (Moved, error) {
	m, err := newMove(from, to)
	if err != nil {
		return Moved{}, err
	}
	if err := duration.Check("Wait", cfg.Wait); err != nil {
		return Moved{}, err
	}
	if cfg.Wait == 0 {
		cfg.Wait = 10 * time.Second
	}
	var moved Moved
	begun := false // the namespace may be paused, and refused by from
	err = m.locked(ctx, func(s move.Move) error {
		arrived, err := s.Arrived(ctx)
		if err != nil {
			return err
		}
		var copied move.Counts
		var away time.Time
		if !arrived {
			if err := s.CanBegin(ctx); err != nil {
				return err
			}
			begun = true
			if copied, away, err = m.carry(ctx, s, cfg); err != nil {
				return err
			}
		}
		if err := s.Leave(ctx); err != nil {
			return err
		}
		if err := s.Admit(ctx); err != nil {
			return err
		}
		if !arrived {
			moved = Moved{copied.Sum(), time.Since(away)}
		}
		if err := unpause(ctx, to); err != nil {
			return err
		}
		return s.Remove(ctx, copied)
	})
	if err != nil && begun {
		err = m.giveUp(ctx, err)
	}
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
	if err := m.locked(ctx, func(s move.Move) error { return m.cancel(ctx, s) }); err != nil {
		return fmt.Errorf("kagzi: namespaces: cancel the move of %s: %w", from.Namespace(), err)
	}
	return nil
}

// A mover moves the namespace of two clients.
type mover struct{ from, to *kagzi.Client }

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
	return mover{from, to}, nil
}

// locked calls f while no other move of the namespace is under way.
func (m mover) locked(ctx context.Context, f func(move.Move) error) error {
	return move.Locked(ctx, m.from.Namespace(), m.from.Core().Store.Pool(), m.to.Core().Store.Pool(), f)
}

// carry pauses the namespace, and copies its rows. It returns how many, and since when no database takes writes.
func (m mover) carry(ctx context.Context, s move.Move, cfg MoveConfig) (copied move.Counts, away time.Time, err error) {
	if err := pause(ctx, m.from); err != nil {
		return nil, away, err
	}
	if err := waitIdle(ctx, s, cfg.Wait); err != nil {
		return nil, away, err
	}
	away = time.Now()
	if err := s.Fence(ctx); err != nil {
		return nil, away, err
	}
	copied, err = s.Copy(ctx, cfg.Own)
	return copied, away, err
}

var errArrived = errors.New("the rows have arrived in the other database: call Move again, which ends the move")

// giveUp lets the namespace go on where it was, after its move has failed with err. It takes the lock again: then no
// session of the failed move commits any more, and no other call has gone on with it.
func (m mover) giveUp(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for begun := time.Now(); ; {
		failed := m.locked(ctx, func(s move.Move) error { return m.cancel(ctx, s) })
		switch {
		case failed == nil:
			return err
		case errors.Is(failed, move.ErrBusy) && time.Since(begun) < 10*time.Second:
			<-time.After(100 * time.Millisecond) // the server ends a lost session soon
		case errors.Is(failed, errArrived):
			return fmt.Errorf("%w; %w", err, failed)
		default:
			return fmt.Errorf("%w; the namespace may still be paused: call Move again, or CancelMove (%w)", err, failed)
		}
	}
}

// cancel lets the namespace go on where it was, unless its rows have been copied.
func (m mover) cancel(ctx context.Context, s move.Move) error {
	if arrived, err := s.Arrived(ctx); err != nil || arrived {
		return cmp.Or(err, errArrived)
	}
	if err := s.Lift(ctx); err != nil {
		return err
	}
	return unpause(ctx, m.from)
}

// waitIdle waits until no run is under way, or the time for that is over. It searches for at most half of the time.
func waitIdle(ctx context.Context, s move.Move, wait time.Duration) error {
	for end := time.Now().Add(wait); time.Now().Before(end); {
		begun := time.Now()
		if idle, err := s.Idle(ctx); err != nil || idle {
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

// pausedBy returns the pause of the whole namespace, nil if there is none. It is the first of the list.
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
