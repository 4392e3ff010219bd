package language_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
)

func shownProgress(i kagzi.RunInfo) string {
	switch p := i.Progress; {
	case p == nil:
		return ""
	case p.At.IsZero() || p.At.Location() != time.UTC:
		return fmt.Sprintf("a time of %v", p.At)
	case p.Fraction == nil:
		return p.Text
	default:
		return fmt.Sprintf("%s (%v)", p.Text, *p.Fraction)
	}
}

func waitProgress(k *kit.Kit, ref kagzi.Ref, want string) {
	k.T.Helper()
	await.True(k.T, "the progress is "+want, func() bool { return shownProgress(k.InfoOf(ref)) == want })
}

// logProgress lets the database note each change of a progress, in the table progresses.
func logProgress(k *kit.Kit) {
	k.T.Helper()
	k.Exec(`
CREATE TABLE progresses (n int GENERATED ALWAYS AS IDENTITY, said text);
CREATE FUNCTION note_progress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO progresses (said)
	VALUES (NEW.progress->>'text'); RETURN NULL; END $$;
CREATE TRIGGER note_progress AFTER UPDATE OF progress ON kagzi.workflow_runs
	FOR EACH ROW EXECUTE FUNCTION note_progress()`)
}

// A step that takes long says how far it is. The last progress stays: over a sleep, and after the end.
func TestProgress(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
	more := make(chan struct{})
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		err := kagzi.Do(ctx, "pages", func(ctx context.Context) error {
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			for _, done := range []float64{0, 42} {
				if err := kagzi.SetProgress(derived, fmt.Sprintf("%v of 100 pages", done), done/100); err != nil {
					return err
				}
				select {
				case <-more:
				case <-derived.Done(): // the restart is cancelled
					return derived.Err()
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		if err := kagzi.SetProgress(ctx, "waits"); err != nil {
			return 0, err
		}
		if err := kagzi.Sleep(ctx, "nap", time.Hour); err != nil {
			return 0, err
		}
		return 0, errors.Join(kagzi.SetProgress(ctx, "sums up", 1), errors.New("no"))
	})
	run := kit.Begin(k, wf, struct{}{})
	waitProgress(k, run, "0 of 100 pages (0)")
	more <- struct{}{}
	waitProgress(k, run, "42 of 100 pages (0.42)")
	more <- struct{}{}
	if got := shownProgress(k.WaitStatus(run, kagzi.StatusSleeping)); got != "waits" {
		t.Errorf("asleep: %s", got)
	}
	k.Forward(run.ID())
	kit.FailureOf(k, run, kagzi.StatusFailed)
	if got := shownProgress(k.InfoOf(run)); got != "sums up (1)" {
		t.Errorf("at the end: %s", got)
	}
	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, run)
	if err != nil {
		t.Fatal(err)
	}
	if got := k.InfoOf(again); got.Status == kagzi.StatusPending && got.Progress != nil {
		t.Errorf("the restart begins with %s", shownProgress(got))
	}
	k.Cancel(again)
}

// A replay says nothing again, and neither do an attempt of a step that has ended, and a run that is over.
func TestProgressIsSilent(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
	executions := 0
	var ended context.Context
	var over kagzi.Context
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		executions++
		_ = kagzi.SetProgress(ctx, "begins")
		if executions == 2 {
			return 0, errors.New("the code is another")
		}
		err := kagzi.Do(ctx, "step", func(ctx context.Context) error { ended = ctx; return nil })
		_ = kagzi.SetProgress(ctx, "has stepped")
		if err == nil {
			err = kagzi.SetProgress(ended, "steps")
		}
		if err != nil {
			return 0, err
		}
		over = ctx
		return 0, kagzi.Sleep(ctx, "nap", time.Hour)
	})
	run := kit.Begin(k, wf, struct{}{})
	if got := shownProgress(k.WaitStatus(run, kagzi.StatusSleeping)); got != "has stepped" {
		t.Errorf("asleep: %s", got)
	}
	if err := kagzi.SetProgress(over, "an execution that is over"); err != nil {
		t.Error(err)
	}
	k.Forward(run.ID())
	kit.FailureOf(k, run, kagzi.StatusFailed)
	if got := shownProgress(k.InfoOf(run)); got != "has stepped" {
		t.Errorf("after a replay: %s", got)
	}
}

