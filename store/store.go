package store

import (
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/pg"
)

// Statuses of a run.
const (
	Pending   = "PENDING"
	Running   = "RUNNING"
	Sleeping  = "SLEEPING"
	Completed = "COMPLETED"
	Failed    = "FAILED"
	Cancelled = "CANCELLED"
)

// Kinds of steps.
const (
	KindFunction     = "FUNCTION"
	KindBranch       = "BRANCH"
	KindSleep        = "SLEEP"
	KindSignal       = "SIGNAL"
	KindChild        = "CHILD_WORKFLOW"
	KindMarker       = "MARKER"
	KindCompensation = "COMPENSATION"
	KindPeek         = "PEEK"
	KindReserve      = "RESERVE"
	KindPublish      = "PUBLISH"
	KindMetadata     = "METADATA"
)

// A Store reads and writes the runs of one namespace. It is safe for concurrent use.
type Store struct {
	pool      *pgxpool.Pool
	namespace string
	pauses    atomic.Bool // whether the last claim saw that something is paused
}

// New returns the store of namespace. It does no I/O.
func New(pool *pgxpool.Pool, namespace string) *Store {
	return &Store{pool: pool, namespace: namespace}
}

// Namespace returns the namespace the store reads and writes.
func (s *Store) Namespace() string { return s.namespace }

// Pool returns the application's pool.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// bulkTimeout is the timeout of the calls that transfer the inputs and results of many runs.
const bulkTimeout = 20 * time.Second

// wakeIn returns the time until a wake-up in microseconds, or -1 if there is none.
func wakeIn(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return pg.Micros(d)
}

// newID returns a UUIDv7: such IDs are ordered by their time of creation.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
