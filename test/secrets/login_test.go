package secrets_test

import (
	"context"
	"crypto/tls"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/doctor"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/topic"
)

// Connection strings that do not work, each with a password. Every call says why, and none says the password.
func TestLogin(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	right := marked(t, db)
	for name, tt := range map[string]struct {
		change func(*pgxpool.Config)
		says   string // in the error of a start
	}{
		"wrong password": {func(c *pgxpool.Config) { c.ConnConfig.Password += "!" }, "correct user and password"},
		"wrong user":     {func(c *pgxpool.Config) { c.ConnConfig.User = "nobody_knows" }, "correct user and password"},
		"wrong database": {func(c *pgxpool.Config) { c.ConnConfig.Database = "nowhere" }, "correct the database"},
		"wrong host": {
			func(c *pgxpool.Config) { c.ConnConfig.Host, c.ConnConfig.Fallbacks = "host.invalid", nil },
			"host.invalid",
		},
		"wrong port": {func(c *pgxpool.Config) { c.ConnConfig.Port, c.ConnConfig.Fallbacks = 1, nil }, "refused"},
		"TLS": {func(c *pgxpool.Config) {
			c.ConnConfig.TLSConfig, c.ConnConfig.Fallbacks = &tls.Config{ServerName: "x"}, nil
		}, "correct sslmode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &evidence{t: t, ctx: kit.Context(t)}
			t.Cleanup(e.check)
			cfg := right.Copy()
			tt.change(cfg)
			pool, err := pgxpool.NewWithConfig(e.ctx, cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			refused(e, e.client(pool, kagzi.ClientConfig{}), pool)
			e.says("a start", tt.says)
		})
	}
}

// refused makes calls of every kind, which cannot connect.
func refused(e *evidence, c *kagzi.Client, pool *pgxpool.Pool) {
	e.t.Helper()
	_, err := kagzi.Start(e.ctx, c, child, newSecret("input"))
	e.fails("a start", err)
	e.fails("a message", c.Signal(e.ctx, kagzi.ID("x"), approval.With(newSecret("message"))))
	e.fails("an event", topic.New(c).Publish(e.ctx, facts.With(newSecret("event"))))
	e.fails("a schedule",
		c.Schedule(e.ctx, kagzi.Schedule{Name: "s", Cron: "0 0 * * *", Run: child.With(newSecret("schedule"))}))
	_, err = c.Get(e.ctx, kagzi.ID("x"))
	e.fails("a get", err)
	_, err = c.List(e.ctx, kagzi.RunFilter{})
	e.fails("a list", err)
	e.fails("migrations", kagzi.Migrate(e.ctx, pool))
	_, err = migrations.Distribute(e.ctx, pool)
	e.fails("a distribution", err)
	_, err = doctor.Examine(e.ctx, pool)
	e.fails("the doctor", err)
	report, err := admin.New(c).Health(e.ctx)
	e.add("health", report, err)
	for _, probe := range []string{"ready", "live"} {
		answer := httptest.NewRecorder()
		handler := admin.New(c).Readiness()
		if probe == "live" {
			handler = admin.New(c).Liveness()
		}
		handler.ServeHTTP(answer, httptest.NewRequest("GET", "/", nil))
		e.say(probe, answer.Body.String())
	}
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	ended := make(chan error, 1)
	w := worker(e, c, false)
	go func() { ended <- w.Run(ctx) }()
	await.True(e.t, "the worker says that it cannot connect", func() bool {
		select {
		case err := <-ended: // it refuses to start
			ended <- err
			return err != nil
		default:
			return e.log.Has("the database does not answer")
		}
	})
	stop()
	e.say("Run", <-ended)
	co := kit.NewCoordinator(e.t, c, kagzi.CoordinatorConfig{})
	stopped, stop := context.WithCancel(e.ctx)
	stop()
	e.say("a coordinator", co.Run(stopped))
}

