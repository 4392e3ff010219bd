package kagzi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// Start starts a run of wf, or returns the active run of the same [ID] (see [Run.Existed]). It returns once the run is
// stored: from then on the run is executed even if this process dies.
//
// It returns [ErrIDConflict] if the active run of the ID has another workflow, or another input and the start brings no
// [Message]; [ErrIDTaken] if an [IfActive] or [IfEnded] refuses; [ErrKeyFull] if a [WhenFull] does; [ErrInboxFull] if
// the active run takes no more messages; and [ErrPayloadTooLarge].
//
// An error of ctx or of a connection may occur after the run was stored: start again with the same ID to find it. See
// docs/workflows.md.
//
// A workflow function cannot call Start; a step can.
func Start[In, Out any](ctx context.Context, c *Client, wf Workflow[In, Out], in In,
	opts ...StartOption,
) (*Run[Out], error) {
	return startCall[Out](ctx, c, wf.With(in, opts...))
}

func startCall[Out any](ctx context.Context, c *Client, call Call) (*Run[Out], error) {
	started, err := c.start(ctx, []Call{call}, nil)
	if err != nil {
		return nil, failure.Wrap(err, "start %s", cmp.Or(call.workflow, "a run"))
	}
	return &Run[Out]{client: c, workflow: call.workflow, id: started[0].ID, existed: started[0].Existed}, nil
}

// Find returns the handle to a run of wf that was started elsewhere. For an [ID] that is the active run, else the
// newest. It returns [ErrNotFound] if there is none, and an error if the run has another workflow.
func Find[In, Out any](ctx context.Context, c *Client, wf Workflow[In, Out], ref Ref) (*Run[Out], error) {
	info, err := c.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	if info.Workflow != wf.name {
		return nil, fmt.Errorf("kagzi: find: run %s is of workflow %q, not %q: pass the Workflow that it was "+
			"started with", info.ID, info.Workflow, wf.name)
	}
	return &Run[Out]{client: c, workflow: wf.name, id: info.ID, existed: true}, nil
}

// StartMany starts all calls or none. Options apply to all calls: they override a workflow's defaults, and a call's own
// options override them. StartMany waits as [Start] does, and returns the same errors.
//
// Up to 10,000 calls take one statement, and one round trip if none has an [ID] or a [Message]; more calls take several
// statements in one transaction. All are in memory at once.
//
// Runs are inserted in the order of their IDs, so concurrent calls with the same IDs wait for each other without a
// deadlock. If one transaction ([InTx]) calls Start or StartMany several times, call in the order of the IDs: else two
// such transactions may deadlock, and Postgres ends one of them.
func (c *Client) StartMany(ctx context.Context, calls []Call, opts ...StartOption) ([]Started, error) {
	started, err := c.start(ctx, calls, opts)
	if err != nil {
		return nil, failure.Wrap(err, "start %d runs", len(calls))
	}
	return started, nil
}

// start inserts the runs of the calls and wakes workers.
func (c *Client) start(ctx context.Context, calls []Call, shared []StartOption) ([]Started, error) {
	if err := c.Core().Usable(ctx); err != nil {
		return nil, err
	}
	runs := make([]store.NewRun, len(calls))
	var tx pgx.Tx
	for i, call := range calls {
		cfg, err := call.config(shared)
		if err == nil {
			runs[i], err = c.newRun(ctx, call, &cfg)
		}
		switch {
		case err != nil:
		case cfg.run.ExternalID == "" && cfg.called.policy != "":
			err = fmt.Errorf("kagzi: %s without an ID: give a kagzi.ID, or leave it out", cfg.called.policy)
		case cfg.run.Key.Name == "" && cfg.called.whenFull:
			err = errors.New("kagzi: WhenFull without a Key or Group: give one, whose limit the start obeys, or " +
				"leave it out")
		}
		if err != nil {
			if len(calls) > 1 {
				err = failure.Wrap(err, "call %d", i)
			}
			return nil, err
		}
		if cfg.tx != nil && i > 0 && cfg.tx != tx {
			return nil, errors.New("kagzi: the calls name different transactions: give InTx to StartMany instead")
		}
		tx = cfg.tx
	}
	if err := sameIDs(runs); err != nil {
		return nil, err
	}
	if err := c.Core().CheckSchema(ctx, tx); err != nil {
		return nil, err
	}
	rows, err := c.insert(ctx, tx, runs)
	if err != nil {
		return nil, err
	}
	out := make([]Started, len(rows))
	for i, r := range rows {
		out[i] = Started{ID: RunID(r.RunID.String()), Existed: r.Existed}
	}
	return out, nil
}

