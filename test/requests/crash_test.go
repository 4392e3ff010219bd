package requests_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/request"
)

// TestStaleWorkerAnswersNothing freezes a worker between Reply and its record, until another worker has answered
// otherwise, or has the run. All askers get that answer, also beside the frozen worker, whose own is refused.
func TestStaleWorkerAnswersNothing(t *testing.T) {
	t.Parallel()
	t.Run("AnsweredMeanwhile", func(t *testing.T) { staleWorker(t, true) })
	t.Run("AnsweredAfterwards", func(t *testing.T) { staleWorker(t, false) })
}

func staleWorker(t *testing.T, meanwhile bool) {
	k := kit.New(t)
	answering := func(answer int) func(kagzi.Context, struct{}) (int, error) {
		return func(ctx kagzi.Context, _ struct{}) (int, error) {
			r, err := request.Wait(ctx, add)
			if err != nil {
				return 0, err
			}
			return answer, r.Reply(ctx, answer)
		}
	}
	refused := make(chan string, 10)
	cfg := k.Pool.Config()
	cfg.ConnConfig.Tracer = kit.Refusals(func(write string) { refused <- write })
	pool, err := pgxpool.NewWithConfig(k.Ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	beside := kit.NewClient(t, pool)
	stale := kit.NewWorker(t, beside, kagzi.WorkerConfig{})
	kagzi.Handle(stale, cart, answering(1))
	hung, release := kit.HangAt(t, stale, "before flush")
	defer release()
	kit.StartWorker(t, stale)
	run := kit.Begin(k, cart, struct{}{}, kagzi.ID("x"))
	answers := make(chan int, 1)
	go func() {
		got, err := request.Ask(k.Ctx, beside, run, add.With(7).WithID("q"))
		if err != nil {
			t.Error(err)
		}
		answers <- got
	}()
	await.Opened(t, hung)
	k.Exec(`UPDATE kagzi.workflow_runs SET task_queue = 'other'`) // so that the frozen worker does not take it again
	kit.LoseRun(t, k.Pool, run.ID(), 1)
	fresh := kit.NewWorker(t, kit.NewClient(t, k.Pool), kagzi.WorkerConfig{Queue: "other"})
	kagzi.Handle(fresh, cart, answering(2))
	if meanwhile {
		kit.StartWorker(t, fresh)
		ask(k, run, add.With(7).WithID("q"), 2)
	}
	release()
	if write := await.Receive(t, refused); write != "record" {
		t.Errorf("the frozen worker's %s was refused", write)
	}
	if !meanwhile {
		kit.StartWorker(t, fresh)
	}
	if got := await.Receive(t, answers); got != 2 {
		t.Errorf("beside the frozen worker: got %d", got)
	}
	if got := kit.ResultOf(k, run); got != 2 {
		t.Errorf("the run completed with %d", got)
	}
	ask(k, run, add.With(7).WithID("q"), 2)
}

// TestLostAnswersOfRequests loses the answers to the statements of a request on their way, or the statements.
func TestLostAnswersOfRequests(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		ctx := kit.Context(t)
		c := l.Client(t, 8)
		w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
		kagzi.Handle(w, cart, serving(3))
		kit.StartWorker(t, w)
		run, err := kagzi.Start(ctx, c, cart, struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		for i, lost := range []string{"INSERT INTO kagzi.signals", "INSERT INTO kagzi.step_runs"} {
			drop := l.Lose(pgproxy.Contains(lost))
			if got, err := request.Ask(ctx, c, run, add.With(1).WithID(kagzi.ID(lost))); err != nil || got != i+1 {
				t.Errorf("%s: got %d, %v", lost, got, err)
			}
			await.Opened(t, drop.Done()) // it was lost
		}
	})
}

