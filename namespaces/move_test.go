package namespaces

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/store/move"
	"github.com/kagzi/kagzi/topic"
)

// rowsOf returns how many rows of the namespace the database has in all tables.
func rowsOf(t *testing.T, pool *pgxpool.Pool, namespace string) (sum int64) {
	t.Helper()
	for table := range strings.FieldsSeq(dbtest.QueryOne[string](t, pool, `
		SELECT string_agg(c.relname, ' ')
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'namespace_id'
		WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition`)) {
		sum += dbtest.QueryOne[int64](t, pool, fmt.Sprintf(`SELECT count(*) FROM kagzi.%s WHERE namespace_id = '%s'`,
			table, namespace))
	}
	return sum
}

// A namespace with every kind of waiting work moves, and all of it goes on in the other database.
func TestMoveEverything(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	var ja, jb kit.Journal
	config := func(j *kit.Journal) Config {
		return Config{Handle: moreHandlers(j), Worker: kagzi.WorkerConfig{
			Coordinator: kagzi.CoordinatorConfig{Interval: 100 * time.Millisecond},
		}}
	}
	_, stop := run(t, a, config(&ja))
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	other := elsewhere(t, a, "globex")
	for i := range 50 { // the other database is ahead in one kind of numbers and behind in others
		ok(t, topic.New(elsewhere(t, b, "initech")).Publish(t.Context(), orders.With(i)))
	}
	ok(t, topic.New(c).Publish(t.Context(), orders.With(1)))
	startOne(t, c, nap.With(0))
	await.True(t, "an event is read", func() bool { return strings.Contains(ja.String(), "read") })
	failed := startOne(t, c, failing.With(1))
	awaitStatus(t, c, failed, kagzi.StatusFailed)
	listening := startOne(t, c, listen.With(1))
	waiting := startOne(t, c, waitsEvent.With(1))
	sleeping := startOne(t, c, sleeper.With(1))
	for _, id := range []kagzi.RunID{listening, waiting, sleeping} {
		awaitStatus(t, c, id, kagzi.StatusSleeping)
	}
	ok(t, c.Schedule(t.Context(), kagzi.Schedule{Name: "hourly", Every: time.Hour, Run: nap.With(0)}))
	ok(t, admin.New(c).Limits.Set(t.Context(), admin.StepLimit{
		Name: "api", Rate: admin.Rate{Starts: 1, Per: 2 * time.Second},
	}))
	ok(t, admin.New(c).Pauses.Set(t.Context(), admin.Target{Queue: "default", Key: "held"}))
	rest := []kagzi.RunID{
		startOne(t, c, nap.With(time.Second)),
		startOne(t, c, nap.With(0), kagzi.Delay(time.Second)),
		startOne(t, c, nap.With(time.Second), kagzi.Key("k")),
		startOne(t, c, nap.With(0), kagzi.Key("k")),
		startOne(t, c, nap.With(0), kagzi.Group("g")),
		startOne(t, c, limited.With(1)),
		startOne(t, c, limited.With(2)),
		startOne(t, c, limited.With(3)),
		startOne(t, c, parent.With(1)),
		startOne(t, c, goes.With(3)),
	}
	held := startOne(t, c, nap.With(0), kagzi.Key("held"))
	found, err := kagzi.Find(t.Context(), c, listen, listening)
	ok(t, err)
	_, err = kagzi.StartItem(t.Context(), c, batched, 1)
	ok(t, err)
	const steps = `SELECT count(*) FROM kagzi.step_runs WHERE namespace_id = 'acme'`
	before := dbtest.QueryOne[int64](t, a, steps)

	var jit string // compiling each COPY would take longer than the rest of the move
	moved, err := Move(t.Context(), c, d, MoveConfig{Own: func(ctx context.Context, from, to pgx.Tx) error {
		var at [2]string
		for i, tx := range []pgx.Tx{from, to} {
			if err := tx.QueryRow(ctx, `SHOW jit`).Scan(&at[i]); err != nil {
				return err
			}
		}
		jit = at[0] + " " + at[1]
		return nil
	}})
	ok(t, err)
	if jit != "off off" {
		t.Errorf("jit was %s during the copy", jit)
	}
	if moved.Rows == 0 || moved.Away <= 0 {
		t.Errorf("moved %+v", moved)
	}
	t.Logf("%+v", moved)
	if n := dbtest.QueryOne[int64](t, b, steps); n < before {
		t.Errorf("%d steps of %d have arrived", n, before)
	}
	for what, err := range map[string]error{
		"start":    func() error { _, err := kagzi.Start(t.Context(), c, nap, 0); return err }(),
		"signal":   c.Signal(t.Context(), listening, goOn.With(1)),
		"publish":  topic.New(c).Publish(t.Context(), orders.With(2)),
		"schedule": c.Schedule(t.Context(), kagzi.Schedule{Name: "s", Every: time.Hour, Run: nap.With(0)}),
		"get":      func() error { _, err := c.Get(t.Context(), listening); return err }(),
		"steps":    func() error { _, err := c.Steps(t.Context(), listening); return err }(),
		"cancel":   c.Cancel(t.Context(), listening),
		"resume":   admin.New(c).Runs.Resume(t.Context(), failed),
		"result":   func() error { _, err := found.Result(t.Context()); return err }(),
	} {
		if !errors.Is(err, ErrMoved) {
			t.Errorf("%s in the database that the namespace has left: %v, want ErrMoved", what, err)
		}
	}
	if _, err := other.Get(t.Context(), listening); !errors.Is(err, kagzi.ErrNotFound) {
		t.Errorf("a run of another namespace: %v, want ErrNotFound", err)
	}
	ended, end := context.WithCancel(t.Context())
	end() // as at the end of a wait: it is not known whether the run has left
	if err := c.Core().Absent(ended, kagzi.ErrNotFound); !errors.Is(err, context.Canceled) ||
		errors.Is(err, kagzi.ErrNotFound) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	awaitStatus(t, other, startOne(t, other, nap.With(0)), kagzi.StatusCompleted)

	run(t, b, config(&jb))
	reads := strings.Count(jb.String(), "read")
	ok(t, d.Signal(t.Context(), listening, goOn.With(1)))
	ok(t, topic.New(d).Publish(t.Context(), orders.With(2)))
	ok(t, topic.New(d).Publish(t.Context(), payments.With(1).WithID("p1")))
	ok(t, d.Cancel(t.Context(), sleeping))
	ok(t, admin.New(d).Pauses.End(t.Context(), admin.Target{Queue: "default", Key: "held"}))
	for _, id := range append(rest, listening, waiting, held) {
		awaitStatus(t, d, id, kagzi.StatusCompleted)
	}
	awaitStatus(t, d, sleeping, kagzi.StatusCancelled)
	_, err = admin.New(d).Runs.Restart(t.Context(), failed)
	ok(t, err)
	await.True(t, "the event is read", func() bool { return strings.Count(jb.String(), "read") > reads })
	await.True(t, "the batch is executed", func() bool { return strings.Contains(ja.String()+jb.String(), "batch") })
	await.True(t, "the restarted run has failed again", func() bool { return strings.Contains(jb.String(), "failing") })
	if s, err := admin.New(d).Schedules.Get(t.Context(), "hourly"); err != nil || s.Name != "hourly" {
		t.Errorf("schedule %+v, %v", s, err)
	}
	stop()
	if n := rowsOf(t, a, "acme"); n != 0 {
		t.Errorf("%d rows were left behind", n)
	}
	if _, err := Move(t.Context(), c, d, MoveConfig{}); err != nil {
		t.Errorf("to move what has moved: %v", err)
	}
}

