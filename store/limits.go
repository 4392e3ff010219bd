package store

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// Limits keeps the limits of steps, queues and keys.
type Limits struct{ *conn }

// A LimitRequest is what a worker asks of a limit, or of several together, for all of its steps with these limits.
type LimitRequest struct {
	Asks   []Place       // steps that want to begin, in their order
	Leaves []Place       // steps that have returned, or do not want to begin any more
	Yields []Place       // steps that keep their place although they cannot begin now
	Pause  time.Duration // the pause that a step's error asks for; zero: none did
}

// A LimitAnswer is the answer to one of the Asks.
type LimitAnswer struct {
	Granted bool          // the step may begin, at the time At
	At      time.Time     // if it is not granted, when to ask again; zero: when the run is called
	Late    time.Duration // how late a granted step may begin with its tokens; zero: it has none
	Waits   string        // if it is not granted, the limit that it waits for
	Kept    bool          // the step has a row, so it must leave
	Lost    bool          // the run is not held under this lease any more
}

// A LimitResult is the result of Serve.
type LimitResult struct {
	Slots      int           // how many the limit with the fewest has; zero: any number
	RetryAfter bool          // an error of a step may pause a limit
	Missing    bool          // a limit is not there, and nothing was answered: no step asks
	Answers    []LimitAnswer // in the order of the Asks
	Called     []Signalled   // runs of others that were woken, because a slot or a token is kept for one of their steps
	More       bool          // serve again soon: other transactions have locked runs that should have been called
}

// The lock comes first, in a statement of its own: the later ones see what others have committed under it.
const lockLimit = `
SELECT c.retry_after, c.declared IS NULL AND c.set_by IS NULL FROM kagzi.limits c WHERE c.limit_name = $2
	AND c.namespace_id = $1 FOR UPDATE`

// A step that waits has no lease: then that of its run tells whether it is still this worker's.
const leaveLimit = `
DELETE FROM kagzi.limit_places p
WHERE p.run_id = ANY ($2::uuid[]) AND p.namespace_id = $1 AND CASE WHEN p.limit_name <> $5 THEN false ELSE EXISTS (
	SELECT
	FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (run_id, lease, step_id)
	WHERE u.run_id = p.run_id AND u.step_id = p.step_id AND CASE WHEN p.lease IS NULL THEN
		EXISTS (SELECT FROM kagzi.workflow_runs q WHERE q.run_id = p.run_id AND q.namespace_id = $1
			AND q.lease = u.lease) ELSE p.lease = u.lease END
) END`

const yieldLimit = `
UPDATE kagzi.limit_places p
SET state = 'WAITING', due_at = p.asked_at, lease = NULL
WHERE p.run_id = ANY ($2::uuid[]) AND p.namespace_id = $1 AND CASE WHEN p.limit_name <> $5 THEN false ELSE EXISTS (
	SELECT
	FROM unnest($2::uuid[], $3::uuid[], $4::text[]) AS u (run_id, lease, step_id)
	WHERE u.run_id = p.run_id AND u.step_id = p.step_id AND u.lease = p.lease
) END`

const pauseLimit = `
WITH pause AS MATERIALIZED (SELECT clock_timestamp() + $3::bigint * interval '1 microsecond' AS at)
UPDATE kagzi.limits c
SET paused_until = GREATEST(c.paused_until, pause.at)
FROM pause
WHERE c.limit_name = $2 AND c.namespace_id = $1 AND c.retry_after`

