package kagzi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/checkup"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/outage"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/starts"
	"github.com/kagzi/kagzi/internal/topics"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// ClientConfig configures [NewClient]; the zero value works.
type ClientConfig struct {
	// Namespace separates tenants of one database: a client sees and changes only its own namespace. Zero means
	// "default".
	Namespace string

	// Codec encodes and decodes inputs, results and payloads. Zero means JSON.
	Codec Codec

	// Sealer transforms these bytes before they are stored, for example by encryption. Zero means that they are stored
	// as the Codec wrote them.
	Sealer Sealer

	// MaxPayload limits the size in bytes of an input, a result and a signal's payload, as it is stored, and of an item
	// of Map, before it is sealed. A larger one is refused with ErrPayloadTooLarge. A larger result fails its step or
	// run with kind.Validation. Zero means 4 MiB.
	MaxPayload int

	// RunEvents publishes an event of [RunsTopic] for the start and the end of each run that this client starts, also
	// as a child, by a schedule that it saves, or as a restart of such a run. Whoever ends the run publishes its end,
	// whatever his client says.
	RunEvents bool

	// Interceptors wrap what the client, its workers and its coordinators do. The first is the outermost. None cost
	// nothing.
	Interceptors []Interceptor

	// Logger receives events that no caller learns of as an error. A panic in its handler is caught. Zero means
	// slog.Default().
	Logger *slog.Logger
}

// A Client starts, changes and queries runs. It is safe for concurrent use, holds no connection of its own while
// nothing waits, and needs no Close.
type Client struct {
	cfg        ClientConfig
	store      *store.Store
	inspect    *inspect.View
	hints      *hints.Hints
	starts     *starts.Starts
	topics     *topics.Topics
	payloads   payloads.Coder
	intercepts interceptors
	ready      atomic.Bool // the schema was found to fit
	// a worker or coordinator of this client was started, so it needs the rights of a worker; prepare sets it
	executes atomic.Bool
	stats    checkup.Shared[statsAnswer]

	mu       sync.Mutex
	sessions map[*worker.Session]struct{} // the workers of this process that are running
}

// NewClient returns a client of pool's database. It does no I/O: it validates cfg.
func NewClient(pool *pgxpool.Pool, cfg ClientConfig) (*Client, error) {
	cfg.Namespace = cmp.Or(cfg.Namespace, "default")
	cfg.MaxPayload = cmp.Or(cfg.MaxPayload, 4<<20)
	cfg.Logger = failure.SafeLogger(cmp.Or(cfg.Logger, slog.Default()))
	if cfg.Codec == nil {
		cfg.Codec = payloads.JSON{}
	}
	err := valid.Namespace(cfg.Namespace)
	if pool == nil {
		err = errors.Join(err, errors.New("kagzi: the pool is nil: make one with pgxpool.New"))
	}
	if cfg.MaxPayload < 0 || cfg.MaxPayload > 512<<20 {
		err = errors.Join(err, fmt.Errorf("kagzi: MaxPayload %d: give between 1 byte and 512 MiB", cfg.MaxPayload))
	}
	if err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, store: store.New(pool, cfg.Namespace), inspect: inspect.New(pool, cfg.Namespace),
		intercepts: newInterceptors(cfg.Interceptors, cfg.Logger),
		payloads:   payloads.Coder{Codec: cfg.Codec, Sealer: cfg.Sealer, Max: cfg.MaxPayload},
		sessions:   map[*worker.Session]struct{}{},
	}
	c.hints = hints.New(c.store, cfg.Logger, func(ctx context.Context) error { return c.checkSchema(ctx, nil) })
	c.hints.OnEnd = c.intercepts.onEnd()
	c.starts, c.topics = starts.New(c.store, c.hints), topics.New(c.store, c.hints)
	return c, nil
}

// Namespace returns the namespace of the client: that of its ClientConfig, or "default". It is empty unless NewClient
// returned c.
func (c *Client) Namespace() string {
	if c == nil {
		return ""
	}
	return c.cfg.Namespace
}

// made returns an error unless NewClient returned c.
func (c *Client) made() error {
	switch {
	case c == nil:
		return errNilClient
	case c.store == nil:
		return errZeroClient
	}
	return nil
}

var (
	errNilClient = failure.Of(kind.Unknown, errors.New("kagzi: the client is nil: make one with NewClient, and "+
		"check its error"))
	errZeroClient = failure.Of(kind.Unknown, errors.New("kagzi: the client is a zero Client, which has no database: "+
		"make one with NewClient"))
)