// While runs are started and executed, a namespace moves there and back. No run is lost.
func TestMoveUnderLoad(t *testing.T) {
	t.Parallel()
	pools := []*pgxpool.Pool{dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())}
	var mu sync.Mutex
	done := map[int]int{}
	work := kagzi.DefineDo[int]("work")
	var clients []*kagzi.Client
	for _, pool := range pools {
		clients = append(clients, elsewhere(t, pool, "acme"))
		run(t, pool, Config{Handle: func(w *kagzi.Worker, _ *kagzi.Client) error {
			kagzi.HandleDo(w, work, func(ctx kagzi.Context, n int) error {
				for _, step := range []string{"one", "two", "three"} {
					if err := kagzi.Do(ctx, step, func(context.Context) error { return nil }); err != nil {
						return err
					}
				}
				return kagzi.Do(ctx, "done", func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					done[n]++
					return nil
				})
			})
			return nil
		}})
	}
	started := 0
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for at := 0; ; started++ {
			select {
			case <-stop:
				return
			default:
			}
			for {
				_, err := kagzi.Start(t.Context(), clients[at], work, started, kagzi.ID(fmt.Sprint(started)))
				if err == nil {
					break
				}
				if !errors.Is(err, ErrMoved) {
					t.Errorf("start: %v", err)
					return
				}
				at = 1 - at
			}
		}
	}()
	for i := range campaign.Size(2, 20) {
		await.True(t, "some runs have ended", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(done) > 100*(i+1)
		})
		from, to := clients[i%2], clients[1-i%2]
		moved, err := Move(t.Context(), from, to, MoveConfig{})
		ok(t, err)
		t.Logf("%+v", moved)
	}
	close(stop)
	<-stopped
	await.True(t, "all runs have ended", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(done) == started
	})
}

