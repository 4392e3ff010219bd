package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

// holding opens a transaction of another caller that has started a run of the ID.
func holding(t *testing.T, s *Store, id string) (end func(sql string)) {
	t.Helper()
	tx := begin(t, s)
	if _, err := s.Starts.Start(t.Context(), tx, []NewRun{newRun(withID(id))}); err != nil {
		t.Fatal(err)
	}
	return func(sql string) { exec(t, tx, sql) }
}

func TestStartOfAHeldID(t *testing.T) {
	t.Parallel()

	several := func() []NewRun { return []NewRun{newRun(), newRun(withID("held")), newRun(withID("other"))} }
	policy := func() []NewRun { return []NewRun{newRun(withID("held"), ifEnded(RejectEnded))} }
	alone := func() []NewRun { return []NewRun{newRun(withID("held"))} }

	// More slices of waiting pass than a call is repeated when the database is away.
	t.Run("WaitsUntilItIsFree", func(t *testing.T) {
		t.Parallel()
		s := open(t, dbtest.MaxConns(10))
		end := holding(t, s, "held")
		begun := one[int64](t, s.pool, `SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()`)
		var out []StartedRun
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { out, err = s.Starts.Start(context.WithoutCancel(t.Context()), nil, alone()) })
		exec(t, s.pool, `
			DO $$ BEGIN
				FOR i IN 1 .. 1200 LOOP
					PERFORM pg_stat_clear_snapshot();
					IF (SELECT xact_rollback FROM pg_stat_database
						WHERE datname = current_database()) > `+fmt.Sprint(begun+pg.MaxTries)+` THEN RETURN; END IF;
					PERFORM pg_sleep(0.05);
				END LOOP;
				RAISE 'the start does not wait in slices';
			END $$`)
		end("ROLLBACK")
		wg.Wait()
		if err != nil || out[0].Existed {
			t.Errorf("%+v, %v", out, err)
		}
	})

	for name, runs := range map[string]func() []NewRun{"Alone": alone, "OneOfSeveral": several, "WithAPolicy": policy} {
		// Cancelled, it ends soon, says why, has started nothing, and has cost no connection.
		t.Run("Cancelled"+name, func(t *testing.T) {
			t.Parallel()
			s := open(t, dbtest.MaxConns(10))
			end := holding(t, s, "held")
			made := s.pool.Stat().NewConnsCount()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			meetsLock(t, s, func(context.Context) {
				_, err := s.Starts.Start(ctx, nil, runs())
				var h *HeldError
				if !errors.As(err, &h) || h.Unknown || !errors.Is(err, context.Canceled) || !pg.Locked(err) ||
					!strings.Contains(err.Error(), "nothing was started") {
					t.Errorf("got %v", err)
				}
			}, cancel)
			if n := s.pool.Stat().NewConnsCount(); n > made+2 {
				t.Errorf("%d connections were opened anew", n-made)
			}
			end("ROLLBACK")
			if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 0 {
				t.Errorf("%d runs, want none", n)
			}
		})

		t.Run("DeadlineOf"+name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			end := holding(t, s, "held")
			defer end("ROLLBACK")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // enough to meet the lock, on any machine
			defer cancel()
			_, err := s.Starts.Start(ctx, nil, runs())
			if !errors.As(err, new(*HeldError)) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}

	// The deadline passes in the middle of a statement, whose outcome is not known then.
	t.Run("DeadlineWithinAStatement", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tries := 0
		err := whileHeld(ctx, HeldError{What: "the ID"}, func(context.Context, bool) error {
			if tries++; tries == 1 {
				return &pgconn.PgError{Code: "55P03"}
			}
			cancel()
			return io.ErrUnexpectedEOF
		})
		var h *HeldError
		if !errors.As(err, &h) || !h.Unknown || !errors.Is(err, context.Canceled) ||
			!errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v", err)
		}
	})

	t.Run("InATransactionWithALockTimeout", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		end := holding(t, s, "held")
		defer end("ROLLBACK")
		tx := begin(t, s)
		limitWaits(t, tx)
		_, err := s.Starts.Start(t.Context(), tx, alone())
		if !errors.As(err, new(*HeldError)) {
			t.Errorf("got %v", err)
		}
		if _, err := s.Starts.Start(t.Context(), tx, []NewRun{newRun(withID("free"))}); err != nil {
			t.Errorf("the transaction is broken: %v", err)
		}
	})
}

// Starts with the same IDs in different orders wait for each other, and none in a circle.
func TestStartsInDifferentOrders(t *testing.T) {
	t.Parallel()
	const n, starters, rounds = 200, 6, 5
	pool := poolWith(t, dbtest.Database(t).DSN, func(c *pgxpool.Config) {
		c.MaxConns, c.ConnConfig.RuntimeParams["deadlock_timeout"] = starters+2, "1"
	})
	s := New(pool, "test")
	for round := range rounds {
		var wg sync.WaitGroup
		for range starters {
			runs := make([]NewRun, n)
			for i := range runs {
				runs[i] = newRun(withID(fmt.Sprintf("id-%d-%d", round, i)), ofType("type"))
			}
			rand.Shuffle(n, func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
			wg.Go(func() {
				started, err := s.Starts.Start(t.Context(), nil, runs)
				if err != nil {
					t.Error(err)
					return
				}
				for i, r := range started {
					if r.Existed == (r.RunID == runs[i].RunID) {
						t.Errorf("run %d of ID %s: %+v", i, runs[i].ExternalID, r)
					}
				}
			})
		}
		wg.Wait()
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != rounds*200 {
		t.Errorf("%d runs, want %d", n, rounds*200)
	}
	wantNoDeadlocks(t, s)
}

// More runs than one statement inserts are all or none, too, and come back in the caller's order.
func TestStartInChunks(t *testing.T) {
	t.Parallel()
	s := open(t)
	runs := many(2*chunkRuns + 5)
	for i := range runs {
		if i%3 > 0 {
			runs[i].ExternalID = fmt.Sprintf("id-%d", len(runs)-i)
		}
	}
	last := slices.IndexFunc(runs, func(r NewRun) bool { return r.ExternalID == "id-9999" })
	taken := start(t, s, newRun(withID("id-9999"), withHash("other")))[0]
	_, err := s.Starts.Start(t.Context(), nil, runs)
	wantError(t, err, ErrIDConflict)
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
		t.Errorf("%d runs after a conflict in the last chunk, want the first alone", n)
	}
	mustCancel(t, s, taken, "")
	taken = start(t, s, newRun(withID("id-9999")))[0]
	started, err := s.Starts.Start(t.Context(), nil, runs)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range started {
		if want := runs[i].RunID; i == last && (r.RunID != taken || !r.Existed) || i != last &&
			(r.RunID != want || r.Existed) {
			t.Fatalf("run %d: %+v", i, r)
		}
	}
}

func TestStartChunks(t *testing.T) {
	t.Parallel()
	runs := many(4)
	runs[0].Input, runs[1].Input = make([]byte, chunkBytes+1), make([]byte, chunkBytes)
	if got := fmt.Sprint(startChunks(runs, everyRun(runs))); got != "[[0] [1] [2 3]]" {
		t.Errorf("by size: %s", got)
	}
	if got := len(startChunks(many(3*chunkRuns), everyRun(many(3*chunkRuns)))); got != 3 {
		t.Errorf("by number: %d", got)
	}
	runs = []NewRun{newRun(withID("b")), newRun(), newRun(withID("B")), newRun(withID("a")), newRun()}
	if got := fmt.Sprint(everyRun(runs)); got != "[1 4 2 3 0]" {
		t.Errorf("order %s", got)
	}
}
