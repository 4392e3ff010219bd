package kagzi

import (
	"cmp"
	"context"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/store"
)

// How long an attempt of a transactional step that loses its connection is made again without being counted, and the
// longest pause between two of them. Without a bound, a function whose query brings the server down would do so for ever.
const (
	awayPatience = time.Minute
	awayPause    = 10 * time.Second
)

// An awayCount is what is known of an attempt that failed because the database was away.
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
	return hit && ctx.Err() == nil && !isPermanent(err) && s.isUncounted(err)
}

// isUncounted reports whether err means that the database was away, and the attempt may be made again without being counted.
func (s *stepCall) isUncounted(err error) bool {
	if store.Classify(err) != store.ClassAway {
		return false
	}
	if s.away.times == 0 || s.away.attempt != s.attempt {
		s.away = awayCount{attempt: s.attempt, since: time.Now()}
	}
	s.away.times++
	return time.Since(s.away.since) < cmp.Or(s.b.e.s.w.awayPatience, awayPatience)
}

// again waits, longer each time, for the attempt to be made again.
func (s *stepCall) again(err error) (*store.StepRow, error) {
	s.b.e.log().Warn("kagzi: a transactional step lost the database and is repeated; the attempt is not counted", "step", s.id, "attempt", s.attempt, "error", err)
	select {
	case <-time.After(min(databasePause<<min(s.away.times-1, 10), awayPause)):
	case <-s.b.e.done:
		runtime.Goexit()
	}
	return nil, nil
}
