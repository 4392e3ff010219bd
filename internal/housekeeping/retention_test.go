package housekeeping

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/store"
)

// addOld inserts n runs of the workflow that were created, and if their status is final also ended, so many days ago.
func addOld(t *testing.T, pool *pgxpool.Pool, workflow, status string, days, n int) {
	t.Helper()
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at,
			finished_at, error_kind)
		SELECT (lpad(to_hex((extract(epoch FROM now() - $3::int * interval '1 day') * 1000)::bigint), 12,
			'0') || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid,
			'default', 'default', $1, $2::text, CASE WHEN $2::text = 'SLEEPING' THEN timestamptz 'infinity' END,
			CASE WHEN $2::text <> 'SLEEPING' THEN now() - $3::int * interval '1 day' END, CASE WHEN $2::text = 'FAILED'
				THEN 'error' END
		FROM generate_series(1, $4::int)`, workflow, status, days, n)
}

// addSteps gives n steps to each run of the workflow.
func addSteps(t *testing.T, pool *pgxpool.Pool, workflow string, n int) {
	t.Helper()
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
			first_attempt)
		SELECT run_id, 'step-' || g, 1, namespace_id, 'COMPLETED', 'FUNCTION', 1, 1
		FROM kagzi.workflow_runs, generate_series(1, $2::int) AS g WHERE workflow_type = $1`, workflow, n)
}

// left returns the number of runs of each workflow.
func left(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return dbtest.QueryOne[string](t, pool, `
		SELECT coalesce(string_agg(workflow_type || ' ' || n, ', ' ORDER BY workflow_type), 'none')
		FROM (SELECT workflow_type, count(*) AS n FROM kagzi.workflow_runs GROUP BY 1) x`)
}

func wantLeft(t *testing.T, pool *pgxpool.Pool, want string) {
	t.Helper()
	if got := left(t, pool); got != want {
		t.Errorf("runs left: %s, want %s", got, want)
	}
}

// retaining returns a coordinator, and its database.
func retaining(t *testing.T, change ...func(*Config)) (*pgxpool.Pool, *Coordinator) {
	t.Helper()
	t.Parallel()
	pool := dbtest.Pool(t)
	k := newCoordinator(t, pool, change...)
	k.scan.longest = time.Minute // on a busy machine a query may take long
	return pool, k
}

