package language_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store"
)

// tokens is a table of the tokens that the database gave out: each write of a place with a lease and a token is one.
const tokens = `
CREATE TABLE tokens (run_id uuid, lease uuid, token_at timestamptz, given_at timestamptz);
CREATE FUNCTION note_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO public.tokens VALUES (NEW.run_id, NEW.lease, NEW.due_at, clock_timestamp());
	RETURN NULL;
END $$;
CREATE TRIGGER note_token AFTER INSERT OR UPDATE ON kagzi.limit_places FOR EACH ROW
	WHEN (NEW.state = 'RUNNING') EXECUTE FUNCTION note_token()`

// TestTokensAreNeverTooClose has three workers, a line of runs that wait, and a rate. Two tokens are never closer than
// the rate says, in whatever worker, and no step begins before its token.
func TestTokensAreNeverTooClose(t *testing.T) {
	k := kit.New(t, dbtest.Unchecked())
	k.Exec(tokens)
	const every, runs = 25 * time.Millisecond, 50
	// with slots, so that each token is in a row
	setLimit(k, admin.StepLimit{Name: "api", Rate: admin.Rate{Starts: 40}, MaxRunning: 1000})
	wf := kagzi.Define[int, time.Time]("wf")
	for range 3 {
		kit.ServeWith(k, kagzi.WorkerConfig{MaxConcurrent: 5}, wf, func(ctx kagzi.Context, _ int) (time.Time, error) {
			return kagzi.Step(ctx, "s", func(context.Context) (time.Time, error) { return k.Now(), nil },
				kagzi.Limit("api"))
		})
	}
	all := kit.StartRuns(t, k.Client, wf, runs)
	for _, run := range all {
		begun := kit.ResultOf(k, run)
		if n := k.Count(`SELECT count(*) FROM tokens WHERE run_id = $1 AND token_at <= $2`, string(run.ID()),
			begun); n == 0 {
			t.Errorf("run %s began at %v, before its token", run.ID(), begun)
		}
	}
	if n := k.Count(`SELECT count(*) FROM tokens`); n < runs {
		t.Errorf("%d tokens for %d runs", n, runs)
	}
	if n := k.Count(`SELECT count(*) FROM (SELECT token_at - lag(token_at) OVER (ORDER BY token_at) AS pause
		FROM tokens) x WHERE pause < $1`, every); n > 0 {
		t.Errorf("%d tokens are closer than %v", n, every)
	}
}

// TestLateTokenIsNotUsed holds up a step until its token is too old. It begins with another one.
func TestLateTokenIsNotUsed(t *testing.T) {
	k := kit.New(t, dbtest.Unchecked())
	k.Exec(tokens)
	setLimit(k, admin.StepLimit{Name: "api", Rate: admin.Rate{Starts: 100}, MaxRunning: 10})
	w := kit.NewWorker(t, k.Client, kit.Unmonitored)
	wf := kagzi.Define[int, int]("wf")
	var held, calls atomic.Int64
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.Step(ctx, "s", func(context.Context) (int, error) { return int(calls.Add(1)), nil },
			kagzi.Limit("api"))
	})
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "before step" && held.Add(1) == 1 {
			await.True(t, "the token is old", func() bool {
				return k.Count(`SELECT count(*) FROM tokens WHERE token_at > now() - interval '300 ms'`) == 0
			})
		}
	})
	kit.StartWorker(t, w)
	if got := kit.ResultOf(k, kit.Begin(k, wf, 1)); got != 1 {
		t.Errorf("the function was called %d times", got)
	}
	if n := k.Count(`SELECT count(DISTINCT token_at) FROM tokens`); n < 2 {
		t.Errorf("%d tokens: the step began with one that was too old", n)
	}
}

