package command

import (
	"context"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
)

// WithClient makes a command's function of one that needs a client.
func (p *Program) WithClient(fn func(ctx context.Context, c *kagzi.Client, args []string) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		return fn(cmd.Context(), c, args)
	}
}

// Client opens the pool and returns a client of the namespace.
func (p *Program) Client(ctx context.Context) (*kagzi.Client, error) {
	pool, err := p.DB.Open(ctx)
	if err != nil {
		return nil, err
	}
	return p.ClientOf(pool)
}

// Sender returns a client for a command that sends a payload. It refuses to if the namespace's programs could not read
// it.
func (p *Program) Sender(ctx context.Context) (*kagzi.Client, error) {
	c, err := p.Client(ctx)
	if err == nil {
		err = c.CheckSealer(ctx)
	}
	return c, err
}

// ClientOf returns a client of the namespace.
func (p *Program) ClientOf(pool *pgxpool.Pool) (*kagzi.Client, error) {
	c, err := kagzi.NewClient(pool, kagzi.ClientConfig{
		Namespace: p.Namespace(),
		Codec:     p.World.Codec,
		Sealer:    p.World.Sealer,
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)), // a command's errors say enough
	})
	if err != nil {
		return nil, Usagef("%s", err)
	}
	return c, nil
}
