package fault

import (
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A Loss is a failover that lost what the old server had acknowledged since some moment. These hold nevertheless:
//   - The tables are a state that was committed at one moment, so what they say by themselves (S2, S3, S5, S8, S13,
//     S15, S16 and the constraints) holds.
//   - A worker whose claim was lost writes nothing (S4).
//   - Writes that were acknowledged before From or after To stay (S1, S10).
//   - Each run that exists ends, with the output that its program must return (S7).
type Loss struct {
	// Times of [evidence.Now]. Commits between From and To may be missing, with all that they caused: starts, signals
	// and other calls that were acknowledged in this time; results of steps, so that these steps execute again; ends of
	// runs; ticks of schedules, which are fired again; what transactional steps wrote, but always together with their
	// records. Such a run continues from what it was at From or later, and a lease that was given in this time is never
	// given again: leases are random.
	From, To time.Duration

	Bytes int64 // of the log that the standby had not received
}

// losses are those of a World.
type losses struct {
	mu  sync.Mutex
	all []Loss
}

// Losses returns the losses so far.
func (l *losses) Losses() []Loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func (l *losses) lose(from time.Duration, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, Loss{From: from, To: evidence.Now(), Bytes: bytes})
}
