package engine

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/store"
)

// How long an attempt of a transactional step that loses its connection, or whose record is not written in time, is made
// again without being counted, and the longest pause between two of them. Without a bound, a function whose query brings
// the server down would do so for ever.
const (
	awayPatience = time.Minute
	awayPause    = 10 * time.Second
)

// An awayCount is what is known of an attempt that failed by no fault of its own.
type awayCount struct {
	attempt int
	since   time.Time
	times   int
}

// cutOff reports whether the function failed with err because its transaction was cut off: by the loss of the connection, or
// by a server that cannot go on. Nothing was committed, and it says nothing of the step. An error of that kind which has
// come from elsewhere, from another database for one, leaves the transaction as it was.
func (s *stepCall) cutOff(ctx context.Context, tx pgx.Tx, err error) bool {
	conn := tx.Conn()
	hit := conn.IsClosed() || conn.PgConn().TxStatus() == 'E'
	class := store.Classify(err)
	return hit && ctx.Err() == nil && !s.b.e.env.errors.Classify(err).Permanent && (class == store.ClassAway || class == store.ClassUnable) && s.isUncounted()
}

// saysNothing reports whether err, with which the record or the commit failed after the function had succeeded, says
// nothing of the step: the database was away, or somebody else's lock was waited for in vain.
func saysNothing(err error) bool {
	switch store.Classify(err) {
	case store.ClassAway, store.ClassUnable, store.ClassLocked, store.ClassLate:
		return true
	}
	return false
}

// isUncounted reports whether the attempt, which failed by no fault of its own, may be made again without being counted.
func (s *stepCall) isUncounted() bool {
	if s.away.times == 0 || s.away.attempt != s.attempt {
		s.away = awayCount{attempt: s.attempt, since: time.Now()}
	}
	s.away.times++
	patience := awayPatience
	if hooks := s.b.e.env.hooks; hooks != nil {
		patience = cmp.Or(hooks.AwayPatience, patience)
	}
	return time.Since(s.away.since) < patience
}

// again waits, longer each time, for the attempt to be made again.
func (s *stepCall) again(err error) (*store.StepRow, error) {
	s.b.e.log().Warn("kagzi: a transactional step is repeated because of the database; the attempt is not counted", "step", s.id, "attempt", s.attempt, "error", err)
	select {
	case <-time.After(min(outage.Pause<<min(s.away.times-1, 10), awayPause)):
	case <-s.b.e.done:
		runtime.Goexit()
	}
	return nil, nil
}

// beginTx begins a transaction for a step, leaving the pool the connections that the engine needs. Its level is always
// said: the database's or role's default may be a stricter one. end rolls it back unless it is committed, and frees its slot;
// it is told what the transaction failed with, and may be called again.
func (env *environment) beginTx(ctx context.Context, level pgx.TxIsoLevel) (tx pgx.Tx, end func(error), err error) {
	select {
	case env.txSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	tx, err = env.store.Pool().BeginTx(ctx, pgx.TxOptions{IsoLevel: cmp.Or(level, pgx.ReadCommitted)})
	if err != nil {
		<-env.txSlots
		return nil, nil, err
	}
	var once sync.Once
	return tx, func(err error) {
		once.Do(func() {
			store.DropReadOnly(tx.Conn(), err)
			rollback(tx)
			<-env.txSlots
		})
	}, nil
}
