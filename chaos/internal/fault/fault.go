// Package fault breaks what workers depend on, and mends it. Each fault says what effect it was seen to have: a fault without an
// effect proves nothing.
package fault

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/internal/localpg"
)

// A World is what faults act on.
type World struct {
	Server *localpg.Cluster
	Admin  *pgxpool.Pool  // of the database, as its owner, past all proxies
	Places []*fleet.Place // the worker processes
	Client *fleet.Place   // the proxy of the driver's own clients; it has no process
	Dir    string         // for files
	Times  Times
}

// Times are the times of the configuration that workers and coordinators have in this round.
type Times struct {
	Lease, Heartbeat, Stale, Poll, Grace time.Duration
}

// A Fault breaks something for a while.
type Fault struct {
	Name string // "F4 kill -9 a backend"
	Kind string // "F4"

	// Inject breaks something, keeps it broken for about d, mends it, and returns how often the breach was seen to have an effect, with
	// a note for people. It chooses by r only. When it returns, also with an error, everything is as it was before, but for worker
	// processes that have died: the driver starts others.
	Inject func(ctx context.Context, w *World, r *rand.Rand, d time.Duration) (effect int, note string, err error)

	// Alone says that no other fault may be under way, because the fault would hide it: the server is away.
	Alone bool
}

// All returns all faults that this machine allows, by kind.
func All() []Fault { return nil }