// A move that stops anywhere goes on when it is called again, or is cancelled.
func TestMoveInterrupted(t *testing.T) {
	t.Parallel()
	unknown := errors.New("the process dies")
	begin := func(ctx context.Context, m mover, s move.Move) error {
		return errors.Join(pause(ctx, m.from), s.Fence(ctx))
	}
	arrive := func(ctx context.Context, m mover, s move.Move) error {
		err := begin(ctx, m, s)
		_, failed := s.Copy(ctx, nil)
		return errors.Join(err, failed)
	}
	for _, point := range []struct {
		name string
		stop func(ctx context.Context, m mover, s move.Move) error
		over bool // the rows have arrived
	}{
		{"after the pause", func(ctx context.Context, m mover, _ move.Move) error { return pause(ctx, m.from) }, false},
		{"after the fence", begin, false},
		{"after the copy", arrive, true},
		{"after the pause has ended", func(ctx context.Context, m mover, s move.Move) error {
			return errors.Join(arrive(ctx, m, s), unpause(ctx, m.to))
		}, true},
		{"in the copy", func(ctx context.Context, m mover, s move.Move) error {
			err := begin(ctx, m, s)
			_, failed := s.Copy(ctx, func(context.Context, pgx.Tx, pgx.Tx) error { return unknown })
			if !errors.Is(failed, unknown) {
				err = errors.Join(err, fmt.Errorf("error %w", failed))
			}
			return err
		}, false},
	} {
		for _, cancel := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, cancelled %v", point.name, cancel), func(t *testing.T) {
				t.Parallel()
				a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
				c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
				id := startOne(t, c, greet.With("ada"))
				m, err := newMove(c, d)
				ok(t, err)
				ok(t, m.locked(t.Context(), func(s move.Move) error { return point.stop(t.Context(), m, s) }))
				at := d
				if cancel {
					if err := CancelMove(t.Context(), c, d); (err != nil) != point.over {
						t.Errorf("CancelMove: %v", err)
					}
					if !point.over {
						at = c
					}
				} else {
					_, err := Move(t.Context(), c, d, MoveConfig{})
					ok(t, err)
				}
				if cancel && point.over {
					_, err := Move(t.Context(), c, d, MoveConfig{})
					ok(t, err)
				}
				run(t, at.Core().Store.Pool(), Config{Handle: handleGreet})
				awaitStatus(t, at, id, kagzi.StatusCompleted)
				if n := rowsOf(t, a, "acme"); n != 0 && at == d {
					t.Errorf("%d rows were left behind", n)
				}
			})
		}
	}
}

