package kagzi_test

import (
	"fmt"
	"log"

	"github.com/kagzi/kagzi"
)

// Who has outgrown one server spreads the tables over those of a Citus cluster.
func ExampleDistribute() {
	ctx, pool, _, _ := setup() // of Citus's coordinator node
	defer teardown()

	if err := kagzi.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	tables, err := kagzi.Distribute(ctx, pool)
	for _, t := range tables {
		fmt.Println(t)
	}
	if err != nil {
		log.Fatal(err) // call Distribute again: what is done stays
	}
	// Prints a line for each table, such as
	//
	//	kagzi.workflow_runs: distributed by namespace_id
	//	kagzi.step_runs: distributed by namespace_id; removed 24 kB of rows from this server, which are on the nodes
	//	kagzi.schema_migrations: on every node
	//
	// and, if it is called again, "kagzi.workflow_runs: distributed by namespace_id, as before".
}

// Where there is no Citus, Distribute says what is missing, and changes nothing.
func ExampleDistribute_withoutCitus() {
	ctx, pool, _, _ := setup()
	defer teardown()

	tables, err := kagzi.Distribute(ctx, pool)
	for _, t := range tables {
		fmt.Println(t)
	}
	fmt.Println(err)
	// Output:
	// kagzi: distribute: this database has no Citus: install it on every server, run CREATE EXTENSION citus, and add the servers with citus_add_node
}