// Progress that no client could see is not written: a run that says much writes once a second.
func TestProgressIsWrittenRarely(t *testing.T) {
	k := kit.New(t)
	logProgress(k)
	began := time.Now()
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		for i := range 50 {
			if err := kagzi.SetProgress(ctx, fmt.Sprint(i, " of 50")); err != nil {
				return 0, err
			}
			if err := kagzi.Do(ctx, "step", func(context.Context) error { return nil }); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
	if n, most := k.Count(`SELECT count(*) FROM progresses`), int(time.Since(began)/time.Second)+2; n > most || n == 0 {
		t.Errorf("it was written %d times, at most %d expected", n, most)
	}
	if last := dbtest.QueryOne[string](t, k.Pool, `SELECT said FROM progresses ORDER BY n DESC LIMIT 1`); last !=
		"49 of 50" {
		t.Errorf("the last one is %s", last)
	}
}

// A run that says nothing writes nothing, and one that takes back what it said has none.
func TestNoProgress(t *testing.T) {
	k := kit.New(t)
	logProgress(k)
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		return 0, kagzi.Do(ctx, "step", func(context.Context) error { return nil })
	})
	if n := k.Count(`SELECT count(*) FROM progresses`); n > 0 {
		t.Errorf("it was written %d times", n)
	}
	wf := kagzi.Define[int, int]("says")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		if err := kagzi.SetProgress(ctx, "", 0); err != nil {
			return 0, err
		}
		if err := kagzi.Sleep(ctx, "nap", time.Hour); err != nil {
			return 0, err
		}
		return 0, kagzi.SetProgress(ctx, "")
	})
	run := kit.Begin(k, wf, 0)
	if got := shownProgress(k.WaitStatus(run, kagzi.StatusSleeping)); got != " (0)" {
		t.Errorf("a fraction alone: %s", got)
	}
	k.Forward(run.ID())
	kit.ResultOf(k, run)
	if p := k.InfoOf(run).Progress; p != nil {
		t.Errorf("it was taken back, and is %+v", p)
	}
}

// A wrong call is an error, and fails no run by itself.
func TestWrongProgress(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kagzi.Define[struct{}, int]("wf"), struct{}{})
	wf := kagzi.Define[struct{}, int]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		for name, err := range map[string]error{
			"NaN": kagzi.SetProgress(ctx, "", math.NaN()), "negative": kagzi.SetProgress(ctx, "", -0.1),
			"more than all": kagzi.SetProgress(ctx, "", 1.1),
			"two":           kagzi.SetProgress(ctx, "", 0.1, 0.2), "background": kagzi.SetProgress(context.Background(),
				"text"), "nil": kagzi.SetProgress(nil, "text"),
		} {
			if kagzi.KindOf(err) != kind.BadRequest || !strings.HasPrefix(fmt.Sprint(err), "kagzi: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		return 0, kagzi.SetProgress(ctx, "a\x00b\xff"+strings.Repeat("c", 2000))
	})
	kit.ResultOf(k, run)
	got := k.InfoOf(run).Progress.Text
	if !strings.HasPrefix(got, "a\uFFFDb\uFFFDccc") || !strings.HasSuffix(got, "(truncated, 2004 bytes)") ||
		len(got) > 1024 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// A transaction that is stricter than READ COMMITTED could not record its step if the run's row changed meanwhile.
