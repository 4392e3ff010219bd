package housekeeping

import (
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A failureDetector remembers since when this coordinator has seen each worker unresponsive: without heartbeats, or
// without its connection. Only the loop that checks these workers uses it.
type failureDetector struct {
	since   map[unresponsive]time.Time // when a check first saw each of them; nil: the next check begins anew
	checked time.Time                  // when the last check succeeded; zero: none has
	// for connections: until then the detector declares no worker dead, because an outage has just ended
	holdOff time.Time
}

// An unresponsive worker is identified together with its last heartbeat and its connection: one that has sent a
// heartbeat since, over any connection, counts from zero.
type unresponsive struct {
	id        uuid.UUID
	heartbeat int64 // microseconds
	backend   int32
}

// restart forgets all workers, and declares none dead before until.
func (d *failureDetector) restart(until time.Time) { d.since, d.holdOff = nil, until }

// dead returns the workers that have been unresponsive for timeout, and the time until the next one will have been.
func (d *failureDetector) dead(workers []store.UnresponsiveWorker, now time.Time,
	timeout time.Duration,
) (dead []store.UnresponsiveWorker, next time.Duration) {
	seen := make(map[unresponsive]time.Time, len(workers))
	next = timeout
	for _, w := range workers {
		key := unresponsive{w.ID, w.HeartbeatAt.UnixMicro(), w.Backend}
		since, known := d.since[key]
		if !known {
			since = now
		}
		seen[key] = since
		if left := timeout - now.Sub(since); left > 0 {
			next = min(next, left)
		} else {
			dead = append(dead, w)
		}
	}
	d.since = seen
	return dead, next
}
