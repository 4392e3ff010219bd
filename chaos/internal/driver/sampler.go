package driver

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/chaos/internal/load"
)

// A sampler looks at the tables and at the workers again and again, and at the database's clock.
type sampler struct {
	pools  []*pgxpool.Pool
	places []*fleet.Place
	slots  int           // of each worker
	poll   time.Duration // of the workers: due runs count when they have waited for longer

	trouble func() bool // a fault is under way, or was a moment ago

	mu      sync.Mutex
	samples []evidence.Sample
	clock   []evidence.Stamp
}

// For each limit that has room, the run that is its next one: it is due, and nothing holds it back. A run that holds a
// slot of its key needs no room. $2 is the newest version of the code that a worker with a free slot has.
const nextOfLimits = `
	SELECT coalesce(jsonb_object_agg(concat_ws(' ', n.namespace_id, n.task_queue, n.run_key, n.slot), n.run_id), '{}')
	FROM (
		SELECT DISTINCT ON (r.namespace_id, r.task_queue, r.run_key, r.slot) r.namespace_id, r.task_queue, r.run_key,
			r.slot, r.run_id
		FROM kagzi.workflow_runs r
		WHERE r.task_queue IN ('keyed', 'held', 'narrow', 'fast') AND r.status IN ('PENDING', 'SLEEPING')
			AND r.paused_at IS NULL AND r.outcome IS NULL
			AND r.recoveries < 3 AND coalesce(r.version, 1) <= $2 AND r.available_at < clock_timestamp() - $1::interval
		ORDER BY r.namespace_id, r.task_queue, r.run_key, r.slot, r.priority, r.available_at, r.run_id
	) n
	JOIN kagzi.queues q ON q.task_queue = n.task_queue AND q.namespace_id = n.namespace_id
	CROSS JOIN LATERAL (
		SELECT count(*) AS n FROM kagzi.workflow_runs k
		WHERE k.namespace_id = n.namespace_id AND k.task_queue = n.task_queue
			AND (q.max_running > 0 OR k.run_key IS NOT DISTINCT FROM n.run_key)
			AND k.slot IS NOT NULL AND (k.status = 'RUNNING' OR k.slot = 2 AND k.status IN ('PENDING', 'SLEEPING'))
	) h
	WHERE coalesce(n.slot = 2, false)
		OR h.n < coalesce(q.max_running, q.key_max_running, 1000000)
			AND coalesce(q.rate_at, '-infinity') < clock_timestamp()`

// The runs that sleep and wait for an event which is published. A run that was told of it is due.
const untold = `
	SELECT coalesce(jsonb_object_agg(u.run_id, u.event_id), '{}')
	FROM (
		SELECT r.run_id, min(e.event_id) AS event_id
		FROM kagzi.workflow_runs r
		CROSS JOIN LATERAL jsonb_array_elements(r.waiting_on) w
		JOIN kagzi.events e ON e.namespace_id = r.namespace_id AND e.topic = 'news'
			AND 'news/' || e.event_id = w.value ->> 'name'
		WHERE r.status = 'SLEEPING' AND r.available_at > clock_timestamp() AND r.paused_at IS NULL
			AND r.outcome IS NULL AND w.value ->> 'kind' = 'event'
		GROUP BY r.run_id
	) u`

// A run counts as due if a worker with a free slot could take it at once: its queue has no limits, and nothing holds it
// back. A run that may have killed its workers often waits for a worker that has nothing else to do.
const sample = `
	SELECT clock_timestamp(),
		(SELECT coalesce(jsonb_object_agg(run_id, lease), '{}') FROM kagzi.workflow_runs WHERE status = 'RUNNING'),
		(SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'RUNNING' AND available_at < clock_timestamp()),
		(SELECT count(*) FROM kagzi.workflow_runs WHERE finished_at IS NOT NULL),
		(` + nextOfLimits + `), (` + untold + `), count(*), coalesce(min(available_at), 'epoch'),
		coalesce((array_agg(run_id::text ORDER BY available_at))[1], '')
	FROM kagzi.workflow_runs
	WHERE task_queue IN ('plain', '` + load.QuietQueue + `') AND status IN ('PENDING', 'SLEEPING')
		AND run_key IS NULL AND paused_at IS NULL AND outcome IS NULL
		AND recoveries < 3 AND coalesce(version, 1) <= $2 AND available_at < clock_timestamp() - $1::interval`

// awaitSilence waits until no sample has succeeded for a while, or ctx ends. It reports whether that was so.
func (s *sampler) awaitSilence(ctx context.Context, limit time.Duration) bool {
	begun := evidence.Now()
	for sleep(ctx, limit/100) {
		last := begun
		if samples, _ := s.seen(); len(samples) > 0 {
			last = samples[len(samples)-1].At
		}
		if evidence.Now()-last > limit {
			return true
		}
	}
	return false
}

// run samples until ctx ends.
func (s *sampler) run(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.sample(ctx)
		}
	}
}

func (s *sampler) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	held, version := s.held() // before the table: a lease that is given up in between is not in the table any more
	v := evidence.Sample{Trouble: s.trouble(), Held: held, Runnable: evidence.Runnable()}
	var stamp evidence.Stamp
	for _, pool := range s.pools {
		var one evidence.Sample
		stamp.Asked = evidence.Now()
		if err := pool.QueryRow(ctx, sample, s.poll, version).Scan(&one.Now, &one.Running, &one.Lapsed, &one.Ended,
			&one.Next, &one.Untold, &one.Due, &one.DueSince, &one.DueRun); err != nil {
			return // the server is away
		}
		v.Add(one)
	}
	stamp.Answered, stamp.DB = evidence.Now(), v.Now
	v.At, v.Trouble = stamp.Answered, v.Trouble || s.trouble()
	later, _ := s.held() // a lease that began in between
	for lease := range later {
		v.Held[lease] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples, s.clock = append(s.samples, v), append(s.clock, stamp)
}

// held returns the leases that live worker processes say that they hold, and the newest version of the code of those
// that have free slots, which execute the older ones, too; zero if there are none.
func (s *sampler) held() (leases map[string]bool, version int) {
	leases = map[string]bool{}
	for _, place := range s.places {
		p := place.Process()
		if p == nil || !p.Alive() {
			continue
		}
		text, err := os.ReadFile(p.Held())
		if err != nil {
			continue // it has not begun, or has ended
		}
		all := strings.Fields(string(text))
		for _, lease := range all {
			leases[lease] = true
		}
		if len(all) < s.slots {
			version = max(version, p.Spec.Version)
		}
	}
	return leases, version
}

// seen returns the samples and the clock so far.
func (s *sampler) seen() ([]evidence.Sample, []evidence.Stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.samples, s.clock
}

// ended returns how many runs have ended, as far as the last sample knows.
func (s *sampler) ended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.samples) == 0 {
		return 0
	}
	return s.samples[len(s.samples)-1].Ended
}
