package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/waits"
)

func oncePer(d time.Duration) func(*NewRun) {
	return func(r *NewRun) { r.Window = &Window{Policy: OncePer, Key: r.ExternalID, Open: d} }
}

func debounced(key string, delay, most time.Duration) func(*NewRun) {
	return func(r *NewRun) { r.Window = &Window{Policy: Debounce, Key: key, Delay: delay, Open: most} }
}

// batched is an item of a batch of up to n items, which waits for an hour.
func batched(key string, n int) func(*NewRun) {
	return func(r *NewRun) {
		r.Window, r.InputHash = &Window{Policy: Batch, Key: key, Open: time.Hour, Most: n, MostBytes: 1 << 20}, nil
	}
}

func withInput(input string) func(*NewRun) { return func(r *NewRun) { r.Input = []byte(input) } }

// closeWindows ends the time of all windows.
func closeWindows(t *testing.T, s *Store) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.start_windows SET closes_at = clock_timestamp()`)
}

// joined starts a run and returns its ID, and whether it existed.
func joined(t *testing.T, s *Store, r NewRun) (uuid.UUID, bool) {
	t.Helper()
	out, err := s.Starts.Start(t.Context(), nil, []NewRun{r})
	if err != nil {
		t.Fatal(err)
	}
	if !out[0].Existed && out[0].RunID != r.RunID {
		t.Errorf("the new run is %v, want %v", out[0].RunID, r.RunID)
	}
	return out[0].RunID, out[0].Existed
}

func wantJoined(t *testing.T, s *Store, want uuid.UUID, r NewRun) {
	t.Helper()
	if id, existed := joined(t, s, r); id != want || !existed {
		t.Errorf("run %v, existed %v: want run %v", id, existed, want)
	}
}

func wantNew(t *testing.T, s *Store, r NewRun) uuid.UUID {
	t.Helper()
	id, existed := joined(t, s, r)
	if existed {
		t.Errorf("run %v existed: want a new one", id)
	}
	return id
}

// inputOf is what an execution of the run gets.
func inputOf(t *testing.T, s *Store, id uuid.UUID) string {
	t.Helper()
	out, err := s.Histories.Load(t.Context(), LoadRequest{Inputs: []uuid.UUID{id}, Most: NoLimit, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return string(out.Inputs[id])
}

func dueIn(t *testing.T, s *Store, id uuid.UUID) time.Duration {
	t.Helper()
	return time.Duration(one[float64](t, s.pool, `SELECT extract(epoch FROM available_at - created_at)::float8
		FROM kagzi.workflow_runs WHERE run_id = $1`, id) * float64(time.Second)).Round(time.Second)
}

func TestOncePer(t *testing.T) {
	t.Parallel()
	s := open(t)
	day := oncePer(24 * time.Hour)
	again := func() NewRun { return newRun(withID("id"), withHash("other"), day) }
	id := wantNew(t, s, newRun(withID("id"), day))
	wantJoined(t, s, id, again())
	wantNew(t, s, newRun(withID("other"), day))
	for _, end := range []string{Completed, Failed, Cancelled} {
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'PENDING', finished_at = NULL, error_kind = NULL,
			available_at = now() WHERE run_id = $1`, id)
		endAs(t, s.pool, id, end)
		wantJoined(t, s, id, again())
	}
	_, err := s.Starts.Start(t.Context(), nil, []NewRun{newRun(withID("id"), ofType("another"), day)})
	wantError(t, err, ErrIDConflict)
	exec(t, s.pool, `DELETE FROM kagzi.workflow_runs WHERE run_id = $1`, id)
	wantJoined(t, s, id, again())

	closeWindows(t, s)
	next := wantNew(t, s, again())
	closeWindows(t, s)
	wantJoined(t, s, next, again()) // it is active
	endAs(t, s.pool, next, Completed)
	wantNew(t, s, again()) // the period of next is over
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.start_windows w
		JOIN kagzi.workflow_runs r USING (run_id, namespace_id)
		WHERE w.closes_at = r.created_at + interval '24 hours'`); n != 1 {
		t.Errorf("%d windows end a day after their starts", n)
	}
}

func TestDebounce(t *testing.T) {
	t.Parallel()
	typed := func(input string, change ...func(*NewRun)) NewRun {
		return newRun(append([]func(*NewRun){withInput(input), debounced("doc", 10*time.Second, time.Minute)},
			change...)...)
	}

	t.Run("LastInputWins", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		begun := time.Now()
		id := wantNew(t, s, typed("a", withTimeout(time.Hour)))
		if due := dueIn(t, s, id); due != 10*time.Second {
			t.Errorf("due after %v", due)
		}
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET created_at = created_at - interval '30 s',
			available_at = now()`)
		exec(t, s.pool, `UPDATE kagzi.start_windows SET closes_at = closes_at - interval '30 s'`)
		wantJoined(t, s, id, typed("b"))
		latest := 40*time.Second + time.Since(begun).Round(time.Second) // the second start came that much later
		if due, input := dueIn(t, s, id), inputOf(t, s, id); due < 40*time.Second || due > latest || input != "b" {
			t.Errorf("due after %v with %q, want at least 40s and at most %v", due, input, latest)
		}
		wantJoined(t, s, id, newRun(withInput("c"), debounced("doc", time.Hour, 2*time.Hour)))
		if due, input := dueIn(t, s, id), inputOf(t, s, id); due != time.Minute || input != "c" {
			t.Errorf("due after %v with %q: want what the first start gave as the longest", due, input)
		}
		if left := one[string](t, s.pool, `SELECT (deadline_at - available_at)::text FROM kagzi.workflow_runs`); left !=
			"01:00:00" {
			t.Errorf("the timeout ends %s after the run is due", left)
		}
		if other := wantNew(t, s, newRun(debounced("other", time.Second, time.Minute))); other == id {
			t.Error("another key has the same run")
		}
		if other := wantNew(t, s, typed("x", ofType("other"))); other == id {
			t.Error("another workflow has the same run")
		}
	})

	for name, end := range map[string]func(t *testing.T, s *Store, id uuid.UUID){
		"Claimed": func(t *testing.T, s *Store, _ uuid.UUID) {
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now()`)
			if c := claim(t, s, request(1)); len(c.Runs) != 1 || string(c.Runs[0].Input) != "a" {
				t.Errorf("claimed %+v", c.Runs)
			}
		},
		"Retried": func(t *testing.T, s *Store, _ uuid.UUID) {
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET attempts = 1, started_at = now()`)
		},
		"Ended":   func(t *testing.T, s *Store, id uuid.UUID) { endAs(t, s.pool, id, Cancelled) },
		"Deleted": func(t *testing.T, s *Store, id uuid.UUID) { exec(t, s.pool, `DELETE FROM kagzi.workflow_runs`) },
		"Late":    func(t *testing.T, s *Store, _ uuid.UUID) { closeWindows(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			id := wantNew(t, s, typed("a"))
			end(t, s, id)
			wantJoined(t, s, wantNew(t, s, typed("b")), typed("c"))
			if name != "Deleted" && inputOf(t, s, id) != "a" {
				t.Errorf("the input of the earlier run is %q", inputOf(t, s, id))
			}
		})
	}

	t.Run("GivenBackUnbegun", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := wantNew(t, s, typed("a"))
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now()`)
		r := claim(t, s, request(1)).Runs[0]
		flush(t, s, &Flush{Suspensions: []*Suspension{{
			RunID: id, Lease: r.Lease, Status: Pending, WaitingOn: waits.List{{Kind: waits.Worker}},
			Unbegun: true,
		}}})
		wantJoined(t, s, id, typed("b"))
	})
}

func TestBatch(t *testing.T) {
	t.Parallel()
	item := func(input string, change ...func(*NewRun)) NewRun {
		return newRun(append([]func(*NewRun){withInput(input), batched("", 3)}, change...)...)
	}

	t.Run("FillsUp", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := wantNew(t, s, item("a"))
		wantJoined(t, s, id, item("b"))
		if due := dueIn(t, s, id); due != time.Hour || len(claim(t, s, request(1)).Runs) > 0 {
			t.Errorf("due after %v", due)
		}
		out, err := s.Starts.Start(t.Context(), nil, []NewRun{item("c")})
		if err != nil || out[0] != (StartedRun{RunID: id, Existed: true, Due: true}) {
			t.Errorf("%+v, %v", out, err)
		}
		next := wantNew(t, s, item("d"))
		if c := claim(t, s, request(5)); len(c.Runs) != 1 || c.Runs[0].RunID != id || c.Runs[0].Input != nil ||
			inputOf(t, s, id) != "abc" {
			t.Errorf("claimed %+v with %q", c.Runs, inputOf(t, s, id))
		}
		if r, err := s.Runs.Get(t.Context(), next); err != nil || string(r.Input) != "d" {
			t.Errorf("%+v, %v", r, err)
		}
		if size, err := s.Histories.Size(t.Context(), id, time.Minute); err != nil || size != 3 {
			t.Errorf("size %d, %v", size, err)
		}
	})

	t.Run("BytesFillItToo", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		small := func(r *NewRun) { r.Window.MostBytes = 10 }
		id := wantNew(t, s, item("123456", small))
		next := wantNew(t, s, item("78901", small))
		if c := claim(t, s, request(5)); len(c.Runs) != 1 || c.Runs[0].RunID != id {
			t.Errorf("claimed %+v, want the first", c.Runs)
		}
		wantJoined(t, s, next, item("2345", small))
		wantNew(t, s, item(strings.Repeat("x", 20), small)) // it has a batch of its own
	})

	t.Run("MostOne", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := wantNew(t, s, newRun(batched("", 1)))
		if c := claim(t, s, request(5)); len(c.Runs) != 1 || c.Runs[0].RunID != id {
			t.Errorf("claimed %+v", c.Runs)
		}
	})

	t.Run("StartMany", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		first := wantNew(t, s, item("0"))
		var runs []NewRun
		for i := range 9 {
			runs = append(runs, item(fmt.Sprint(i+1)))
		}
		runs = append(runs, newRun(), newRun(withInput("k"), batched("key", 3)),
			newRun(withID("id"), oncePer(time.Hour)))
		out, err := s.Starts.Start(t.Context(), nil, runs)
		if err != nil {
			t.Fatal(err)
		}
		wants := []uuid.UUID{
			first, first, runs[2].RunID, runs[2].RunID, runs[2].RunID, runs[5].RunID, runs[5].RunID,
			runs[5].RunID, runs[8].RunID, runs[9].RunID, runs[10].RunID, runs[11].RunID,
		}
		for i, want := range wants {
			if out[i].RunID != want || out[i].Existed != (want != runs[i].RunID) {
				t.Errorf("call %d: %+v", i, out[i])
			}
		}
		for id, want := range map[uuid.UUID]string{
			first: "012", runs[2].RunID: "345", runs[5].RunID: "678",
			runs[8].RunID: "9", runs[10].RunID: "k",
		} {
			if got := inputOf(t, s, id); got != want {
				t.Errorf("batch %q, want %q", got, want)
			}
		}
		if c := claim(t, s, request(10)); len(c.Runs) != 5 { // the full ones, the plain one and that with an ID
			t.Errorf("claimed %d runs", len(c.Runs))
		}
		wantJoined(t, s, runs[8].RunID, item("10"))
	})

	t.Run("DebounceInStartMany", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		runs := []NewRun{
			newRun(withInput("a"), debounced("k", time.Second, time.Minute)),
			newRun(withInput("b"), debounced("k", 2*time.Second, time.Minute)),
		}
		out, err := s.Starts.Start(t.Context(), nil, runs)
		if err != nil || out[0].RunID != runs[0].RunID || out[1].RunID != runs[0].RunID || !out[1].Existed ||
			inputOf(t, s, out[0].RunID) != "b" || dueIn(t, s, out[0].RunID) != 2*time.Second {
			t.Errorf("%+v, %v", out, err)
		}
	})

	t.Run("RestartKeepsTheItems", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := wantNew(t, s, item("a"))
		wantJoined(t, s, id, item("b"))
		endAs(t, s.pool, id, Cancelled)
		var hashed string
		r := Restart{Run: id, New: uuid.New(), ExternalID: "id", Hash: func(input []byte) ([]byte, error) {
			hashed = string(input)
			return input, nil
		}}
		if _, err := s.Runs.Restart(t.Context(), nil, r); err != nil {
			t.Fatal(err)
		}
		if got := inputOf(t, s, r.New); got != "ab" || hashed != "ab" {
			t.Errorf("input %q, hash of %q", got, hashed)
		}
		wantNew(t, s, item("c"))
	})
}

// A caller's transaction adds an item to a run that becomes due before the commit: no claim takes the run until then.
func TestClaimBesideAnOpenItem(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		s := open(t)
		id := wantNew(t, s, newRun(withInput("a"), batched("", 9)))
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now()`)
		tx := begin(t, s)
		if out, err := s.Starts.Start(t.Context(), tx, []NewRun{newRun(withInput("b"), batched("", 9))}); err != nil ||
			out[0].RunID != id {
			t.Fatalf("%+v, %v", out, err)
		}
		if c := claim(t, s, request(1)); len(c.Runs) > 0 {
			t.Error("the run was claimed")
		}
		exec(t, tx, end)
		want := map[string]string{"COMMIT": "ab", "ROLLBACK": "a"}[end]
		if c := claim(t, s, request(1)); len(c.Runs) != 1 || inputOf(t, s, id) != want {
			t.Errorf("claimed %+v with %q, want %q", c.Runs, inputOf(t, s, id), want)
		}
	}
}

