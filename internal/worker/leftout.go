package worker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

const (
	// mostLeftOut bounds what a session leaves out of its claims at a time.
	mostLeftOut = 1000

	// mostSearches is how often a claim that the database refuses is repeated without what it was refused for. The runs
	// that take their places may be refused, too.
	mostSearches = 10

	// firstLeftOut is the first pause before a claim tries again what the database has refused. It doubles up to
	// longestLeftOut, which is a little less than the time for which a failure counts as current: so Health names the
	// run all the time.
	firstLeftOut   = 2 * time.Second
	longestLeftOut = 40 * time.Second

	// forgetsRefusal is how long after its pause something counts as no longer refused.
	forgetsRefusal = time.Minute
)

// leftOut are the runs that the database refuses to give to claims, and the consumers of which it refuses the start of
// a run: a constraint or a trigger of the application refuses the change of the row. A claim is one statement for many
// runs, so each of these would fail all claims. They are kept in memory only, because the database may refuse any
// change of such a row. See doc_claims.go.
type leftOut struct {
	mu      sync.Mutex // guards refused
	refused map[store.Claimable]*refusedClaim
}

type refusedClaim struct {
	times int
	until time.Time // claims leave it out until then
}

// addTo makes the claim leave out what it has to.
func (l *leftOut) addTo(req *store.ClaimRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	req.Without = store.LeftOut{}
	for c, r := range l.refused {
		switch {
		case !time.Now().Before(r.until):
		case c.Consumer != "":
			req.Without.Consumers = append(req.Without.Consumers, c.Consumer)
		default:
			req.Without.Runs = append(req.Without.Runs, c.RunID)
		}
	}
}

// add notes that the database has refused c. It returns false if there is no room.
func (l *leftOut) add(c store.Claimable) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.refused[c]
	if r == nil {
		if len(l.refused) >= mostLeftOut {
			return false
		}
		if l.refused == nil {
			l.refused = map[store.Claimable]*refusedClaim{}
		}
		r = &refusedClaim{}
		l.refused[c] = r
	}
	pause := min(firstLeftOut<<min(r.times, 10), longestLeftOut)
	r.until = time.Now().Add(time.Duration(float64(pause) * (0.75 + rand.Float64()/2)))
	r.times++
	return true
}

// over forgets those of which claims have taken the runs, and those that no claim was refused for lately. It returns
// them.
func (l *leftOut) over(runs []*store.ClaimedRun) (over []store.Claimable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refused) == 0 {
		return nil
	}
	for _, r := range runs {
		if c := (store.Claimable{RunID: r.RunID}); l.refused[c] != nil {
			over = append(over, c)
		}
	}
	for c, r := range l.refused {
		if time.Since(r.until) > forgetsRefusal {
			over = append(over, c)
		}
	}
	for _, c := range over {
		delete(l.refused, c)
	}
	return over
}

// claimOf returns the operation that the database refuses, for the log and Health.
func claimOf(c store.Claimable) string {
	if c.RunID != uuid.Nil {
		return fmt.Sprintf("claim run %s", c.RunID)
	}
	return fmt.Sprintf("start a run of consumer %s", c.Consumer)
}