// The places of the dead. A run that goes on waits at its place in the line again, and a run that is over leaves the
// line. A run that was cancelled has lost its lease: its slots are those that count after its end. If a run was
// deleted, nothing says when it ended: then its slots are kept from when they are first found without it, as its steps
// may still run. Of the calls, those that count most are looked at, and the oldest.
const freeSlots = `
WITH clock AS MATERIALIZED (
	SELECT x.now, x.now - x.kept AS over, x.now + x.kept AS until
	FROM (SELECT clock_timestamp() AS now, $3::bigint * interval '1 microsecond' AS kept) x
), lost AS MATERIALIZED (
	SELECT p.run_id, p.step_id, q.status IS NULL AND p.state = 'RUNNING' AS kept, q.status IS NOT NULL
		AND q.finished_at IS NULL AS waits, CASE WHEN q.status IS NULL THEN clock.until ELSE p.asked_at END AS due_at
	FROM clock
	CROSS JOIN LATERAL (
		(SELECT x.* FROM kagzi.limit_places x WHERE x.limit_name = $2 AND x.namespace_id = $1 AND x.state = 'RUNNING')
		UNION ALL
		(SELECT x.* FROM kagzi.limit_places x WHERE x.limit_name = $2 AND x.namespace_id = $1 AND x.state = 'CALLED'
			AND x.due_at > clock.now ORDER BY x.due_at LIMIT 20)
		UNION ALL
		(SELECT x.* FROM kagzi.limit_places x WHERE x.limit_name = $2 AND x.namespace_id = $1 AND x.state = 'CALLED'
			AND x.due_at <= clock.now ORDER BY x.due_at LIMIT 20)
	) p
	LEFT JOIN LATERAL (
		SELECT r.status, r.lease, r.finished_at FROM kagzi.workflow_runs r WHERE r.run_id = p.run_id
			AND r.namespace_id = $1 OFFSET 0
	) q ON true
	WHERE CASE WHEN p.state = 'CALLED' THEN (q.status IS NULL OR q.finished_at IS NOT NULL)
			AND (p.lease IS NULL OR p.due_at <= clock.now)
		WHEN q.status = 'RUNNING' THEN q.lease <> p.lease
		ELSE q.finished_at IS NULL OR coalesce(q.lease <> p.lease, false) OR q.finished_at <= clock.over END
), deleted AS (
	DELETE FROM kagzi.limit_places p
	USING lost
	WHERE p.run_id = lost.run_id AND p.step_id = lost.step_id AND p.namespace_id = $1 AND p.limit_name = $2
		AND NOT lost.kept AND NOT lost.waits
)
UPDATE kagzi.limit_places p
SET state = CASE WHEN lost.kept THEN 'CALLED' ELSE 'WAITING' END, due_at = lost.due_at,
	lease = CASE WHEN lost.kept THEN p.lease END
FROM lost
WHERE p.run_id = lost.run_id AND p.step_id = lost.step_id AND p.namespace_id = $1 AND p.limit_name = $2
	AND (lost.kept OR lost.waits)`

// The limit's numbers, in a row with each of the first steps of the line; if there is none, alone. The line is read
// only if there is room for a step that is not called yet, or that one of the runs $6 may leave, because their steps
// ask other limits, too. The first of it is always read for these, and for a rate: it is called for the next token,
// however late that is. comes says whether a step could begin now. It is NULL if its run is over.
const headOfLimit = `
WITH ` + clause.PausesOfRuns + `, counted AS MATERIALIZED (
	SELECT t.now, c.every, c.burst, n.next_at, coalesce(c.max_running, 0) AS slots, h.running, k.called,
		LEAST(LEAST(CASE WHEN c.declared IS NULL AND c.set_by IS NULL THEN 0 END, c.max_running - h.running,
			CASE WHEN n.next_at > t.now + $3::bigint * interval '1 microsecond' THEN 1
			WHEN c.every > 0 THEN c.burst + 1 + $3::bigint / c.every END) - k.called + k.asking, $5::int) AS room
	FROM (SELECT clock_timestamp() AS now) t CROSS JOIN kagzi.limits c
	CROSS JOIN LATERAL (SELECT GREATEST(c.next_at, c.paused_until) AS next_at) n
	CROSS JOIN LATERAL (
		SELECT coalesce(sum(p.units), 0)::bigint AS running FROM kagzi.limit_places p
		WHERE p.limit_name = $2 AND p.namespace_id = $1 AND p.state = 'RUNNING'
	) h
	CROSS JOIN LATERAL (
		SELECT coalesce(sum(p.units), 0)::bigint AS called,
			coalesce(sum(p.units) FILTER (WHERE p.run_id = ANY ($6::uuid[])), 0)::bigint AS asking
		FROM kagzi.limit_places p
		WHERE p.limit_name = $2 AND p.namespace_id = $1 AND p.state = 'CALLED' AND p.due_at > t.now
	) k
	WHERE c.limit_name = $2 AND c.namespace_id = $1
), line AS MATERIALIZED (
	SELECT counted.*, CASE WHEN counted.room > 0 THEN LEAST(counted.room + $4::int, $5::int)
		WHEN counted.every > 0 OR $6::uuid[] IS NOT NULL THEN 1 ELSE 0 END AS look
	FROM counted
)
SELECT line.now, line.every, line.burst, line.next_at, line.slots, line.running, line.called, line.look, head.run_id,
	coalesce(head.step_id, ''), coalesce(head.units, 0), head.asked_at, run.comes
FROM line
LEFT JOIN LATERAL (
	SELECT p.run_id, p.step_id, p.units, p.asked_at FROM kagzi.limit_places p WHERE p.limit_name = $2
		AND p.namespace_id = $1 AND p.state = 'WAITING' ORDER BY p.due_at LIMIT line.look
) head ON true
LEFT JOIN LATERAL (
	SELECT CASE WHEN q.status = 'RUNNING' AND q.available_at > line.now THEN true ELSE q.paused_at IS NULL
		AND q.outcome IS NULL AND (q.available_at <= line.now OR q.status = 'SLEEPING'
			AND q.wakeups + 1 >= q.wakeups_awaited) AND ` + clause.Unstopped + ` AND ` + clause.KeyUnpaused + `
		AND ` + clause.KeyHasRoom + ` AND EXISTS (
			SELECT FROM kagzi.workers w WHERE w.namespace_id = $1 AND w.status = 'ONLINE'
				AND w.heartbeat_at >= line.now - w.stale_after AND q.task_queue = ANY (w.task_queues)
				AND q.workflow_type = ANY (w.workflow_types) AND (q.version IS NULL OR w.handlers IS NULL
					OR q.workflow_type || '/' || q.version::text = ANY (w.handlers))
		) END AS comes
	FROM kagzi.workflow_runs q
	WHERE q.run_id = head.run_id AND q.namespace_id = $1 AND q.finished_at IS NULL
	OFFSET 0
) run ON true
ORDER BY head.asked_at`

