package doctor_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/kagzi/kagzi/doctor"
	"github.com/kagzi/kagzi/internal/dbtest"
)

// A user has dropped an index, and switched autovacuum off for a table.
func ExampleExamine() {
	ctx := context.Background()
	db, done, err := dbtest.Example(ctx, dbtest.AsOwner())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := done(); err != nil {
			fmt.Println(err)
		}
	}()
	pool := db.Pool

	_, _ = pool.Exec(ctx, "DROP INDEX kagzi.workflow_runs_claim")
	_, _ = pool.Exec(ctx, "ALTER TABLE kagzi.step_runs SET (autovacuum_enabled = off)")

	advice, err := doctor.Examine(ctx, pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range advice {
		if strings.Contains("indexes autovacuum", a.Topic) {
			fmt.Printf("%s: %s: %s\n→ %s\n", a.Severity, a.Topic, a.Finding, a.Do)
		}
	}
	// Output:
	// problem: autovacuum: It is switched off for kagzi.step_runs.
	// → ALTER TABLE kagzi.step_runs RESET (autovacuum_enabled);
	// problem: indexes: kagzi.workflow_runs_claim is missing.
	// → Create it again as the migrations of this version of Kagzi do, with CREATE INDEX CONCURRENTLY.
}
