package inspect

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/plans"
	"github.com/kagzi/kagzi/waits"
)

// fillLists inserts $1 runs over the last 30 days: the oldest and the newest quarter have ended, but for a few of the
// newest, and those between sleep. Every twentieth run is of the namespace other.
const fillLists = `
	INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at, paused_at,
		run_key, key_scope, error_kind, waiting_on, finished_at,
		created_at, external_id, parent_run_id, schedule_id, fire_at, error, recoveries)
	SELECT (lpad(to_hex((extract(epoch FROM k.at) * 1000)::bigint), 12, '0') || '7' || substr(md5(g::text), 1,
		3) || '8' || substr(md5(g::text), 4, 15))::uuid,
		CASE WHEN g % 20 = 0 THEN 'other' ELSE 'test' END, 'queue-' || g % 2, CASE WHEN g % 5001 = 3 THEN 'rare'
			ELSE 'type-' || g % 3 END, k.status,
		CASE k.status WHEN 'SLEEPING' THEN now() + interval '1 day' WHEN 'RUNNING' THEN now() + interval '4 minutes'
			WHEN 'PENDING' THEN CASE g % 12 WHEN 1 THEN 'infinity' WHEN 4 THEN now() + interval '1 day'
				ELSE k.at END END,
		CASE WHEN k.status IN ('PENDING', 'RUNNING') AND g % 24 IN (7, 15) THEN now() END,
		CASE WHEN k.status = 'PENDING' AND g % 12 = 10 THEN 'key' END, CASE WHEN k.status = 'PENDING' AND g % 12 = 10
			THEN 'queue-' || g % 2 END,
		CASE WHEN k.status = 'FAILED' OR k.status = 'PENDING' AND g % 12 = 4 THEN 'kind-' || g % 2
			WHEN k.status = 'CANCELLED' THEN 'cancelled' END,
		CASE WHEN k.status = 'SLEEPING' THEN CASE WHEN g % 1000 = 7
			THEN '[{"kind": "signal", "name": "approved"}]'::jsonb
			ELSE '[{"kind": "timer", "name": "cooling-off"}]' END
			WHEN k.status = 'PENDING' AND g % 12 = 4 THEN '[{"kind": "retry"}]' END,
		CASE WHEN k.status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN k.at + interval '1 second' END, k.at,
		CASE WHEN g % 300 = 1 THEN 'id-' || g / 900 END,
		CASE WHEN g % 1000 = 1 THEN '00000000-0000-7000-8000-000000000001'::uuid END, CASE WHEN g % 1000 = 2
			THEN '00000000-0000-7000-8000-000000000002'::uuid END, CASE WHEN g % 1000 = 2 THEN k.at END,
		CASE WHEN k.status = 'FAILED' THEN 'The card of Customer ' || g || ' was declined' END,
		CASE WHEN g % 167 = 1 THEN g / 167 % 5 ELSE 0 END
	FROM generate_series(1, $1::int) AS g
	CROSS JOIN LATERAL (
		SELECT now() - interval '30 days' + g * (interval '30 days' / $1::int) AS at, CASE
			WHEN g > $1::int * 0.99 AND g % 3 = 0 THEN 'RUNNING' WHEN g > $1::int * 0.99 AND g % 3 = 1 THEN 'PENDING'
				WHEN g > $1::int / 4 AND g <= $1::int * 3 / 4 THEN 'SLEEPING'
			WHEN g % 500 = 1 THEN 'FAILED' WHEN g % 700 = 2 THEN 'CANCELLED' ELSE 'COMPLETED' END AS status
		OFFSET 0
	) k
	ON CONFLICT DO NOTHING`

