package inspect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// An Outcome counts the runs that were started in one interval, by how they stand now.
type Outcome struct {
	From      time.Time
	Completed Tally
	Failed    Tally
	Cancelled Tally
	Active    Tally
}

// A Tally is a number of runs, or the least that it can be.
type Tally struct {
	Runs int
	More bool // there may be more
}

// Outcomes are those of consecutive intervals.
type Outcomes struct {
	At    time.Time // by the database's clock; the last interval is the one that has it
	Parts []Outcome // from old to new
	// KeptSince is the first end of all completed runs that were read; zero if there was none. Retention may have
	// deleted runs that ended before.
	KeptSince time.Time
}

// The runs of one index are counted by status and interval. An interval is one of run IDs, which have the time of the
// start in them. The queues and workflows are found by one search for each, $2 at most of each status. Of each the runs
// of an interval are read in the order of their IDs, until there are $6 of all or $7 of one. So the rows that are read
// are bounded. The index's condition stands between these texts; the last but one of them reads a run's end.
const (
	outcomePairs = `routes AS MATERIALIZED (
	SELECT u.status, t.task_queue, t.workflow_type
	FROM unnest($3::text[]) AS u (status)
	CROSS JOIN LATERAL ` + firstPair
	outcomeParts = endPairs + `
		SELECT pairs.task_queue, pairs.workflow_type FROM pairs LIMIT $2
	) t
)
SELECT u.status, c.place, n.runs, n.runs = c.most OR (SELECT count(*) FROM routes WHERE routes.status = u.status) = $2,
	n.ended
FROM unnest($3::text[]) AS u (status)
CROSS JOIN unnest($4::uuid[], $5::uuid[], $6::bigint[], $7::bigint[]) WITH ORDINALITY
	AS c (first, last, most, each, place)
CROSS JOIN LATERAL (
	SELECT count(*) AS runs, min(k.finished_at) AS ended
	FROM (
		SELECT k.finished_at
		FROM routes
		CROSS JOIN LATERAL (
			SELECT `
	outcomeRuns = ` AS finished_at
			FROM kagzi.workflow_runs r
			WHERE ` + inNamespace + ` AND r.task_queue = routes.task_queue AND r.workflow_type = routes.workflow_type
				AND r.run_id >= c.first AND r.run_id < c.last AND `
	outcomeEnd = `
			ORDER BY r.run_id
			LIMIT c.each
		) k
		WHERE routes.status = u.status
		LIMIT c.most
	) k
) n
WHERE n.runs > 0`

	ofStatus = ` AND r.status = u.status`

	outcomesCompleted = `WITH ` + outcomePairs + isCompleted + nextPair + isCompleted + outcomeParts + `r.finished_at` +
		outcomeRuns + isCompleted + outcomeEnd
	outcomesStopped = `WITH ` + outcomePairs + isStopped + ofStatus + nextPair + isStopped + ofStatus + outcomeParts +
		`r.finished_at` + outcomeRuns + isStopped + ofStatus + outcomeEnd
	outcomesWaiting = `WITH ` + outcomePairs + isWaiting + ofStatus + nextPair + isWaiting + ofStatus + outcomeParts +
		`NULL::timestamptz` + outcomeRuns + isWaiting + ofStatus + outcomeEnd
)

// The runs that move are in no index by the time of their start. So those that may move are read, $6 at most, as
// movingRuns counts them; the place 0 says how many that were.
const outcomesMoving = `
WITH horizon AS MATERIALIZED (
	SELECT GREATEST(now(), max(w.latest_at)) + GREATEST(2 * max(w.lease_timeout), interval '10 minutes') AS until
	FROM kagzi.workers w
	WHERE w.namespace_id = $1
), moving AS MATERIALIZED (
	SELECT k.run_id, k.moves
	FROM horizon
	CROSS JOIN unnest($2::text[], $3::text[]) AS w (task_queue, workflow_type)
	CROSS JOIN generate_series(1, 4) AS p (priority)
	CROSS JOIN LATERAL (
		SELECT r.run_id, ` + moves + ` AS moves
		FROM kagzi.workflow_runs r
		WHERE r.task_queue = w.task_queue AND r.namespace_id = $1 AND r.workflow_type = w.workflow_type
			AND r.priority = p.priority AND ` + clause.Claimable + `
			AND r.available_at <= horizon.until
		ORDER BY r.available_at
		LIMIT $6::bigint
	) k
	LIMIT $6::bigint
)
SELECT 0::bigint, count(*) FROM moving
UNION ALL
SELECT c.place, count(*)
FROM moving
CROSS JOIN unnest($4::uuid[], $5::uuid[]) WITH ORDINALITY AS c (first, last, place)
WHERE moving.moves AND moving.run_id >= c.first AND moving.run_id < c.last
GROUP BY c.place`

