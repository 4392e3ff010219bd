package alerts

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/waits"
)

// A recorder keeps the alerts that it gets, in order.
type recorder struct {
	kit.Journal
	fail func() error // nil: it never fails
}

func (r *recorder) Notify(_ context.Context, a Alert) error {
	if strings.Contains(a.Detail, "Could not be checked") { // a busy machine: no test is about that
		return nil
	}
	if r.fail != nil {
		if err := r.fail(); err != nil {
			return err
		}
	}
	sign := "+"
	if a.Closed {
		sign = "-"
	}
	r.Add(sign + a.ID)
	return nil
}

// run runs alerts of the client until the test ends, or stop is called.
func run(t *testing.T, c *kagzi.Client, cfg Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func quick(to map[string]Notifier) Config {
	return Config{
		Notifiers: to, Every: 20 * time.Millisecond, For: 50 * time.Millisecond, Quiet: 200 * time.Millisecond,
	}
}

var order = kagzi.DefineDo[int]("order")

func clientOf(t *testing.T, pool *pgxpool.Pool, namespace string) *kagzi.Client {
	return kit.NewClientWith(t, pool, kagzi.ClientConfig{Namespace: namespace, RunEvents: true})
}

// An alert opens and closes once, whichever of two processes is there.
func TestAlertsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	var got recorder
	cfg := quick(map[string]Notifier{"test": &got})
	first := run(t, clientOf(t, db.Pool, "shop"), cfg)
	second := run(t, clientOf(t, db.Pool, "shop"), cfg)
	operator := admin.New(clientOf(t, db.Pool, "shop"))
	if err := operator.Pauses.Set(t.Context(), admin.Target{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the alert opens", func() bool { return got.Has("+shop/pauses/degraded") })
	first()
	if err := operator.Pauses.End(t.Context(), admin.Target{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the alert closes", func() bool { return got.Has("-shop/pauses/degraded") })
	second()
	third := run(t, clientOf(t, db.Pool, "shop"), cfg)
	if err := operator.Pauses.Set(t.Context(), admin.Target{Queue: "other"}); err != nil {
		t.Fatal(err)
	}
	const all = "+shop/pauses/degraded -shop/pauses/degraded +shop/pauses/degraded"
	await.True(t, "it opens again", func() bool { return strings.Count(got.String(), "+") == 2 })
	third()
	got.Want(t, all)
}

// A notifier that fails gets its alerts in order, and holds up no other.
func TestANotifierThatFails(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := clientOf(t, db.Pool, "shop")
	var broken atomic.Bool
	broken.Store(true)
	var down, up recorder
	tries := make(chan struct{}, 100)
	down.fail = func() error {
		tries <- struct{}{}
		if broken.Load() {
			return errors.New("away")
		}
		return nil
	}
	run(t, c, quick(map[string]Notifier{"down": &down, "up": &up}))
	operator := admin.New(c)
	if err := operator.Pauses.Set(t.Context(), admin.Target{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, tries)
	await.True(t, "the other opens", func() bool { return up.Has("+shop/pauses/degraded") })
	if err := operator.Pauses.End(t.Context(), admin.Target{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the other closes", func() bool { return up.Has("-shop/pauses/degraded") })
	broken.Store(false)
	await.True(t, "both come", func() bool { return down.Has("-shop/pauses/degraded") })
	down.Want(t, "+shop/pauses/degraded -shop/pauses/degraded")
}

// The first run that fails opens an alert, which closes once no run has failed for a while.
func TestFailuresOfRuns(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := clientOf(t, db.Pool, "shop")
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
	kagzi.HandleDo(w, order, func(kagzi.Context, int) error { return errors.New("out of stock") })
	kit.StartWorker(t, w)
	fail := func() {
		r, err := kagzi.Start(t.Context(), c, order, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Result(t.Context()); err == nil {
			t.Fatal("the run did not fail")
		}
	}
	fail() // before the watch
	var got recorder
	cfg := quick(map[string]Notifier{"test": &got})
	cfg.Runs, cfg.Ignore = true, []string{"failures"}
	run(t, c, cfg)
	own := clientOf(t, db.Pool, "shop"+ownNamespace)
	await.True(t, "the watch has looked", func() bool {
		info, err := own.Get(t.Context(), watchID)
		return err == nil && info.Epoch > 0
	})
	if s := got.String(); s != "" {
		t.Errorf("a failure before the watch opened %s", s)
	}
	fail()
	await.True(t, "the alert closes", func() bool { return got.Has("-shop/runs/order: unknown") })
	got.Want(t, "+shop/runs/order: unknown -shop/runs/order: unknown")
}

// While the database is away, the process says so by itself.
func TestOutage(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	pool, err := pgxpool.New(t.Context(), proxy.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var got recorder
	stop := run(t, clientOf(t, pool, "shop"), quick(map[string]Notifier{
		"test": &got, "pager": Only(health.Unhealthy, &got),
	}))
	own := clientOf(t, db.Pool, "shop"+ownNamespace)
	await.True(t, "the watch has looked", func() bool {
		info, err := own.Get(t.Context(), watchID)
		return err == nil && info.Epoch > 0
	})
	count := func(what string) int { return strings.Count(got.String(), what) }
	away := proxy.Impose(pgproxy.Trouble{Refuse: true})
	proxy.CutAll()
	await.True(t, "the alerts open", func() bool { return count("+shop/database/unhealthy") == 2 })
	away.Lift()
	await.True(t, "the alerts close", func() bool { return count("-shop/database/unhealthy") == 2 })
	stop()
	if n := count("shop/database"); n != 4 {
		t.Errorf("%d messages to two notifiers: %s", n, got.String())
	}
}

// A watch that an operator has ended begins again, with the alerts that were open.
func TestWatchThatWasTerminated(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := clientOf(t, db.Pool, "shop")
	var got recorder
	run(t, c, quick(map[string]Notifier{"test": &got}))
	own := admin.New(clientOf(t, db.Pool, "shop"+ownNamespace))
	operator := admin.New(c)
	if err := operator.Pauses.Set(t.Context(), admin.Target{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the alert opens", func() bool { return got.Has("+shop/pauses/degraded") })
	await.True(t, "the watch is ended", func() bool { return own.Runs.Terminate(t.Context(), watchID) == nil })
	if err := operator.Pauses.End(t.Context(), admin.Target{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the alert closes", func() bool { return got.Has("-shop/pauses/degraded") })
	got.Want(t, "+shop/pauses/degraded -shop/pauses/degraded")
}

// A pause of the namespace of the watch silences it, but not the watch of another namespace. What is still bad when the
// pause ends opens an alert then.
func TestSilence(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	var shop, other recorder
	run(t, clientOf(t, db.Pool, "shop"), quick(map[string]Notifier{"test": &shop}))
	run(t, clientOf(t, db.Pool, "other"), quick(map[string]Notifier{"test": &other}))
	own := clientOf(t, db.Pool, "shop"+ownNamespace)
	silence := admin.New(own).Pauses
	if err := silence.Set(t.Context(), admin.Target{All: true}, admin.Park()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the watch is held up", func() bool {
		watch, err := own.Get(t.Context(), watchID)
		return err == nil && slices.ContainsFunc(watch.WaitingOn, waits.Wait.IsPause)
	})
	for _, namespace := range []string{"shop", "other"} {
		operator := admin.New(clientOf(t, db.Pool, namespace))
		if err := operator.Pauses.Set(t.Context(), admin.Target{Queue: "mail"}); err != nil {
			t.Fatal(err)
		}
	}
	await.True(t, "the other opens", func() bool { return other.Has("+other/pauses/degraded") })
	shop.Want(t, "")
	if err := silence.End(t.Context(), admin.Target{All: true}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the alert opens", func() bool { return shop.Has("+shop/pauses/degraded") })
}

// Messages that were sent long ago are deleted, although the watch goes on.
func TestOldMessagesAreDeleted(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := clientOf(t, db.Pool, "shop")
	var got recorder
	run(t, c, quick(map[string]Notifier{"test": &got}))
	operator := admin.New(c)
	if err := operator.Pauses.Set(t.Context(), admin.Target{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	const sent = `SELECT coalesce(min(run_id::text), '') FROM kagzi.workflow_runs
		WHERE workflow_type = 'kagzi.alerts.notify' AND status = 'COMPLETED'`
	var old string
	await.True(t, "the message is sent", func() bool {
		old = dbtest.QueryOne[string](t, db.Pool, sent)
		return old != ""
	})
	// as though it had been sent in 2025: a run's ID has the time of its start
	const was = "019a0000-0000"
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.step_runs SET run_id = $2::uuid WHERE run_id = $1::uuid`, old,
		was+old[len(was):])
	dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET run_id = $2::uuid,
		finished_at = finished_at - interval '31 days' WHERE run_id = $1::uuid`, old, was+old[len(was):])
	old = was + old[len(was):]
	if err := operator.Pauses.End(t.Context(), admin.Target{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the old message is deleted", func() bool {
		return dbtest.QueryOne[int](t, db.Pool, `SELECT count(*)::int FROM kagzi.workflow_runs WHERE run_id = $1`,
			old) == 0
	})
	await.True(t, "the alert closes", func() bool { return got.Has("-shop/pauses/degraded") })
	got.Want(t, "+shop/pauses/degraded -shop/pauses/degraded")
}

// A watch that cannot write says so, too.
func TestDiskThatIsFull(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := clientOf(t, db.Pool, "shop")
	var got recorder
	run(t, c, quick(map[string]Notifier{"test": &got}))
	own := clientOf(t, db.Pool, "shop"+ownNamespace)
	await.True(t, "the watch has looked", func() bool {
		info, err := own.Get(t.Context(), watchID)
		return err == nil && info.Epoch > 0
	})
	dbtest.Exec(t, db.Pool, `
		CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
		CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON kagzi.step_runs
			FOR EACH ROW EXECUTE FUNCTION full_disk();
		CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON kagzi.workflow_runs
			FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	await.True(t, "the alert opens", func() bool { return got.Has("+shop/work/degraded") })
	dbtest.Exec(t, db.Pool, `DROP FUNCTION full_disk CASCADE`)
	await.True(t, "the alert closes", func() bool { return got.Has("-shop/work/degraded") })
}

// The watch changes nothing for others: it does not say how long events are kept.
func TestWatchKeepsNoEvents(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	var got recorder
	run(t, clientOf(t, db.Pool, "shop"), quick(map[string]Notifier{"test": &got}))
	own := clientOf(t, db.Pool, "shop"+ownNamespace)
	await.True(t, "the watch has looked", func() bool {
		info, err := own.Get(t.Context(), watchID)
		return err == nil && info.Epoch > 2
	})
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT count(*)::int FROM kagzi.event_keepers`); n != 0 {
		t.Errorf("%d programs say how long events are kept", n)
	}
}

// A watch goes on in a process with other notifiers. Its replay sends what the look has found.
func TestOtherNotifiersInTheMiddleOfALook(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := clientOf(t, db.Pool, "shop")
	if err := admin.New(c).Pauses.Set(t.Context(), admin.Target{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	own := clientOf(t, db.Pool, "shop"+ownNamespace)
	var old, other recorder
	cfg := quick(map[string]Notifier{"a": &old, "b": &old})
	cfg.Every, cfg.For = time.Hour, shortest // it sleeps behind the second look, which opens the alert
	stop := run(t, c, cfg)
	var asleep kagzi.RunInfo
	k := &kit.Kit{T: t, Ctx: t.Context(), Pool: db.Pool}
	await.True(t, "it sleeps behind the alert", func() bool {
		var err error
		asleep, err = own.Get(t.Context(), watchID)
		if err == nil && asleep.Status == kagzi.StatusSleeping && asleep.Epoch == 0 {
			k.Forward(asleep.ID)
		}
		return err == nil && asleep.Status == kagzi.StatusSleeping && strings.Count(old.String(), "+") == 2
	})
	stop()
	k.Forward(asleep.ID)
	run(t, c, quick(map[string]Notifier{"c": &other}))
	if err := admin.New(c).Pauses.End(t.Context(), admin.Target{Queue: "mail"}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "it closes", func() bool { return other.Has("-shop/pauses/degraded") })
	if now, err := own.Get(t.Context(), watchID); err != nil || now.ID != asleep.ID {
		t.Errorf("the watch is run %s, %v, and was %s", now.ID, err, asleep.ID)
	}
	other.Want(t, "-shop/pauses/degraded")
}

func TestConfigsThatCannotWork(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := clientOf(t, db.Pool, "shop")
	to := map[string]Notifier{"log": Slog{}}
	small := db.Pool.Config()
	small.MaxConns, small.MinConns, small.MinIdleConns = 1, 0, 0
	one, err := pgxpool.NewWithConfig(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	for _, test := range []struct {
		client *kagzi.Client
		cfg    Config
		want   string
	}{
		{c, Config{}, "Config.Notifiers is empty"},
		{c, Config{Notifiers: map[string]Notifier{"": Slog{}}}, "the name of a notifier is empty"},
		{c, Config{Notifiers: map[string]Notifier{strings.Repeat("x", 101): Slog{}}}, "at most 100 are allowed"},
		{c, Config{Notifiers: map[string]Notifier{"log": nil}}, `Config.Notifiers["log"] is nil`},
		{c, Config{Notifiers: map[string]Notifier{"log": Func(nil)}}, `Config.Notifiers["log"] is nil`},
		{c, Config{Notifiers: map[string]Notifier{"w": Webhook{}}}, "the URL of Webhook is empty"},
		{c, Config{Notifiers: map[string]Notifier{"w": Webhook{URL: "x"}}}, "not one that begins with https://"},
		{c, Config{Notifiers: map[string]Notifier{"s": Only(health.Unhealthy, Slack{})}}, "begins with https://"},
		{c, Config{Notifiers: map[string]Notifier{"o": Only("bad", Slog{})}}, "give health.Degraded or"},
		{c, Config{Notifiers: map[string]Notifier{"o": Only(health.Healthy, Slog{})}}, "give health.Degraded or"},
		{c, Config{Notifiers: map[string]Notifier{"o": Only(health.Degraded, nil)}}, "Notifier of Only is nil"},
		{c, Config{Notifiers: map[string]Notifier{"o": Only(health.Degraded, Func(nil))}}, "Notifier of Only is nil"},
		{c, Config{Notifiers: map[string]Notifier{"s": (*Slack)(nil)}}, `Config.Notifiers["s"] is nil`},
		{clientOf(t, one, "shop"), Config{Notifiers: to}, "has one connection"},
		{c, Config{Notifiers: map[string]Notifier{"p": PagerDuty{}}}, "no RoutingKey"},
		{c, Config{Notifiers: map[string]Notifier{"m": Mail{Addr: "host"}}}, "give host and port"},
		{c, Config{Notifiers: map[string]Notifier{"m": Mail{Addr: "h:25", From: "a@b.c"}}}, "no address in To"},
		{c, Config{Notifiers: map[string]Notifier{"m": Mail{Addr: "h:25", From: "x", To: []string{"a@b.c"}}}}, `"x"`},
		{c, Config{Notifiers: to, Every: time.Microsecond}, "Config.Every is 1µs"},
		{c, Config{Notifiers: to, For: -1}, "Config.For is -1ns"},
		{c, Config{Notifiers: to, Quiet: 1}, "Config.Quiet is 1ns"},
		{c, Config{Notifiers: to, Quiet: 1 << 62}, "a hundred years"},
		{nil, Config{Notifiers: to}, "kagzi: alerts: the client is nil"},
		{&kagzi.Client{}, Config{Notifiers: to}, "NewClient"},
		{clientOf(t, db.Pool, strings.Repeat("n", 255)), Config{Notifiers: to}, "262 bytes"},
	} {
		if err := Run(t.Context(), test.client, test.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %s", test.cfg, err, test.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, c, Config{Notifiers: to}); err != nil {
		t.Errorf("with an ended context: %v", err)
	}
}
