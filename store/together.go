package store

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

// Together inserts runs of several callers with one statement, and returns the IDs of those that it inserted. With
// the ID comes the run itself if it was inserted as claimed. due are consumers of the starts. The statement leaves out
// a run that exists already or whose external ID is taken, waits only briefly, and is not repeated: Start does all that
// for a single run, and finds a run that was inserted although the answer was lost. take is called when there is a
// connection. It returns the runs, which have neither policies nor messages; if it returns none, nothing is sent.
func (s Starts) Together(ctx context.Context,
	take func() []*NewRun,
) (inserted map[uuid.UUID]*ClaimedRun, due []DueRun, err error) {
	ctx, cancel := pg.Bound(ctx, pg.CallTimeout)
	defer cancel()
	conn, err := pg.AcquireWithin(ctx, s.pool, pg.BriefLockWait)
	if err != nil {
		return nil, nil, pg.Wrap("start", err)
	}
	defer conn.Release()
	runs := take()
	if len(runs) == 0 {
		return nil, nil, nil
	}
	b := &pgx.Batch{}
	b.Queue(insertsOf(runs), insertColumns.args(s.namespace, runs)...)
	asked := time.Now()
	reads := []func(pgx.Rows) error{func(rows pgx.Rows) (err error) {
		inserted, err = readInserted(rows, runs, asked)
		return err
	}}
	err = pg.Exchange(ctx, conn, pg.Brief, b, append(reads, s.publishStarts(b, runs, &due)...)...)
	pg.DropReadOnly(conn.Conn(), err)
	return inserted, due, pg.Wrap("start", err)
}