// A user with a password works through outages, lost answers, terminated sessions and a password that is changed
// meanwhile.
func TestOutages(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	e := collect(t, db, false)
	cfg := marked(t, db)
	proxy := pgproxy.Start(t, db.DSN)
	through, err := url.Parse(proxy.DSN())
	if err != nil {
		t.Fatal(err)
	}
	through.User = url.UserPassword(cfg.ConnConfig.User, password)
	pool := dbtest.OpenPool(t, through.String(), dbtest.Conns(6))
	c := e.client(pool, kagzi.ClientConfig{RunEvents: true})
	w := worker(e, c, false)
	kit.StartWorker(t, w)
	direct := &kit.Kit{T: t, Ctx: e.ctx, Pool: db.Pool, Client: e.client(db.Pool, kagzi.ClientConfig{RunEvents: true})}
	drops := []*pgproxy.Drop{
		proxy.DropAck(pgproxy.Contains("INSERT INTO kagzi.step_runs AS s")),
		proxy.DropRequest(pgproxy.Contains("output = u.output")),
		proxy.DropAck(pgproxy.Contains("INSERT INTO kagzi.events ")),
		proxy.DropLink(pgproxy.Contains("limits AS MATERIALIZED")),
	}
	begin := func(n int) (runs []*kagzi.Run[secret]) {
		for range n {
			runs = append(runs, kit.Begin(direct, parent, newSecret("input"), approval.With(newSecret("message"))))
		}
		return runs
	}
	for _, run := range begin(3) {
		kit.ResultOf(direct, run)
	}
	for _, drop := range drops {
		await.Receive(t, drop.Done())
	}
	e.lost(c, proxy)
	proxy.CutAll()
	refusal := proxy.Impose(pgproxy.Trouble{Refuse: true})
	runs := begin(2)
	e.log.WantLine(t, "the database does not answer")
	refused(e, e.client(pool, kagzi.ClientConfig{}), pool)
	refusal.Lift()
	for _, run := range runs {
		kit.ResultOf(direct, run)
	}
	e.log.WantLine(t, "the database is back")
	dbtest.Exec(t, db.Pool, `ALTER ROLE `+cfg.ConnConfig.User+` PASSWORD 'another'`)
	proxy.CutAll()
	_, err = kagzi.Start(e.ctx, c, child, newSecret("input"))
	e.fails("a start with an old password", err)
	e.says("a start with an old password", "correct user and password")
	var quoted string
	if err := e.pool.QueryRow(e.ctx, `SELECT quote_literal($1)`, password).Scan(&quoted); err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, db.Pool, `ALTER ROLE `+cfg.ConnConfig.User+` PASSWORD `+quoted)
	kit.ResultOf(direct, begin(1)[0])
	e.look(direct.Client)
}

// lost loses the answers to calls of c, and to their repetitions: their callers get the error.
func (e *evidence) lost(c *kagzi.Client, proxy *pgproxy.Proxy) {
	e.t.Helper()
	for what, call := range map[string]func() error{
		"INSERT INTO kagzi.workflow_runs": func() error {
			_, err := kagzi.Start(e.ctx, c, child, newSecret("input"), kagzi.Queue("other"))
			return err
		},
		"INSERT INTO kagzi.schedules": func() error {
			return c.Schedule(e.ctx, kagzi.Schedule{
				Name: "lost", Cron: "0 0 * * *",
				Run: child.With(newSecret("schedule")),
			})
		},
	} {
		drop := proxy.DropAck(pgproxy.Contains(what))
		if err := call(); err != nil {
			e.say("a lost answer", err)
		}
		if !drop.Cancel() {
			await.Receive(e.t, drop.Done())
		} else {
			e.t.Errorf("INVALID: no answer to %q was lost", what)
		}
	}
}

// The server refuses rows. Its errors have a detail with the whole row, which Kagzi leaves out.
func TestRefusedRows(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	e := collect(t, db, false)
	c := e.client(db.Pool, kagzi.ClientConfig{RunEvents: true})
	k := &kit.Kit{T: t, Ctx: e.ctx, Pool: db.Pool, Client: c}
	dbtest.Exec(t, db.Pool, `ALTER TABLE kagzi.step_runs ADD CONSTRAINT no_steps CHECK (step_id <> 'step'
		OR output IS NULL);
		ALTER TABLE kagzi.workflow_runs ADD CONSTRAINT no_inputs CHECK (workflow_type <> 'refused');
		ALTER TABLE kagzi.workflow_runs ADD CONSTRAINT no_outputs CHECK (workflow_type <> 'child' OR output IS NULL);
		ALTER TABLE kagzi.signals ADD CONSTRAINT no_messages CHECK (signal_id <> 'm');
		ALTER TABLE kagzi.events ADD CONSTRAINT no_events CHECK (event_id <> 'e');
		ALTER TABLE kagzi.schedules ADD CONSTRAINT no_schedules CHECK (name <> 'refused')`)
	_, err := kagzi.Start(e.ctx, c, kagzi.Define[secret, int]("refused"), newSecret("input"))
	e.fails("a refused start", err)
	e.says("a refused start", "no_inputs")
	e.fails("a refused schedule",
		c.Schedule(e.ctx, kagzi.Schedule{Name: "refused", Cron: "0 0 * * *", Run: child.With(newSecret("schedule"))}))
	e.says("a refused schedule", "no_schedules")
	e.fails("a refused event", topic.New(c).Publish(e.ctx, facts.With(newSecret("event")).WithID("e")))
	e.says("a refused event", "no_events")
	run := kit.Begin(k, parent, newSecret("input"))
	e.fails("a refused message", c.Signal(e.ctx, run.ID(), approval.With(newSecret("message")).WithID("m")))
	e.says("a refused message", "no_messages")
	kit.StartWorker(t, worker(e, c, false))
	re := kit.FailureOf(k, run, kagzi.StatusFailed)
	e.fails("a refused step", re)
	if !strings.Contains(re.Error(), "no_steps") || re.Kind != kind.Validation && re.Kind != kind.Database {
		t.Errorf("the run failed with %v, of kind %s", re, re.Kind)
	}
	e.fails("a refused end", kit.FailureOf(k, kit.Begin(k, child, newSecret("input")), kagzi.StatusFailed))
	e.look(c)
}
