// Package kagzi makes Go functions durable: a workflow is an ordinary function made of named steps, and
// Postgres remembers which steps are done. A crash, a deploy or a three-month sleep later, any process carries
// on from the last recorded step. There is no server.
//
// There are few types in Kagzi: a [Workflow] is a name and its types; a [Client] starts runs and looks at
// them; a [Run] is the handle to one; a [Worker] executes them; a [Context] is what a workflow function gets.
//
// [Define] a workflow where callers and workers can see it, [Start] runs of it, and [Handle] it in a worker.
// Inside the workflow function, [Step] and [StepTx] execute a piece of code once and remember its result,
// [Sleep] and [WaitSignal] wait without holding anything, [Go], [Parallel], [Map] and [Race] do several things at once,
// [RunChild] runs another workflow, and [Compensate] registers the workflows that undo its effects. [Client.Signal] sends a run a message.
// Package kagzitest tests workflows without waiting for their sleeps.
package kagzi

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// Migrate creates the schema kagzi of the pool's database, or brings it to the version that this program needs, and returns
// when it is ready. Any number of processes may call it at once. If a newer program has migrated the database and this one
// works with its schema, Migrate does nothing: see docs/upgrading.md. SQL of package migrations is the same as a script. Where another transaction uses a table that a
// migration changes, Migrate tries again until ctx ends, and lets everybody else pass meanwhile.
//
// It needs the right to create a schema, or a schema kagzi that belongs to its user, and a connection without a
// transaction pooler in between. If the schema is current, the rights of any program suffice. It returns an error that says what to do if a right is missing, if the schema is too new
// for this program, or if a migration takes away what running workers of much older programs need.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return errors.New("kagzi: migrate: the pool is nil: make one with pgxpool.New")
	}
	err := migrations.Up(ctx, pool)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*migrations.RightsError](err); !ok {
		err = store.ExplainRightsOn(ctx, pool, err) // the user may need no more than to look
	}
	return failure.Wrap(err, "migrate")
}