// listCases are filters, with how many rows and pages one scan may read. That is a page from each queue and workflow,
// and for times also the runs of a day around them.
func listCases(now time.Time, middle uuid.UUID) map[string]Filter {
	ago := func(days time.Duration) time.Time { return now.Add(-days * 24 * time.Hour) }
	of := func(status ...string) []string { return status }
	return map[string]Filter{
		"all": {}, "after": {Page: Page{After: middle}}, "ID": {ExternalID: "id-5"}, "no ID": {ExternalID: "none"},
		"pending": {Status: of(store.Pending)}, "running": {Status: of(store.Running)},
		"sleeping":  {Status: of(store.Sleeping)},
		"completed": {Status: of(store.Completed)},
		"failed":    {Status: of(store.Failed)}, "cancelled": {Status: of(store.Cancelled)},
		"active": {Status: of(store.Pending, store.Running, store.Sleeping)}, "over": {Status: of(store.Completed,
			store.Failed, store.Cancelled)},
		"completed, after": {Status: of(store.Completed), Page: Page{After: middle}},
		"sleeping, after":  {Status: of(store.Sleeping), Page: Page{After: middle}},
		"rare workflow":    {Type: "rare"}, "workflow": {Type: "type-1"}, "no workflow": {Type: "none"},
		"workflow, after": {Type: "type-1", Page: Page{After: middle}},
		"queue":           {Queue: "queue-1"}, "no queue": {Queue: "none"},
		"queue and workflow": {Queue: "queue-1", Type: "type-2"},
		"since":              {Created: Span{From: ago(1)}}, "until": {Created: Span{Until: ago(20)}},
		"between":             {Created: Span{From: ago(20), Until: ago(20).Add(time.Hour)}},
		"future":              {Created: Span{From: ago(-3)}},
		"failed, ended since": {Status: of(store.Failed), Ended: Span{From: ago(2)}},
		"ended until":         {Ended: Span{Until: ago(25)}},
		"failed, kind":        {Status: of(store.Failed), Error: Failure{Kind: "kind-1"}}, "failed, no kind": {
			Status: of(store.Failed),
			Error:  Failure{Kind: "none"},
		},
		"parent": {Parent: uuid.MustParse("00000000-0000-7000-8000-000000000001")},
		"parent, after": {
			Parent: uuid.MustParse("00000000-0000-7000-8000-000000000001"),
			Page:   Page{After: middle},
		},
		"failed of parent": {
			Parent: uuid.MustParse("00000000-0000-7000-8000-000000000001"),
			Status: of(store.Failed),
		},
		"schedule":                   {Schedule: uuid.MustParse("00000000-0000-7000-8000-000000000002")},
		"failed of workflow":         {Status: of(store.Failed), Type: "type-1"},
		"completed of rare workflow": {Status: of(store.Completed), Type: "rare"},
		"running of workflow":        {Status: of(store.Running), Type: "type-1"},
		"completed until":            {Status: of(store.Completed), Created: Span{Until: ago(20)}}, "failed until": {
			Status:  of(store.Failed),
			Created: Span{Until: ago(20)},
		}, "workflow between": {Type: "type-0", Created: Span{From: ago(20), Until: ago(19)}},
		"paused": {Paused: true}, "paused, after": {Paused: true, Page: Page{After: uuid.Max}}, "paused and pending": {
			Paused: true,
			Status: of(store.Pending),
		}, "paused of workflow": {Paused: true, Type: "type-1"},
		"recoveries": {MinRecoveries: 1}, "three recoveries": {MinRecoveries: 3},
		"recoveries, after":  {MinRecoveries: 3, Page: Page{After: middle}},
		"failed, recoveries": {MinRecoveries: 2, Status: of(store.Failed)},
		"IDs":                {IDs: []uuid.UUID{middle, uuid.Max}}, "IDs and status": {
			IDs:    []uuid.UUID{middle},
			Status: of(store.Running),
		}, "IDs, after": {IDs: []uuid.UUID{middle}, Page: Page{After: middle}},
	}
}

// These read more, but no row that does not match.
func slowCases(now time.Time) map[string]Filter {
	return map[string]Filter{
		"kind": {Error: Failure{Kind: "kind-0"}}, "waiting on": {WaitingOn: waits.Parse("signal approved")},
		"waiting on a word":         {WaitingOn: waits.Parse("signal")},
		"waiting on part of a word": {WaitingOn: waits.Parse("sig")},
		"waiting to retry":          {WaitingOn: waits.Parse("retry")},
		"ended since":               {Ended: Span{From: now.Add(-48 * time.Hour)}},
		"ended lately":              {Ended: Span{From: now.Add(time.Hour)}},
		"key":                       {Key: store.Key{Name: "key"}, Queue: "queue-0"},
		"metadata":                  {Metadata: []byte(`{"k": "v"}`)},
		"error":                     {Error: Failure{Text: "OF CUSTOMER 1"}},
		"no error":                  {Error: Failure{Text: "of customer x"}},
		"error of failed":           {Error: Failure{Text: "declined"}, Status: []string{store.Failed}},
		"error of completed":        {Error: Failure{Text: "declined"}, Status: []string{store.Completed}},
	}
}

