package store

import (
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Store reads and writes the runs of one namespace. Each of its fields has the statements about one noun. It is safe
// for concurrent use.
type Store struct {
	*conn
	Starts    Starts
	Claims    Claims
	Leases    Leases
	Records   Records
	Histories Histories
	Runs      Runs
	Ends      Ends
	Deletions Deletions
	Messages  Messages
	Schedules Schedules
	Topics    Topics
	Consumers Consumers
	Limits    Limits
	Pauses    Pauses
	Workers   Workers
}

// New returns the store of namespace. It does no I/O.
func New(pool *pgxpool.Pool, namespace string) *Store {
	c := &conn{pool: pool, namespace: namespace}
	return &Store{
		conn:      c,
		Starts:    Starts{c},
		Claims:    Claims{c},
		Leases:    Leases{c},
		Records:   Records{c},
		Histories: Histories{c},
		Runs:      Runs{c},
		Ends:      Ends{c},
		Deletions: Deletions{c},
		Messages:  Messages{c},
		Schedules: Schedules{c},
		Topics:    Topics{c},
		Consumers: Consumers{c},
		Limits:    Limits{c},
		Pauses:    Pauses{c},
		Workers:   Workers{c},
	}
}

// Namespace returns the namespace the store reads and writes.
func (s *Store) Namespace() string { return s.namespace }

// Pool returns the application's pool.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }
