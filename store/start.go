package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Starts inserts runs.
type Starts struct{ *conn }

// Start inserts the runs, all or none. If an active run has the external ID of one, Start returns that run instead,
// unless a policy says otherwise. It returns ErrIDConflict if that run has another workflow, or another input and the
// start has no messages for it. It returns ErrIDTaken or ErrKeyFull if a policy refuses the start. With a nil tx, Start
// is a transaction of its own, and repeats it if an answer is lost. A tx survives its errors.
//
// While another open transaction holds an external ID, Start waits for its end until ctx ends, and then returns a
// HeldError.
func (s Starts) Start(ctx context.Context, tx pgx.Tx, runs []NewRun) ([]StartedRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	if tx != nil {
		out, err := s.startIn(ctx, tx, runs)
		s.noteRefusal(ctx, tx, err)
		return out, err
	}
	replaced := make([]StartedRun, len(runs)) // by every try, also one whose answer was lost
	var out []StartedRun
	// It waits in slices and checks ctx between them: a context that ends during a statement would cost the connection,
	// and leave the outcome unknown.
	err := whileHeld(ctx, HeldError{What: waitsFor(runs)}, func(ctx context.Context, lost bool) (err error) {
		out, err = s.startOwn(ctx, runs, replaced, lost)
		return err
	})
	if err != nil {
		s.noteRefusal(ctx, nil, err)
		return nil, pg.Wrap("start", err)
	}
	return out, nil
}

// startOwn starts the runs in a transaction of its own. lost says that the answer to an earlier try may have been lost.
func (s Starts) startOwn(ctx context.Context, runs []NewRun, replaced []StartedRun,
	lost bool,
) (out []StartedRun, err error) {
	chunks := startChunks(runs, everyRun(runs))
	ctx, cancel := pg.Bound(ctx, pg.CallTimeout*time.Duration(len(chunks)))
	defer cancel()
	// no run can be refused after others were inserted
	if len(chunks) == 1 && !byPolicy(runs) && (len(runs) == 1 || !anyExternalID(runs)) && !anyMessages(runs) &&
		!anyWindow(runs) && !anyWhenFull(runs) {
		return s.insert(ctx, s.pool, runs)
	}
	err = pg.Transact(ctx, s.pool, pg.Mode{Locks: lockSlice(ctx, len(runs))}, func(tx pgx.Tx) error {
		out, err = s.startAll(ctx, tx, runs, lost)
		keepReplaced(out, replaced)
		return err
	})
	return out, err
}

// keepReplaced adds the runs that earlier tries replaced or cancelled to out, and then those of out to replaced.
func keepReplaced(out, replaced []StartedRun) {
	for i := range out {
		if out[i].Replaced == uuid.Nil {
			out[i].Replaced = replaced[i].Replaced
		}
		if out[i].Ended == nil {
			out[i].Ended = replaced[i].Ended
		}
		replaced[i] = out[i]
	}
}

func (s Starts) startIn(ctx context.Context, tx pgx.Tx, runs []NewRun) ([]StartedRun, error) {
	if byPolicy(runs) || anyWindow(runs) || anyWhenFull(runs) {
		var err error
		if tx, err = pg.CheckIsolation(ctx, tx); err != nil {
			return nil, pg.Wrap("start", err)
		}
	}
	var out []StartedRun
	// At a conflict, the savepoint rolls back the inserts before it.
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) {
		out, err = s.startAll(ctx, tx, runs, false)
		return err
	})
	if pg.Locked(err) { // by the caller's lock_timeout
		err = &HeldError{What: waitsFor(runs), Err: err}
	}
	return out, pg.Wrap("start", err)
}

// startAll starts the runs and stores their messages. repeated says that the answer to an earlier try may have been
// lost.
func (s Starts) startAll(ctx context.Context, tx pgx.Tx, runs []NewRun, repeated bool) ([]StartedRun, error) {
	if err := s.lockFullKeys(ctx, tx, runs); err != nil {
		return nil, err
	}
	if anyWindow(runs) {
		return s.startInWindows(ctx, tx, runs, repeated)
	}
	return s.startEach(ctx, tx, runs, repeated)
}

// startEach is startAll for runs that share no window.
func (s Starts) startEach(ctx context.Context, tx pgx.Tx, runs []NewRun, repeated bool) ([]StartedRun, error) {
	if anyMessages(runs) {
		return s.startSignalling(ctx, tx, runs, repeated)
	}
	return s.insert(ctx, tx, runs)
}

func anyExternalID(runs []NewRun) bool {
	for i := range runs {
		if runs[i].ExternalID != "" {
			return true
		}
	}
	return false
}
