package inspect

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// A View reads the rows of one namespace. It is safe for concurrent use.
type View struct {
	Lists
	Health
}

// New returns the view of a namespace. It does no I/O.
func New(pool *pgxpool.Pool, namespace string) *View {
	c := conn{pool, namespace}
	return &View{Lists{c}, Health{c}}
}

// conn has the arguments of all statements.
type conn struct {
	pool      *pgxpool.Pool
	namespace string
}

// Lists answers questions of people: runs, workers, queues, keys, limits, topics, and how one of them stands.
type Lists struct{ conn }

// Health finds work that may need attention.
type Health struct{ conn }

// findWorker returns the worker's status.
func (s *Lists) findWorker(ctx context.Context, db pg.DB, id uuid.UUID) (status string, err error) {
	status, err = pg.AskOne[string](ctx, db, clause.FindWorker, s.namespace, id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrWorkerNotFound
	}
	return status, err
}