// filled returns a store with a table of that many runs for lists, the time of its filling, and the ID of a run in
// their middle.
func filled(t *testing.T, rows int) (s *both, now time.Time, middle uuid.UUID) {
	t.Helper()
	s = open(t, dbtest.Unchecked())
	exec(t, s.pool, `ALTER TABLE kagzi.workflow_runs SET (autovacuum_enabled = off)`)
	exec(t, s.pool, `TRUNCATE kagzi.workflow_runs`)
	exec(t, s.pool, fillLists, rows)
	exec(t, s.pool, `VACUUM ANALYZE kagzi.workflow_runs`)
	middle = column[uuid.UUID](t, s.pool, `SELECT run_id FROM kagzi.workflow_runs WHERE namespace_id = 'test'
		ORDER BY run_id OFFSET $1::int LIMIT 1`, rows/3)[0]
	return s, time.Now(), middle
}

// A list has the runs that a walk down the whole key finds.
func TestListsAreThoseOfAWalk(t *testing.T) {
	t.Parallel()
	s, now, middle := filled(t, campaign.Size(8_000, 60_000))
	for _, s := range []*both{s, newBoth(s.pool, "other")} {
		cases := listCases(now, middle)
		for name, f := range slowCases(now) {
			cases[name] = f
		}
		for name, f := range cases {
			f.Limit = 50
			got := listed(t, s, f)
			want := walked(t, s, f)
			if !slices.Equal(got, want) {
				t.Errorf("%s of %s: %d runs, and by the key %d\n%v\n%v", name, s.namespace, len(got),
					len(want), got, want)
			}
		}
	}
}

