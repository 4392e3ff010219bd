package namespaces_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/namespaces"
)

// Tenants are in two databases, by their names.
func ExampleDatabases() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	eu, endEU, _ := dbtest.Example(ctx)
	us, endUS, _ := dbtest.Example(ctx)

	invoice := kagzi.Define[int, string]("invoice")
	databases, err := namespaces.NewDatabases(
		map[string]*pgxpool.Pool{"eu": eu.Pool, "us": us.Pool},
		func(namespace string) string { return strings.Split(namespace, "-")[0] },
		namespaces.Config{
			Handle: func(w *kagzi.Worker, client *kagzi.Client) error {
				kagzi.Handle(w, invoice, func(_ kagzi.Context, n int) (string, error) {
					return fmt.Sprintf("invoice %d of %s", n, client.Namespace()), nil
				})
				return nil
			},
			Client: kagzi.ClientConfig{Logger: slog.New(slog.DiscardHandler)},
		},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	stopped := make(chan error)
	go func() { stopped <- databases.Run(ctx) }()

	for n, tenant := range []string{"eu-acme", "us-globex"} {
		client, err := databases.Client(tenant)
		if err != nil {
			fmt.Println(err)
			return
		}
		run, err := kagzi.Start(ctx, client, invoice, n+1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(run.Result(ctx))
	}
	fmt.Println(databases.List(ctx))

	stop()
	fmt.Println(<-stopped, endEU(), endUS())
	// Output:
	// invoice 1 of eu-acme <nil>
	// invoice 2 of us-globex <nil>
	// [{eu eu-acme} {us us-globex}] <nil>
	// <nil> <nil> <nil>
}

// A tenant moves from one database to another, with a run that has not begun.
func ExampleMove() {
	ctx := context.Background()
	eu, endEU, _ := dbtest.Example(ctx, dbtest.AsOwner())
	us, endUS, _ := dbtest.Example(ctx, dbtest.AsOwner())
	var home atomic.Value // the tenant's database; in your application a row of a table
	home.Store("eu")
	databases, err := namespaces.NewDatabases(
		map[string]*pgxpool.Pool{"eu": eu.Pool, "us": us.Pool},
		func(string) string { return home.Load().(string) },
		namespaces.Config{
			Handle: func(w *kagzi.Worker, _ *kagzi.Client) error {
				kagzi.Handle(w, hello, func(_ kagzi.Context, name string) (string, error) {
					return "hello " + name, nil
				})
				return nil
			},
			Client: kagzi.ClientConfig{Logger: slog.New(slog.DiscardHandler)},
		},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	from, _ := databases.Worker("eu").Client("acme")
	to, _ := databases.Worker("us").Client("acme")
	run, err := kagzi.Start(ctx, from, hello, "ada", kagzi.ID("greeting"))
	if err != nil {
		fmt.Println(err)
		return
	}

	if _, err := namespaces.Move(ctx, from, to, namespaces.MoveConfig{}); err != nil {
		fmt.Println(err)
		return
	}
	home.Store("us")
	info, err := to.Get(ctx, run.ID())
	fmt.Println(info.Status, err)
	_, err = kagzi.Start(ctx, from, hello, "bob")
	fmt.Println(err)

	fmt.Println(endEU(), endUS())
	// Output:
	// PENDING <nil>
	// kagzi: start hello: the namespace moves to another database, or has moved: use a client of that one
	// <nil> <nil>
}

var hello = kagzi.Define[string, string]("hello")
