//go:build unix

package operations_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/store"
)

func TestRegistry(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	cfg := kit.RareHeartbeats
	cfg.Queue, cfg.MaxConcurrent, cfg.Build, cfg.Labels = "shop", 7, "v1.2.3",
		map[string]string{"zone": "a", "rack": "4"}
	w := kit.NewWorker(t, c, cfg)
	g := kit.NewGate()
	g.Handle(w)
	stop := kit.StartLocal(t, w)
	second := kit.NewWorker(t, c, kit.RareHeartbeats)
	kagzi.Handle(second, kit.Nothing, func(_ kagzi.Context, n int) (string, error) { return strconv.Itoa(n), nil })
	kit.StartLocal(t, second)
	await.True(t, "both are registered", func() bool {
		_, total, err := admin.New(c).Workers.List(t.Context(), admin.WorkerFilter{})
		return err == nil && total == 2
	})
	for name, f := range map[string]admin.WorkerFilter{
		"Queue": {Queue: "shop"}, "Workflow": {Workflow: "gate"}, "Labels": {Labels: map[string]string{"zone": "a"}},
		"All": {
			Queue: "shop", Workflow: "gate", Labels: map[string]string{"zone": "a", "rack": "4"},
			Status: []string{"ONLINE", "OFFLINE"},
		},
	} {
		got := kit.Only(t, c, f)
		if !slices.Equal(got.Queues, []string{"shop"}) || !slices.Equal(got.Workflows, []string{"gate"}) ||
			got.Status != "ONLINE" || got.Hostname == "" || got.PID == 0 ||
			got.Build != "v1.2.3" || got.Labels["zone"] != "a" || got.MaxConcurrent != 7 || !got.Watched ||
			got.StartedAt.IsZero() || got.HeartbeatAt.IsZero() || !got.StoppedAt.IsZero() {
			t.Errorf("%s: %+v", name, got)
		}
		if again, err := admin.New(c).Workers.Get(t.Context(), got.ID); err != nil || again.ID != got.ID ||
			again.Build != got.Build {
			t.Errorf("%+v, %v", again, err)
		}
	}
	for name, f := range map[string]admin.WorkerFilter{
		"Queue": {Queue: "bank"}, "Workflow": {Workflow: "gates"}, "Labels": {Labels: map[string]string{"zone": "b"}},
		"Status": {Status: []string{"DRAINING"}},
	} {
		if page, total, err := admin.New(c).Workers.List(t.Context(), f); err != nil || total != 0 || len(page) != 0 {
			t.Errorf("%s: %+v, %d, %v", name, page, total, err)
		}
	}
	id := kit.Only(t, c, admin.WorkerFilter{Queue: "shop"}).ID
	stop()
	if got, err := admin.New(c).Workers.Get(t.Context(), id); err != nil || got.Status != "OFFLINE" ||
		got.StoppedAt.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	events, err := admin.New(c).Workers.Log(t.Context(), id)
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.Event)
	}
	if err != nil || !slices.Equal(kinds, []string{"STARTED", "DRAINING", "STOPPED"}) ||
		events[1].Reason != "Run's context ended" {
		t.Errorf("events %+v, %v", events, err)
	}
}

func TestRegistryRefuses(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none") // no input below is worth a connection
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	c := kit.NewClient(t, pool)
	ctx, workers := t.Context(), admin.New(c).Workers
	list := func(f admin.WorkerFilter) error { _, _, err := workers.List(ctx, f); return err }
	for want, err := range map[string]error{
		`kagzi: list workers: Limit is -1: give a positive number`: list(admin.WorkerFilter{
			Limit: -1,
		}),
		`kagzi: list workers: a worker has no status "online": give ONLINE, DR`: list(admin.WorkerFilter{
			Status: []string{"online"},
		}),
		`kagzi: list workers: worker not found: "x" is not a worker ID`: list(admin.WorkerFilter{
			After: "x",
		}),
		`kagzi: list workers: queue "a\x00" contains the control character U+0000`: list(admin.WorkerFilter{
			Queue: "a\x00",
		}),
		`kagzi: list workers: workflow name "a\n" contains the control character`: list(admin.WorkerFilter{
			Workflow: "a\n",
		}),
		`kagzi: drain worker 7: worker not found: "7" is not a worker ID`:         workers.Drain(ctx, "7"),
		`kagzi: force worker 7 offline: worker not found: "7" is not a worker ID`: workers.ForceOffline(ctx, "7"),
		`kagzi: drain worker ` + uuid.Nil.String() + `: InTx(nil): begin a transacti`: workers.Drain(ctx,
			uuid.Nil.String(),
			kagzi.InTx(nil)),
		`kagzi: force worker 8 offline: InTx(nil): begin a transaction first`: workers.ForceOffline(ctx, "8",
			kagzi.InTx(nil)),
		`kagzi: drain queue: the queue's name is empty: the default one is "default"`: func() error {
			_, err := workers.DrainQueue(ctx, "")
			return err
		}(),
		`kagzi: get worker without an ID: worker not found: "" is not a worker ID`: func() error {
			_, err := workers.Get(ctx, "")
			return err
		}(),
		`kagzi: log of worker 9: worker not found: "9" is not a worker ID`: func() error {
			_, err := workers.Log(ctx, "9")
			return err
		}(),
		`kagzi: list workers: Metadata key is empty: give each value a name`: list(admin.WorkerFilter{
			Labels: map[string]string{"": "x"},
		}),
		`kagzi: Grace is -1ns: give at least 1.5s, or set NoGrace (a `: func() error {
			_, err := kagzi.NewCoordinator(c, kagzi.CoordinatorConfig{Grace: -1})
			return err
		}(),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s…", err, want)
		}
	}
	if err := workers.Drain(ctx, "7"); !errors.Is(err, kagzi.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}

