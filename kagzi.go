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
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
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

// Start starts a run of wf, or returns the active one of the same [ID] (see [Run.Existed]). It returns once
// the run is stored: from then on it is executed even if this process dies. It returns [ErrIDConflict] if the
// active run of the ID is of another workflow, or was started with another input and the start brings no [Message],
// [ErrIDTaken] if an [IfActive] or [IfEnded] refuses the
// start, and [ErrPayloadTooLarge] if the input or a message is too large.
//
// While a transaction that has not ended holds the ID, because it starts a run with it, Start waits for as long as ctx
// allows. If ctx ends meanwhile, the error says whether anything was started. With [InTx] the wait is part of your
// transaction: then the connection is closed and the transaction rolled back. Under a ctx that has ended already nothing is
// sent. Any other error of ctx, or of a connection, may come after the run was stored: start again with the same ID to
// find it.
//
// A workflow function does not call Start, which needs a context.Context; a step does.
func Start[In, Out any](ctx context.Context, c *Client, wf Workflow[In, Out], in In, opts ...StartOption) (*Run[Out], error) {
	started, err := c.start(ctx, []Call{wf.With(in, opts...)}, nil)
	if err != nil {
		return nil, failure.Wrap(err, "start %s", cmp.Or(wf.name, "a run"))
	}
	return &Run[Out]{client: c, workflow: wf.name, id: started[0].ID, existed: started[0].Existed}, nil
}

// Find returns the handle to a run of wf that was started elsewhere: for an [ID] that of the active run, else
// of the newest. It returns [ErrNotFound] if there is none, and an error if the run is of another workflow.
func Find[In, Out any](ctx context.Context, c *Client, wf Workflow[In, Out], ref Ref) (*Run[Out], error) {
	info, err := c.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if info.Workflow != wf.name {
		return nil, fmt.Errorf("kagzi: find: run %s is of workflow %q, not %q: pass the Workflow that it was started with", info.ID, info.Workflow, wf.name)
	}
	return &Run[Out]{client: c, workflow: wf.name, id: info.ID, existed: true}, nil
}

// newRun makes of a call what the store inserts.
func (c *Client) newRun(ctx context.Context, call Call, shared []StartOption) (store.NewRun, startConfig, error) {
	var r store.NewRun
	cfg, err := call.config(shared)
	if err != nil {
		return r, cfg, err
	}
	what := what{"input of workflow", call.workflow}
	input, hash, err := c.encodeHashed(what, call.input)
	if err == nil {
		err = call.decodable.check(c, what, input)
	}
	if err != nil {
		return r, cfg, err
	}
	cfg.inputHash = hash
	id, err := uuid.NewV7()
	if err != nil {
		return r, cfg, err
	}
	r = store.NewRun{
		RunID: id, ExternalID: string(cfg.id), Queue: cfg.queue, Type: call.workflow, Version: cfg.version, Priority: cfg.priority,
		Delay: cfg.delay, At: cfg.at, Timeout: cfg.timeout, RetryPolicy: cfg.policy, Metadata: cfg.metadata, Detached: cfg.detached, Input: input,
	}
	if call.as == "" { // else it takes its parent's
		r.Queue, r.Priority = cmp.Or(r.Queue, "default"), cmp.Or(r.Priority, 3)
	}
	if cfg.id != "" {
		r.InputHash, r.IfActive, r.IfEnded = hash, cfg.ifActive.stored(), cfg.ifEnded.stored()
	}
	for i, m := range cfg.messages {
		same := func(o Message) bool { return o.identified && o.id == m.id }
		if m.identified && slices.ContainsFunc(cfg.messages[:i], same) {
			return r, cfg, fmt.Errorf("kagzi: two messages have the ID %s: give each its own", text.Quote(string(m.id)))
		}
		msg, err := c.message(ctx, m, "start "+string(cfg.id))
		if err != nil {
			return r, cfg, err
		}
		r.Messages = append(r.Messages, msg)
	}
	return r, cfg, nil
}
