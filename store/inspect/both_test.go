package inspect

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/store"
)

// both changes the rows of a namespace, and views them.
type both struct {
	*store.Store
	*View

	pool      *pgxpool.Pool
	namespace string
}

func newBoth(pool *pgxpool.Pool, namespace string) *both {
	return &both{Store: store.New(pool, namespace), View: New(pool, namespace), pool: pool, namespace: namespace}
}
