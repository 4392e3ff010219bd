package requests_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
)

var asker = kagzi.Define[struct{}, int]("asker")

// asking asks with 4 in a step, and returns the answer.
func asking(to request.Target, timeout ...kagzi.Timeout) func(kagzi.Context, struct{}) (int, error) {
	return func(ctx kagzi.Context, _ struct{}) (int, error) {
		return request.AskStep(ctx, "ask", to, add.With(4), timeout...)
	}
}

func TestAskStep(t *testing.T) {
	t.Parallel()
	t.Run("Answered", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, cart, serving(1))
		kit.Serve(k, asker, asking(kit.Begin(k, cart, struct{}{})))
		if got := kit.ResultOf(k, kit.Begin(k, asker, struct{}{})); got != 4 {
			t.Errorf("got %d", got)
		}
	})
	// The asker is suspended when the answer comes, and holds nothing.
	t.Run("AnsweredLater", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, asker, asking(cart.With(struct{}{}, kagzi.ID("cart"))))
		run := kit.Begin(k, asker, struct{}{})
		k.WaitStatus(run, kagzi.StatusSleeping)
		if on := k.InfoOf(run).WaitingOn.String(); on != "answer ask" {
			t.Errorf("it waits for %q", on)
		}
		kit.Serve(k, cart, serving(1))
		if got := kit.ResultOf(k, run); got != 4 {
			t.Errorf("got %d", got)
		}
		if n := k.Count(`SELECT count(*) FROM kagzi.signals WHERE consumed_by IS NULL`); n != 0 {
			t.Errorf("%d unread messages", n)
		}
		steps, err := k.Client.Steps(k.Ctx, run)
		if err != nil || len(steps) != 1 || steps[0].Type != "ASK" || string(steps[0].Output) != "4" {
			t.Errorf("steps %+v, %v", steps, err)
		}
	})
	t.Run("Refused", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
			r, err := request.Wait(ctx, add)
			if err != nil {
				return 0, err
			}
			return 0, r.Refuse(ctx, kind.Kind("empty"))
		})
		run := kit.Begin(k, cart, struct{}{})
		kit.Serve(k, asker, func(ctx kagzi.Context, _ struct{}) (int, error) {
			_, err := request.AskStep(ctx, "ask", run, add.With(4))
			refusal, ok := errors.AsType[*request.Refusal](err)
			if !ok || !errors.Is(err, kind.Kind("empty")) || refusal.Request != "add" {
				t.Errorf("got %v", err)
			}
			return 1, kagzi.Sleep(ctx, "replay", time.Second)
		})
		kit.ResultOf(k, kit.Begin(k, asker, struct{}{}))
	})
	// Each error is the same after a suspension, in which the code is replayed.
	t.Run("NotSent", func(t *testing.T) {
		k := kit.New(t)
		over := kit.Begin(k, cart, struct{}{})
		k.Cancel(over)
		for name, c := range map[string]struct {
			to   request.Target
			q    request.Question[int]
			want error
		}{
			"no such run": {kagzi.ID("none"), add.With(1), kagzi.ErrNotFound},
			"over":        {over, add.With(1), kagzi.ErrRunFinished},
			"invalid":     {over, add.With(-1), kind.Validation},
		} {
			wf := kagzi.Define[struct{}, int](name)
			kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
				if _, err := request.AskStep(ctx, "ask", c.to, c.q); !errors.Is(err, c.want) {
					t.Errorf("%s: %v", name, err)
				}
				return 1, kagzi.Sleep(ctx, "replay", 500*time.Millisecond)
			})
			kit.ResultOf(k, kit.Begin(k, wf, struct{}{}))
		}
	})
	t.Run("TimesOut", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, cart, struct{}{})
		kit.Serve(k, asker, func(ctx kagzi.Context, _ struct{}) (int, error) {
			_, err := request.AskStep(ctx, "ask", run, add.With(4), kagzi.Timeout(300*time.Millisecond))
			if !errors.Is(err, kind.Timeout) {
				t.Errorf("got %v", err)
			}
			n, err := kagzi.WaitSignal(ctx, stop)
			return len(n), err
		})
		asks := kit.Begin(k, asker, struct{}{})
		k.WaitStatus(asks, kagzi.StatusSleeping)
		await.True(t, "the timeout is recorded", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'ASK' AND status = 'COMPLETED'`) == 1
		})
		kit.Serve(k, cart, serving(1)) // the answer comes too late
		kit.ResultOf(k, run)
		k.Signal(asks, stop.With("stop"))
		if got := kit.ResultOf(k, asks); got != 4 {
			t.Errorf("got %d", got)
		}
	})
	// A run that ends leaves requests: the worker that writes the end sends it to the runs that have asked.
	for name, reads := range map[string]bool{"RunEndsUnasked": false, "RunEndsAsked": true} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			run := kit.Begin(k, cart, struct{}{})
			asks := func(ctx kagzi.Context, _ struct{}) (int, error) {
				_, err := request.AskStep(ctx, "ask", run, add.With(4))
				if !errors.Is(err, kagzi.ErrRunFinished) || !errors.Is(err, kind.Kind("closed")) {
					t.Errorf("got %v", err)
				}
				return 1, nil
			}
			stopAsker := kit.Serve(k, asker, asks)
			asking := kit.Begin(k, asker, struct{}{})
			k.WaitStatus(asking, kagzi.StatusSleeping)
			if err := stopAsker(); err != nil {
				t.Fatal(err)
			}
			kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
				if reads {
					if _, err := request.Wait(ctx, add); err != nil {
						return 0, err
					}
				}
				if _, err := kagzi.WaitSignal(ctx, stop); err != nil {
					return 0, err
				}
				return 0, kind.Kind("closed")
			})
			k.WaitStatus(run, kagzi.StatusSleeping, "signal stop") // so the end comes after a replay
			k.Signal(run, stop.With(""))
			await.True(t, "the asker has a message", func() bool {
				return k.Count(`SELECT count(*) FROM kagzi.signals WHERE run_id = $1`, asking.ID()) == 1
			})
			kit.Serve(k, asker, asks)
			kit.ResultOf(k, asking)
		})
	}
	// If a verb has ended the run, the asker looks for the end after a while.
	t.Run("RunEnds", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, cart, struct{}{})
		kit.Serve(k, asker, func(ctx kagzi.Context, _ struct{}) (int, error) {
			_, err := request.AskStep(ctx, "ask", run, add.With(4))
			if !errors.Is(err, kagzi.ErrRunFinished) || !errors.Is(err, kind.Cancelled) {
				t.Errorf("got %v", err)
			}
			return 1, nil
		})
		asks := kit.Begin(k, asker, struct{}{})
		k.WaitStatus(asks, kagzi.StatusSleeping)
		k.Cancel(run)
		due(k)
		kit.ResultOf(k, asks)
	})
}

// due lets the pause of the asker be over.
func due(k *kit.Kit) {
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() WHERE status = 'SLEEPING'`)
}