// The application's rows move in the same transactions, and an error of its function leaves all as it was.
func TestMoveOwnRows(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	for _, pool := range []*pgxpool.Pool{a, b} {
		_, err := pool.Exec(t.Context(), `CREATE TABLE public.orders (tenant text, n int)`)
		ok(t, err)
	}
	_, err := a.Exec(t.Context(), `INSERT INTO public.orders VALUES ('acme', 7)`)
	ok(t, err)
	run(t, a, Config{Handle: handleGreet})
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	awaitStatus(t, c, startOne(t, c, greet.With("ada")), kagzi.StatusCompleted)
	refused := errors.New("no")
	copyOrders := func(ctx context.Context, from, to pgx.Tx) error {
		var n int
		if err := from.QueryRow(ctx, `SELECT n FROM public.orders WHERE tenant = 'acme'`).Scan(&n); err != nil {
			return err
		}
		_, err := to.Exec(ctx, `INSERT INTO public.orders VALUES ('acme', $1)`, n)
		return err
	}
	if _, err := Move(t.Context(), c, d, MoveConfig{Own: func(ctx context.Context, from, to pgx.Tx) error {
		return errors.Join(copyOrders(ctx, from, to), refused)
	}}); !errors.Is(err, refused) {
		t.Errorf("error %v, want that of Own", err)
	}
	if n := rowsOf(t, b, "acme") + dbtest.QueryOne[int64](t, b, `SELECT count(*) FROM public.orders`); n != 0 {
		t.Errorf("%d rows have arrived nevertheless", n)
	}
	awaitStatus(t, c, startOne(t, c, greet.With("bob")), kagzi.StatusCompleted)
	_, err = Move(t.Context(), c, d, MoveConfig{Own: copyOrders})
	ok(t, err)
	if n := dbtest.QueryOne[int64](t, b, `SELECT n FROM public.orders`); n != 7 {
		t.Errorf("the order has arrived as %d", n)
	}
}

// A pause that an operator has made before moves with the namespace.
func TestMovePausedNamespace(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	c, d := elsewhere(t, a, "acme"), elsewhere(t, b, "acme")
	ok(t, admin.New(c).Pauses.Set(t.Context(), admin.Target{All: true}, kagzi.Actor("ada")))
	startOne(t, c, greet.With("ada"))
	_, err := Move(t.Context(), c, d, MoveConfig{})
	ok(t, err)
	if all, err := admin.New(d).Pauses.List(t.Context()); err != nil || len(all) != 1 || all[0].Actor != "ada" {
		t.Errorf("pauses %+v, error %v", all, err)
	}
}

// What cannot be moved is refused, and goes on where it is.
func TestMoveRefused(t *testing.T) {
	t.Parallel()
	a, b := dbtest.Pool(t, dbtest.AsOwner()), dbtest.Pool(t, dbtest.AsOwner())
	c := elsewhere(t, a, "acme")
	startOne(t, c, greet.With("ada"))
	startOne(t, elsewhere(t, b, "acme"), greet.With("ada"))
	for want, call := range map[string]func() (Moved, error){
		"has rows of the namespace already": func() (Moved, error) {
			return Move(t.Context(), c, elsewhere(t, b, "acme"), MoveConfig{})
		},
		"both clients have the same database": func() (Moved, error) { return Move(t.Context(), c, c, MoveConfig{}) },
		"has no rows in the database that it is to leave": func() (Moved, error) {
			return Move(t.Context(), elsewhere(t, a, "unknown"), elsewhere(t, b, "unknown"), MoveConfig{})
		},
		`of the namespaces "acme" and "other"`: func() (Moved, error) {
			return Move(t.Context(), c, elsewhere(t, b, "other"), MoveConfig{})
		},
		"Wait is -1s": func() (Moved, error) {
			return Move(t.Context(), c, elsewhere(t, b, "acme"), MoveConfig{Wait: -time.Second})
		},
		"client is nil": func() (Moved, error) { return Move(t.Context(), c, nil, MoveConfig{}) },
	} {
		if _, err := call(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if n := dbtest.QueryOne[int64](t, a, `SELECT count(*) FROM kagzi.pauses`); n != 0 {
		t.Errorf("%d pauses were left", n)
	}
	startOne(t, c, greet.With("bob"))
}