// A start waits for an open transaction that has started in the same window, and then joins its run, or opens the
// window itself.
func TestHeldWindow(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*NewRun){
		"OncePer":  func(r *NewRun) { r.ExternalID = "id"; oncePer(time.Hour)(r) },
		"Debounce": debounced("key", time.Second, time.Hour), "Batch": batched("key", 5),
	} {
		for _, end := range []string{"COMMIT", "ROLLBACK"} {
			t.Run(name+end, func(t *testing.T) {
				t.Parallel()
				s := open(t)
				tx := begin(t, s)
				first, second := newRun(change), newRun(change)
				if _, err := s.Starts.Start(t.Context(), tx, []NewRun{first}); err != nil {
					t.Fatal(err)
				}
				meetsLock(t, s, func(ctx context.Context) {
					want := map[string]uuid.UUID{"COMMIT": first.RunID, "ROLLBACK": second.RunID}[end]
					if out, err := s.Starts.Start(ctx, nil, []NewRun{second}); err != nil || out[0].RunID != want ||
						out[0].Existed != (end == "COMMIT") {
						t.Errorf("%+v, %v, want run %v", out, err, want)
					}
				}, func() { exec(t, tx, end) })
			})
		}
	}

	t.Run("GivesUp", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		tx := begin(t, s)
		if _, err := s.Starts.Start(t.Context(), tx, []NewRun{newRun(batched("key", 5))}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		meetsLock(t, s, func(context.Context) {
			_, err := s.Starts.Start(ctx, nil, []NewRun{newRun(batched("key", 5))})
			if !errors.As(err, new(*HeldError)) || !strings.Contains(err.Error(), `key "key" is held`) {
				t.Errorf("got %v", err)
			}
		}, cancel)
	})

	t.Run("RefusesStricterIsolation", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		tx, err := s.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		_, err = s.Starts.Start(t.Context(), tx, []NewRun{newRun(batched("key", 5))})
		wantError(t, err, pg.ErrIsolation)
	})
}

