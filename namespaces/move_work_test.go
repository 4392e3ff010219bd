package namespaces

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/request"
	"github.com/kagzi/kagzi/topic"
)

// A consumer of batches waits for more events while its namespace moves. It gets the rest in the other database, and
// each event once.
func TestMoveBesideABatch(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	var j kit.Journal
	writer := topic.DefineConsumer("writer", topic.ConsumerConfig{Topics: []topic.AnyTopic{orders}})
	handle := func(w *kagzi.Worker, _ *kagzi.Client) error {
		topic.ConsumeBatch(w, writer, orders, topic.Batch{Most: 3, Within: time.Minute},
			func(ctx kagzi.Context, events []topic.Event[int]) error {
				var all []int
				for _, e := range events {
					all = append(all, e.Payload)
				}
				return kagzi.Do(ctx, "write", func(context.Context) error { j.Add(fmt.Sprint(all)); return nil })
			})
		kagzi.HandleDo(w, nap, func(kagzi.Context, time.Duration) error { return nil })
		return nil
	}
	publish := func(to *kagzi.Client, numbers ...int) {
		for _, n := range numbers {
			ok(t, topic.New(to).Publish(t.Context(), orders.With(n)))
		}
	}
	run(t, a, Config{Handle: handle})
	startOne(t, c, nap.With(0)) // so that the namespace has a worker, which subscribes
	publish(c, 1, 2)
	await.True(t, "a batch waits for more events", func() bool {
		return dbtest.QueryOne[bool](t, a, `SELECT EXISTS (SELECT FROM kagzi.workflow_runs
			WHERE workflow_type = 'writer' AND status = 'SLEEPING')`)
	})
	_, err := Move(t.Context(), c, d, MoveConfig{})
	ok(t, err)
	run(t, b, Config{Handle: handle})
	publish(d, 3, 4, 5, 6)
	await.True(t, "two batches are written", func() bool { return strings.Count(j.String(), "[") == 2 })
	if got := strings.Join(strings.Fields(j.String()), " "); got != "[1 2 3] [4 5 6]" {
		t.Errorf("batches %s", got)
	}
}

// A program waits for the answer of a run that moves. It is told so, asks again in the other database, and the run gets
// the question once.
func TestMoveBesideAQuestion(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	price := request.Define[string, int]("price")
	shop := kagzi.DefineDo[int]("shop")
	asked := make(chan string, 100)
	handle := func(w *kagzi.Worker, _ *kagzi.Client) error {
		kagzi.HandleDo(w, shop, func(ctx kagzi.Context, _ int) error {
			r, err := request.Wait(ctx, price)
			if err != nil {
				return err
			}
			asked <- r.In
			if _, err := kagzi.WaitSignal(ctx, goOn); err != nil {
				return err
			}
			return r.Reply(ctx, 7)
		})
		return nil
	}
	run(t, a, Config{Handle: handle})
	id := startOne(t, c, shop.With(1))
	question := price.With("book").WithID("q")
	answered := make(chan error, 1)
	go func() { _, err := request.Ask(t.Context(), c, id, question); answered <- err }()
	await.Receive(t, asked)
	awaitStatus(t, c, id, kagzi.StatusSleeping)
	_, err := Move(t.Context(), c, d, MoveConfig{})
	ok(t, err)
	if err := await.Receive(t, answered); !errors.Is(err, ErrMoved) {
		t.Errorf("the question in the database that the namespace has left: %v, want ErrMoved", err)
	}
	if _, err := request.Ask(t.Context(), c, id, question); !errors.Is(err, ErrMoved) {
		t.Errorf("a question in the database that the namespace has left: %v, want ErrMoved", err)
	}
	run(t, b, Config{Handle: handle})
	ok(t, d.Signal(t.Context(), id, goOn.With(1)))
	if answer, err := request.Ask(t.Context(), d, id, question); err != nil || answer != 7 {
		t.Errorf("answer %d, error %v", answer, err)
	}
	if n := dbtest.QueryOne[int64](t, b, `SELECT count(*) FROM kagzi.signals WHERE signal_id = 'q'`); n != 1 {
		t.Errorf("the question is there %d times", n)
	}
}

