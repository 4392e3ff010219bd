package worker

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/store"
)

// A Presence says how a worker shows the fleet that it lives, and that it holds its runs.
type Presence struct {
	Registration func(id uuid.UUID) store.Worker // the worker's row in the registry
	Consumers    []*store.Consumer               // of which the session has handlers

	// See WorkerConfig.
	LeaseTimeout, Heartbeat, StaleAfter time.Duration
	FixedLease                          bool

	// over which the heartbeats go, beside those of other sessions: so there is no connection whose loss is evidence;
	// nil: over a connection of its own
	Heartbeats *pgxpool.Pool

	Grace   time.Duration // how long a worker may be without its connection before the fleet declares it dead
	NoGrace bool          // no coordinator declares a worker dead because of a lost connection
}

// longestGap is the longest time that may pass between two answered heartbeats.
func (p *Presence) longestGap() time.Duration { return max(p.StaleAfter, p.Heartbeat) }

// longestRead returns how long the query for a history may take, most at the most: a lease that is not extended must
// outlast it.
func (p *Presence) longestRead(most time.Duration) time.Duration {
	if p.FixedLease {
		return min(most, p.LeaseTimeout/2)
	}
	return most
}

// claimTime returns the timeout of a claim: when a late answer arrives, the lease may be over.
func (p *Presence) claimTime() time.Duration {
	return max(min(p.LeaseTimeout, p.StaleAfter)/3, time.Second)
}

// handlers returns the workflows that the worker with that ID executes, as its row has them.
func (p *Presence) handlers(id uuid.UUID) []string { return p.Registration(id).Handlers }

// gives returns the leases that the worker gets for runs of the workflows.
func (p *Presence) gives(types []store.WorkflowVersions) store.LeasesGiven {
	given := store.LeasesGiven{LeaseTimeout: p.LeaseTimeout}
	for _, t := range types {
		given.Types = append(given.Types, t.Type)
	}
	return given
}

// newStrays returns what a session knows at first of runs under such leases.
func (p *Presence) newStrays(given store.LeasesGiven) strays {
	return strays{heartbeat: p.Heartbeat, given: given, age: store.LateClaims, wake: make(chan struct{}, 1)}
}