// TestLostAnswersOfALimit loses the statement that serves a limit, or its answer. No slot is lost, and no step waits
// for ever.
func TestLostAnswersOfALimit(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		direct := kit.NewClient(t, l.Db.Pool)
		for _, limit := range []admin.StepLimit{
			{Name: "slots", MaxRunning: 1},
			{Name: "rate", Rate: admin.Rate{Starts: 200}},
		} {
			if err := admin.New(direct).Limits.Set(t.Context(), limit); err != nil {
				t.Fatal(err)
			}
		}
		w := kit.NewWorker(t, l.Client(t, 5), kit.Quick)
		wf := kagzi.Define[int, int]("wf")
		kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
			for i := range 3 {
				for _, limit := range []string{"slots", "rate"} {
					if _, err := kagzi.Step(ctx, fmt.Sprint(limit, i), just1, kagzi.Limit(limit)); err != nil {
						return 0, err
					}
				}
			}
			return n, nil
		})
		for _, n := range []int{2, 5, 9} {
			l.Lose(pgproxy.Nth(n, pgproxy.Contains("INSERT INTO kagzi.limit_places")))
		}
		kit.StartLocal(t, w)
		kit.CheckResults(t, kit.StartRuns(t, direct, wf, 5), func(i int) int { return i })
		if l.Proxy.Dropped() < 3 {
			t.Errorf("%d losses", l.Proxy.Dropped())
		}
		await.True(t, "all slots are free", func() bool {
			return dbtest.QueryOne[int](t, l.Db.Pool, `SELECT count(*) FROM kagzi.limit_places`) == 0
		})
	})
}