// insert inserts the runs inside of the interceptors.
func (c *Client) insert(ctx context.Context, tx pgx.Tx, runs []store.NewRun) (rows []store.StartedRun, err error) {
	if c.intercepts.start == nil {
		rows, err = c.core.Starts.Start(ctx, tx, runs)
		return rows, c.Core().Public(ctx, err)
	}
	calls := make([]*StartCall, len(runs))
	for i := range runs {
		calls[i] = startCallOf(&runs[i], runs[i].RunID)
	}
	err = intercept(ctx, c.intercepts.start, calls, func(ctx context.Context) (err error) {
		for i := range runs {
			if runs[i].Headers, err = calls[i].headers(); err != nil {
				return err
			}
		}
		if rows, err = c.core.Starts.Start(ctx, tx, runs); err != nil {
			return c.Core().Public(ctx, err)
		}
		for i, r := range rows {
			calls[i].Run, calls[i].Existed = RunID(r.RunID.String()), r.Existed
		}
		return nil
	})
	return rows, err
}

// sameIDs refuses one ID for two calls: only one of them could have it.
func sameIDs(runs []store.NewRun) error {
	seen := map[string]int{}
	for i, r := range runs {
		if r.ExternalID == "" {
			continue
		}
		if j, ok := seen[r.ExternalID]; ok {
			return fmt.Errorf("kagzi: calls %d and %d have the same ID %q", j, i, r.ExternalID)
		}
		seen[r.ExternalID] = i
	}
	return nil
}

// newRun returns the row that the store inserts for a call with this configuration.
func (c *Client) newRun(ctx context.Context, call Call, cfg *startConfig) (r store.NewRun, err error) {
	what := payloads.Subject{Kind: "input of workflow", Name: call.workflow}
	input, hash, err := c.core.Payloads.EncodeHashed(what, call.input)
	if err == nil {
		err = call.decodable.Check(&c.core.Payloads, what, input)
	}
	if err != nil {
		return r, err
	}
	cfg.inputHash = hash
	id, err := uuid.NewV7()
	if err != nil {
		return r, err
	}
	r = cfg.run
	r.RunID, r.Type, r.Input, r.Publishes = id, call.workflow, input, c.cfg.RunEvents
	r.Metadata, r.Headers = Metadata(cfg.metadata).stored(), Headers(cfg.headers).stored()
	if call.as == "" || call.as == asTick { // else it takes its parent's
		r.Queue, r.Priority = cmp.Or(r.Queue, "default"), cmp.Or(r.Priority, 3)
	}
	if r.Window != nil {
		r.Window.MostBytes = c.cfg.MaxPayload
	}
	if call.item {
		r.Input = payloads.Frame(input)
	}
	if r.ExternalID != "" {
		r.InputHash = hash
	} else {
		r.IfActive, r.IfEnded = "", "" // they are defaults of Define, or start refuses them
	}
	for i, o := range cfg.messages {
		m := o.(Message)
		same := func(o StartOption) bool { return o.(Message).core.Identified && o.(Message).core.ID == m.core.ID }
		if m.core.Identified && slices.ContainsFunc(cfg.messages[:i], same) {
			return r, fmt.Errorf("kagzi: two messages have the ID %s: give each its own", text.Quote(m.core.ID))
		}
		msg, err := c.core.Encode(ctx, &m.core, "start "+r.ExternalID)
		if err != nil {
			return r, err
		}
		r.Messages = append(r.Messages, msg.Message)
	}
	return r, nil
}