// usable returns an error if a call cannot begin, because NewClient did not return c or ctx has ended.
func (c *Client) usable(ctx context.Context) error { return cmp.Or(c.made(), ctx.Err()) }

// checkSchema returns an error if a call cannot begin, or if this program cannot work with the database's schema. It
// queries the database until the schema fits, and then no more.
//
// It queries over tx unless that is nil: the caller's transaction may hold the pool's only connection.
func (c *Client) checkSchema(ctx context.Context, tx pgx.Tx) error {
	if err := c.usable(ctx); err != nil {
		return err
	}
	if c.ready.Load() {
		return nil
	}
	err := c.store.Read(ctx, tx, func(ctx context.Context, db pg.DB) error {
		_, err := migrations.Check(ctx, db)
		return err
	})
	if err == nil {
		c.ready.Store(true)
	}
	switch {
	case tx == nil:
	case errors.Is(err, migrations.ErrMissing):
		return fmt.Errorf("%w, or give InTx a transaction of the client's database", err)
	default:
		return explainServer(store.ExplainRightsOn(ctx, tx, err))
	}
	return explainServer(c.store.ExplainRights(ctx, err))
}

// prepare checks the schema and the rights, and waits while the database is away.
func (c *Client) prepare(ctx context.Context, o *outage.Outage) error {
	c.executes.Store(true)
	for {
		err := c.checkSchema(ctx, nil)
		// name all that a worker lacks at once
		if _, lacks := errors.AsType[*store.MissingRights](err); err == nil || lacks {
			err = cmp.Or(c.store.CheckRights(ctx), err)
		}
		if err == nil || ctx.Err() != nil || !pg.Unavailable(err) {
			return failure.Prefixed(explainServer(err))
		}
		o.Begin(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(outage.Pause):
		}
	}
}

// resolve returns the run ID behind ref.
func (c *Client) resolve(ctx context.Context, tx pgx.Tx, ref Ref) (uuid.UUID, error) {
	if err := c.checkSchema(ctx, tx); err != nil {
		return uuid.Nil, err
	}
	switch ref := ref.(type) {
	case RunID:
		if ref == "" {
			return uuid.Nil, errors.New("kagzi: the run ID is empty: a zero Run, RunInfo or Started stands for no run")
		}
		id, err := uuid.Parse(string(ref))
		if err != nil {
			return uuid.Nil, fmt.Errorf("%w: %.60q is not a run ID; for an ID of your own pass kagzi.ID(…)",
				errRunNotFound, string(ref))
		}
		return id, nil
	case ID:
		if ref == "" {
			return uuid.Nil, errors.New("kagzi: the ID is empty: give the one that the run was started with")
		}
		if err := valid.ExternalID(string(ref)); err != nil {
			return uuid.Nil, err
		}
		var db pg.DB
		if tx != nil {
			db = tx
		}
		return c.store.Find(ctx, db, string(ref))
	default:
		return uuid.Nil, errors.New("kagzi: the reference is nil: pass a kagzi.RunID, a kagzi.ID or the run itself")
	}
}

// resolveToChange is resolve for a change of the run. It also returns the transaction, adapted, and refuses one that is
// too strict for a change.
func (c *Client) resolveToChange(ctx context.Context, tx pgx.Tx, ref Ref) (pgx.Tx, uuid.UUID, error) {
	if err := c.checkSchema(ctx, tx); err != nil {
		return nil, uuid.Nil, err
	}
	tx, err := c.store.CheckedTx(ctx, tx)
	if err != nil {
		return nil, uuid.Nil, err
	}
	id, err := c.resolve(ctx, tx, ref)
	return tx, id, err
}

// scheduleSpace derives a schedule's ID from its namespace and name, so that the ticks of a schedule that is deleted
// and created again are known to have been fired.
var scheduleSpace = uuid.MustParse("6b61677a-6900-5363-8865-64756c657300")

func (c *Client) scheduleID(name string) uuid.UUID {
	return uuid.NewSHA1(scheduleSpace, []byte(c.cfg.Namespace+":"+name)) // a namespace has no colon
}

// public is the function public. If the call failed for missing rights, the error names those that this user lacks.
func (c *Client) public(ctx context.Context, err error) error {
	if c.made() == nil {
		err = c.store.ExplainRights(ctx, err)
	}
	if errors.Is(err, store.ErrRunNotFound) {
		return failure.Explain(fmt.Sprintf("run not found in namespace %q", c.cfg.Namespace), ErrNotFound)
	}
	return public(err)
}

// failedIf is failure.Wrap for an error that may be nil or come from the store.
func (c *Client) failedIf(ctx context.Context, err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return failure.Wrap(c.public(ctx, err), format, args...)
}