// TestCallOvertakesAnAnswer delays the answer that a step has to wait. Meanwhile the slot becomes free, and the step's
// run learns that it is called. It does not wait for another call.
func TestCallOvertakesAnAnswer(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "api", MaxRunning: 1})
	held, leaves := make(chan struct{}, 1), make(chan struct{})
	first := kagzi.Define[int, int]("first", kagzi.Queue("first"))
	kit.ServeWith(k, kagzi.WorkerConfig{Queue: "first"}, first, func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.Step(ctx, "s", func(context.Context) (int, error) {
			held <- struct{}{}
			await.Opened(t, leaves)
			return 1, nil
		}, kagzi.Limit("api"))
	})
	message, read := kagzi.DefineSignal[int]("message"), make(chan struct{}, 1)
	wf := kagzi.Define[int, int]("wf")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		other := kagzi.Go(ctx, "other", func(ctx kagzi.Context) (int, error) {
			n, err := kagzi.WaitSignal(ctx, message)
			read <- struct{}{}
			return n, err
		})
		n, err := kagzi.Step(ctx, "s", just1, kagzi.Limit("api"))
		if err != nil {
			return 0, err
		}
		m, err := other.Result(ctx)
		return n + m, err
	})
	answering, answer := kit.HangAt(t, w, "after limit")
	kit.StartWorker(t, w)
	one := kit.Begin(k, first, 1)
	await.Receive(t, held)
	two := kit.Begin(k, wf, 1)
	await.Receive(t, answering)
	close(leaves)
	await.True(t, "the run is called", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.limit_places WHERE state = 'CALLED'`) == 1
	})
	k.Signal(two.ID(), message.With(1)) // the run learns of both, or of the call before
	await.Receive(t, read)
	answer()
	if got := kit.ResultOf(k, one) + kit.ResultOf(k, two); got != 3 {
		t.Errorf("got %d", got)
	}
}

// TestLateLeave has the request that gives up the slot of an attempt arrive again when the next attempt has one: that
// keeps its slot.
func TestLateLeave(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "api", MaxRunning: 1})
	first := make(chan struct{})
	wf := kagzi.Define[int, int]("wf")
	var late store.LimitRequest
	kit.ServeWith(k, kit.Unmonitored, wf, func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.Step(ctx, "s", func(ctx context.Context) (int, error) {
			attempt := kagzi.CurrentStep(ctx).Attempt
			if attempt == 1 {
				var p store.Place
				if err := k.Pool.QueryRow(ctx, `SELECT run_id, lease, step_id FROM kagzi.limit_places`).Scan(&p.RunID,
					&p.Lease, &p.StepID); err != nil {
					return 0, err
				}
				late.Leaves = append(late.Leaves, p)
				close(first)
				return 0, errors.New("again")
			}
			if _, err := store.New(k.Pool, "default").Limits.Serve(ctx, []string{"api"}, late); err != nil {
				return 0, err
			}
			return k.Count(`SELECT count(*) FROM kagzi.limit_places WHERE lease IS NOT NULL`), nil
		}, kagzi.Limit("api"), kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	})
	if n := kit.ResultOf(k, kit.StartRuns(t, k.Client, wf, 1)[0]); n != 1 {
		t.Errorf("%d slots are taken while the second attempt executes", n)
	}
	await.Receive(t, first)
}

// TestTimeoutOfALimitedStep counts from when the function is called.
func TestTimeoutOfALimitedStep(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "api", Rate: admin.Rate{Starts: 1, Per: 150 * time.Millisecond}})
	got := kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		sum := 0
		for i := range 3 {
			n, err := kagzi.Step(ctx, fmt.Sprint("s", i), func(ctx context.Context) (int, error) {
				until, _ := ctx.Deadline()
				if left := time.Until(until); left < 50*time.Second {
					return 0, fmt.Errorf("%v are left", left)
				}
				return 1, nil
			}, kagzi.Limit("api"), kagzi.Timeout(time.Minute))
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	})
	if got != 3 {
		t.Errorf("got %d", got)
	}
}

// TestErrorsFreeSlots fails steps in all ways. Each attempt needs the only slot.
func TestErrorsFreeSlots(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "api", MaxRunning: 1})
	policy := kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}
	got := kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		for i, fn := range []func(context.Context) (int, error){
			func(context.Context) (int, error) { return 0, errors.New("no") },
			func(context.Context) (int, error) { panic("no") },
			func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
		} {
			_, err := kagzi.Step(ctx, fmt.Sprint("s", i), fn, kagzi.Limit("api"), policy,
				kagzi.Timeout(20*time.Millisecond))
			if err == nil {
				return 0, errors.New("no error")
			}
		}
		_, out, err := kagzi.Race(ctx, "race",
			map[string]func(kagzi.Context) (int, error){"slow": func(ctx kagzi.Context) (int, error) {
				return kagzi.Step(ctx, "slow", func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				}, kagzi.Limit("api"))
			}, "waits": func(ctx kagzi.Context) (int, error) { // it waits for the slot, and loses
				return kagzi.Step(ctx, "waits", just1, kagzi.Limit("api"), policy)
			}, "nap": func(ctx kagzi.Context) (int, error) {
				return 7, kagzi.Sleep(ctx, "nap", 30*time.Millisecond)
			}})
		if err != nil {
			return 0, err
		}
		n, err := kagzi.Step(ctx, "last", just1, kagzi.Limit("api"))
		return n + out, err
	})
	if got != 8 && got != 2 { // the branch that waits may have been the first
		t.Errorf("got %d", got)
	}
	await.True(t, "no place is left", func() bool { return k.Count(`SELECT count(*) FROM kagzi.limit_places`) == 0 })
}

// honouring are limits that pause if an error of a step asks for it.
var honouring = map[string]admin.StepLimit{
	"Slots": {Name: "api", MaxRunning: 1, HonorRetryAfter: true}, "NoSlots": {Name: "api", HonorRetryAfter: true},
	"Tokens": {Name: "api", Rate: admin.Rate{Starts: 1_000}, HonorRetryAfter: true},
}

// TestRetryAfterStopsTheOthers has a step whose error asks for a pause, and a limit that honours it.
func TestRetryAfterStopsTheOthers(t *testing.T) {
	for name, l := range honouring {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			setLimit(k, l)
			wf := kagzi.DefineDo[bool]("wf")
			var calls atomic.Int64
			kit.Serve(k, wf, func(ctx kagzi.Context, _ bool) (struct{}, error) {
				return struct{}{}, kagzi.Do(ctx, "s", func(context.Context) error {
					calls.Add(1)
					return kagzi.RetryAfter(errors.New("429"), time.Hour)
				}, kagzi.Limit("api"))
			})
			k.WaitStatus(kit.Begin(k, wf, true), kagzi.StatusSleeping, "limit api")
			k.WaitStatus(kit.Begin(k, wf, false), kagzi.StatusSleeping, "limit api")
			if n := calls.Load(); n != 1 {
				t.Errorf("%d calls while the limit pauses", n)
			}
		})
	}
}

// TestRetryAfterUsesUpNoAttempt has a step with one attempt, which such a limit puts off twice.
func TestRetryAfterUsesUpNoAttempt(t *testing.T) {
	const pause = 300 * time.Millisecond
	for name, l := range honouring {
		for form, step := range map[string]func(kagzi.Context, func() error) error{
			"Do": func(ctx kagzi.Context, fn func() error) error {
				return kagzi.Do(ctx, "s", func(context.Context) error { return fn() }, kagzi.Limit("api"),
					kagzi.RetryPolicy{MaxAttempts: 1})
			},
			"AtMostOnce": func(ctx kagzi.Context, fn func() error) error {
				return kagzi.Do(ctx, "s", func(context.Context) error { return fn() }, kagzi.Limit("api"),
					kagzi.RetryPolicy{MaxAttempts: 1}, kagzi.AtMostOnce())
			},
			"DoTx": func(ctx kagzi.Context, fn func() error) error {
				return kagzi.DoTx(ctx, "s", func(context.Context, pgx.Tx) error { return fn() }, kagzi.Limit("api"),
					kagzi.RetryPolicy{MaxAttempts: 1})
			},
		} {
			t.Run(name+form, func(t *testing.T) {
				k := kit.New(t)
				setLimit(k, l)
				wf := kagzi.DefineDo[struct{}]("wf")
				calls := make(chan time.Time, 3)
				kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (struct{}, error) {
					return struct{}{}, step(ctx, func() error {
						if calls <- time.Now(); len(calls) < 3 {
							return kagzi.RetryAfter(errors.New("429"), pause)
						}
						return nil
					})
				})
				run := kit.Begin(k, wf, struct{}{})
				kit.ResultOf(k, run)
				for first := <-calls; len(calls) > 0; {
					next := <-calls
					if d := next.Sub(first); d < pause-50*time.Millisecond {
						t.Errorf("the limit pauses, and the step begins after %v", d)
					}
					first = next
				}
				want := 1
				if form == "AtMostOnce" { // each call has its record
					want = 3
				}
				if steps := k.Steps(run.ID())["s"]; len(steps) != want || steps[want-1].Attempt != want {
					t.Errorf("steps %+v", steps)
				}
			})
		}
	}
}

// An error that asks for a pause fails its attempt if the limit does not honour that, or if no attempt may follow it.
func TestRetryAfterCounts(t *testing.T) {
	for name, c := range map[string]struct {
		honours bool
		err     error
	}{
		"NotHonoured": {false, kagzi.RetryAfter(errors.New("429"), time.Hour)},
		"Permanent":   {true, kagzi.Permanent(kagzi.RetryAfter(errors.New("429"), time.Hour))},
		"NoPause":     {true, kagzi.RetryAfter(errors.New("429"), 0)},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			setLimit(k, admin.StepLimit{Name: "api", HonorRetryAfter: c.honours})
			wf := kagzi.Define[struct{}, int]("wf")
			kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
				return 0, kagzi.Do(ctx, "s", func(context.Context) error { return c.err }, kagzi.Limit("api"),
					kagzi.RetryPolicy{MaxAttempts: 1})
			})
			kit.FailureOf(k, kit.Begin(k, wf, struct{}{}), kagzi.StatusFailed)
		})
	}
}

// TestSlotOfADeadWorkerIsFreed has a worker that never returns from its step, and a run that waits. The coordinator
// calls it when the other run was ended by a client.
func TestSlotOfADeadWorkerIsFreed(t *testing.T) {
	k := kit.New(t)
	setLimit(k, admin.StepLimit{Name: "api", MaxRunning: 1})
	wf := kagzi.Define[bool, int]("wf")
	inside, stuck := make(chan struct{}, 2), make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	cfg := kagzi.WorkerConfig{
		DrainTimeout: time.Millisecond,
		Coordinator:  kagzi.CoordinatorConfig{Interval: 50 * time.Millisecond},
	}
	kit.ServeWith(k, cfg, wf, func(ctx kagzi.Context, hangs bool) (int, error) {
		return kagzi.Step(ctx, "s", func(context.Context) (int, error) {
			inside <- struct{}{}
			if hangs {
				await.Opened(t, stuck) // it ignores its context
			}
			return 1, nil
		}, kagzi.Limit("api"))
	})
	first := kit.Begin(k, wf, true)
	await.Receive(t, inside)
	second := kit.Begin(k, wf, false)
	k.WaitStatus(second.ID(), kagzi.StatusSleeping)
	k.Cancel(first.ID())
	k.WaitStatus(first.ID(), kagzi.StatusCancelled)
	k.Exec(`UPDATE kagzi.workflow_runs SET finished_at = finished_at - interval '1 minute' WHERE run_id = $1`,
		string(first.ID()))
	if got := kit.ResultOf(k, second); got != 1 {
		t.Errorf("got %d", got)
	}
}