// A list reads little, whatever the table has: the plan has the indexes made for it.
func TestListsReadLittle(t *testing.T) {
	t.Parallel()
	s, now, middle := filled(t, 60_000)
	check := func(state string, most float64) {
		t.Helper()
		for _, s := range []*both{s, newBoth(s.pool, "other")} {
			for name, f := range listCases(now, middle) {
				f.Limit = 50
				statement, args, err := s.listing(t.Context(), s.pool, f)
				if err != nil {
					t.Fatal(err)
				}
				tx, err := s.pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				exec(t, tx, `SET LOCAL jit = off`) // as the store does
				read := plans.Explain(t, tx, `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)`, statement, args...)
				if n := read.MaxRows("workflow_runs"); n > most {
					t.Errorf("%s: %s of %s read %v rows in one scan, want %v at most\n%s", state, name, s.namespace, n,
						most, read.Text)
				}
				l := s.selection(&f)
				counted := plans.Explain(t, tx, `EXPLAIN (FORMAT JSON)`,
					l.counting(Grouping{By: []string{ByQueue}}, uuid.Nil,
						uuid.Max), l.args...)
				for _, p := range []*plans.Plan{read, counted} {
					if f.Paused && !strings.Contains(p.Text, "workflow_runs_paused") {
						t.Errorf("%s: %s of %s does not use the index of paused runs\n%s", state, name,
							s.namespace, p.Text)
					}
					if f.MinRecoveries > 0 && (p == read || state == "fresh statistics") &&
						!strings.Contains(p.Text, "workflow_runs_recovered") {
						t.Errorf("%s: %s of %s does not use the index of recovered runs\n%s", state, name,
							s.namespace, p.Text)
					}
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	// The runs that move, and half of a thousand, are within a lease.
	if campaign.Long {
		check("fresh statistics", 500)
	}
	exec(t, s.pool, `DELETE FROM pg_statistic WHERE starelid = 'kagzi.workflow_runs'::regclass`)
	exec(t, s.pool, `UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE oid = 'kagzi.workflow_runs'::regclass`)
	check("missing statistics", 500)
}

// A page of the children of one run is read alone, however many it has and whatever statistics the planner has.
func TestListOfManyChildrenReadsAPage(t *testing.T) {
	t.Parallel()
	s, _, _ := filled(t, 30_000)
	parent := uuid.MustParse("00000000-0000-7000-8000-000000000003")
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET parent_run_id = $1 WHERE namespace_id = 'test'`, parent)
	for _, state := range []string{"stale", "fresh", "missing"} {
		switch state {
		case "fresh":
			exec(t, s.pool, `ANALYZE kagzi.workflow_runs`)
		case "missing":
			plans.ForgetStatistics(t, s.pool)
		}
		statement, args, err := s.listing(t.Context(), s.pool, Filter{Parent: parent, Page: Page{Limit: 50}})
		if err != nil {
			t.Fatal(err)
		}
		p := plans.Explain(t, s.pool, `EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON)`, statement, args...)
		if n := p.MaxRows("workflow_runs"); n > 50 || !strings.Contains(p.Text, "workflow_runs_parent") {
			t.Errorf("%s statistics: %v rows are read\n%s", state, n, p.Text)
		}
	}
}

// A count of a time reads the runs of a day around it, and no others.
func TestCountsOfATimeReadLittle(t *testing.T) {
	t.Parallel()
	const rows = 60_000 // of 30 days
	db := dbtest.Database(t, dbtest.Unchecked())
	s := newBoth(db.Pool, "test")
	exec(t, s.pool, `ALTER TABLE kagzi.workflow_runs SET (autovacuum_enabled = off)`)
	exec(t, s.pool, fillLists, rows)
	exec(t, s.pool, `VACUUM ANALYZE kagzi.workflow_runs`)
	ago := func(days time.Duration) time.Time { return time.Now().Add(-days * 24 * time.Hour) }
	for name, f := range map[string]Filter{
		"since": {Created: Span{From: ago(1)}}, "until": {Created: Span{Until: ago(28)}},
		"between": {Created: Span{From: ago(20), Until: ago(19)}}, "ended until": {Ended: Span{Until: ago(28)}},
	} {
		first, last, err := s.idsOf(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		l := s.selection(&f)
		read := plans.Explain(t, s.pool, `EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON)`,
			l.counting(Grouping{By: []string{ByStatus}}, first, last), l.args...)
		if n := read.MaxRows("workflow_runs"); n == 0 || n > 3.1*rows/30 {
			t.Errorf("%s: %v rows are read\n%s", name, n, read.Text)
		}
		counts, err := s.Counts(t.Context(), f, Grouping{})
		want := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE namespace_id = 'test'
			AND created_at >= $1 AND created_at < $2 AND ($3::timestamptz IS NULL OR finished_at < $3)`,
			f.Created.From, cmp.Or(f.Created.Until, time.Now().Add(time.Hour)), nullTime(f.Ended.Until))
		if err != nil || len(counts) != 1 || counts[0].Runs != want {
			t.Errorf("%s: %+v, %v, want %d", name, counts, err, want)
		}
	}
}

func nullTime(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// listed returns the runs that f selects.
func listed(t *testing.T, s *both, f Filter) (ids []uuid.UUID) {
	t.Helper()
	runs, err := s.List(t.Context(), nil, f)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		ids = append(ids, r.RunID)
	}
	return ids
}