// scanOnce makes passes until the scan has ended, and returns how many.
func scanOnce(t *testing.T, k *Coordinator) int {
	t.Helper()
	for passes := 1; ; passes++ {
		pause, err := k.DeleteOld(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(k.scan.old) == 0 && len(k.scan.ranges) == 0 {
			if pause < scanRest/2 {
				t.Errorf("pause %v after the scan", pause)
			}
			return passes
		}
	}
}

func TestRetention(t *testing.T) {
	t.Parallel()

	t.Run("Defaults", func(t *testing.T) {
		pool, k := retaining(t)
		addOld(t, pool, "a", "COMPLETED", 6, 1)
		addOld(t, pool, "b", "COMPLETED", 8, 1)
		addOld(t, pool, "c", "FAILED", 29, 1)
		addOld(t, pool, "d", "FAILED", 31, 1)
		addOld(t, pool, "e", "CANCELLED", 29, 1)
		addOld(t, pool, "f", "CANCELLED", 31, 1)
		scanOnce(t, k)
		wantLeft(t, pool, "a 1, c 1, e 1")
	})

	t.Run("Configured", func(t *testing.T) {
		pool, k := retaining(t, func(cfg *Config) {
			cfg.Keep.Runs = store.Retention{
				Completed: 48 * time.Hour, Failed: 72 * time.Hour,
				Workflows: map[string]time.Duration{"brief": time.Hour},
			}
		})
		addOld(t, pool, "a", "COMPLETED", 1, 1)
		addOld(t, pool, "b", "COMPLETED", 2, 1)
		addOld(t, pool, "c", "CANCELLED", 2, 1)
		addOld(t, pool, "d", "CANCELLED", 3, 1)
		addOld(t, pool, "brief", "FAILED", 1, 1)
		scanOnce(t, k)
		wantLeft(t, pool, "a 1, c 1")
	})

	// It is not known what a call has done: the run stays in sight until it is resolved.
	t.Run("InDoubt", func(t *testing.T) {
		pool, k := retaining(t)
		addOld(t, pool, "doubtful", "CANCELLED", 40, 2)
		addOld(t, pool, "other", "CANCELLED", 40, 2)
		addSteps(t, pool, "doubtful", 2)
		dbtest.Exec(t, pool, `UPDATE kagzi.step_runs SET status = 'RUNNING', error_kind = 'in_doubt'
			WHERE step_id = 'step-1'`)
		scanOnce(t, k)
		wantLeft(t, pool, "doubtful 2")
		dbtest.Exec(t, pool, `UPDATE kagzi.step_runs SET status = 'COMPLETED', error_kind = NULL`)
		scanOnce(t, k)
		wantLeft(t, pool, "none")
	})

	t.Run("KeepForever", func(t *testing.T) {
		pool, k := retaining(t, func(cfg *Config) { cfg.Keep.Forever = true })
		addOld(t, pool, "a", "COMPLETED", 1000, 1)
		if pause, err := k.DeleteOld(t.Context()); err != nil || pause < time.Second || left(t, pool) != "a 1" {
			t.Errorf("pause %v, error %v, left %s", pause, err, left(t, pool))
		}
	})

	// A query reads a few thousand sleeping runs, and a pause follows. All old runs behind them are found and deleted
	// in batches.
	t.Run("BehindManySleepers", func(t *testing.T) {
		pool, k := retaining(t)
		addOld(t, pool, "asleep", "SLEEPING", 400, 3*readRuns)
		addOld(t, pool, "old", "COMPLETED", 40, 3*deleteRuns+1)
		if pause, err := k.DeleteOld(t.Context()); pause != 0 || err != nil { // begins the scan
			t.Fatal(pause, err)
		}
		began := time.Now()
		pause, err := k.DeleteOld(t.Context())
		if took := time.Since(began); err != nil || pause == 0 || pause > scanShare*took {
			t.Errorf("pause %v after a query of %v that found nothing, error %v", pause, took, err)
		}
		// Three queries read the sleepers, one finds all old runs, four passes delete them, and one query reads the
		// other range.
		if passes := scanOnce(t, k); passes != 2+1+4+1 {
			t.Errorf("%d passes", passes)
		}
		wantLeft(t, pool, "asleep 12000")
	})

	// The next scan finds a run that ended after this scan had read it.
	t.Run("EndedBehind", func(t *testing.T) {
		pool, k := retaining(t)
		addOld(t, pool, "sleeper", "SLEEPING", 400, 1)
		addOld(t, pool, "old", "COMPLETED", 40, 1)
		scanOnce(t, k)
		dbtest.Exec(t, pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL,
			finished_at = now() - interval '8 days'`)
		wantLeft(t, pool, "sleeper 1")
		scanOnce(t, k)
		wantLeft(t, pool, "none")
	})

	t.Run("LongRuns", func(t *testing.T) {
		pool, k := retaining(t)
		addOld(t, pool, "old", "FAILED", 40, 3)
		addSteps(t, pool, "old", 2*deleteRows+1)
		scanOnce(t, k)
		wantLeft(t, pool, "none")
	})

	// A coordinator that meets another ends its scan, and begins a new one later.
	t.Run("EndsItsScanForAnother", func(t *testing.T) {
		pool, k := retaining(t)
		addOld(t, pool, "old", "COMPLETED", 40, 1)
		tx := dbtest.BeginWith(t, pool, `SELECT pg_advisory_xact_lock(hashtextextended('kagzi prune default', 0))`)
		if passes := scanOnce(t, k); passes != 3 { // begins, finds, meets the other
			t.Errorf("%d passes", passes)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantLeft(t, pool, "old 1")
		scanOnce(t, k)
		wantLeft(t, pool, "none")
	})
}

// addOthers inserts n runs of another namespace, created one each second from 50 days ago, which ended 30 days ago.
func addOthers(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	dbtest.Exec(t, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, finished_at)
		SELECT (lpad(to_hex((extract(epoch FROM now() - interval '50 days') * 1000)::bigint + g * 1000), 12,
			'0') || '70008' || substr(md5(g::text), 1, 15))::uuid,
			'other', 'default', 'others', 'CANCELLED', now() - interval '30 days'
		FROM generate_series(1, $1::bigint) AS g`, n)
}

// queryRows makes passes until the scan has ended, and returns for each query the number of runs of all namespaces that
// it read.
func queryRows(t *testing.T, pool *pgxpool.Pool, k *Coordinator) (rows []int) {
	t.Helper()
	for begun := time.Now(); ; {
		if len(k.scan.ranges) > 0 && len(k.scan.old) == 0 {
			part := k.scan.next()
			rows = append(rows, dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.workflow_runs
				WHERE run_id > $1 AND run_id <= $2`, part.After, part.End))
		}
		if _, err := k.DeleteOld(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(k.scan.old) == 0 && len(k.scan.ranges) == 0 {
			return rows
		}
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("the scan does not end: %d queries, %d cuts", len(rows), len(k.scan.cuts))
		}
	}
}

// Another namespace has filled the key. The queries for one namespace's runs read bounded parts of it, and make
// progress even if the server cancels some.
func TestRetentionBesideALargeNamespace(t *testing.T) {
	t.Parallel()

	t.Run("EachQueryReadsAPart", func(t *testing.T) {
		const others = 50_000
		pool, k := retaining(t)
		addOthers(t, pool, others)
		for round := 1; round <= 3; round++ {
			addOld(t, pool, "old", "COMPLETED", 49, 20)
			dbtest.Exec(t, pool, `ANALYZE kagzi.workflow_runs`)
			queries := queryRows(t, pool, k)
			wantLeft(t, pool, fmt.Sprint("others ", others))
			if k.scan.shared != maxShared {
				t.Errorf("the pauses are those of one in %d runs, want %d", k.scan.shared, maxShared)
			}
			// The parts are hundredths at first, and each scan joins two of them at the most.
			if most := slices.Max(queries); most > others/100<<round {
				t.Errorf("scan %d: a query read %d runs of %d", round, most, others)
			}
			t.Logf("scan %d: %d queries of %d runs at the most", round, len(queries), slices.Max(queries))
		}
	})

	t.Run("ThePartOfACancelledQueryIsDivided", func(t *testing.T) {
		const others = 300_000
		pool, k := retaining(t)
		addOthers(t, pool, others)
		addOld(t, pool, "old", "COMPLETED", 49, 20)
		k.scan.longest = 5 * time.Millisecond
		queries := queryRows(t, pool, k)
		wantLeft(t, pool, fmt.Sprint("others ", others))
		if len(k.scan.cuts) == 0 {
			t.Fatal("INVALID: no query took too long")
		}
		t.Logf("%d queries, %d cuts", len(queries), len(k.scan.cuts))
		// The next scan begins with the parts of this one.
		if queries = queryRows(t, pool, k); queries[0] == others {
			t.Error("the next scan reads everything at once")
		}
	})
}

// Slow queries add cuts, and quick queries remove them.
func TestCuts(t *testing.T) {
	t.Parallel()
	at := func(n uint64) (id uuid.UUID) {
		binary.BigEndian.PutUint64(id[:], n)
		return id
	}
	s := &scan{}
	// scanKey scans the key up to 1024 with queries that take as long as takes says, and returns the ends of the parts.
	scanKey := func(takes func(store.Range) time.Duration) (ends []uint64) {
		s.ranges = []store.Range{{End: at(1024)}}
		for len(s.ranges) > 0 {
			part := s.next()
			if took := takes(part); took > maxQuery && s.cut(part) {
				continue
			} else if s.passed(part.End); took <= maxQuery {
				s.fit(part, took)
			}
			ends = append(ends, binary.BigEndian.Uint64(part.End[:]))
		}
		return ends
	}
	// perID is a query that takes a millisecond for each ID above 512.
	perID := func(r store.Range) time.Duration {
		return time.Duration(binary.BigEndian.Uint64(r.End[:])-max(512,
			min(binary.BigEndian.Uint64(r.After[:]), binary.BigEndian.Uint64(r.End[:])))) * time.Millisecond
	}
	quick := func(store.Range) time.Duration { return 0 }
	if got := scanKey(quick); !slices.Equal(got, []uint64{1024}) {
		t.Errorf("parts %v", got)
	}
	if got := scanKey(perID); !slices.Equal(got, []uint64{512, 640, 768, 896, 1024}) {
		t.Errorf("parts %v", got)
	}
	for range 5 {
		for _, end := range scanKey(perID) {
			if r := (store.Range{After: at(end - min(end, 200)), End: at(end)}); perID(r) > maxQuery {
				t.Errorf("a part ends at %d", end)
			}
		}
	}
	if n := len(s.cuts); n > 16 {
		t.Errorf("%d cuts", n)
	}
	before := len(s.cuts)
	for want := before; len(s.cuts) > 0; {
		scanKey(quick)
		if len(s.cuts) >= want || len(s.cuts) < want/2 {
			t.Fatalf("a scan leaves %d cuts of %d", len(s.cuts), want)
		}
		want = len(s.cuts)
	}
	// The scan skips a part that cannot be divided.
	forever := func(store.Range) time.Duration { return time.Hour }
	s.ranges = []store.Range{{After: at(7), End: at(8)}}
	if part := s.next(); s.cut(part) || forever(part) == 0 {
		t.Error("a part without a middle is cut")
	}
	if got := scanKey(forever); got[len(got)-1] != 1024 || len(s.cuts) < 1000 {
		t.Errorf("parts %v", got)
	}
}

// Several coordinators delete at once without blocking each other, and Run deletes.
func TestCoordinatorsDelete(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	addOld(t, pool, "old", "COMPLETED", 40, 5*deleteRuns)
	addOld(t, pool, "young", "COMPLETED", 1, 10)
	var scans sync.WaitGroup
	for range 3 {
		k := newCoordinator(t, pool)
		scans.Go(func() { scanOnce(t, k) })
	}
	scans.Wait()
	addOld(t, pool, "old", "COMPLETED", 40, 1)
	k := newCoordinator(t, pool)
	running, stop := context.WithCancel(t.Context())
	scans.Go(func() {
		if err := k.Run(running); err != nil {
			t.Error(err)
		}
	})
	defer scans.Wait()
	defer stop()
	await.True(t, "only the recent runs are left", func() bool { return left(t, pool) == "young 10" })
}

// The server refuses to delete a run, or cannot read it. The other runs are deleted, the log names the run once, and a
// scan deletes it after its repair.
func TestRetentionSkipsARunItCannotDelete(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		damage []string // the run's ID is $1
		repair string
		logged string
		steps  int
	}{
		"AForeignKey": {
			[]string{`CREATE TABLE public.orders (run uuid, ns text,
				FOREIGN KEY (run, ns) REFERENCES kagzi.workflow_runs (run_id,
				namespace_id))`, `INSERT INTO public.orders VALUES ('%s', 'default')`},
			`DROP TABLE public.orders`, "a run past its retention cannot be deleted", 1,
		},
		"OneOfManySteps": {
			[]string{
				`CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'kept'
					USING ERRCODE = '23503'; END $$`,
				`CREATE TRIGGER keep BEFORE DELETE ON kagzi.step_runs FOR EACH ROW
					WHEN (OLD.run_id = '%s' AND OLD.step_id = 'step-7') EXECUTE FUNCTION public.keep()`,
			},
			`DROP TRIGGER keep ON kagzi.step_runs`, "a run past its retention cannot be deleted", deleteRows + 10,
		},
		"ADamagedRow": {
			[]string{
				`CREATE FUNCTION public.readable(run uuid) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN IF run = '%s'
					THEN RAISE 'invalid page' USING ERRCODE = 'XX001'; END IF; RETURN true; END $$`,
				`CREATE POLICY bad ON kagzi.workflow_runs USING (public.readable(run_id))`,
				`ALTER TABLE kagzi.workflow_runs ENABLE ROW LEVEL SECURITY`,
			},
			`ALTER TABLE kagzi.workflow_runs DISABLE ROW LEVEL SECURITY`, "a run cannot be read", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			logged := &testlog.Buffer{}
			k := newCoordinator(t, dbtest.OpenPool(t, db.DSN, dbtest.Setting("role", dbtest.Role(t, db))),
				func(cfg *Config) { cfg.Log = logged.Logger() })
			k.scan.longest = time.Minute
			for days := 40; days < 60; days++ { // IDs of many times, because cuts divide by time
				addOld(t, db.Pool, "old", "COMPLETED", days, 1)
			}
			bad := dbtest.QueryOne[uuid.UUID](t, db.Pool, `SELECT run_id FROM kagzi.workflow_runs
				ORDER BY run_id OFFSET 7 LIMIT 1`)
			dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET workflow_type = 'bad' WHERE run_id = $1`, bad)
			addSteps(t, db.Pool, "bad", tt.steps)
			for _, sql := range tt.damage {
				if strings.Contains(sql, "%s") {
					sql = fmt.Sprintf(sql, bad)
				}
				dbtest.Exec(t, db.Pool, sql)
			}
			scanOnce(t, k)
			wantLeft(t, db.Pool, "bad 1")
			scanOnce(t, k)
			if n := strings.Count(logged.String(), tt.logged); n != 1 {
				t.Errorf("logged %d times, want once:\n%s", n, logged)
			}
			dbtest.Exec(t, db.Pool, tt.repair)
			scanOnce(t, k)
			wantLeft(t, db.Pool, "none")
		})
	}
}

// A process died after it had deleted half of a run's steps. The next process deletes the rest although it keeps runs
// for longer: such a run cannot be resumed, and its remains are of no use.
func TestHalfDeletedRunIsDeletedUnderALongerRetention(t *testing.T) {
	ctx, pool := t.Context(), dbtest.Pool(t)
	st := store.New(pool, "default")
	addOld(t, pool, "old", "FAILED", 40, 1)
	addOld(t, pool, "kept", "FAILED", 40, 1)
	addSteps(t, pool, "old", 60)
	r := store.Retention{Completed: week, Failed: month}
	ranges, _, err := st.Deletions.RetentionRanges(ctx, r.Shortest())
	if err != nil {
		t.Fatal(err)
	}
	old, _, err := st.Deletions.Expired(ctx, r, ranges[0], 100, time.Minute)
	if err != nil || len(old) != 2 {
		t.Fatal(err, old)
	}
	long := old[:0]
	for _, id := range old {
		if dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1`, id) > 0 {
			long = append(long, id)
		}
	}
	// Transactions of 50 rows: the run is too long for one.
	if p, err := st.Deletions.Prune(ctx, r, long, 50); err != nil || len(p.Long) != 1 {
		t.Fatal(err, p)
	}
	if n, err := st.Deletions.PruneSteps(ctx, long[0], 50); err != nil || n != 50 {
		t.Fatal(n, err)
	}
	scanOnce(t, newCoordinator(t, pool, func(cfg *Config) { cfg.Keep.Runs.Failed = 3 * month }))
	wantLeft(t, pool, "kept 1")
	if n := dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.step_runs`); n != 0 {
		t.Errorf("%d steps left", n)
	}
}

// The rows of windows go some time after these have closed, also if all runs are kept.
func TestClosedWindowsAreDeleted(t *testing.T) {
	for _, forever := range []bool{false, true} {
		t.Run(fmt.Sprint(forever), func(t *testing.T) {
			pool, k := retaining(t, func(c *Config) { c.Keep.Forever = forever })
			dbtest.Exec(t, pool, `
				INSERT INTO kagzi.start_windows (window_id, namespace_id, policy, workflow_type, start_key, closes_at)
				SELECT gen_random_uuid(), 'default', 'batch', 'type', g::text, now() - interval '11 minutes'
					FROM generate_series(1, 1200) AS g
				UNION ALL SELECT gen_random_uuid(), 'default', 'batch', 'type', 'recent', now() - interval '9 minutes'
				UNION ALL SELECT gen_random_uuid(), 'other', 'batch', 'type', 'other', now() - interval '1 day'`)
			if _, err := k.DeleteOld(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := dbtest.QueryOne[string](t, pool, `SELECT string_agg(start_key, ' ' ORDER BY start_key)
				FROM kagzi.start_windows`); got != "other recent" {
				t.Errorf("left: %s", got)
			}
		})
	}
}

// The record of a deletion goes when a failed run of its age would, and an entry of the audit log after KeepAudit.
// Neither goes if runs are kept for ever.
func TestRecordsOfDeletions(t *testing.T) {
	for keeps, want := range map[bool]int{false: 1, true: 2} {
		t.Run(fmt.Sprint("KeepForever=", keeps), func(t *testing.T) {
			pool, k := retaining(t, func(c *Config) { c.Keep.Forever, c.Keep.Audit = keeps, 20*24*time.Hour })
			for _, days := range []int{19, 21} {
				dbtest.Exec(t, pool, `INSERT INTO kagzi.audit_log (entry_id, namespace_id, action, kind, name,
					occurred_at)
					VALUES (gen_random_uuid(), 'default', 'PAUSED', 'queue', 'q',
						now() - $1::int * interval '1 day')`, days)
			}
			for _, days := range []int{29, 31} {
				dbtest.Exec(t, pool, `INSERT INTO kagzi.run_events (run_id, event_id, namespace_id, event, occurred_at)
					VALUES (gen_random_uuid(), gen_random_uuid(), 'default', 'DELETED',
						now() - $1::int * interval '1 day')`, days)
			}
			if _, err := k.DeleteOld(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.run_events`); n != want {
				t.Errorf("%d are left, want %d", n, want)
			}
			if n := dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.audit_log`); n != want {
				t.Errorf("%d entries of the audit log are left, want %d", n, want)
			}
		})
	}
}
