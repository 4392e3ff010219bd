// Package fault breaks what workers depend on, and mends it. Each fault says what effect it was seen to have: a fault
// without an effect proves nothing.
//
// The faults of processes look into /proc, so they see their effects on Linux only.
package fault

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/internal/localpg"
)

// A World is what faults act on. It must not be copied once faults use it.
type World struct {
	Server *localpg.Cluster // a failover changes it
	Admin  *pgxpool.Pool    // of the database, as its owner, past all proxies
	Places []*fleet.Place   // the worker processes
	Client *fleet.Place     // the proxy of the driver's own clients; it has no process
	Dir    string           // for files
	Times  Times

	// Burst starts n runs that are all due at the moment at; the zero time means at once. It returns how many it
	// started. Nil starts none.
	Burst func(ctx context.Context, n int, at time.Time) (int, error)

	// Cancel cancels a run, if it is one that a client has started, and reports whether that was acknowledged. Nil
	// cancels none.
	Cancel func(ctx context.Context, run uuid.UUID) bool

	// Bulk changes some runs by a verb for many, and returns how many it changed for sure. Nil changes none.
	Bulk func(ctx context.Context, r *rand.Rand) int

	// Routes say where namespaces are that move; nil: none does. LeftBehind returns what a database has of a namespace
	// that has moved, for people; empty if it has nothing.
	Routes     *fleet.Routes
	LeftBehind func(ctx context.Context, namespace string, database int) (string, error)

	launched atomic.Int64 // movers

	mu       sync.Mutex         // guards the fields below
	settings map[string]*wishes // set by faults, by scope and name
	taken    map[int]bool       // places whose process a fault uses

	losses
}

// wishes are the values that faults want a setting to have: the newest one counts. When the last fault has gone, the
// setting gets what it had before the first.
type wishes struct {
	before *string // nil: it was not set
	values []*string
}

// Times are the times of the configuration that workers and coordinators have in this round.
type Times struct {
	Lease, Heartbeat, Stale, Poll, Grace time.Duration
	Drain                                time.Duration // zero: five seconds
}

// An Injection breaks something, keeps it broken for about d, mends it, and returns how often the breach was seen to
// have an effect, with a note for people. It chooses by r only. When it returns, also with an error, everything is as
// it was before, but for worker processes that have died: the driver starts others. An error that is a [Violation] says
// that a promise was broken; any other, that the injection failed.
type Injection func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error)

// A Fault breaks something for a while.
type Fault struct {
	Name   string // "F4 kill -9 a backend"
	Kind   string // "F4"
	Inject Injection

	// Alone says that no other fault may be under way.
	Alone bool

	// Away says that the server is away, which would hide most other faults. Only those may be under way that are
	// Local.
	Away bool

	// Joins says that each clash has one of the faults that do, if it may.
	Joins bool

	// Local says that the fault is one of worker processes, whose effect is seen without the server.
	Local bool
}

// A Violation says that what a fault saw breaks a promise.
type Violation struct{ Promise string }

func (v *Violation) Error() string { return "broken promise: " + v.Promise }