func TestUnknownWorkers(t *testing.T) {
	t.Parallel()
	c := kit.NewClient(t, dbtest.Pool(t))
	id := uuid.NewString()
	_, gotErr := admin.New(c).Workers.Get(t.Context(), id)
	_, eventsErr := admin.New(c).Workers.Log(t.Context(), id)
	_, _, pageErr := admin.New(c).Workers.List(t.Context(), admin.WorkerFilter{After: id})
	for what, err := range map[string]error{
		"Worker": gotErr, "WorkerEvents": eventsErr, "Workers": pageErr,
		"Drain":        admin.New(c).Workers.Drain(t.Context(), id),
		"ForceOffline": admin.New(c).Workers.ForceOffline(t.Context(), id),
	} {
		if !errors.Is(err, kagzi.ErrNotFound) {
			t.Errorf("%s: %v, want ErrNotFound", what, err)
		}
	}
	if n, err := admin.New(c).Workers.DrainQueue(t.Context(), "nobody's"); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, err := admin.New(kit.NewClient(t, dbtest.Pool(t, dbtest.Empty()))).Workers.DrainQueue(t.Context(), "q")
	if err == nil || !strings.Contains(err.Error(), "Migrate") {
		t.Errorf("without the schema: %v", err)
	}
}

// A client of another process drains a worker: its Run returns nil, although its next regular heartbeat is minutes
// away.
func TestDrainFromAnywhere(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(c *kagzi.Client, pool *pgxpool.Pool, id string) error{
		"Worker": func(c *kagzi.Client, _ *pgxpool.Pool, id string) error {
			return admin.New(c).Workers.Drain(t.Context(), id)
		},
		"Queue": func(c *kagzi.Client, _ *pgxpool.Pool, id string) error {
			n, err := admin.New(c).Workers.DrainQueue(t.Context(), "default")
			if n != 1 {
				t.Errorf("%d workers are to drain, want 1", n)
			}
			return err
		},
		"InTx": func(c *kagzi.Client, pool *pgxpool.Pool, id string) error {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				return err
			}
			return errors.Join(admin.New(c).Workers.Drain(t.Context(), id, kagzi.InTx(tx)), tx.Commit(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c, logged := kit.LoggedClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(5)))
			w := kit.NewWorker(t, c, kit.RareHeartbeats)
			g := kit.NewGate()
			g.Handle(w)
			far := kit.NewClient(t, db.Pool)
			runs := kit.StartRuns(t, far, g.Workflow, 2)
			done := kit.RunWorker(t, w)
			for range runs {
				await.Receive(t, g.Begun)
			}
			kit.WaitListening(t, db.Pool, 1)
			id := kit.Only(t, far, admin.WorkerFilter{}).ID
			if err := ask(far, db.Pool, id); err != nil {
				t.Fatal(err)
			}
			if got, err := admin.New(far).Workers.Get(t.Context(), id); err != nil || got.Status != "DRAINING" {
				t.Errorf("the worker is %s, %v", got.Status, err)
			}
			await.True(t, "the worker drains", func() bool { return logged.Has("worker was asked to drain") })
			logged.WantLine(t, `INFO msg="kagzi: draining"`, "worker="+id, "runs=2", "for_at_most=30s")
			close(g.Open)
			if err := await.Receive(t, done); err != nil {
				t.Errorf("Run: %v", err)
			}
			kit.CheckResults(t, runs, func(int) string { return "opened" })
			events, err := admin.New(far).Workers.Log(t.Context(), id)
			if err != nil || len(events) != 3 || events[1].Event != "DRAINING" || events[1].Reason != "Workers.Drain" ||
				events[2].Event != "STOPPED" {
				t.Errorf("events %+v, %v", events, err)
			}
			if err := admin.New(far).Workers.Drain(t.Context(), id); err != nil {
				t.Errorf("of one that is offline: %v", err)
			}
			if got, err := admin.New(far).Workers.Get(t.Context(), id); err != nil || got.Status != "OFFLINE" {
				t.Errorf("the worker is %s, %v", got.Status, err)
			}
		})
	}
	t.Run("WithoutNotifications", func(t *testing.T) {
		t.Parallel()
		db := dbtest.Database(t)
		c := kit.NewClient(t, dbtest.OpenPool(t, dbtest.Pooler(t, db), dbtest.Conns(10)))
		w := kit.NewWorker(t, c, kit.Quick)
		kit.NewGate().Handle(w)
		done := kit.RunWorker(t, w)
		far := kit.NewClient(t, db.Pool)
		await.True(t, "the worker is registered", func() bool {
			_, total, err := admin.New(far).Workers.List(t.Context(), admin.WorkerFilter{})
			return err == nil && total == 1
		})
		if n, err := admin.New(far).Workers.DrainQueue(t.Context(), "default"); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if err := await.Receive(t, done); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// ForceOffline takes the runs from a live worker: another worker executes them. The first gives them up and registers
// again under a new ID.
func TestForceOfflineOfALiveWorker(t *testing.T) {
	t.Parallel()
	for name, inTx := range map[string]bool{"Now": false, "InTx": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c, logged := kit.LoggedClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(5)))
			far := kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(5)))
			g, runs, _ := kit.Gated(t, c, kit.RareHeartbeats, 2)
			kit.WaitListening(t, db.Pool, 1)
			id := kit.Only(t, far, admin.WorkerFilter{}).ID
			cfg := kit.RareHeartbeats
			cfg.PollInterval = time.Hour
			w := kit.NewWorker(t, far, cfg)
			h := kit.NewGate()
			h.Handle(w)
			kit.StartLocal(t, w)
			kit.WaitListening(t, db.Pool, 2)
			var opts []kagzi.ChangeOption
			commit := func() error { return nil }
			if inTx {
				tx := dbtest.Begin(t, db.Pool)
				opts, commit = append(opts, kagzi.InTx(tx)), func() error { return tx.Commit(t.Context()) }
			}
			if err := errors.Join(admin.New(far).Workers.ForceOffline(t.Context(), id, opts...), commit()); err != nil {
				t.Fatal(err)
			}
			g.LosesLeases(t, len(runs))
			close(g.Open)
			close(h.Open)
			kit.CheckResults(t, runs, func(int) string { return "opened" })
			events, err := admin.New(far).Workers.Log(t.Context(), id)
			if err != nil || len(events) != 2 || events[1].Event != "LOST" || events[1].Reason != "forced offline" {
				t.Errorf("events %+v, %v", events, err)
			}
			await.True(t, "the worker is registered anew", func() bool {
				_, total, err := admin.New(far).Workers.List(t.Context(),
					admin.WorkerFilter{Status: []string{"ONLINE"}})
				return err == nil && total == 2
			})
			logged.WantLine(t, "declared dead", "worker="+id, "new_worker=", "runs=2", `reason="forced offline"`)
		})
	}
}

