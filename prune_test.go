package kagzi

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

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store"
)

// addOld makes n runs of the workflow that were made so many days ago, and if they are over ended then.
func addOld(t *testing.T, pool *pgxpool.Pool, workflow, status string, days, n int) {
	t.Helper()
	for _, sql := range []string{
		`
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, available_at, finished_at, error_kind)
		SELECT (lpad(to_hex((extract(epoch FROM now() - $3::int * interval '1 day') * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid,
			'default', 'default', $1, $2::text, CASE WHEN $2::text = 'SLEEPING' THEN timestamptz 'infinity' END,
			CASE WHEN $2::text <> 'SLEEPING' THEN now() - $3::int * interval '1 day' END, CASE WHEN $2::text = 'FAILED' THEN 'error' END
		FROM generate_series(1, $4::int)`, `
		INSERT INTO kagzi.workflow_payloads (run_id, namespace_id) SELECT run_id, namespace_id FROM kagzi.workflow_runs
		WHERE workflow_type = $1 AND status = $2 AND $3::int + $4::int > 0
		ON CONFLICT DO NOTHING`,
	} {
		execSQL(t, pool, sql, workflow, status, days, n)
	}
}

// addSteps gives n steps to each run of the workflow.
func addSteps(t *testing.T, pool *pgxpool.Pool, workflow string, n int) {
	t.Helper()
	execSQL(t, pool, `
		INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt, first_attempt)
		SELECT run_id, 'step-' || g, 1, namespace_id, 'COMPLETED', 'FUNCTION', 1, 1
		FROM kagzi.workflow_runs, generate_series(1, $2::int) AS g WHERE workflow_type = $1`, workflow, n)
}

// left says how many runs of each workflow there are.
func left(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return queryOne[string](t, pool, `
		SELECT coalesce(string_agg(workflow_type || ' ' || n, ', ' ORDER BY workflow_type), 'none')
		FROM (SELECT workflow_type, count(*) AS n FROM kagzi.workflow_runs GROUP BY 1) x`)
}

func wantLeft(t *testing.T, pool *pgxpool.Pool, want string) {
	t.Helper()
	if got := left(t, pool); got != want {
		t.Errorf("runs left: %s, want %s", got, want)
	}
}

// pruning is a coordinator, and its database.
func pruning(t *testing.T, cfg CoordinatorConfig) (*pgxpool.Pool, *Coordinator) {
	t.Helper()
	t.Parallel()
	pool := dbtest.Pool(t)
	k := newTestCoordinator(t, newTestClient(t, pool), cfg)
	k.walk.most = time.Minute // on a busy machine a look may take long
	return pool, k
}

