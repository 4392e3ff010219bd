package dbtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A check finds violations of one invariant in the tables. Its query returns a line for each.
type check struct {
	invariant string
	query     string
}

// maxReported is the most violations of one invariant that are named.
const maxReported = 5

// runChecks returns the violations that the checks find, each as "invariant: where".
func runChecks(ctx context.Context, tx pgx.Tx, checks []check) (found []string, err error) {
	batch := &pgx.Batch{}
	for _, c := range checks {
		batch.Queue(c.query)
	}
	results := tx.SendBatch(ctx, batch)
	defer func() { err = errors.Join(err, results.Close()) }()
	for _, c := range checks {
		rows, _ := results.Query()
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.invariant, err)
		}
		for i, line := range lines {
			if i == maxReported {
				found = append(found, fmt.Sprintf("%s: and %d more", c.invariant, len(lines)-i))
				break
			}
			found = append(found, c.invariant+": "+line)
		}
	}
	return found, nil
}

// report fails the test for each violation.
func report(t testing.TB, found []string) {
	t.Helper()
	for _, violation := range found {
		t.Errorf("invariant broken: %s", violation)
	}
}