// A step that is called at most once is under way when its namespace moves. The other database knows that, and does not
// call it again.
func TestMoveBesideAStepInDoubt(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	pay := kagzi.Define[int, string]("pay")
	begun, open := make(chan int, 100), make(chan struct{})
	var calls atomic.Int64
	cfg := Config{
		Worker: kagzi.WorkerConfig{StaleAfter: 2 * time.Second, Heartbeat: 200 * time.Millisecond},
		Handle: func(w *kagzi.Worker, _ *kagzi.Client) error {
			kagzi.Handle(w, pay, func(ctx kagzi.Context, _ int) (string, error) {
				return kagzi.Step(ctx, "charge", func(context.Context) (string, error) {
					calls.Add(1)
					begun <- 1
					<-open
					return "lost", nil
				}, kagzi.AtMostOnce())
			})
			return nil
		},
	}
	run(t, a, cfg)
	id := startOne(t, c, pay.With(1))
	await.Receive(t, begun)
	_, err := Move(t.Context(), c, d, MoveConfig{Wait: time.Millisecond})
	ok(t, err)
	run(t, b, cfg)
	await.True(t, "the step is in doubt", func() bool {
		err := admin.New(d).Runs.Resolve(t.Context(), id, "charge", admin.Happened("paid"))
		if err != nil && !errors.Is(err, admin.ErrNoDoubt) {
			t.Error(err)
		}
		return err == nil
	})
	close(open)
	awaitStatus(t, d, id, kagzi.StatusCompleted)
	paid, err := kagzi.Find(t.Context(), d, pay, id)
	ok(t, err)
	if result, err := paid.Result(t.Context()); result != "paid" || err != nil {
		t.Errorf("result %q, error %v", result, err)
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the step was called %d times", n)
	}
}

// Policies that hide rows from the owner of the tables keep a namespace from moving: it would lose these rows.
func TestMoveWithRowSecurity(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"workflow_runs", "step_runs", "signals"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			source, b := dbtest.Database(t, dbtest.Empty()), dbtest.Pool(t, dbtest.AsOwner())
			ok(t, kagzi.Migrate(t.Context(), source.Pool))
			role := dbtest.Role(t, source)
			dbtest.Exec(t, source.Pool, fmt.Sprintf(`
				DO $$
				DECLARE k text;
				BEGIN
					FOR k IN SELECT c.oid::regclass FROM pg_class c WHERE c.relkind IN ('r', 'p')
						AND c.relnamespace = 'kagzi'::regnamespace
					LOOP
						EXECUTE format('ALTER TABLE %%s OWNER TO %%I', k, '%[1]s');
					END LOOP;
					GRANT CREATE, USAGE ON SCHEMA kagzi TO %[1]s;
				END $$`, role))
			c, d := elsewhere(t, source.Pool, "acme"), elsewhere(t, b, "acme")
			id := startOne(t, c, listen.With(1))
			ok(t, c.Signal(t.Context(), id, goOn.With(1)))
			owner := dbtest.OpenPool(t, source.DSN, dbtest.Setting("role", role))
			dbtest.Exec(t, source.Pool, fmt.Sprintf(`ALTER TABLE kagzi.%s FORCE ROW LEVEL SECURITY;
				ALTER TABLE kagzi.%[1]s ENABLE ROW LEVEL SECURITY;
				CREATE POLICY hidden ON kagzi.%[1]s USING (run_id <> '%s')`, table, id))
			_, err := Move(t.Context(), elsewhere(t, owner, "acme"), d, MoveConfig{})
			if err == nil || !strings.Contains(err.Error(), "row-level security") {
				t.Errorf("error %v, want one about row-level security", err)
			}
			if n := rowsOf(t, b, "acme"); n != 0 {
				t.Errorf("%d rows have arrived", n)
			}
			startOne(t, c, listen.With(1))
			dbtest.Exec(t, source.Pool, fmt.Sprintf(`ALTER TABLE kagzi.%s DISABLE ROW LEVEL SECURITY`, table))
			moveAtLast(t, elsewhere(t, owner, "acme"), d)
			if n := dbtest.QueryOne[int64](t, b, `SELECT count(*) FROM kagzi.signals`); n != 1 {
				t.Errorf("%d messages have arrived", n)
			}
		})
	}
}

// Programs that wait for an event, or follow a topic, are told that the namespace has left.
func TestMoveBesideAWaitForAnEvent(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	ok(t, topic.New(c).Publish(t.Context(), orders.With(1)))
	waited := make(chan error, 2)
	go func() { _, err := topic.Await(t.Context(), c, payments, "p1"); waited <- err }()
	go func() {
		for _, err := range topic.Follow(t.Context(), c, payments, 0) {
			waited <- err
		}
	}()
	_, err := Move(t.Context(), c, d, MoveConfig{})
	ok(t, err)
	for range 2 {
		if err := await.Receive(t, waited); !errors.Is(err, ErrMoved) {
			t.Errorf("a wait in the database that the namespace has left: %v, want ErrMoved", err)
		}
	}
}