// Calls that name the same windows in different orders do not deadlock.
func TestWindowsCrosswise(t *testing.T) {
	t.Parallel()
	s := open(t)
	errs := make(chan error)
	for g := range 4 {
		go func() {
			var err error
			for i := range 20 {
				runs := []NewRun{
					newRun(batched("a", 7)), newRun(debounced("b", time.Second, time.Hour)),
					newRun(withID("c"), oncePer(time.Hour)), newRun(withID("d")),
				}
				for k := range runs {
					j := (k*(g+1) + i) % len(runs)
					runs[k], runs[j] = runs[j], runs[k]
				}
				_, e := s.Starts.Start(context.Background(), nil, runs)
				err = errors.Join(err, e)
			}
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := one[int](t, s.pool, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

func TestLostStartInAWindow(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, _ bool) {
		for name, change := range map[string]func(*NewRun){
			"OncePer":  func(r *NewRun) { r.ExternalID = "id"; oncePer(time.Hour)(r) },
			"Debounce": debounced("key", time.Second, time.Hour), "Batch": batched("key", 5),
		} {
			for _, begun := range []bool{false, true} {
				s, direct, proxy := losing(t)
				r := newRun(change, withInput("b"))
				want := StartedRun{RunID: r.RunID}
				if begun {
					want = StartedRun{RunID: wantNew(t, direct, newRun(change, withInput("a"))), Existed: true}
				}
				drop := lose(proxy, "commit")
				out, err := s.Starts.Start(t.Context(), nil, []NewRun{r})
				happened(t, drop)
				if err == nil {
					out[0].Due = false
				}
				if err != nil || out[0] != want {
					t.Errorf("%s: %+v, %v, want %+v", name, out, err, want)
				}
				inputs := map[string]string{"OncePer": "a", "Debounce": "b", "Batch": "ab"}
				if got := inputOf(t, direct, want.RunID); begun && got != inputs[name] || !begun && got != "b" {
					t.Errorf("%s: input %q", name, got)
				}
				if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
					t.Errorf("%s: %d runs", name, n)
				}
			}
		}
	})
}

// The answer is lost, and before the start is repeated the run has begun, or the period is over.
func TestLostStartInAWindowThatCloses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*NewRun){
		"OncePer":  func(r *NewRun) { r.ExternalID = "id"; oncePer(time.Microsecond)(r) },
		"Debounce": debounced("key", time.Microsecond, time.Microsecond), "Batch": batched("key", 2),
	} {
		s, direct, proxy := losing(t)
		if name == "Batch" {
			wantNew(t, direct, newRun(change))
		}
		r := newRun(change)
		locks := 0
		drop := proxy.DropAck(pgproxy.Exactly("commit"))
		proxy.DropAck(func(_ int, sql string) bool { // sees every statement, and loses none
			if strings.Contains(sql, "INSERT INTO kagzi.start_windows") {
				if locks++; locks == 2 {
					if c, err := direct.Claims.Claim(context.Background(), request(1)); err != nil || len(c.Runs) != 1 {
						t.Errorf("%s: claimed %+v, %v", name, c.Runs, err)
					} else if err := direct.Records.Flush(context.Background(),
						&Flush{Finishes: []*Finish{finish(c.Runs[0])}}); err != nil {
						t.Error(err)
					}
				}
			}
			return false
		})
		out, err := s.Starts.Start(t.Context(), nil, []NewRun{r})
		happened(t, drop)
		proxy.Disarm()
		if err != nil || out[0].Existed != (name == "Batch") {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
			t.Errorf("%s: %d runs", name, n)
		}
	}
}

