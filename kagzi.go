// Package kagzi makes Go functions durable: a workflow is an ordinary function made of named steps, and
// Postgres remembers which steps are done. A crash, a deploy or a three-month sleep later, any process carries
// on from the last recorded step. There is no server.
//
// A newcomer needs five types: a [Workflow] is a name and its types; a [Client] starts runs and queries them; a [Run]
// is the handle to one run; a [Worker] executes runs; a workflow function gets a [Context].
//
// [Define] a workflow where callers and workers can see it, [Start] runs of it, and [Handle] it in a worker. Inside the
// workflow function, [Step] and [StepTx] execute a piece of code and record its result, [Sleep] and [WaitSignal]
// wait without holding a goroutine or connection, [Go], [Parallel], [Map] and [Race] run branches concurrently,
// [RunChild] runs another workflow, and [Compensate] registers workflows that undo effects. [Client.Signal] sends a
// message to a run.
//
// Some terms. A replay is a call of the function in which recorded operations return their results at once; the history
// is the run's records. A worker has a slot for each run that it may execute at once. A lease is the right of one
// worker to change a run, for a time. A group is a [Parallel], [Map] or [Race]. A series of attempts is those of a step
// that its [RetryPolicy] allows; a further attempt of the run, or an operator's Resume, may begin another. A step or
// run fails for good if no attempt of it is left. A run is quarantined if it failed without compensations because code
// or data must be repaired: Resume it then.
//
// Package admin is for operators, who see and steer runs. Package topic has streams of events. Package kagzitest tests
// workflows without waiting for their sleeps. Package kind has the kinds of failures.
package kagzi

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// Migrate creates the schema kagzi in the pool's database, or migrates it to the version that this program needs. It
// returns when the schema is ready. Any number of processes may call it at once. If the schema is newer and works with
// this program, Migrate does nothing.
//
// While a transaction uses a table that a migration changes, Migrate tries again until ctx ends, and blocks no other.
//
// It needs the right to create a schema, or a schema kagzi that belongs to its user, and a connection without a
// transaction pooler in between. If the schema is current, the rights of any program suffice. Its error says how to
// proceed.
//
// migrations.SQL returns the same as a script. See docs/upgrading.md.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return errors.New("kagzi: migrate: the pool is nil: make one with pgxpool.New")
	}
	err := migrations.Up(ctx, pool)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*migrations.RightsError](err); !ok {
		err = store.ExplainRightsOn(ctx, pool, err) // the user may need no right but to read
	}
	if advice := store.Advice(err); advice != "" {
		err = fmt.Errorf("%w: %s", err, advice)
	}
	return failure.Wrap(err, "migrate")
}
