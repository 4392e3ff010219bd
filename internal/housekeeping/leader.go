package housekeeping

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/store"
)

const (
	// leaderSilence is for how long a coordinator hears no senior one before it works itself, and leaderSpread the most
	// that chance adds to that, so that not all begin at once. A leader is heard about once a second.
	leaderSilence = 1500 * time.Millisecond
	leaderSpread  = 500 * time.Millisecond

	// longestLead bounds the sending of one notification. It shows the state at that time, and after
	// leaderSilence the others work anyway.
	longestLead = leaderSilence

	// passSlack is how late a pass of the leader's loops may be before the others begin to work.
	passSlack = 2 * time.Second

	// busyWithin is how soon a run is due in a queue that the leader calls busy. See hearLead in internal/worker.
	busyWithin = 10 * time.Second

	// searchEvery is how often the leader looks for busy queues. A worker polls if it has not heard of its queue for
	// its PollInterval, usually five seconds. longestSearch bounds one look, and restPerSearch how much of the time all
	// take.
	searchEvery   = 3 * time.Second
	longestSearch = 200 * time.Millisecond
	restPerSearch = 9

	// backendsPerWorker is how many backends the database may have for each worker of a namespace that has a leader.
	// Each notification wakes all backends that listen, so leaders of many small namespaces would cost more than they
	// save.
	backendsPerWorker = 50
)

// A leadership decides whether this coordinator works or rests. It rests while it hears a senior one: an older
// coordinator whose program is not older, and whose times are not longer. No promise depends on the leader: a
// coordinator that hears none works, so without notifications all do.
type leadership struct {
	cfg     *Config
	changed chan struct{} // of capacity one: until has changed
	// the last check of the connections told the others that this coordinator works; that loop sets it
	leading atomic.Bool

	mu     sync.Mutex // guards the fields below
	id     uuid.UUID  // of this Run of the coordinator
	senior uuid.UUID  // the coordinator for which this one rests, or last did
	until  time.Time  // when this coordinator works again unless it hears a senior one before
	delete bool       // the senior one deletes by this coordinator's rules, so this one need not
	// until when each loop is on time: its last pass succeeded, and the next one is not overdue
	onTime map[string]time.Time
}

func newLeadership(cfg *Config) *leadership {
	l := &leadership{cfg: cfg, changed: make(chan struct{}, 1)}
	l.begin()
	return l
}

// begin forgets the last Run.
func (l *leadership) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.onTime = uuid.Must(uuid.NewV7()), map[string]time.Time{}
	l.senior, l.until, l.delete = uuid.Nil, time.Time{}, false
}

// hear notes what a coordinator says.
func (l *leadership) hear(lead hints.Lead) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case lead.Ends && lead.ID == l.senior:
		l.until = now
	case lead.Ends || !l.isSenior(&lead):
		return
	default:
		l.senior, l.until = lead.ID, now.Add(leaderSilence+rand.N(leaderSpread))
		l.delete = lead.Retention == l.cfg.retentionID()
	}
	goroutine.Signal(l.changed)
}

func (l *leadership) isSenior(lead *hints.Lead) bool {
	return bytes.Compare(lead.ID[:], l.id[:]) < 0 && lead.Schema >= l.cfg.Schema && lead.Interval <= l.cfg.Interval &&
		lead.StaleAfter <= l.cfg.StaleAfter &&
		(lead.Grace <= l.cfg.Grace || l.cfg.NoGrace)
}

// rests returns for how long the coordinator rests unless it hears a senior one again; zero if it works.
func (l *leadership) rests() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Until(l.until))
}

// leavesDeletion reports whether the senior coordinator deletes what this one would.
func (l *leadership) leavesDeletion() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delete && time.Now().Before(l.until)
}

// awaitSenior returns once the coordinator is to rest, and awaitTurn once it is to work, or once ctx ends.
func (l *leadership) awaitSenior(ctx context.Context) {
	for ctx.Err() == nil && l.rests() == 0 {
		select {
		case <-ctx.Done():
		case <-l.changed:
		}
	}
}

func (l *leadership) awaitTurn(ctx context.Context) {
	for {
		left := l.rests()
		if ctx.Err() != nil || left == 0 {
			return
		}
		select {
		case <-ctx.Done():
		case <-l.changed:
		case <-time.After(left):
		}
	}
}

// passed notes that a pass of a loop has succeeded, and that the next one is after the pause. failed notes that one has
// not.
func (l *leadership) passed(loop string, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onTime[loop] = time.Now().Add(pause + passSlack)
}

func (l *leadership) failed(loop string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.onTime, loop)
}

// isOnTime reports whether all of the loops are on time.
func (l *leadership) isOnTime(loops ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return !slices.ContainsFunc(loops, func(loop string) bool { return !now.Before(l.onTime[loop]) })
}

// says returns what this coordinator says.
func (l *leadership) says() hints.Lead {
	deletes := l.isOnTime(deleteOld)
	l.mu.Lock()
	defer l.mu.Unlock()
	says := hints.Lead{
		ID: l.id, Schema: l.cfg.Schema, Interval: l.cfg.Interval, StaleAfter: l.cfg.StaleAfter,
		Grace: l.cfg.Grace,
	}
	if deletes {
		says.Retention = l.cfg.retentionID()
	}
	return says
}

// needsLeader reports whether a leader saves more than its notifications cost.
func needsLeader(fleet *store.FleetCheck) bool {
	return fleet.Workers > 1 && fleet.Workers*backendsPerWorker >= fleet.Backends
}

// untilNextSearch returns when the next search of the queues begins, counted from the begin of the last one, which took
// so long.
func untilNextSearch(took time.Duration) time.Duration {
	return max(searchEvery-checkConnectionsEvery/2, restPerSearch*took)
}