// The steps that ask, without those whose run is not held under the lease any more.
const askedPlaces = `
SELECT u.ord, coalesce(p.state, ''), coalesce(p.units, 0), p.asked_at, p.due_at
FROM unnest($2::uuid[], $3::uuid[], $4::text[]) WITH ORDINALITY AS u (run_id, lease, step_id, ord)
CROSS JOIN LATERAL (
	SELECT FROM kagzi.workflow_runs q WHERE q.run_id = u.run_id AND q.namespace_id = $1 AND q.lease = u.lease
		AND q.status = 'RUNNING' OFFSET 0
) r
LEFT JOIN LATERAL (
	SELECT s.state, s.units, s.asked_at, s.due_at FROM kagzi.limit_places s WHERE s.run_id = u.run_id
		AND s.step_id = u.step_id AND s.namespace_id = $1 AND s.limit_name = $5 OFFSET 0
) p ON true`

var placeColumns = columnsOf(leaveLimit,
	uuids("run_id", func(p Place) uuid.UUID { return p.RunID }),
	uuids("lease", func(p Place) uuid.UUID { return p.Lease }),
	texts("step_id", func(p Place) string { return p.StepID }),
)

// Serve takes back the slots of the steps that leave and of the dead, gives tokens and slots of all of the limits to
// the steps that ask, and calls the runs of others for which there is room. It may be repeated: a step that was granted
// keeps what it has, unless its only limit has no slots and it had not waited. Then a repetition takes another token.
func (s Limits) Serve(ctx context.Context, limits []string, req LimitRequest) (out LimitResult, err error) {
	for n := 1; ; n++ {
		var v service
		err = pg.Do(ctx, func(ctx context.Context) error {
			v = service{conn: s.conn, req: req, answers: n == mostLooks}
			return pg.Converse(ctx, s.pool, pg.Brief, v.read(limits, (n-1)*mostLooked))
		})
		v.out.Called = append(out.Called, v.out.Called...)
		if err == nil && v.out.Missing && len(req.Asks) > 0 { // the steps wait until it is set
			err = pg.Do(ctx, func(ctx context.Context) error {
				return pg.Ask(ctx, s.pool, nameLimits, []any{s.namespace, limits}, nil)
			})
			v.answers = false
		}
		if out = v.out; err != nil || v.answers {
			return out, pg.Wrap("serve limit", err)
		}
		req = LimitRequest{Asks: req.Asks}
	}
}

// A service is one transaction that serves limits. It reads them under their locks, and writes the new states of the
// steps.
type service struct {
	*conn
	req     LimitRequest
	answers bool         // to the steps that ask; if not, too few of the steps that it has looked at could come
	lines   []*limitLine // in the order of the locks
	out     LimitResult
}

// A roundTrip collects statements.
type roundTrip struct{ pg.Step }

func (r *roundTrip) queue(read func(pgx.Rows) error, sql string, args ...any) {
	if r.Batch == nil {
		r.Batch = &pgx.Batch{}
	}
	r.Batch.Queue(sql, args...)
	r.Reads = append(r.Reads, read)
}

