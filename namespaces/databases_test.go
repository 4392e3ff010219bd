package namespaces

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testlog"
)

// byPrefix routes "eu/acme" to the database "eu".
func byPrefix(namespace string) string {
	name, _, _ := strings.Cut(namespace, "/")
	return name
}

// runDatabases runs the workers of databases until the test ends.
func runDatabases(t *testing.T, pools map[string]*pgxpool.Pool, route func(string) string) *Databases {
	t.Helper()
	d, err := NewDatabases(pools, route, Config{
		Handle: handleGreet, Every: 50 * time.Millisecond, Client: kagzi.ClientConfig{Logger: testlog.New(t)},
	})
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return d
}

// begin starts a greeting of the namespace.
func begin(t *testing.T, d *Databases, namespace string) *kagzi.Run[string] {
	t.Helper()
	c, err := d.Client(namespace)
	ok(t, err)
	r, err := kagzi.Start(t.Context(), c, greet, "ada")
	ok(t, err)
	return r
}

// greeted waits for the result of a run.
func greeted(t *testing.T, r *kagzi.Run[string], namespace string) {
	t.Helper()
	if got, err := r.Result(t.Context()); err != nil || got != "hello ada of "+namespace {
		t.Errorf("%q, error %v", got, err)
	}
}

// While one of three databases is away, the runs of the others go on.
func TestOneOfSeveralDatabasesAway(t *testing.T) {
	t.Parallel()
	pools := map[string]*pgxpool.Pool{"us": dbtest.Pool(t), "ap": dbtest.Pool(t)}
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	pools["eu"] = dbtest.OpenPool(t, proxy.DSN())
	d := runDatabases(t, pools, byPrefix)
	for _, namespace := range []string{"eu/acme", "us/acme", "ap/acme"} {
		greeted(t, begin(t, d, namespace), namespace)
	}
	proxy.Freeze()
	late, err := kagzi.Start(t.Context(), elsewhere(t, db.Pool, "eu/acme"), greet, "ada")
	ok(t, err)
	for range 20 {
		for _, namespace := range []string{"us/acme", "ap/acme", "us/new"} {
			greeted(t, begin(t, d, namespace), namespace)
		}
	}
	if active := d.Worker("us").Active(); !slices.Contains(active, "us/acme") {
		t.Errorf("active are %q", active)
	}
	proxy.Unfreeze()
	greeted(t, late, "eu/acme")
}

// A database whose schema is missing when Run begins is served once it has one.
func TestDatabaseMigratedLater(t *testing.T) {
	t.Parallel()
	late := dbtest.Pool(t, dbtest.Empty())
	d := runDatabases(t, map[string]*pgxpool.Pool{"us": dbtest.Pool(t), "eu": late}, byPrefix)
	greeted(t, begin(t, d, "us/acme"), "us/acme")
	ok(t, kagzi.Migrate(t.Context(), late))
	greeted(t, begin(t, d, "eu/acme"), "eu/acme")
}

// Run returns an error if none of the databases has a schema.
func TestNoDatabaseToServe(t *testing.T) {
	t.Parallel()
	d, err := NewDatabases(map[string]*pgxpool.Pool{
		"us": dbtest.Pool(t, dbtest.Empty()), "eu": dbtest.Pool(t, dbtest.Empty()),
	}, byPrefix, Config{Handle: handleGreet, Client: kagzi.ClientConfig{Logger: testlog.New(t)}})
	ok(t, err)
	err = d.Run(t.Context())
	for _, want := range []string{"database us:", "database eu:", "kagzi.Migrate"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// A namespace moves between two of the databases, and the route follows.
func TestMoveBetweenDatabases(t *testing.T) {
	t.Parallel()
	var at atomic.Value
	at.Store("eu")
	d := runDatabases(t, map[string]*pgxpool.Pool{
		"us": dbtest.Pool(t, dbtest.AsOwner()), "eu": dbtest.Pool(t, dbtest.AsOwner()),
	}, func(namespace string) string {
		if namespace == "acme" {
			return at.Load().(string)
		}
		return "us"
	})
	greeted(t, begin(t, d, "acme"), "acme")
	greeted(t, begin(t, d, "globex"), "globex")
	from, err := d.Worker("eu").Client("acme")
	ok(t, err)
	to, err := d.Worker("us").Client("acme")
	ok(t, err)
	_, err = Move(t.Context(), from, to, MoveConfig{})
	ok(t, err)
	at.Store("us")
	greeted(t, begin(t, d, "acme"), "acme")
	all, err := d.List(t.Context())
	if want := []Place{{"us", "acme"}, {"us", "globex"}}; err != nil || !slices.Equal(all, want) {
		t.Errorf("%v, error %v, want %v", all, err, want)
	}
}

// Wrong databases and routes are refused with an error that says what is wrong.
func TestDatabasesRefused(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	cfg := Config{Handle: handleGreet}
	for want, make := range map[string]func() error{
		"there is no database": func() error { _, err := NewDatabases(nil, byPrefix, cfg); return err },
		"route is nil": func() error {
			_, err := NewDatabases(map[string]*pgxpool.Pool{"us": pool}, nil, cfg)
			return err
		},
		"a database has no name": func() error {
			_, err := NewDatabases(map[string]*pgxpool.Pool{"": pool}, byPrefix, cfg)
			return err
		},
		"database us: ": func() error {
			_, err := NewDatabases(map[string]*pgxpool.Pool{"us": nil}, byPrefix, cfg)
			return err
		},
		`is in database "eu", which is none of ["us"]`: func() error {
			d, err := NewDatabases(map[string]*pgxpool.Pool{"us": pool}, byPrefix, cfg)
			ok(t, err)
			_, err = d.Client("eu/acme")
			return err
		},
		"make them with NewDatabases": func() error { return (*Databases)(nil).Run(t.Context()) },
	} {
		if err := make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
