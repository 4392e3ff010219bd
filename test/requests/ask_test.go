package requests_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
)

var (
	add = request.Define[int, int]("add", func(n int) error {
		if n < 0 {
			return errors.New("it is negative")
		}
		return nil
	})
	stop = kagzi.DefineSignal[string]("stop")
	cart = kagzi.Define[struct{}, int]("cart")
)

// lax is add without its check.
var lax = request.Define[int, int]("add")

// serving answers so many requests with the sum so far, and refuses those of zero.
func serving(n int) func(kagzi.Context, struct{}) (int, error) { return servingAs(add, n) }

func servingAs(def request.Request[int, int], n int) func(kagzi.Context, struct{}) (int, error) {
	return func(ctx kagzi.Context, _ struct{}) (int, error) {
		sum := 0
		for range n {
			r, err := request.Wait(ctx, def)
			if err != nil {
				return sum, err
			}
			if r.In == 0 {
				err = r.Refuse(ctx, kind.WithDetails(&request.Refusal{Kind: "empty", Message: "nothing to add"}, sum+1))
			} else {
				sum += r.In
				err = r.Reply(ctx, sum)
			}
			if err != nil {
				return sum, err
			}
		}
		return sum, nil
	}
}

// ask asks and fails the test unless it gets the answer.
func ask(k *kit.Kit, to request.Target, q request.Question[int], want int) {
	k.T.Helper()
	if got, err := request.Ask(k.Ctx, k.Client, to, q); err != nil || got != want {
		k.T.Errorf("got %d, %v, want %d", got, err, want)
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	t.Run("SameAnswerForEver", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, cart, serving(3))
		run := kit.Begin(k, cart, struct{}{}, kagzi.ID("cart-7"))
		ask(k, kagzi.ID("cart-7"), add.With(2).WithID("click-1"), 2)
		ask(k, run, add.With(3), 5)
		ask(k, kagzi.ID("cart-7"), add.With(2).WithID("click-1"), 2)
		_, err := request.Ask(k.Ctx, k.Client, run, add.With(4).WithID("click-1"))
		if !errors.Is(err, kagzi.ErrIDConflict) {
			t.Errorf("another payload: %v", err)
		}
		ask(k, run, add.With(4), 9)
		if got := kit.ResultOf(k, run); got != 9 {
			t.Errorf("result %d", got)
		}
		ask(k, run, add.With(2).WithID("click-1"), 2)
		// another run has the ID now
		next := kit.Begin(k, cart, struct{}{}, kagzi.ID("cart-7"))
		ask(k, kagzi.ID("cart-7"), add.With(2).WithID("click-1"), 2)
		ask(k, cart.With(struct{}{}, kagzi.ID("cart-7")), add.With(2).WithID("click-1"), 2)
		ask(k, kagzi.ID("cart-7"), add.With(1).WithID("click-2"), 1)
		if info := k.InfoOf(next); info.Status.Ended() {
			t.Errorf("status %v", info.Status)
		}
	})
	t.Run("Refusal", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, cart, serving(1))
		run := kit.Begin(k, cart, struct{}{})
		for range 2 {
			_, err := request.Ask(k.Ctx, k.Client, run, add.With(0).WithID("x"))
			refusal, ok := errors.AsType[*request.Refusal](err)
			if !ok || !errors.Is(err, kind.Kind("empty")) || refusal.Message != "nothing to add" ||
				refusal.Request != "add" {
				t.Errorf("%v: %+v", err, refusal)
			}
			if sum, ok := kind.Details[int](err); sum != 1 || !ok {
				t.Errorf("the refusal has the details %d, %t", sum, ok)
			}
		}
	})
	t.Run("StartsARun", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, cart, serving(3))
		call := cart.With(struct{}{}, kagzi.ID("cart-8"))
		ask(k, call, add.With(2), 2)
		ask(k, call, add.With(5).WithID("a"), 7)
		ask(k, call, add.With(5).WithID("a"), 7)
		if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
			t.Errorf("%d runs", n)
		}
	})
	t.Run("RunEnds", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
			if _, err := request.Wait(ctx, add); err != nil {
				return 0, err
			}
			return 0, kagzi.Permanent(errors.New("too bad"))
		})
		run := kit.Begin(k, cart, struct{}{})
		_, err := request.Ask(k.Ctx, k.Client, run, add.With(1).WithID("x"))
		end, ok := errors.AsType[*kagzi.RunError](err)
		if !errors.Is(err, kagzi.ErrRunFinished) || !ok || end.Message != "too bad" {
			t.Errorf("failed: %v", err)
		}
		idle := kit.Begin(k, kagzi.Define[struct{}, int]("nobody executes it"), struct{}{})
		asked := make(chan error, 1)
		go func() {
			_, err := request.Ask(k.Ctx, k.Client, idle, add.With(1))
			asked <- err
		}()
		await.True(t, "the request is stored", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.signals WHERE consumed_by IS NULL`) == 1
		})
		k.Cancel(idle)
		if err := await.Receive(t, asked); !errors.Is(err, kagzi.ErrRunFinished) || !errors.Is(err, kind.Cancelled) {
			t.Errorf("cancelled: %v", err)
		}
		_, err = request.Ask(k.Ctx, k.Client, idle, add.With(2))
		if !errors.Is(err, kagzi.ErrRunFinished) {
			t.Errorf("asked later: %v", err)
		}
	})
	t.Run("WrongCalls", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, cart, struct{}{})
		if _, err := request.Ask(k.Ctx, k.Client, run, add.With(-1)); !errors.Is(err, kind.Validation) {
			t.Errorf("an invalid payload: %v", err)
		}
		_, err := request.Ask(k.Ctx, k.Client, kagzi.RunID(uuid.NewString()), add.With(1))
		if !errors.Is(err, kagzi.ErrNotFound) {
			t.Errorf("no such run: %v", err)
		}
		if _, err = request.Ask(k.Ctx, k.Client, nil, add.With(1)); err == nil {
			t.Error("a nil reference")
		}
		if _, err = request.Ask(k.Ctx, k.Client, run, request.Question[int]{}); err == nil {
			t.Error("an empty question")
		}
		if n := k.Count(`SELECT count(*) FROM kagzi.signals`); n != 0 {
			t.Errorf("%d messages", n)
		}
	})
	t.Run("FromAStep", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, cart, serving(1))
		run := kit.Begin(k, cart, struct{}{})
		asker := kagzi.Define[struct{}, int]("asker")
		tries := 0
		kit.Serve(k, asker, func(ctx kagzi.Context, _ struct{}) (int, error) {
			return kagzi.Step(ctx, "ask", func(ctx context.Context) (int, error) {
				sum, err := request.Ask(ctx, k.Client, run, add.With(4))
				if tries++; err == nil && tries == 1 {
					err = kagzi.RetryAfter(errors.New("the answer came, and the attempt fails"), time.Millisecond)
				}
				return sum, err
			})
		})
		if got := kit.ResultOf(k, kit.Begin(k, asker, struct{}{})); got != 4 {
			t.Errorf("got %d", got)
		}
	})
}

// TestRequestsAndSignalsAreApart has a signal and a request of the same name.
func TestRequestsAndSignalsAreApart(t *testing.T) {
	k := kit.New(t)
	other := kagzi.DefineSignal[int]("add")
	kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
		r, err := request.Wait(ctx, add)
		if err != nil {
			return 0, err
		}
		n, err := kagzi.WaitSignal(ctx, other)
		if err != nil {
			return 0, err
		}
		return n, r.Reply(ctx, 10*r.In)
	})
	run := kit.Begin(k, cart, struct{}{}, other.With(1))
	ask(k, run, add.With(2), 20)
	if got := kit.ResultOf(k, run); got != 1 {
		t.Errorf("the signal had %d", got)
	}
}

// TestFireAndForget sends a request in a transaction, and fetches the answer after the run has ended.
func TestFireAndForget(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, cart, struct{}{})
	tx, err := k.Pool.Begin(k.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	q := add.With(6).WithID("later")
	if err := request.Send(k.Ctx, k.Client, run, q, kagzi.InTx(tx)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(k.Ctx); err != nil {
		t.Fatal(err)
	}
	kit.Serve(k, cart, serving(1))
	kit.ResultOf(k, run)
	ask(k, run, q, 6)
}

// TestAnswerDoesNotWait answers before a step that goes on until the asker has the answer.
func TestAnswerDoesNotWait(t *testing.T) {
	k := kit.New(t)
	told := make(chan struct{})
	kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
		r, err := request.Wait(ctx, add)
		if err != nil {
			return 0, err
		}
		if err := r.Reply(ctx, 1); err != nil {
			return 0, err
		}
		return kagzi.Step(ctx, "long", func(context.Context) (int, error) {
			await.Opened(t, told)
			return 1, nil
		})
	})
	run := kit.Begin(k, cart, struct{}{})
	ask(k, run, add.With(1), 1)
	close(told)
	kit.ResultOf(k, run)
}

// TestRaceGivesTheRequestBack has a race whose loser has read a request. It is another's to answer.
func TestRaceGivesTheRequestBack(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
		read := make(chan struct{})
		_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
			"asked": func(ctx kagzi.Context) (int, error) {
				if _, err := request.Wait(ctx, add); err != nil {
					return 0, err
				}
				close(read)
				_, err := kagzi.WaitSignal(ctx, stop)
				return 0, err
			},
			"wins": func(kagzi.Context) (int, error) {
				<-read
				return 1, nil
			},
		})
		if err != nil {
			return 0, err
		}
		return serving(1)(ctx, struct{}{})
	})
	run := kit.Begin(k, cart, struct{}{})
	ask(k, run, add.With(8), 8)
	kit.ResultOf(k, run)
}

// TestAnswersInARace has a branch that answers requests while another one waits for something else. The asker gets each
// answer at once, and after the race, too.
func TestAnswersInARace(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
		_, n, err := kagzi.Race(ctx, "until", map[string]func(kagzi.Context) (int, error){
			"answers": func(ctx kagzi.Context) (int, error) {
				for {
					r, err := request.Wait(ctx, add)
					if err != nil {
						return 0, err
					}
					if err := r.Reply(ctx, 2*r.In); err != nil {
						return 0, err
					}
				}
			},
			"stopped": func(ctx kagzi.Context) (int, error) {
				text, err := kagzi.WaitSignal(ctx, stop)
				return len(text), err
			},
		})
		return n, err
	})
	run := kit.Begin(k, cart, struct{}{})
	for i := range 5 {
		ask(k, run, add.With(i).WithID(kagzi.ID(fmt.Sprint("q", i))), 2*i)
	}
	k.WaitStatus(run, kagzi.StatusSleeping)
	ask(k, run, add.With(7).WithID("later"), 14) // it is replayed before
	k.Signal(run, stop.With("stop"))
	if got := kit.ResultOf(k, run); got != 4 {
		t.Errorf("the run completed with %d", got)
	}
	for i := range 5 {
		ask(k, run, add.With(i).WithID(kagzi.ID(fmt.Sprint("q", i))), 2*i)
	}
}

// TestTwoBranchesAnswer has branches that wait for the same requests, and one that answers what another has read.
func TestTwoBranchesAnswer(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
		a, b := kagzi.Go(ctx, "a", twice), kagzi.Go(ctx, "b", twice)
		n, err := a.Result(ctx)
		m, err2 := b.Result(ctx)
		return n + m, errors.Join(err, err2)
	})
	run := kit.Begin(k, cart, struct{}{})
	for i := 1; i <= 4; i++ {
		ask(k, run, add.With(i), 2*i)
	}
	if got := kit.ResultOf(k, run); got != 4 {
		t.Errorf("answered %d", got)
	}
}

// twice doubles two numbers, the second on a branch of its own.
func twice(ctx kagzi.Context) (int, error) {
	for i := range 2 {
		r, err := request.Wait(ctx, add)
		if err != nil {
			return 0, err
		}
		if i == 0 {
			err = r.Reply(ctx, 2*r.In)
		} else {
			_, err = kagzi.Go(ctx, "reply", func(ctx kagzi.Context) (int, error) {
				return 0, r.Reply(ctx, 2*r.In)
			}).Result(ctx)
		}
		if err != nil {
			return 0, err
		}
	}
	return 2, nil
}

// TestSetAside asks with a payload that the run's program refuses: the asker hears of it, and the request is answered
// once it is redelivered.
func TestSetAside(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, cart, serving(1))
	run := kit.Begin(k, cart, struct{}{})
	_, err := request.Ask(k.Ctx, k.Client, run, lax.With(-1).WithID("x"))
	if !errors.Is(err, kind.BadInput) {
		t.Errorf("got %v", err)
	}
	if err := admin.New(k.Client).Messages.Drop(k.Ctx, run, "x"); err != nil {
		t.Error(err)
	}
	ask(k, run, add.With(3).WithID("x"), 3)
}

// TestRedelivered gives a request that was set aside back to the run, once that has code that takes it. Who asks again
// gets the answer, and the run reads the request once. It may be delivered for as long as one that is sent again.
func TestRedelivered(t *testing.T) {
	k := kit.New(t)
	stopStrict := kit.Serve(k, cart, serving(2))
	run := kit.Begin(k, cart, struct{}{})
	q := lax.With(-1).WithID("x").Within(time.Hour)
	if _, err := request.Ask(k.Ctx, k.Client, run, q); !errors.Is(err, kind.BadInput) {
		t.Errorf("got %v", err)
	}
	if err := stopStrict(); err != nil {
		t.Fatal(err)
	}
	if err := admin.New(k.Client).Messages.Redeliver(k.Ctx, run, "x"); err != nil {
		t.Fatal(err)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.signals WHERE expires_at BETWEEN now() + interval '50 minutes'
		AND now() + interval '1 hour'`); n != 1 {
		t.Errorf("%d requests expire in an hour", n)
	}
	answers := make(chan int, 4)
	for range cap(answers) {
		go func() {
			got, err := request.Ask(k.Ctx, k.Client, run, q)
			if err != nil {
				t.Error(err)
			}
			answers <- got
		}()
	}
	kit.Serve(k, cart, servingAs(lax, 2))
	for range cap(answers) {
		if got := await.Receive(t, answers); got != -1 {
			t.Errorf("got %d", got)
		}
	}
	ask(k, run, add.With(3), 2)
	ask(k, run, q, -1)
}