// TestLostReply has an answer that was recorded, and whose message to the asker was lost.
func TestLostReply(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, asker, asking(cart.With(struct{}{}, kagzi.ID("cart"))))
	run := kit.Begin(k, asker, struct{}{})
	k.WaitStatus(run, kagzi.StatusSleeping)
	k.Exec(`UPDATE kagzi.signals SET reply_to = NULL`)
	kit.Serve(k, cart, serving(1))
	kit.ResultOf(k, kit.Find(t, k.Client, cart, kagzi.ID("cart")))
	if info := k.InfoOf(run); info.Status != kagzi.StatusSleeping {
		t.Errorf("status %v", info.Status)
	}
	due(k)
	if got := kit.ResultOf(k, run); got != 4 {
		t.Errorf("got %d", got)
	}
}

// TestLostAnswersOfAskStep loses, of a run that asks another, the question on its way, the answer's record, the message
// with the answer, and the record of that; or the acknowledgements of their commits. There is one of each.
func TestLostAnswersOfAskStep(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: kit.NewClient(t, l.Db.Pool)}
		// The workers of the queue "lossy" are behind the proxy, those of "safe" are not.
		asker := kagzi.Define[kagzi.RunID, int]("asker")
		starter := kagzi.Define[kagzi.ID, int]("starter")
		for queue, c := range map[string]*kagzi.Client{"lossy": l.Client(t, 8), "safe": k.Client} {
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{Queue: queue})
			kagzi.Handle(w, cart, serving(1))
			kagzi.Handle(w, asker, func(ctx kagzi.Context, to kagzi.RunID) (int, error) {
				return request.AskStep(ctx, "ask", to, add.With(4))
			})
			kagzi.Handle(w, starter, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
				return request.AskStep(ctx, "ask", cart.With(struct{}{}, id, kagzi.Queue("safe")), add.With(4))
			})
			kit.StartWorker(t, w)
		}
		question := pgproxy.Contains("INSERT INTO kagzi.signals")
		record := pgproxy.Contains("INSERT INTO kagzi.step_runs")
		start := pgproxy.Contains("INSERT INTO kagzi.workflow_runs")
		for name, c := range map[string]struct {
			lost          pgproxy.Match
			asker, answer string // the queues of the runs; no answer: the question starts the run
		}{
			"question":          {question, "lossy", "safe"},
			"record of answer":  {record, "safe", "lossy"},
			"message of answer": {question, "safe", "lossy"},
			"record of message": {record, "lossy", "safe"},
			"start":             {start, "lossy", ""},
			"commit of start":   {pgproxy.After(start, pgproxy.Exactly("commit")), "lossy", ""},
		} {
			id := kagzi.ID(name)
			var run *kagzi.Run[int]
			var drop *pgproxy.Drop
			if c.answer != "" {
				to := kit.Begin(k, cart, struct{}{}, id, kagzi.Queue(c.answer))
				k.WaitStatus(to, kagzi.StatusSleeping)
				drop = l.Lose(c.lost)
				run = kit.Begin(k, asker, to.ID(), kagzi.Queue(c.asker))
			} else {
				drop = l.Lose(c.lost)
				run = kit.Begin(k, starter, id, kagzi.Queue(c.asker))
			}
			await.Opened(t, drop.Done())
			if got := kit.ResultOf(k, run); got != 4 {
				t.Errorf("%s: got %d", name, got)
			}
			to := kit.Find(t, k.Client, cart, id)
			for what, n := range map[string]int{
				"runs":      k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE external_id = $1`, name),
				"questions": k.Count(`SELECT count(*) FROM kagzi.signals WHERE run_id = $1`, to.ID()),
				"replies": k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1 AND step_kind = 'REPLY'`,
					to.ID()),
				"answers": k.Count(`SELECT count(*) FROM kagzi.signals WHERE run_id = $1`, run.ID()),
			} {
				if n != 1 {
					t.Errorf("%s: %d %s", name, n, what)
				}
			}
		}
	})
}