func TestProgressBesideAStrictTransaction(t *testing.T) {
	k := kit.New(t)
	logProgress(k)
	calls, open := 0, make(chan struct{})
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		return 0, kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
			"tx": func(ctx kagzi.Context) error {
				return kagzi.DoTx(ctx, "strict", func(ctx context.Context, tx pgx.Tx) error {
					calls++
					if _, err := tx.Exec(ctx, `SELECT count(*) FROM kagzi.workflow_runs`); err != nil {
						return err
					}
					if err := kagzi.SetProgress(ctx, "in the transaction"); err != nil {
						return err
					}
					if calls == 1 {
						open <- struct{}{}
						await.True(t, "the other branch has written", func() bool {
							return k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_id = 'both/other/step'
								AND status = 'COMPLETED'`) == 1
						})
					}
					return nil
				}, kagzi.Isolation(pgx.RepeatableRead), kit.Soon)
			},
			"other": func(ctx kagzi.Context) error {
				return kagzi.Do(ctx, "step", func(context.Context) error { await.Opened(t, open); return nil })
			},
		})
	})
	if calls != 1 {
		t.Errorf("the transaction was tried %d times", calls)
	}
	if n := k.Count(`SELECT count(*) FROM progresses`); n != 1 {
		t.Errorf("it was written %d times", n)
	}
}

// While a transaction holds the run's row, a progress waits with all else of the run, and is not lost.
func TestProgressOfALockedRun(t *testing.T) {
	k := kit.New(t)
	said, open := make(chan struct{}), make(chan struct{})
	wf := kagzi.Define[struct{}, int]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		return 0, kagzi.Do(ctx, "long", func(ctx context.Context) error {
			await.Opened(t, said)
			err := kagzi.SetProgress(ctx, "beside a lock")
			await.Opened(t, open)
			return err
		})
	})
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run, kagzi.StatusRunning)
	tx := k.CallersTx()
	if _, err := tx.Exec(k.Ctx, kit.LockRun, string(run.ID())); err != nil {
		t.Fatal(err)
	}
	close(said)
	for _, waits := range []bool{true, false, true} { // it has given up once
		await.True(t, fmt.Sprintf("a write waits for the lock: %t", waits), func() bool {
			return waits == (k.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event_type = 'Lock'`) > 0)
		})
	}
	kit.CommitTx(t, tx)
	waitProgress(k, run, "beside a lock")
	close(open)
	kit.ResultOf(k, run)
}

// The write of a progress is lost, or the answer to it: then it is written again.
func TestLostProgress(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		wf := kagzi.Define[int, string]("progress")
		w := kit.NewWorker(t, l.Client(t, 5), kagzi.WorkerConfig{})
		open := make(chan struct{})
		kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (string, error) {
			return kagzi.Step(ctx, "long", func(ctx context.Context) (string, error) {
				err := kagzi.SetProgress(ctx, "half", 0.5)
				await.Opened(t, open)
				return "done", err
			})
		})
		drop := l.Lose(pgproxy.Nth(1, pgproxy.Contains("SET progress")))
		c := kit.NewClient(t, l.Db.Pool)
		runs := kit.StartRuns(t, c, wf, 1)
		kit.StartLocal(t, w)
		await.Receive(t, drop.Done())
		await.True(t, "the progress is there", func() bool {
			info, err := c.Get(t.Context(), runs[0])
			return err == nil && shownProgress(info) == "half (0.5)"
		})
		close(open)
		kit.CheckResults(t, runs, func(int) string { return "done" })
	})
}

// A progress that the server refuses costs nothing else: neither its own run nor those that share the flush.
func TestRefusedProgress(t *testing.T) {
	k := kit.New(t)
	k.Exec(`
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'
	USING ERRCODE = '23514'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE OF progress ON kagzi.workflow_runs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		for i := range 3 {
			_ = kagzi.SetProgress(ctx, "goes with the record")
			if err := kagzi.Do(ctx, fmt.Sprint("step", i), func(context.Context) error { return nil }); err != nil {
				return 0, err
			}
		}
		return 0, kagzi.SetProgress(ctx, "goes with the end")
	})
}