// walkOnce makes passes until the walk has ended, and returns how many.
func walkOnce(t *testing.T, k *Coordinator) int {
	t.Helper()
	for passes := 1; ; passes++ {
		pause, err := k.prune(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(k.walk.old) == 0 && len(k.walk.ranges) == 0 {
			if pause < pruneRest/2 {
				t.Errorf("pause %v after the walk", pause)
			}
			return passes
		}
	}
}

func TestPruneWalks(t *testing.T) {
	t.Parallel()

	t.Run("Defaults", func(t *testing.T) {
		pool, k := pruning(t, CoordinatorConfig{})
		addOld(t, pool, "a", "COMPLETED", 6, 1)
		addOld(t, pool, "b", "COMPLETED", 8, 1)
		addOld(t, pool, "c", "FAILED", 29, 1)
		addOld(t, pool, "d", "FAILED", 31, 1)
		addOld(t, pool, "e", "CANCELLED", 29, 1)
		addOld(t, pool, "f", "CANCELLED", 31, 1)
		walkOnce(t, k)
		wantLeft(t, pool, "a 1, c 1, e 1")
	})

	t.Run("Configured", func(t *testing.T) {
		keep := map[string]time.Duration{"brief": time.Hour}
		pool, k := pruning(t, CoordinatorConfig{KeepCompleted: 48 * time.Hour, KeepFailed: 72 * time.Hour, Keep: keep})
		keep["a"] = time.Hour // comes too late
		addOld(t, pool, "a", "COMPLETED", 1, 1)
		addOld(t, pool, "b", "COMPLETED", 2, 1)
		addOld(t, pool, "c", "CANCELLED", 2, 1)
		addOld(t, pool, "d", "CANCELLED", 3, 1)
		addOld(t, pool, "brief", "FAILED", 1, 1)
		walkOnce(t, k)
		wantLeft(t, pool, "a 1, c 1")
	})

	t.Run("KeepForever", func(t *testing.T) {
		pool, k := pruning(t, CoordinatorConfig{KeepForever: true})
		addOld(t, pool, "a", "COMPLETED", 1000, 1)
		if pause, err := k.prune(t.Context()); err != nil || pause < time.Second || left(t, pool) != "a 1" {
			t.Errorf("pause %v, error %v, left %s", pause, err, left(t, pool))
		}
	})

	// Runs that sleep are passed a few thousand at a time, and with a rest. Behind them everything is found, in batches.
	t.Run("BehindManySleepers", func(t *testing.T) {
		pool, k := pruning(t, CoordinatorConfig{})
		addOld(t, pool, "asleep", "SLEEPING", 400, 3*pruneLook)
		addOld(t, pool, "old", "COMPLETED", 40, 3*pruneRuns+1)
		if pause, err := k.prune(t.Context()); pause != 0 || err != nil { // begins the walk
			t.Fatal(pause, err)
		}
		began := time.Now()
		pause, err := k.prune(t.Context())
		if took := time.Since(began); err != nil || pause == 0 || pause > pruneShare*took {
			t.Errorf("pause %v after a look in vain of %v, error %v", pause, took, err)
		}
		// The three looks at sleepers are followed by one that finds all, four batches, and a look at the other range.
		if passes := walkOnce(t, k); passes != 2+1+4+1 {
			t.Errorf("%d passes", passes)
		}
		wantLeft(t, pool, "asleep 12000")
	})

	// What ended behind the walk's back is found by the next one.
	t.Run("EndedBehind", func(t *testing.T) {
		pool, k := pruning(t, CoordinatorConfig{})
		addOld(t, pool, "sleeper", "SLEEPING", 400, 1)
		addOld(t, pool, "old", "COMPLETED", 40, 1)
		walkOnce(t, k)
		execSQL(t, pool, `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL, finished_at = now() - interval '8 days'`)
		wantLeft(t, pool, "sleeper 1")
		walkOnce(t, k)
		wantLeft(t, pool, "none")
	})

	t.Run("LongRuns", func(t *testing.T) {
		pool, k := pruning(t, CoordinatorConfig{})
		addOld(t, pool, "old", "FAILED", 40, 3)
		addSteps(t, pool, "old", 2*pruneRows+1)
		walkOnce(t, k)
		wantLeft(t, pool, "none")
	})

	// A coordinator that meets another gives way, and its next walk begins anew.
	t.Run("GivesWay", func(t *testing.T) {
		pool, k := pruning(t, CoordinatorConfig{})
		addOld(t, pool, "old", "COMPLETED", 40, 1)
		tx := locking(t, pool, `SELECT pg_advisory_xact_lock(hashtextextended('kagzi prune default', 0))`)
		if passes := walkOnce(t, k); passes != 3 { // begins, finds, gives way
			t.Errorf("%d passes", passes)
		}
		commitTx(t, tx)
		wantLeft(t, pool, "old 1")
		walkOnce(t, k)
		wantLeft(t, pool, "none")
	})
}

// addOthers makes n runs of another namespace, which were made and ended a month ago, one each second.
func addOthers(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	execSQL(t, pool, `
		INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, finished_at)
		SELECT (lpad(to_hex((extract(epoch FROM now() - interval '50 days') * 1000)::bigint + g * 1000), 12, '0') || '70008' || substr(md5(g::text), 1, 15))::uuid,
			'other', 'default', 'others', 'CANCELLED', now() - interval '30 days'
		FROM generate_series(1, $1::bigint) AS g`, n)
}

// lookRows makes passes until the walk has ended, and returns for each look how many runs of all namespaces it read.
func lookRows(t *testing.T, pool *pgxpool.Pool, k *Coordinator) (rows []int) {
	t.Helper()
	for begun := time.Now(); ; {
		if len(k.walk.ranges) > 0 && len(k.walk.old) == 0 {
			look := k.walk.next()
			rows = append(rows, queryOne[int](t, pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE run_id > $1 AND run_id <= $2`, look.After, look.End))
		}
		if _, err := k.prune(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(k.walk.old) == 0 && len(k.walk.ranges) == 0 {
			return rows
		}
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("the walk does not end: %d looks, %d cuts", len(rows), len(k.walk.cuts))
		}
	}
}

// The looks for one namespace's runs read a bounded part of a key that another has filled, and make progress also where
// they are cut off.
func TestPruneBesideALargeNamespace(t *testing.T) {
	t.Parallel()

	t.Run("EachLookReadsAPart", func(t *testing.T) {
		const others = 50_000
		pool, k := pruning(t, CoordinatorConfig{})
		addOthers(t, pool, others)
		for walk := 1; walk <= 3; walk++ {
			addOld(t, pool, "old", "COMPLETED", 49, 20)
			execSQL(t, pool, `ANALYZE kagzi.workflow_runs`)
			looks := lookRows(t, pool, k)
			wantLeft(t, pool, fmt.Sprint("others ", others))
			if k.walk.shared != mostShared {
				t.Errorf("the pauses are those of one in %d runs, want %d", k.walk.shared, mostShared)
			}
			// The parts are hundredths at first, and each walk joins two of them at the most.
			if most := slices.Max(looks); most > others/100<<walk {
				t.Errorf("walk %d: a look read %d runs of %d", walk, most, others)
			}
			t.Logf("walk %d: %d looks at %d runs at the most", walk, len(looks), slices.Max(looks))
		}
	})

	t.Run("ALookThatIsCutOffIsDivided", func(t *testing.T) {
		const others = 300_000
		pool, k := pruning(t, CoordinatorConfig{})
		addOthers(t, pool, others)
		addOld(t, pool, "old", "COMPLETED", 49, 20)
		k.walk.most = 5 * time.Millisecond
		looks := lookRows(t, pool, k)
		wantLeft(t, pool, fmt.Sprint("others ", others))
		if len(k.walk.cuts) == 0 {
			t.Fatal("INVALID: no look took too long")
		}
		t.Logf("%d looks, %d cuts", len(looks), len(k.walk.cuts))
		// The next walk begins with the parts that this one came to.
		if looks = lookRows(t, pool, k); looks[0] == others {
			t.Error("the next walk looks at everything at once")
		}
	})
}

// The cuts follow what the looks take.
func TestPruneCuts(t *testing.T) {
	t.Parallel()
	at := func(n uint64) (id uuid.UUID) {
		binary.BigEndian.PutUint64(id[:], n)
		return id
	}
	w := &pruneWalk{}
	// walk makes a walk of the key up to 1024 in which each look takes so long, and returns where the parts ended.
	walk := func(takes func(store.Range) time.Duration) (ends []uint64) {
		w.ranges = []store.Range{{End: at(1024)}}
		for len(w.ranges) > 0 {
			look := w.next()
			if took := takes(look); took > lookMost && w.cut(look) {
				continue
			} else if w.passed(look.End); took <= lookMost {
				w.fit(look, took)
			}
			ends = append(ends, binary.BigEndian.Uint64(look.End[:]))
		}
		return ends
	}
	// perID is a look that takes a millisecond for each ID above 512.
	perID := func(r store.Range) time.Duration {
		return time.Duration(binary.BigEndian.Uint64(r.End[:])-max(512, min(binary.BigEndian.Uint64(r.After[:]), binary.BigEndian.Uint64(r.End[:])))) * time.Millisecond
	}
	quick := func(store.Range) time.Duration { return 0 }
	if got := walk(quick); !slices.Equal(got, []uint64{1024}) {
		t.Errorf("parts %v", got)
	}
	if got := walk(perID); !slices.Equal(got, []uint64{512, 640, 768, 896, 1024}) {
		t.Errorf("parts %v", got)
	}
	for range 5 {
		for _, end := range walk(perID) {
			if r := (store.Range{After: at(end - min(end, 200)), End: at(end)}); perID(r) > lookMost {
				t.Errorf("a part ends at %d", end)
			}
		}
	}
	if n := len(w.cuts); n > 16 {
		t.Errorf("%d cuts", n)
	}
	before := len(w.cuts)
	for want := before; len(w.cuts) > 0; {
		walk(quick)
		if len(w.cuts) >= want || len(w.cuts) < want/2 {
			t.Fatalf("a walk leaves %d cuts of %d", len(w.cuts), want)
		}
		want = len(w.cuts)
	}
	// What is not divided any more is passed over.
	forever := func(store.Range) time.Duration { return time.Hour }
	w.ranges = []store.Range{{After: at(7), End: at(8)}}
	if look := w.next(); w.cut(look) || forever(look) == 0 {
		t.Error("a part without a middle is cut")
	}
	if got := walk(forever); got[len(got)-1] != 1024 || len(w.cuts) < 1000 {
		t.Errorf("parts %v", got)
	}
}

// TestCoordinatorsPrune shows that many at once are not in each other's way, and that Run prunes.
func TestCoordinatorsPrune(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pool := dbtest.Pool(t)
	addOld(t, pool, "old", "COMPLETED", 40, 5*pruneRuns)
	addOld(t, pool, "young", "COMPLETED", 1, 10)
	c := newTestClient(t, pool)
	var walks sync.WaitGroup
	for range 3 {
		k := newTestCoordinator(t, c, CoordinatorConfig{})
		walks.Go(func() { walkOnce(t, k) })
	}
	walks.Wait()
	addOld(t, pool, "old", "COMPLETED", 40, 1)
	k := newTestCoordinator(t, c, CoordinatorConfig{})
	running, stop := context.WithCancel(ctx)
	walks.Go(func() {
		if err := k.Run(running); err != nil {
			t.Error(err)
		}
	})
	defer walks.Wait()
	defer stop()
	waitFor(t, "only the young are left", func() bool { return left(t, pool) == "young 10" })
}

// TestPruneLeavesOutWhatItCannotDelete has one run that the server refuses to delete, and one that it cannot even read: the
// others go, that is told once, and these go when it is repaired.
func TestPruneLeavesOutWhatItCannotDelete(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		damage []string // the run's ID is $1
		repair string
		told   string
		steps  int
	}{
		"AForeignKey": {
			[]string{`CREATE TABLE public.orders (run uuid, ns text, FOREIGN KEY (run, ns) REFERENCES kagzi.workflow_runs (run_id, namespace_id))`, `INSERT INTO public.orders VALUES ('%s', 'default')`},
			`DROP TABLE public.orders`, "a run past its retention cannot be deleted", 1,
		},
		"OneOfManySteps": {
			[]string{
				`CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'kept' USING ERRCODE = '23503'; END $$`,
				`CREATE TRIGGER keep BEFORE DELETE ON kagzi.step_runs FOR EACH ROW WHEN (OLD.run_id = '%s' AND OLD.step_id = 'step-7') EXECUTE FUNCTION public.keep()`,
			},
			`DROP TRIGGER keep ON kagzi.step_runs`, "a run past its retention cannot be deleted", pruneRows + 10,
		},
		"ADamagedRow": {
			[]string{
				`CREATE FUNCTION public.readable(run uuid) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN IF run = '%s' THEN RAISE 'invalid page' USING ERRCODE = 'XX001'; END IF; RETURN true; END $$`,
				`CREATE POLICY bad ON kagzi.workflow_runs USING (public.readable(run_id))`,
				`ALTER TABLE kagzi.workflow_runs ENABLE ROW LEVEL SECURITY`,
			},
			`ALTER TABLE kagzi.workflow_runs DISABLE ROW LEVEL SECURITY`, "a run cannot be read", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			_, c, logged := poorClient(t, db, "")
			k := newTestCoordinator(t, c, CoordinatorConfig{})
			k.walk.most = time.Minute
			for days := 40; days < 60; days++ { // IDs of many times, as a look is divided by them
				addOld(t, db.Pool, "old", "COMPLETED", days, 1)
			}
			bad := queryOne[uuid.UUID](t, db.Pool, `SELECT run_id FROM kagzi.workflow_runs ORDER BY run_id OFFSET 7 LIMIT 1`)
			execSQL(t, db.Pool, `UPDATE kagzi.workflow_runs SET workflow_type = 'bad' WHERE run_id = $1`, bad)
			addSteps(t, db.Pool, "bad", tt.steps)
			for _, sql := range tt.damage {
				if strings.Contains(sql, "%s") {
					sql = fmt.Sprintf(sql, bad)
				}
				execSQL(t, db.Pool, sql)
			}
			walkOnce(t, k)
			wantLeft(t, db.Pool, "bad 1")
			walkOnce(t, k)
			if n := strings.Count(logged.String(), tt.told); n != 1 {
				t.Errorf("told %d times, want once:\n%s", n, logged)
			}
			execSQL(t, db.Pool, tt.repair)
			walkOnce(t, k)
			wantLeft(t, db.Pool, "none")
		})
	}
}

// TestHalfDeletedRunGoesUnderALongerRetention shows that a run whose steps are half deleted goes, although the process that began has died and the next one's retention is
// longer: such a run cannot be resumed, and what is left of it tells nothing.
func TestHalfDeletedRunGoesUnderALongerRetention(t *testing.T) {
	k := newKit(t)
	addOld(t, k.pool, "old", "FAILED", 40, 1)
	addOld(t, k.pool, "kept", "FAILED", 40, 1)
	addSteps(t, k.pool, "old", 60)
	r := CoordinatorConfig{}.withDefaults().retention()
	ranges, _, err := k.c.store.BeginWalk(k.ctx, r.Shortest())
	if err != nil {
		t.Fatal(err)
	}
	old, _, err := k.c.store.Old(k.ctx, r, ranges[0], 100, time.Minute)
	if err != nil || len(old) != 2 {
		t.Fatal(err, old)
	}
	long := old[:0]
	for _, id := range old {
		if k.count(`SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1`, id) > 0 {
			long = append(long, id)
		}
	}
	// Transactions of 50 rows: the run is too long for one.
	if p, err := k.c.store.Prune(k.ctx, r, long, 50); err != nil || len(p.Long) != 1 {
		t.Fatal(err, p)
	}
	if n, err := k.c.store.PruneSteps(k.ctx, long[0], 50); err != nil || n != 50 {
		t.Fatal(n, err)
	}
	walkOnce(t, newTestCoordinator(t, k.c, CoordinatorConfig{KeepFailed: 90 * 24 * time.Hour}))
	wantLeft(t, k.pool, "kept 1")
	if n := k.count(`SELECT count(*) FROM kagzi.step_runs`); n != 0 {
		t.Errorf("%d steps left", n)
	}
}

func TestRetentionIsValidated(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, dbtest.Pool(t))
	for want, cfg := range map[string]CoordinatorConfig{
		"KeepCompleted is 30ns: give at least 1s (a time.Duration counts nanoseconds": {KeepCompleted: 30},
		"KeepFailed is -1s": {KeepFailed: -time.Second},
		`Keep of workflow "checkout" is 0s: give at least 1s`: {Keep: map[string]time.Duration{"checkout": 0}},
		"workflow in Keep is empty":                           {Keep: map[string]time.Duration{"": time.Hour}},
		"contains the control character":                      {Keep: map[string]time.Duration{"a\nb": time.Hour}},
	} {
		if _, err := NewCoordinator(c, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		if _, err := NewWorker(c, WorkerConfig{Coordinator: cfg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v of a worker, want %s", err, want)
		}
	}
}
