package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

func ifActive(policy string) func(*NewRun) { return func(r *NewRun) { r.IfActive = policy } }

func ifEnded(policy string) func(*NewRun) { return func(r *NewRun) { r.IfEnded = policy } }

// endAs ends an active run as a worker would.
func endAs(t *testing.T, db pg.DB, id uuid.UUID, status string) {
	t.Helper()
	exec(t, db, `
		UPDATE kagzi.workflow_runs SET status = $2, finished_at = $3, available_at = NULL,
			locked_by = NULL, error_kind = CASE WHEN $2 <> 'COMPLETED' THEN 'kind' END
		WHERE run_id = $1 AND status NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')`, id, status,
		one[time.Time](t, db, `SELECT clock_timestamp()`))
}

// outcome says what a start has come to: new, existed, replaced, or how it was refused.
func outcome(out []StartedRun, err error) string {
	switch {
	case errors.Is(err, ErrIDTaken) && errors.Is(err, ErrIDConflict):
		return "taken and conflict"
	case errors.Is(err, ErrIDTaken):
		return "taken"
	case errors.Is(err, ErrIDConflict):
		return "conflict"
	case err != nil:
		return err.Error()
	}
	switch r := out[0]; {
	case r.Existed:
		return "existed"
	case r.Replaced != uuid.Nil:
		return "replaced"
	default:
		return "new"
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	// A history lists the earlier runs of the ID, each with how it ended, "" for active.
	type past struct {
		change func(*NewRun)
		status string
	}
	same, input, workflow := func(*NewRun) {}, withHash("other"), ofType("other")
	actives := []string{"", RejectActive, ReplaceActive}
	endeds := []string{"", RejectEnded, StartIfFailed}
	for name, test := range map[string]struct {
		history []past
		active  []string // by the policy for active runs
		ended   []string // by the policy for ended ones, if none is active
	}{
		"Active":               {[]past{{same, ""}}, []string{"existed", "taken", "replaced"}, nil},
		"ActiveOtherInput":     {[]past{{input, ""}}, []string{"conflict", "taken and conflict", "replaced"}, nil},
		"ActiveOtherWorkflow":  {[]past{{workflow, ""}}, []string{"conflict", "taken and conflict", "conflict"}, nil},
		"ActiveAfterCompleted": {[]past{{same, Completed}, {same, ""}}, []string{"existed", "taken", "replaced"}, nil},
		"None":                 {nil, nil, []string{"new", "new", "new"}},
		"Completed":            {[]past{{same, Completed}}, nil, []string{"new", "taken", "taken"}},
		"Failed":               {[]past{{same, Failed}}, nil, []string{"new", "taken", "new"}},
		"Cancelled":            {[]past{{same, Cancelled}}, nil, []string{"new", "taken", "new"}},
		"CompletedLast": {
			[]past{{same, Failed}, {same, Cancelled}, {same, Completed}},
			nil,
			[]string{"new", "taken", "taken"},
		},
		"FailedLast": {[]past{{same, Completed}, {same, Failed}}, nil, []string{"new", "taken", "new"}},
		"CompletedOtherInput": {
			[]past{{input, Completed}},
			nil,
			[]string{"new", "taken and conflict", "taken and conflict"},
		},
		"FailedOtherWorkflow": {[]past{{workflow, Failed}}, nil, []string{"new", "taken and conflict", "new"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			other := New(s.pool, "other") // whose runs are none of these
			for i, active := range actives {
				for j, ended := range endeds {
					want := ""
					if test.active != nil {
						want = test.active[i]
					} else {
						want = test.ended[j]
					}
					for _, way := range []string{"Alone", "AmongMany", "InTx"} {
						id := fmt.Sprintf("%s/%s/%s", active, ended, way)
						var last uuid.UUID
						for _, p := range test.history {
							last = start(t, s, newRun(withID(id), p.change))[0]
							if p.status != "" {
								endAs(t, s.pool, last, p.status)
							}
						}
						endAs(t, s.pool, start(t, other, newRun(withID(id)))[0], Completed)
						before := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`)
						runs := []NewRun{newRun(withID(id), ifActive(active), ifEnded(ended))}
						if way == "AmongMany" {
							runs = append(runs, newRun(), newRun(withID(id+"/free"), ifActive(ReplaceActive),
								ifEnded(RejectEnded)))
						}
						var tx pgx.Tx
						if way == "InTx" {
							tx = begin(t, s)
							runs = append(runs, newRun())
						}
						out, err := s.Starts.Start(t.Context(), tx, runs)
						if tx != nil {
							exec(t, tx, `SELECT 1`) // whatever came of it, the transaction goes on
							commit(t, tx)
						}
						if got := outcome(out, err); got != want {
							t.Errorf("%s: %s, want %s", id, got, want)
							continue
						}
						made := len(runs)
						switch {
						case err != nil:
							made = 0
							if strings.HasPrefix(want, "taken") && !strings.Contains(err.Error(), last.String()) {
								t.Errorf("%s: %v does not name run %v", id, err, last)
							}
						case want == "existed":
							made--
						case want == "replaced":
							if row := readRow(t, s.pool, last); out[0].Replaced != last || row.Status != Cancelled ||
								!row.Ended || row.LockedBy != nil {
								t.Errorf("%s: replaced %v, want %v, which is %+v", id, out[0].Replaced, last, row)
							}
						}
						if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n-before != made {
							t.Errorf("%s: %d runs made, want %d", id, n-before, made)
						}
						if err != nil && len(test.active) > 0 && readRow(t, s.pool, last).Status != Pending {
							t.Errorf("%s: a start that was refused has ended the active run", id)
						}
					}
				}
			}
		})
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()

	t.Run("FromEachStatus", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for i, end := range []func(*ClaimedRun){func(*ClaimedRun) {}, func(r *ClaimedRun) {
			flush(t, s, &Flush{Suspensions: []*Suspension{sleep(r, time.Hour)}})
		}} {
			r := running(t, s, 1, withID(fmt.Sprint(i)))[0]
			end(r)
			out, err := s.Starts.Start(t.Context(), nil,
				[]NewRun{newRun(withID(fmt.Sprint(i)), ifActive(ReplaceActive), withDelay(time.Hour))})
			if err != nil || out[0].Replaced != r.RunID {
				t.Fatalf("%+v, %v", out, err)
			}
			f := &Flush{Records: []*Record{record(r, "step", "x")}}
			flush(t, s, f)
			wantOutcome(t, "a record of the run that was replaced", f.Records[0].Outcome, Lost)
		}
	})

	t.Run("WakesTheParents", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		parents := running(t, s, 2)
		start(t, s, newRun(withID("a"), withParent(parents[0].RunID)),
			newRun(withID("b"), withParent(parents[0].RunID)), newRun(withID("c"), withParent(parents[1].RunID)))
		flush(t, s, &Flush{Suspensions: []*Suspension{sleep(parents[0], -1), sleep(parents[1], -1)}})
		if _, err := s.Starts.Start(t.Context(), nil, []NewRun{
			newRun(withID("c"), ifActive(ReplaceActive)), newRun(withID("a"), ifActive(ReplaceActive)),
			newRun(withID("b"), ifActive(ReplaceActive)), newRun(withID("free"), ifActive(ReplaceActive)),
		}); err != nil {
			t.Fatal(err)
		}
		for i, want := range []int64{2, 1} {
			if row := readRow(t, s.pool, parents[i].RunID); row.Wakeups != want || !row.Due {
				t.Errorf("parent %d: %+v, want %d wake-ups", i, row, want)
			}
		}
	})

	t.Run("IsTakenBackWithTheTransaction", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		old := start(t, s, newRun(withID("id")), newRun(withID("taken")))
		tx := begin(t, s)
		_, err := s.Starts.Start(t.Context(), tx, []NewRun{
			newRun(withID("id"), ifActive(ReplaceActive)),
			newRun(withID("taken"), ifActive(RejectActive)),
		})
		wantError(t, err, ErrIDTaken)
		if row := readRow(t, tx, old[0]); row.Status != Pending {
			t.Errorf("row %+v: a start that was refused leaves nothing", row)
		}
		if out, err := s.Starts.Start(t.Context(), tx,
			[]NewRun{newRun(withID("id"), ifActive(ReplaceActive))}); err != nil ||
			out[0].Replaced != old[0] {
			t.Errorf("%+v, %v", out, err)
		}
		rollback(t, tx)
		if row := readRow(t, s.pool, old[0]); row.Status != Pending {
			t.Errorf("row %+v after a rollback", row)
		}
	})

	// The run that was to be replaced ends by itself, while the start waits for its row.
	t.Run("MeetsAFinish", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for policy, want := range map[string]string{"": "new", RejectEnded: "taken", StartIfFailed: "taken"} {
			r := running(t, s, 1, withID("id"+policy))[0]
			tx := begin(t, s)
			lockRow(t, tx, r.RunID)
			var out []StartedRun
			var err error
			meetsLock(t, s, func(ctx context.Context) {
				out, err = s.Starts.Start(ctx, nil, []NewRun{newRun(withID("id"+policy), ifActive(ReplaceActive),
					ifEnded(policy), withDelay(time.Hour))})
			}, func() {
				endAs(t, tx, r.RunID, Completed)
				commit(t, tx)
			})
			if got := outcome(out, err); got != want {
				t.Errorf("%q: %s, want %s", policy, got, want)
			}
			if row := readRow(t, s.pool, r.RunID); row.Status != Completed {
				t.Errorf("row %+v", row)
			}
		}
	})

	// A start that replaces children locks them and their parents in the order of the flushes that end them.
	t.Run("BesideFlushes", func(t *testing.T) {
		t.Parallel()
		pool := poolWith(t, dbtest.Database(t).DSN, func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["deadlock_timeout"] = "1"
		})
		s := New(pool, "test")
		for round := range 20 {
			id := func(child int) func(*NewRun) { return withID(fmt.Sprintf("%d-%d", round, child)) }
			parents := running(t, s, 2)
			start(t, s, newRun(id(0), withParent(parents[1].RunID)), newRun(id(1), withParent(parents[0].RunID)),
				newRun(id(2), withParent(parents[1].RunID)))
			children := claim(t, s, request(3)).Runs
			var wg sync.WaitGroup
			wg.Go(func() {
				f := &Flush{
					Records:  []*Record{record(parents[0], "a", "x"), record(parents[1], "a", "x")},
					Finishes: []*Finish{finish(children[0]), finish(children[1])},
				}
				if err := s.Records.Flush(t.Context(), f); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				var runs []NewRun
				for child := range 3 {
					runs = append(runs, newRun(id(2-child), ifActive(ReplaceActive), withDelay(time.Hour)))
				}
				if _, err := s.Starts.Start(t.Context(), nil, runs); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			if n := readRow(t, s.pool, parents[0].RunID).Wakeups + readRow(t, s.pool, parents[1].RunID).
				Wakeups; n != 3 {
				t.Errorf("%d wake-ups for the ends of three children", n)
			}
		}
		wantNoDeadlocks(t, s)
	})

	// Each start replaces the one before, also among others in an order of their own.
	t.Run("Races", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t, dbtest.MaxConns(20))
		dbtest.Audit(t, db.Pool)
		s := New(db.Pool, "test")
		const n = 16
		var wg sync.WaitGroup
		var mu sync.Mutex
		made, replaced := map[uuid.UUID]bool{}, map[uuid.UUID]int{}
		for i := range n {
			wg.Go(func() {
				runs := []NewRun{newRun(withID("a"), ifActive(ReplaceActive), withHash(fmt.Sprint(i)))}
				if i%4 == 0 {
					runs = []NewRun{newRun(withID("b"), ifActive(ReplaceActive)), runs[0], newRun()}
				}
				out, err := s.Starts.Start(context.WithoutCancel(t.Context()), nil, runs)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, r := range out {
					made[r.RunID] = true
					if r.Replaced != uuid.Nil {
						replaced[r.Replaced]++
					}
				}
			})
		}
		wg.Wait()
		for id, times := range replaced {
			if times != 1 || !made[id] || readRow(t, s.pool, id).Status != Cancelled {
				t.Errorf("run %v was replaced %d times; made: %t", id, times, made[id])
			}
		}
		if active := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'PENDING'
			AND external_id IS NOT NULL`); active != 2 || len(replaced) != n+n/4-2 {
			t.Errorf("%d of %d are active, %d replaced", active, len(made), len(replaced))
		}
	})
}

// A run that ends while the start waits for the ID is seen by the next query.
func TestIfEndedMeetsAFinish(t *testing.T) {
	t.Parallel()
	s := open(t)
	for i, test := range []struct{ policy, status, end, want string }{
		{RejectEnded, Completed, "COMMIT", "taken"},
		{RejectEnded, Failed, "COMMIT", "taken"},
		{StartIfFailed, Completed, "COMMIT", "taken"},
		{StartIfFailed, Failed, "COMMIT", "new"},
		{RejectEnded, Completed, "ROLLBACK", "existed"},
	} {
		id := fmt.Sprint(i)
		run := start(t, s, newRun(withID(id)))[0]
		tx := begin(t, s)
		endAs(t, tx, run, test.status)
		var out []StartedRun
		var err error
		meetsLock(t, s, func(ctx context.Context) {
			out, err = s.Starts.Start(ctx, nil, []NewRun{newRun(withID(id), ifEnded(test.policy))})
		}, func() { exec(t, tx, test.end) })
		if got := outcome(out, err); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

func TestIfEndedRaces(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.MaxConns(20))
	for round := range 10 {
		id := fmt.Sprint(round)
		var made atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 4 {
					out, err := s.Starts.Start(context.WithoutCancel(t.Context()), nil,
						[]NewRun{newRun(withID(id), ifEnded(RejectEnded))})
					switch got := outcome(out, err); got {
					case "new":
						made.Add(1)
						endAs(t, s.pool, out[0].RunID, Failed)
					case "existed", "taken":
					default:
						t.Error(got)
					}
				}
			})
		}
		wg.Wait()
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE external_id = $1`, id); n != 1 ||
			made.Load() != 1 {
			t.Errorf("%d runs, %d starts that made one; want 1", n, made.Load())
		}
	}
}

// A stricter transaction does not see runs that ended since its snapshot.
func TestIfEndedInAStricterTransaction(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable, pgx.ReadCommitted} {
		tx, err := s.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		if err != nil {
			t.Fatal(err)
		}
		id := withID(string(level))
		_, err = s.Starts.Start(t.Context(), tx, []NewRun{newRun(id, ifEnded(RejectEnded))})
		if refused := err != nil &&
			strings.Contains(err.Error(), "READ COMMITTED"); refused != (level != pgx.ReadCommitted) {
			t.Errorf("at %s: %v", level, err)
		}
		_, err = s.Starts.Start(t.Context(), tx, []NewRun{newRun(id, ifActive(ReplaceActive))})
		if refused := errors.Is(err, pg.ErrIsolation); refused != (level != pgx.ReadCommitted) {
			t.Errorf("at %s: %v", level, err)
		}
		if _, err = s.Starts.Start(t.Context(), tx, []NewRun{newRun(id)}); err != nil {
			t.Errorf("at %s: %v", level, err)
		}
		commit(t, tx)
	}
}

// What a start costs: the usual one, and one that is refused only by an active run, is a single statement.
// A start is one statement, after that which prepares its transaction, in one round trip. With IDs, and policies that
// can take it back, there is a transaction around it.
func TestAStartIsOneStatement(t *testing.T) {
	t.Parallel()
	s, _, proxy := losing(t)
	for name, test := range map[string]struct {
		runs []NewRun
		want int64
	}{
		"Plain":         {[]NewRun{newRun()}, 1},
		"ID":            {[]NewRun{newRun(withID("a"))}, 1},
		"Many":          {many(100), 1},
		"ManyWithIDs":   {[]NewRun{newRun(withID("b")), newRun(withID("c"))}, 1},
		"RejectActive":  {[]NewRun{newRun(withID("d"), ifActive(RejectActive))}, 1},
		"ReplaceActive": {[]NewRun{newRun(withID("e"), ifActive(ReplaceActive))}, 1},
		"RejectEnded":   {[]NewRun{newRun(withID("f"), ifEnded(RejectEnded))}, 2}, // with the check
	} {
		if _, err := s.pool.Exec(t.Context(), `SELECT 1`); err != nil {
			t.Fatal(err)
		}
		var n atomic.Int64
		proxy.DropAck(func(_ int, sql string) bool {
			if strings.Contains(sql, " kagzi.") { // beginning and end of the transaction go along
				n.Add(1)
			}
			return false
		})
		start(t, s, test.runs...)
		proxy.Disarm()
		if n.Load() != test.want {
			t.Errorf("%s: %d statements, want %d", name, n.Load(), test.want)
		}
	}
}
