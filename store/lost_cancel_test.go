package store

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// TestLostCancelOfARunThatCompletes loses the commit of a cancel, and lets the run complete before the cancel is tried
// again: whoever cancels must hear that the run was not cancelled, if the server has not seen the commit.
func TestLostCancelOfARunThatCompletes(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string]func(*Store, context.Context, *ClaimedRun) error{
		"Cancel": func(s *Store, ctx context.Context, r *ClaimedRun) error {
			return cancelled(s.Cancel(ctx, nil, r.RunID, ""))
		},
		"Terminate": func(s *Store, ctx context.Context, r *ClaimedRun) error {
			return cancelled(s.Terminate(ctx, nil, r.RunID, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			direct := New(db.Pool, "test")
			r := running(t, direct, 1)[0]
			proxy := pgproxy.Start(t, db.DSN)
			drop := proxy.DropRequest(pgproxy.Exactly("commit"))
			var tries atomic.Int64
			s := New(poolWith(t, proxy.DSN(), func(c *pgxpool.Config) {
				c.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
					if tries.Add(1) == 2 {
						happened(t, drop)
						f := &Flush{Finishes: []*Finish{finish(r)}}
						for f.Finishes[0].Outcome != Done { // until the server has noticed, the run is locked
							if err := direct.Flush(t.Context(), f); err != nil {
								t.Error(err)
								break
							}
						}
					}
					return true, nil
				}
			}), "test")
			err := verb(s, t.Context(), r)
			if got := look(t, db.Pool, r.RunID).Status; got != Completed {
				t.Fatalf("INVALID: the run is %s", got)
			}
			if !errors.Is(err, ErrRunFinished) {
				t.Errorf("error %v of a run that completed, want ErrRunFinished", err)
			}
		})
	}
}