// Bounds of Outcomes.
const (
	mostOutcomeRoutes = 1000
	mostOfOutcome     = 20_000 // runs of one status and interval that are counted
	mostBefore        = 10     // of one queue and workflow that are read before the first interval
)

const outcomeClock = `SELECT now(), (extract(epoch FROM now() - pg_catalog.now()) * 1000000)::bigint`

// Outcomes counts the runs that were started in the last n intervals of that length, counted from 1970, by how they
// stand now. It reads a bounded number of rows: of each status and interval the first 20,000.
func (s *Lists) Outcomes(ctx context.Context, length time.Duration, n int) (out Outcomes, err error) {
	err = pg.Do(ctx, func(ctx context.Context) error {
		var ahead int64
		if err := pg.AskRow(ctx, s.pool, outcomeClock, nil, pg.UTC(&out.At), &ahead); err != nil {
			return err
		}
		out.begin(length, n)
		cells := out.cells(time.Duration(ahead) * time.Microsecond)
		for _, part := range []struct {
			sql      string
			statuses []string
		}{
			{outcomesCompleted, []string{store.Completed}},
			{outcomesStopped, []string{store.Failed, store.Cancelled}},
			{outcomesWaiting, []string{store.Pending, store.Running, store.Sleeping}},
		} {
			args := []any{
				s.namespace, mostOutcomeRoutes, part.statuses, cells.first, cells.last, cells.most, cells.each,
			}
			if err := pg.AskPlanned(ctx, s.pool, part.sql, args, out.read); err != nil {
				return err
			}
		}
		queues, types, err := s.activePairs(ctx, s.pool)
		if err != nil {
			return err
		}
		args := []any{s.namespace, queues, types, cells.first, cells.last, mostOfOutcome}
		return pg.AskPlanned(ctx, s.pool, outcomesMoving, args, func(rows pgx.Rows) error {
			return out.readMoving(rows, len(queues) == clause.MaxQueues)
		})
	})
	return out, pg.Wrap("count outcomes", err)
}

// begin makes the parts, which are empty.
func (o *Outcomes) begin(length time.Duration, n int) {
	epoch := time.Unix(0, 0).UTC()
	last := o.At.Add(-(o.At.Sub(epoch) % length))
	o.Parts, o.KeptSince = make([]Outcome, n), time.Time{}
	for i := range n {
		o.Parts[i].From = last.Add(-time.Duration(n-1-i) * length)
	}
}

// Cells are the intervals as arguments of statements. The first one is the time before the parts.
type cells struct {
	first, last []uuid.UUID
	most, each  []int64
}

// cells returns the intervals. Runs have IDs of clocks that are so much behind the database's. IDs of the future are in
// the last interval.
func (o *Outcomes) cells(ahead time.Duration) (c cells) {
	at := func(i int) uuid.UUID { return pg.IDAt(o.Parts[i].From.Add(-ahead)) }
	c = cells{[]uuid.UUID{uuid.Nil}, []uuid.UUID{at(0)}, []int64{mostOfOutcome}, []int64{mostBefore}}
	for i := range o.Parts {
		last := uuid.Max
		if i+1 < len(o.Parts) {
			last = at(i + 1)
		}
		c.first, c.last = append(c.first, at(i)), append(c.last, last)
		c.most, c.each = append(c.most, mostOfOutcome), append(c.each, mostOfOutcome)
	}
	return c
}

// read adds the counts of one index.
func (o *Outcomes) read(rows pgx.Rows) error {
	var status string
	var place int
	var t Tally
	var ended time.Time
	_, err := pgx.ForEachRow(rows, []any{&status, &place, &t.Runs, &t.More, pg.UTC(&ended)}, func() error {
		if status == store.Completed && (o.KeptSince.IsZero() || ended.Before(o.KeptSince)) {
			o.KeptSince = ended
		}
		if place == 1 { // before the parts
			return nil
		}
		of := o.Parts[place-2].of(status)
		of.Runs, of.More = of.Runs+t.Runs, of.More || t.More
		return nil
	})
	return err
}

// of returns the tally of a status.
func (o *Outcome) of(status string) *Tally {
	switch status {
	case store.Completed:
		return &o.Completed
	case store.Failed:
		return &o.Failed
	case store.Cancelled:
		return &o.Cancelled
	}
	return &o.Active
}

// readMoving adds the runs that move. Others may be of any interval.
func (o *Outcomes) readMoving(rows pgx.Rows, others bool) error {
	moving := map[int]int{}
	var place, n int
	_, err := pgx.ForEachRow(rows, []any{&place, &n}, func() error {
		moving[place] = n
		return nil
	})
	if err != nil {
		return err
	}
	others = others || moving[0] == mostOfOutcome
	for i := range o.Parts {
		a := &o.Parts[i].Active
		a.Runs, a.More = a.Runs+moving[i+2], a.More || others
	}
	return nil
}