// After ForceOffline of a dead worker, another executes its runs at once, although it polls only once an hour and only
// the database can notify it.
func TestForceOfflineOfADeadWorker(t *testing.T) {
	t.Parallel()
	for name, inTx := range map[string]bool{"Now": false, "InTx": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c, far := kit.NewClient(t, db.Pool), kit.NewClient(t, dbtest.OpenPool(t, db.DSN, dbtest.Conns(5)))
			h := kit.NewGate()
			runs := kit.StartRuns(t, c, h.Workflow, 2)
			dead := store.Worker{
				ID: uuid.New(), Queues: []string{"default"}, Types: []string{"gate"},
				LeaseTimeout: time.Hour, StaleAfter: time.Hour,
			}
			claim := store.ClaimRequest{
				Queue: "default", Types: []store.WorkflowVersions{{Type: "gate", Versions: []int{1}, Default: 1}},
				Limit: 2, Worker: dead.ID, Lease: uuid.New(), LeaseTimeout: time.Hour,
			}
			s := store.New(db.Pool, "default")
			if err := s.Workers.Register(t.Context(), db.Pool, dead); err != nil {
				t.Fatal(err)
			}
			if claimed, err := s.Claims.Claim(t.Context(), claim); err != nil || len(claimed.Runs) != 2 {
				t.Fatalf("INVALID: claimed %d, %v", len(claimed.Runs), err)
			}
			cfg := kit.RareHeartbeats
			cfg.PollInterval = time.Hour
			w := kit.NewWorker(t, far, cfg)
			h.Handle(w)
			kit.StartLocal(t, w)
			kit.WaitListening(t, db.Pool, 1)
			// the hints of connecting are over then
			if _, err := kagzi.Start(t.Context(), far, h.Workflow, 99); err != nil {
				t.Fatal(err)
			}
			await.Receive(t, h.Begun)
			id := dead.ID.String()
			if !inTx {
				if err := admin.New(c).Workers.ForceOffline(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			} else if err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
				return admin.New(c).Workers.ForceOffline(t.Context(), id, kagzi.InTx(tx))
			}); err != nil {
				t.Fatal(err)
			}
			for range runs {
				await.Receive(t, h.Begun)
			}
			close(h.Open)
			kit.CheckResults(t, runs, func(int) string { return "opened" })
		})
	}
}
