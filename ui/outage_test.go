package ui

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// viaProxy returns a site whose database is behind a proxy, and a kit beside it that is not.
func viaProxy(t *testing.T) (s *site, direct *kit.Kit, proxy *pgproxy.Proxy) {
	t.Parallel()
	db := dbtest.Database(t)
	proxy = pgproxy.Start(t, db.DSN)
	with := func(dsn string) *kit.Kit {
		pool := dbtest.OpenPool(t, dsn)
		return &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool, Client: kit.NewClient(t, pool)}
	}
	return newSite(with(proxy.DSN()), Config{Authorize: everybody}), with(db.DSN), proxy
}

func TestPagesDoNotSayWhereTheDatabaseIs(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t).DSN
	for name, change := range map[string]func(*pgxpool.Config){
		"away":     func(c *pgxpool.Config) { c.ConnConfig.Port, c.ConnConfig.Fallbacks = 1, nil },
		"user":     func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = "private-user", "private" },
		"database": func(c *pgxpool.Config) { c.ConnConfig.Database = "private-database" },
	} {
		cfg, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		change(cfg)
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		client, err := kagzi.NewClient(pool, kagzi.ClientConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s := newSite(&kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool, Client: client},
			Config{Authorize: everybody, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		const run = "/runs/01987654-0000-7000-8000-000000000000"
		for _, r := range []reply{
			s.get("/runs"), s.get("/"), s.get(run), s.get("/runs/one"), s.post(run + "/cancel"),
			s.post(run+"/signal", "name", "x"), s.post("/runs/bulk/cancel", "all", "1"),
		} {
			if r.StatusCode != http.StatusServiceUnavailable ||
				!strings.Contains(r.body, "cannot connect to Postgres") {
				t.Errorf("%s: %s %s: %s", name, r.Request.Method, r.Request.URL.Path, r.Status)
			}
			for _, secret := range []string{"private", "user=", "127.0.0.1:", cfg.ConnConfig.Database} {
				if strings.Contains(r.body, secret) {
					t.Errorf("%s: %s says %q", name, r.Request.URL.Path, secret)
				}
			}
			if r.Request.Method == http.MethodGet && !strings.Contains(r.body, "data-stream") {
				t.Errorf("%s: the page %s does not come back by itself", name, r.Request.URL.Path)
			}
		}
		if n := strings.Count(log.String(), "gets no answer from the database"); n != 1 ||
			!strings.Contains(log.String(), "database="+cfg.ConnConfig.Database) {
			t.Errorf("%s: the log says it %d times: %s", name, n, log.String())
		}
	}
}

// A change whose answer was lost is never said to be done, and sending its form again does not make it twice.
func TestLostAnswersOfChanges(t *testing.T) {
	s, direct, proxy := viaProxy(t)
	for verb, c := range map[Verb]struct {
		ended bool
		lost  string // a part of the statement after which the connection breaks
		want  string // the events of both tries
	}{
		Cancel:    {lost: "workflow_runs", want: "CANCELLED"},
		Terminate: {lost: "workflow_runs", want: "TERMINATED"},
		Pause:     {lost: "workflow_runs", want: "PAUSED"},
		Restart:   {lost: "commit", ended: true, want: "RESTARTED"},
		Resume:    {lost: "commit", ended: true, want: "RESUMED"},
		Update:    {lost: "commit", want: "UPDATED"},
		Signal:    {lost: "commit"},
	} {
		for nth := 1; nth <= 6; nth++ {
			run := kit.Begin(direct, echo, "x")
			if c.ended {
				direct.Cancel(run)
			}
			runs := direct.Count(`SELECT count(*) FROM kagzi.workflow_runs`)
			proxy.DropAck(pgproxy.Nth(nth, pgproxy.Contains(c.lost)))
			fields := []string{"form", string(verb) + string(run.ID()), "made", "0", "name", "sig", "queue", "side"}
			first := s.post(runPath(run)+string(verb), fields...)
			proxy.Disarm()
			if first.StatusCode >= 400 {
				if first.StatusCode != http.StatusServiceUnavailable ||
					!strings.Contains(first.body, "may have been done or not") {
					t.Errorf("%s: %s\n%s", verb, first.Status, notice(first.body))
				}
				s.post(runPath(run)+string(verb), fields...)
			}
			log, err := admin.New(direct.Client).Runs.Log(direct.Ctx, run)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, e := range log {
				if e.Event == c.want && e.Actor == "mira" {
					n++
				}
			}
			messages, err := admin.New(direct.Client).Messages.List(direct.Ctx, run, admin.MessageFilter{})
			if err != nil {
				t.Fatal(err)
			}
			made := direct.Count(`SELECT count(*) FROM kagzi.workflow_runs`) - runs
			if c.want != "" && n != 1 || verb == Signal && len(messages) != 1 || verb == Restart && made != 1 ||
				verb != Restart && made != 0 {
				t.Errorf("%s with the answer %d lost was made %d times: %d new runs, %d messages, %+v", verb, nth, n,
					made, len(messages), log)
			}
		}
	}
}