// read returns the first round trip. It looks at so many steps of each line beyond those that there is room for. The
// locks come in the order of the names: no other service waits for this one while this one waits for it.
func (v *service) read(limits []string, beyond int) pg.Step {
	r := roundTrip{pg.Step{Then: v.write}}
	for i, name := range limits {
		v.lines = append(v.lines, &limitLine{name: name, nth: i})
	}
	slices.SortFunc(v.lines, func(a, b *limitLine) int { return cmp.Compare(a.name, b.name) })
	for _, l := range v.lines {
		r.queue(func(rows pgx.Rows) error { return v.readLock(l, rows) }, lockLimit, v.namespace, l.name)
	}
	for _, l := range v.lines {
		v.readOne(&r, l, beyond)
	}
	return r.Step
}

// readOne adds what reads one of the limits.
func (v *service) readOne(r *roundTrip, l *limitLine, beyond int) {
	if len(v.req.Leaves) > 0 {
		r.queue(nil, leaveLimit, placeColumns.args(v.namespace, v.req.Leaves, l.name)...)
	}
	if len(v.req.Yields) > 0 {
		r.queue(nil, yieldLimit, placeColumns.args(v.namespace, v.req.Yields, l.name)...)
	}
	if v.req.Pause > 0 {
		r.queue(nil, pauseLimit, v.namespace, l.name, pg.Micros(v.req.Pause))
	}
	r.queue(nil, freeSlots, v.namespace, l.name, pg.Micros(limitOver))
	if len(v.req.Asks) > 0 {
		r.queue(func(rows pgx.Rows) error { return v.readAsks(l, rows) }, askedPlaces,
			placeColumns.args(v.namespace, v.req.Asks, l.name)...)
	}
	r.queue(func(rows pgx.Rows) error { return v.readLine(l, rows) }, headOfLimit, v.namespace, l.name,
		pg.Micros(limitKept), min(beyond, mostLooked), mostLooked, v.mayLeave())
}

// mayLeave returns the runs whose steps ask several limits, so that they may leave what one of these keeps for them;
// nil: there are none.
func (v *service) mayLeave() any {
	if len(v.lines) == 1 {
		return nil
	}
	return uuidArray(len(v.req.Asks), func(i int) uuid.UUID { return v.req.Asks[i].RunID })
}

// readLock reads whether the limit is there, and locked. One that is set later in the transaction is not locked.
func (v *service) readLock(l *limitLine, rows pgx.Rows) error {
	missing, retryAfter := true, false
	_, err := pgx.ForEachRow(rows, []any{&retryAfter, &l.unset}, func() error {
		missing = false
		return nil
	})
	v.out.Missing, v.out.RetryAfter = v.out.Missing || missing, v.out.RetryAfter || retryAfter
	return err
}

// readAsks reads the steps that ask.
func (v *service) readAsks(l *limitLine, rows pgx.Rows) error {
	s := limitStep{line: l}
	columns := []any{&s.ord, &s.had, &s.keeps, pg.UTC(&s.askedAt), pg.UTC(&s.dueAt)}
	_, err := pgx.ForEachRow(rows, columns, func() error {
		asks := s
		asks.Place, asks.units = v.req.Asks[s.ord-1], 1
		if asks.Units != nil {
			asks.units = asks.Units[l.nth]
		}
		l.asks = append(l.asks, &asks)
		return nil
	})
	return err
}

// readLine reads the limit and the head of its line.
func (v *service) readLine(l *limitLine, rows pgx.Rows) error {
	var look, burst int
	s := limitStep{line: l}
	var comes *bool
	_, err := pgx.ForEachRow(rows, []any{
		pg.UTC(&l.now), pg.MicrosTo(&l.every), &burst, pg.UTC(&l.nextAt), &l.slots, &l.running, &l.called, &look,
		pg.UUIDTo(&s.RunID), &s.StepID, &s.units, pg.UTC(&s.askedAt), &comes,
	}, func() error {
		if s.RunID != uuid.Nil {
			waits := s
			waits.had, waits.over, waits.comes = placeWaiting, comes == nil, pg.Deref(comes)
			l.head = append(l.head, &waits)
		}
		return nil
	})
	l.more = look > 0 && len(l.head) == look
	l.nextAt = latest(l.nextAt, l.now.Add(-time.Duration(burst-1)*l.every))
	if l.free = math.MaxInt; l.slots > 0 {
		l.free = l.slots - l.running
	}
	if l.unset {
		l.free = 0
	}
	return err
}
