package events_test

import (
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// TestLostAnswersOfWaits loses the answers to the statements of a wait on their way, or the statements.
func TestLostAnswersOfWaits(t *testing.T) {
	for _, lost := range []string{
		"INSERT INTO kagzi.event_waits", "FROM kagzi.events e", "INSERT INTO kagzi.events ", "kagzi.awaited_events x",
		"INSERT INTO kagzi.signals", "DELETE FROM kagzi.event_waits",
	} {
		t.Run(lost, func(t *testing.T) {
			kit.EachLoss(t, func(t *testing.T, l *kit.Lossy) {
				k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: l.Db.Pool}
				k.Client = l.Client(t, 8)
				w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
				kagzi.Handle(w, order, waiting())
				kit.StartWorker(t, w)
				drop := l.Lose(pgproxy.Contains(lost))
				run := kit.Begin(k, order, "order-7")
				k.WaitStatus(run, kagzi.StatusSleeping)
				publish(k, paid.With(7).WithID("order-7"))
				if got := kit.ResultOf(k, run); got != 7 {
					t.Errorf("got %d", got)
				}
				nothingLeft(k)
				await.Opened(t, drop.Done())
			})
		})
	}
}

// A registration and an awaited event that a server lost with its last second are found when the run looks again.
func TestLostWait(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, order, waiting())
	run := kit.Begin(k, order, "order-7")
	k.WaitStatus(run, kagzi.StatusSleeping)
	k.Exec(`DELETE FROM kagzi.event_waits`)
	publish(k, paid.With(7).WithID("order-7"))
	if info := k.InfoOf(run); info.Status != kagzi.StatusSleeping {
		t.Errorf("status %v", info.Status)
	}
	k.Forward(run.ID())
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
}

// A fork waits for its own message, and keeps the event that its source had before the fork's step.
func TestForkOfAWait(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
		n, err := waiting()(ctx, id)
		if err != nil {
			return 0, err
		}
		text, err := kagzi.WaitSignal(ctx, answer)
		return n + len(text), err
	})
	publish(k, paid.With(7).WithID("order-7"))
	run := kit.Begin(k, order, "order-7", answer.With("four"))
	kit.ResultOf(k, run)
	for _, step := range []string{"answer", "paid"} {
		fork, err := admin.New(k.Client).Runs.Fork(k.Ctx, run, step)
		if err != nil {
			t.Fatal(err)
		}
		if got := kit.ResultOf(k, kit.Find(t, k.Client, order, fork)); got != 11 {
			t.Errorf("fork from %q: got %d", step, got)
		}
	}
	nothingLeft(k)
}

// Hundreds of runs that wait for one event get it, and those that wait for others sleep on.
func TestEventForManyRuns(t *testing.T) {
	k := kit.New(t)
	kit.ServeWith(k, kagzi.WorkerConfig{MaxConcurrent: 100}, order, waiting())
	const many = 1200 // more than the messages of one transaction
	calls := make([]kagzi.Call, many)
	for i := range calls {
		calls[i] = order.With("order-7")
	}
	runs, err := k.Client.StartMany(k.Ctx, calls)
	if err != nil {
		t.Fatal(err)
	}
	other := kit.Begin(k, order, "order-8")
	await.True(t, "all runs wait", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'SLEEPING'`) == many+1
	})
	publish(k, paid.With(7).WithID("order-7"))
	for _, run := range runs {
		if got := kit.ResultOf(k, kit.Find(t, k.Client, order, run.ID)); got != 7 {
			t.Fatalf("got %d", got)
		}
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.signals`); n != many {
		t.Errorf("%d messages", n)
	}
	k.Cancel(other)
}

// A run gets its event although its inbox is full.
func TestEventForAFullInbox(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, order, waiting())
	run := kit.Begin(k, order, "order-7")
	k.WaitStatus(run, kagzi.StatusSleeping)
	k.Exec(`INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id)
		SELECT run_id, 'other', n, namespace_id, n::text FROM kagzi.workflow_runs, generate_series(1, 10000) n`)
	k.Exec(`UPDATE kagzi.workflow_runs SET wakeups = 10000`)
	publish(k, paid.With(7).WithID("order-7"))
	if got := kit.ResultOf(k, run); got != 7 {
		t.Errorf("got %d", got)
	}
}

// An event that the database refuses for one run holds up neither the other runs nor other events. What was removed is
// forgotten.
func TestAwaitedEvents(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, order, waiting())
	refused, other := kit.Begin(k, order, "order-7"), kit.Begin(k, order, "order-7")
	third := kit.Begin(k, order, "order-8")
	for _, run := range []*kagzi.Run[int]{refused, other, third} {
		k.WaitStatus(run, kagzi.StatusSleeping)
	}
	k.Exec(`ALTER TABLE kagzi.signals ADD CONSTRAINT refused CHECK (run_id <> '` + string(refused.ID()) + `')`)
	k.Exec(`INSERT INTO kagzi.awaited_events (namespace_id, publication, topic, event_id)
		VALUES ('default', '00000000-0000-0000-0000-000000000001', 'paid', 'removed')`)
	publish(k, paid.With(7).WithID("order-7"))
	publish(k, paid.With(8).WithID("order-8"))
	if a, b := kit.ResultOf(k, other), kit.ResultOf(k, third); a != 7 || b != 8 {
		t.Errorf("got %d and %d", a, b)
	}
	await.True(t, "only the event of the run that is refused is left", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.awaited_events`) == 1 &&
			k.Count(`SELECT count(*) FROM kagzi.awaited_events WHERE event_id = 'order-7'`) == 1
	})
	k.Exec(`ALTER TABLE kagzi.signals DROP CONSTRAINT refused`)
	if got := kit.ResultOf(k, refused); got != 7 {
		t.Errorf("got %d", got)
	}
	nothingLeft(k)
}
