package migrations_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/migrations"
)

// examplePool leads to a database of the example's own: pgxpool.New(ctx, "postgres://…").
func examplePool(ctx context.Context) (pool *pgxpool.Pool, done func()) {
	db, release, err := dbtest.Example(ctx)
	if err != nil {
		log.Fatal(err)
	}
	return db.Pool, func() {
		if err := release(); err != nil {
			fmt.Println("release:", err)
		}
	}
}

// Who has outgrown one server spreads the tables over those of a Citus cluster.
func ExampleDistribute() {
	ctx := context.Background()
	pool, done := examplePool(ctx) // of Citus's coordinator node
	defer done()

	if err := kagzi.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	tables, err := migrations.Distribute(ctx, pool)
	for _, t := range tables {
		fmt.Println(t)
	}
	if err != nil {
		log.Fatal(err) // call Distribute again: finished parts stay
	}
	// Prints a line for each table, such as
	//
	//	kagzi.workflow_runs: distributed by namespace_id
	//	kagzi.step_runs: distributed by namespace_id; removed 24 kB of rows from this server, which are on the nodes
	//	kagzi.schema_migrations: on every node
	//
	// and, if it is called again, "kagzi.workflow_runs: distributed by namespace_id, as before".
}

// Where there is no Citus, Distribute says so, and changes nothing.
func ExampleDistribute_withoutCitus() {
	ctx := context.Background()
	pool, done := examplePool(ctx)
	defer done()

	tables, err := migrations.Distribute(ctx, pool)
	for _, t := range tables {
		fmt.Println(t)
	}
	missing, advice, _ := strings.Cut(err.Error(), ": install ")
	fmt.Println(missing)
	fmt.Println("install", advice)
	// Output:
	// kagzi: distribute: this database has no Citus
	// install it on every server, run CREATE EXTENSION citus, and add the servers with citus_add_node
}