// TestLostStartWithAQuestion loses the start of a run with a question whose ID a run of another ID has: that is another
// question. A signal beside the start is like it.
func TestLostStartWithAQuestion(t *testing.T) {
	kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
		k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool, Client: kit.NewClient(t, l.Db.Pool)}
		kit.Serve(k, cart, serving(1))
		q := add.With(3).WithID("q")
		other := kit.Begin(k, cart, struct{}{}, kagzi.ID("other"), stop.With("").WithID("s"))
		ask(k, other, q, 3)
		c := l.Client(t, 5)
		for _, commit := range []bool{false, true} {
			lost := func() pgproxy.Match {
				insert := pgproxy.Contains("INSERT INTO kagzi.workflow_runs")
				if commit {
					return pgproxy.After(insert, pgproxy.Exactly("commit"))
				}
				return insert
			}
			id := kagzi.ID(uuid.NewString())
			drop := l.Lose(lost())
			if got, err := request.Ask(k.Ctx, c, cart.With(struct{}{}, id), q); err != nil || got != 3 {
				t.Errorf("got %d, %v", got, err)
			}
			await.Opened(t, drop.Done())
			run := kit.Find(t, k.Client, cart, id)
			if n := k.Count(`SELECT count(*) FROM kagzi.signals WHERE run_id = $1`, run.ID()); n != 1 {
				t.Errorf("the run has %d requests", n)
			}
			drop = l.Lose(lost())
			id = kagzi.ID(uuid.NewString())
			started, err := kagzi.Start(k.Ctx, c, cart, struct{}{}, id, stop.With("").WithID("s"))
			if err != nil || started.ID() == other.ID() {
				t.Errorf("started %v, %v", started.ID(), err)
			}
			await.Opened(t, drop.Done())
		}
	})
}

// TestForkKeepsTheAnswer forks a run behind an answer: its copy has the answer, and what was open is asked again.
func TestForkKeepsTheAnswer(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
		n, err := serving(1)(ctx, struct{}{})
		if err != nil {
			return 0, err
		}
		m, err := kagzi.WaitSignal(ctx, stop)
		return n + len(m), err
	})
	run := kit.Begin(k, cart, struct{}{}, stop.With("four"))
	ask(k, run, add.With(3).WithID("q"), 3)
	kit.ResultOf(k, run)
	for step, want := range map[string]int{"stop": 3, "add": 3} {
		fork, err := admin.New(k.Client).Runs.Fork(k.Ctx, run, step)
		if err != nil {
			t.Fatal(err)
		}
		ask(k, fork, add.With(3).WithID("q"), want)
		if got := kit.ResultOf(k, kit.Find(t, k.Client, cart, fork)); got != 7 {
			t.Errorf("fork from %q: got %d", step, got)
		}
	}
}

// TestWaitRequestTimesOut has an asker that comes after the wait's timeout: it gets no answer of that wait.
func TestWaitRequestTimesOut(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
		for {
			r, err := request.Wait(ctx, add, kagzi.Timeout(time.Millisecond))
			if err == nil {
				return r.In, r.Reply(ctx, r.In)
			}
			if ctx.Err() != nil {
				return 0, err
			}
			if _, err := kagzi.WaitSignal(ctx, stop); err != nil {
				return 0, err
			}
		}
	})
	run := kit.Begin(k, cart, struct{}{})
	k.WaitStatus(run, kagzi.StatusSleeping)
	asked := make(chan error, 1)
	go func() {
		n, err := request.Ask(k.Ctx, k.Client, run, add.With(5))
		if err == nil && n != 5 {
			err = errors.New("another answer")
		}
		asked <- err
	}()
	await.True(t, "the request is stored", func() bool { return k.Count(`SELECT count(*) FROM kagzi.signals`) == 1 })
	k.Signal(run, stop.With(""))
	if err := await.Receive(t, asked); err != nil {
		t.Error(err)
	}
}

// TestPollingFindsTheAnswer asks through a client that hears no notification.
func TestPollingFindsTheAnswer(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, cart, serving(1))
	run := kit.Begin(k, cart, struct{}{})
	other := kit.NewClient(t, k.Pool) // hears only notifications, and no worker keeps its listener
	if got, err := request.Ask(k.Ctx, other, run, add.With(2)); err != nil || got != 2 {
		t.Errorf("got %d, %v", got, err)
	}
}