// walked is listed by a walk down the key.
func walked(t *testing.T, s *both, f Filter) (ids []uuid.UUID) {
	t.Helper()
	var runs []*store.Run
	b := &pgx.Batch{}
	l := s.selection(&f)
	b.Queue(l.walk(), l.args...)
	if err := pg.Exchange(t.Context(), s.pool, pg.Listing, b, func(rows pgx.Rows) (err error) {
		runs, err = store.ReadRuns(rows)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		ids = append(ids, r.RunID)
	}
	return ids
}

// If very many runs are due, a list walks down the key.
func TestListOfBacklog(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	exec(t, s.pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at)
		SELECT gen_random_uuid(), 'test', 'queue', 'type', 'PENDING', now()
			FROM generate_series(1, $1::int)`, maxMoving)
	for name, walks := range map[string]bool{store.Pending: true, store.Completed: false} {
		f := Filter{Status: []string{name}, Page: Page{Limit: 5}}
		walk := s.selection(&f).walk()
		if statement, _, err := s.listing(t.Context(), s.pool, f); err != nil || (statement == walk) != walks {
			t.Errorf("%s: error %v, statement %s", name, err, statement)
		}
		if got, want := listed(t, s, f), walked(t, s, f); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// A list has the runs of a time at which the clock of the database was ahead. That was seen by a worker, which goes on.
func TestListAfterTheClockWasAhead(t *testing.T) {
	t.Parallel()
	s := open(t, dbtest.Unchecked())
	w := store.Worker{
		ID: uuid.New(), Queues: []string{"queue"}, Types: []string{"type"}, LeaseTimeout: time.Minute,
		StaleAfter: time.Minute,
	}
	if err := s.Workers.Register(t.Context(), s.pool, w); err != nil {
		t.Fatal(err)
	}
	start(t, s, newRun(), newRun())
	claim(t, s, request(1))
	// The test cannot set the clock, so it moves all times forward.
	const ahead = `interval '90 minutes'`
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET created_at = created_at + `+ahead+
		`, available_at = available_at + `+ahead+`, started_at = started_at + `+ahead)
	exec(t, s.pool, `UPDATE kagzi.workers SET heartbeat_at = heartbeat_at + `+ahead+`, latest_at = latest_at + `+ahead)
	if _, err := s.Workers.Heartbeat(t.Context(), s.pool, store.Heartbeat{Number: 1, Worker: w.ID}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{store.Pending: 1, store.Running: 1, "": 2} {
		f := Filter{Page: Page{Limit: 10}}
		if name != "" {
			f.Status = []string{name}
		}
		if got := listed(t, s, f); len(got) != want {
			t.Errorf("%d runs of status %q, want %d", len(got), name, want)
		}
	}
}

// Payloads are read only if the filter says so.
func TestListOfPayloads(t *testing.T) {
	t.Parallel()
	s := open(t)
	start(t, s, newRun(withID("a"), func(r *store.NewRun) { r.Input = []byte("input") }))
	for name, f := range map[string]Filter{"parts": {}, "ID": {ExternalID: "a"}, "walk": {Metadata: []byte(`{}`)}} {
		f.Limit = 1
		for _, f.Payloads = range []bool{false, true} {
			runs, err := s.List(t.Context(), nil, f)
			if name == "walk" && err == nil && len(runs) == 0 {
				continue
			}
			if err != nil || len(runs) != 1 || (string(runs[0].Input) == "input") != f.Payloads {
				t.Errorf("%s: %+v, error %v", name, runs, err)
			}
		}
	}
}

// A run that exists all the time is in the list, whatever happens to it meanwhile.
func TestListFindsARunThatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, s *both) (id uuid.UUID, meanwhile func()){
		"keyed run is claimed": func(t *testing.T, s *both) (uuid.UUID, func()) {
			id := start(t, s, newRun(func(r *store.NewRun) { r.Key.Name = "k" }))[0]
			return id, func() {
				if got := runIDs(claim(t, s, keyedRequest(1)).Runs); !slices.Equal(got, []uuid.UUID{id}) {
					t.Fatal(got)
				}
			}
		},
		"paused run goes on": func(t *testing.T, s *both) (uuid.UUID, func()) {
			id := start(t, s, newRun())[0]
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET paused_at = now()`)
			return id, func() { exec(t, s.pool, `UPDATE kagzi.workflow_runs SET paused_at = NULL`) }
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			id, meanwhile := c(t, s)
			f := Filter{Page: Page{Limit: 10}}
			statement, args, err := s.listing(t.Context(), s.pool, f)
			if err != nil {
				t.Fatal(err)
			}
			meanwhile()
			var out []*store.Run
			err = pg.AskPlanned(t.Context(), s.pool, statement, args, func(rows pgx.Rows) (err error) {
				out, err = store.ReadRuns(rows)
				return err
			})
			if err != nil || len(out) != 1 || out[0].RunID != id {
				t.Errorf("%d runs listed, want 1; %v", len(out), err)
			}
		})
	}
}