// TestRedeliveredQuestionOfARun has a request of a run set aside, and redelivered once the asked run's code takes it.
// The run that asks gets the answer, unless it has heard before that the request was set aside: then that stays.
func TestRedeliveredQuestionOfARun(t *testing.T) {
	t.Parallel()
	for name, hears := range map[string]bool{"BeforeItLooks": false, "AfterItHasLooked": true} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			run := kit.Begin(k, cart, struct{}{})
			kit.Serve(k, asker, func(ctx kagzi.Context, _ struct{}) (int, error) {
				n, err := request.AskStep(ctx, "ask", run, lax.With(-4))
				if errors.Is(err, kind.BadInput) == (err == nil) {
					return 0, err
				}
				text, failed := kagzi.WaitSignal(ctx, stop) // it is replayed
				if err != nil {
					n = 100
				}
				return n + len(text), failed
			})
			asks := kit.Begin(k, asker, struct{}{})
			k.WaitStatus(asks, kagzi.StatusSleeping, "answer ask")
			stopStrict := kit.Serve(k, cart, serving(2))
			await.True(t, "the request is set aside", func() bool {
				return k.Count(`SELECT count(*) FROM kagzi.signals WHERE set_aside_at IS NOT NULL`) == 1
			})
			if err := stopStrict(); err != nil {
				t.Fatal(err)
			}
			want := -4
			if hears {
				due(k)
				k.WaitStatus(asks, kagzi.StatusSleeping, "signal stop")
				want = 100
			}
			id := kagzi.ID(dbtest.QueryOne[string](t, k.Pool, `SELECT signal_id FROM kagzi.signals
				WHERE set_aside_at IS NOT NULL`))
			if err := admin.New(k.Client).Messages.Redeliver(k.Ctx, run, id); err != nil {
				t.Fatal(err)
			}
			kit.Serve(k, cart, servingAs(lax, 2))
			ask(k, run, add.With(6), 2) // the one that was redelivered counts once
			if got := kit.ResultOf(k, run); got != 2 {
				t.Errorf("the asked run completed with %d", got)
			}
			k.WaitStatus(asks, kagzi.StatusSleeping, "signal stop")
			k.Signal(asks, stop.With("four"))
			if got := kit.ResultOf(k, asks); got != want+4 {
				t.Errorf("got %d, want %d", got, want+4)
			}
			n := k.Count(`SELECT count(*) FROM kagzi.signals WHERE run_id = $1 AND name <> 'stop'`, asks.ID())
			if n != 1 {
				t.Errorf("the run that asks has %d answers", n)
			}
		})
	}
}