func TestPruneWindows(t *testing.T) {
	t.Parallel()
	s := open(t)
	ids := start(t, s, newRun(withInput("a"), batched("", 9)), newRun(withID("id"), oncePer(time.Hour)),
		newRun(debounced("k", time.Second, time.Hour)))
	wantJoined(t, s, ids[0], newRun(withInput("b"), batched("", 9)))
	keep := Retention{Completed: -time.Hour, Failed: -time.Hour}
	exec(t, s.pool, `UPDATE kagzi.start_windows SET closes_at = now() - interval '1 h' WHERE policy <> 'batch'`)
	if n, err := s.Starts.PruneWindows(t.Context(), time.Minute, 10); n != 2 || err != nil {
		t.Errorf("%d windows deleted, %v", n, err)
	}
	endAs(t, s.pool, ids[0], Completed)
	if out, err := s.Deletions.Prune(t.Context(), keep, []uuid.UUID{ids[0]}, 2); err != nil || out.Deleted != 0 ||
		len(out.Long) != 1 {
		t.Errorf("%+v, %v: its items count", out, err)
	}
	if _, err := s.Deletions.PruneSteps(t.Context(), ids[0], 2); err != nil {
		t.Error(err)
	}
	if out, err := s.Deletions.Prune(t.Context(), keep, []uuid.UUID{ids[0]}, 3); err != nil || out.Deleted != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.start_items`); n != 0 {
		t.Errorf("%d items are left", n)
	}
	wantNew(t, s, newRun(batched("", 9)))
	dbtest.CheckInvariants(t, s.pool)
}
