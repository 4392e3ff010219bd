package kagzi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/valid"
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

	// RunEvents publishes an event of topic.Runs for the start and the end of each run that this client starts, also as
	// a child, by a schedule that it saves, or as a restart of such a run. The client that ends the run publishes its
	// end, also without RunEvents.
	RunEvents bool

	// Interceptors wrap what the client, its workers and its coordinators do. The first is the outermost. Without
	// interceptors there is no overhead.
	Interceptors []Interceptor

	// Logger receives events that no caller learns of as an error. A panic in its handler is caught. Zero means
	// slog.Default().
	Logger *slog.Logger
}

// A Client starts, cancels, signals and finds runs, and declares schedules. Packages admin and topic make their Clients
// from it, for all else. It is safe for concurrent use, holds no connection of its own while
// nothing waits, and needs no Close.
type Client struct {
	cfg        ClientConfig
	core       *core.Client
	intercepts interceptors
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
	coder := payloads.Coder{Codec: cfg.Codec, Sealer: cfg.Sealer, Max: cfg.MaxPayload}
	view := inspect.New(pool, cfg.Namespace)
	c := &Client{
		cfg: cfg, core: core.New(store.New(pool, cfg.Namespace), view, cfg.Namespace, coder, cfg.Logger),
		intercepts: newInterceptors(cfg.Interceptors, cfg.Logger),
	}
	c.core.Hints.OnEnd, c.core.InterceptStart = c.intercepts.onEnd(), c.intercepts.copied
	c.core.InterceptSignal = c.intercepts.signalled
	c.core.MaxLoadFailures = replay.MaxLoadFailures
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

// Core is for Kagzi's own packages. It is nil unless NewClient returned c.
func (c *Client) Core() *core.Client {
	if c == nil {
		return nil
	}
	return c.core
}

// Cancel ends an active run, and its children except [Detached] ones: at once in the table, and within milliseconds on
// its worker, where the contexts of its steps end.
//
// A run that executes with a slot of a key or queue with limits stays active, and keeps the slot, until its steps under
// way have returned, or their [Grace] is over. A run with compensations ([Compensate]) stays active until they have
// run. They begin when the steps have returned, or the Grace is over.
//
// A run that has failed, and whose compensations are under way, ends as cancelled. A run that is already cancelled
// stays so.
//
// Cancel returns [ErrNotFound], and [ErrRunFinished] if the run completed or failed before. See docs/compensation.md.
func (c *Client) Cancel(ctx context.Context, ref Ref, opts ...ChangeOption) error {
	at := core.RefOf(ref)
	cfg, err := core.Changes(opts, core.Takes("Grace"))
	if err != nil {
		return failure.Wrap(err, "cancel %v", at)
	}
	return c.Core().Cancel(ctx, at, &cfg)
}