// TestForkOfAnAsker asks anew under the fork's name, and keeps an answer before the fork's step.
func TestForkOfAnAsker(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, cart, serving(3))
	to := kit.Begin(k, cart, struct{}{})
	kit.Serve(k, asker, func(ctx kagzi.Context, _ struct{}) (int, error) {
		n, err := asking(to)(ctx, struct{}{})
		if err != nil {
			return 0, err
		}
		m, err := kagzi.WaitSignal(ctx, stop)
		return n + len(m), err
	})
	run := kit.Begin(k, asker, struct{}{}, stop.With(""))
	kit.ResultOf(k, run)
	for _, c := range []struct {
		step string
		want int
	}{{"stop", 4}, {"ask", 8}} {
		fork, err := admin.New(k.Client).Runs.Fork(k.Ctx, run, c.step)
		if err != nil {
			t.Fatal(err)
		}
		if got := kit.ResultOf(k, kit.Find(t, k.Client, asker, fork)); got != c.want {
			t.Errorf("fork from %q: got %d, want %d", c.step, got, c.want)
		}
	}
}

// TestExpiry has requests that no step takes any more.
func TestExpiry(t *testing.T) {
	t.Parallel()
	t.Run("OfASleepingRun", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, cart, struct{}{})
		_, err := request.Ask(k.Ctx, k.Client, run, add.With(1).WithID("q").Within(time.Millisecond))
		if !errors.Is(err, kind.Timeout) {
			t.Errorf("got %v", err)
		}
		kit.Serve(k, cart, serving(1))
		ask(k, run, add.With(2), 2)
		_, err = request.Ask(k.Ctx, k.Client, run, add.With(1).WithID("q"))
		if !errors.Is(err, kind.Timeout) {
			t.Errorf("asked again: %v", err)
		}
	})
	// A worker executes the run, and comes to the request too late.
	t.Run("OfARunUnderWay", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, cart, struct{}{})
		if err := request.Send(k.Ctx, k.Client, run, add.With(1).WithID("q").Within(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		kit.Serve(k, cart, serving(1))
		ask(k, run, add.With(2), 2)
		_, err := request.Ask(k.Ctx, k.Client, run, add.With(1).WithID("q"))
		if !errors.Is(err, kind.Timeout) {
			t.Errorf("got %v", err)
		}
		list, err := admin.New(k.Client).Messages.List(k.Ctx, run, admin.MessageFilter{})
		if err != nil || len(list) != 2 || !list[0].Expired || list[1].Expired {
			t.Errorf("messages %+v", list)
		}
	})
}
