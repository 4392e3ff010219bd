package cli_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestNothingPrintsAPassword(t *testing.T) {
	t.Parallel()
	right := parsed(t, dbtest.Database(t).DSN)
	const secret = "hunter2secret"
	at := func(change func(u *url.URL)) string {
		u := *right
		u.User = url.UserPassword(right.User.Username(), secret)
		change(&u)
		return u.String()
	}
	for _, test := range []struct {
		name, url, says string
		code            int
	}{
		{"WrongPassword", at(func(*url.URL) {}), "correct user and password in KAGZI_DATABASE_URL", 4},
		{
			"WrongUser", at(func(u *url.URL) { u.User = url.UserPassword("nobody_"+secret, secret) }),
			"correct user and password", 4,
		},
		{
			"WrongHost", at(func(u *url.URL) { u.Host = "host.invalid:5432" }),
			"correct the host in KAGZI_DATABASE_URL", 4,
		},
		{"WrongPort", at(func(u *url.URL) { u.Host = "127.0.0.1:1" }), "cannot connect to 127.0.0.1:1: connect: " +
			"connection refused: is it running, and are host and port in KAGZI_DATABASE_URL right?", 4},
		{
			"WrongDatabase", fmt.Sprintf("postgres://%s@%s/nope_%s", right.User, right.Host, secret),
			"correct the database in KAGZI_DATABASE_URL", 4,
		},
		{"SecretAsPort", "postgres://app@host:" + secret + "/shop", "cannot be read", 2},
		{"SecretAsUser", "postgres://" + secret + ":x@host:y/shop", "cannot be read", 2},
		{"NoURL", "app:" + secret + "@host/shop", "cannot be read", 2},
		{"WrongSetting", at(func(u *url.URL) { u.RawQuery = "sslmode=" + secret }), "cannot be read", 2},
		{"WrongPairs", "host=127.0.0.1 password=" + secret + " port=x", "cannot be read", 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, command := range []string{
				"runs list", "runs get order-42", "doctor", "migrate up", "stuck",
				"schedules next", "health --json",
			} {
				s := &shell{t: t, env: map[string]string{"KAGZI_DATABASE_URL": test.url}}
				for _, r := range []result{s.run(command), (&shell{t: t}).run(command, "--database-url", test.url)} {
					if strings.Contains(r.out+r.err, secret) || strings.Contains(r.out+r.err, right.User.String()) {
						t.Errorf("kagzi %s prints the password:\n%s%s", command, r.out, r.err)
					}
					r.exits(test.code)
				}
				if test.name == "WrongPort" {
					s.run("health").exits(4).prints("It was looked for at 127.0.0.1:1, by KAGZI_DATABASE_URL.")
				}
				if command != "health --json" || test.code == 2 {
					s.run(command).says(test.says)
				}
			}
		})
	}
}

func parsed(t *testing.T, dsn string) *url.URL {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil || u.User == nil {
		t.Fatalf("the test's database has no URL with a user: %v", err)
	}
	return u
}

func TestDatabaseOfAFlagAndNamespaces(t *testing.T) {
	k, s := newShell(t)
	url := s.env["KAGZI_DATABASE_URL"]
	s.run("runs start wf --id mine").ok()
	flags := &shell{t: t, env: map[string]string{"KAGZI_DATABASE_URL": nowhere}}
	flags.run("runs list --database-url", url).ok().prints("mine")
	s.run("runs list --namespace other").ok().omits("mine")
	s.env["KAGZI_NAMESPACE"] = "other"
	s.run("runs start wf --id theirs").ok()
	s.run("runs list").ok().prints("theirs").omits("mine")
	s.run("runs list -n default").ok().prints("mine").omits("theirs")
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 2 {
		t.Errorf("there are %d runs, want 2", n)
	}
}

func TestTimeoutAndInterrupt(t *testing.T) {
	_, s := newShell(t)
	s.run("runs start wf --id slow").ok()
	s.run("runs wait slow --timeout 100ms").exits(5).says("give more time")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.runCtx(ctx, "runs wait slow").exits(130).says("interrupted")
}

func TestAMissingSchemaSaysWhatToDo(t *testing.T) {
	_, s := newShell(t, dbtest.Empty())
	s.run("runs list").exits(1).says("run kagzi migrate up")
	s.run("health").exits(4).prints("run kagzi migrate up")
	s.run("migrate status").exits(4).prints("run kagzi migrate up")
	s.run("migrate up").ok().prints("version 1")
	s.run("migrate up").ok()
	s.run("migrate status").ok().prints("Version 1")
	state := jsonOf[struct {
		Schema, Program int64
		Fits, Current   bool
		Detail          string
	}](s.run("migrate status --json").ok())
	if !state.Current || !state.Fits || state.Schema != state.Program {
		t.Errorf("status is %+v", state)
	}
	s.run("migrate sql").ok().prints("CREATE TABLE", "workflow_runs")
	s.run("migrate roles --prefix shop").ok().prints("shop_worker, shop_client, shop_viewer", "GRANT TRUNCATE ON")
	s.run("migrate roles --prefix x;").exits(2).says("give a letter")
}

func TestMissingRightsHaveTheCodeOfTheREADME(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	role, _, _ := kit.PoorClient(t, db, "SELECT ON kagzi.workflow_runs")
	u := parsed(t, db.DSN)
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	s := &shell{t: t, env: map[string]string{"KAGZI_DATABASE_URL": u.String()}}
	s.run("runs list").exits(1).says("lacks SELECT on kagzi.workflow_runs")
}

// A text that is no URL has no secret, and its letters are in other words.
func TestAdviceIsNotMasked(t *testing.T) {
	t.Parallel()
	(&shell{t: t}).run("runs list --database-url x").exits(2).says("with special characters of the password as %xx\n")
}
