package worker_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/internal/worker"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A placing is a client whose process has a worker with a gate, in an audited database behind a proxy. The worker
// neither polls nor extends leases while the test runs, so a lost claim must be found by looking.
type placing struct {
	t     *testing.T
	db    *dbtest.DB
	proxy *pgproxy.Proxy
	c     *kagzi.Client
	w     *kagzi.Worker
	g     *kit.Gate
	s     *worker.Session
}

func newPlacing(t *testing.T, slots int, change ...func(*kagzi.WorkerConfig)) *placing {
	t.Helper()
	t.Parallel()
	db := dbtest.Database(t)
	dbtest.Audit(t, db.Pool)
	p := &placing{t: t, db: db, proxy: pgproxy.Start(t, db.DSN), g: kit.NewGate()}
	p.c = kit.NewClient(t, dbtest.OpenPool(t, p.proxy.DSN(), dbtest.Conns(8)))
	cfg := kit.RareHeartbeats
	cfg.PollInterval, cfg.MaxConcurrent, cfg.NoCoordinator = 10*time.Minute, slots, true
	for _, f := range change {
		f(&cfg)
	}
	p.w = kit.NewWorker(t, p.c, cfg)
	p.g.Handle(p.w)
	return p
}

// begin runs the worker until it waits for work.
func (p *placing) begin() {
	p.t.Helper()
	p.s = begun(p.t, p.w)
	p.calm()
}

// beginHanging is begin. The first run that begins in place hangs before it does, until release is called.
func (p *placing) beginHanging() (hung <-chan struct{}, release, stop func()) {
	p.t.Helper()
	hung, release = kit.HangAt(p.t, p.w, "after start")
	sessions := make(chan testhook.Session, 1)
	kit.HooksOf(p.t, p.w).Begun = func(s testhook.Session) { sessions <- s }
	stop = kit.StartLocal(p.t, p.w)
	p.t.Cleanup(release)
	p.s = worker.SessionOf(await.Receive(p.t, sessions))
	p.calm()
	return hung, release, stop
}

func (p *placing) calm() {
	p.t.Helper()
	await.True(p.t, "the worker waits for work, and is not about to be told to look once", func() bool {
		return worker.Listens(p.s) && worker.Calm(p.s)
	})
}

func (p *placing) start(c *kagzi.Client, opts ...kagzi.StartOption) *kagzi.Run[string] {
	p.t.Helper()
	run, err := kagzi.Start(p.t.Context(), c, p.g.Workflow, 1, opts...)
	if err != nil {
		p.t.Fatal(err)
	}
	return run
}

// startHanging starts a run while another goroutine of the test goes on, and returns its ID once it is stored.
func (p *placing) startHanging(wf kagzi.Workflow[int, string]) (id string, started <-chan *kagzi.Run[string]) {
	p.t.Helper()
	ch := make(chan *kagzi.Run[string], 1)
	go func() {
		run, err := kagzi.Start(p.t.Context(), p.c, wf, 1)
		if err != nil {
			p.t.Error(err)
		}
		ch <- run
	}()
	await.True(p.t, "the run is stored", func() bool {
		return dbtest.QueryOne[int](p.t, p.db.Pool, `SELECT count(*) FROM kagzi.workflow_runs
			WHERE status = 'RUNNING'`) == 1
	})
	return dbtest.QueryOne[string](p.t, p.db.Pool, `SELECT run_id::text FROM kagzi.workflow_runs`), ch
}

// inserted returns the status with which the run was inserted.
func (p *placing) inserted(run *kagzi.Run[string]) string {
	p.t.Helper()
	return dbtest.QueryOne[string](p.t, p.db.Pool, `SELECT new_status FROM kagzi_audit.changes
		WHERE relation = 'workflow_runs' AND operation = 'INSERT' AND run_id = $1`, string(run.ID()))
}

func (p *placing) result(run *kagzi.Run[string]) {
	p.t.Helper()
	kit.CheckResults(p.t, []*kagzi.Run[string]{run}, func(int) string { return "opened" })
}

// rescued waits for the run's result, also from another worker, and fails the test unless the run was taken from a
// holder so many times.
func (p *placing) rescued(id string, recoveries int) {
	p.t.Helper()
	other := kit.NewClient(p.t, p.db.Pool)
	w := kit.NewWorker(p.t, other, kagzi.WorkerConfig{PollInterval: 100 * time.Millisecond, NoCoordinator: true})
	p.g.Handle(w)
	kit.StartLocal(p.t, w)
	p.result(kit.Find(p.t, other, p.g.Workflow, kagzi.RunID(id)))
	if n := dbtest.QueryOne[int](p.t, p.db.Pool, `SELECT recoveries FROM kagzi.workflow_runs WHERE run_id = $1`,
		id); n != recoveries {
		p.t.Errorf("%d recoveries", n)
	}
}

// TestStartInPlace starts a run in the process of an idle worker: it begins without a claim.
func TestStartInPlace(t *testing.T) {
	p := newPlacing(t, 2)
	p.begin()
	run := p.start(p.c, kagzi.ID("id"), kagzi.Timeout(time.Minute))
	await.Receive(t, p.g.Begun)
	if ok := dbtest.QueryOne[bool](t, p.db.Pool, `
		SELECT status = 'RUNNING' AND locked_by = $1 AND lease IS NOT NULL AND version = 1 AND started_at = created_at
			AND recoveries = 0
			AND deadline_at = created_at + interval '1 minute' AND available_at = deadline_at + interval '3 seconds'
		FROM kagzi.workflow_runs`, p.s.ID()); !ok {
		t.Error("the row is not that of a claimed run")
	}
	close(p.g.Open)
	p.result(run)
	await.True(t, "the worker is idle again", func() bool { return worker.Slots(p.s) == 2 })
	p.calm()
	second := p.start(p.c)
	p.result(second)
	if a, b := p.inserted(run), p.inserted(second); a != store.Running || b != store.Running {
		t.Errorf("inserted as %s and %s", a, b)
	}
	await.True(t, "the slots are free again", func() bool { return worker.Slots(p.s) == 2 })
}

// TestStartNotInPlace has starts that are for later, for others, or in the caller's transaction.
func TestStartNotInPlace(t *testing.T) {
	p := newPlacing(t, 10)
	p.begin()
	for name, start := range map[string]func() *kagzi.Run[string]{
		"Delay":   func() *kagzi.Run[string] { return p.start(p.c, kagzi.Delay(time.Hour)) },
		"At":      func() *kagzi.Run[string] { return p.start(p.c, kagzi.At(time.Now().Add(time.Hour))) },
		"Queue":   func() *kagzi.Run[string] { return p.start(p.c, kagzi.Queue("other")) },
		"Version": func() *kagzi.Run[string] { return p.start(p.c, kagzi.Version(7)) },
		"Client":  func() *kagzi.Run[string] { return p.start(kit.NewClient(t, p.db.Pool)) },
		"Policy":  func() *kagzi.Run[string] { return p.start(p.c, kagzi.ID("id"), kagzi.RejectActive) },
		"InTx": func() *kagzi.Run[string] {
			tx := dbtest.Begin(t, p.db.Pool)
			run := p.start(p.c, kagzi.InTx(tx))
			kit.CommitTx(t, tx)
			return run
		},
	} {
		p.calm()
		if got := p.inserted(start()); got != store.Pending {
			t.Errorf("%s: inserted as %s", name, got)
		}
	}
	close(p.g.Open)
}

// TestStartDoesNotOvertake starts runs while older ones wait, or while the worker may not know yet that they do.
func TestStartDoesNotOvertake(t *testing.T) {
	t.Run("Backlog", func(t *testing.T) {
		p := newPlacing(t, 2)
		other := kit.NewClient(t, p.db.Pool)
		older := []*kagzi.Run[string]{p.start(other), p.start(other), p.start(other)}
		p.s = begun(t, p.w)
		for range 2 {
			await.Receive(t, p.g.Begun)
		}
		run := p.start(p.c)
		close(p.g.Open)
		for _, r := range append(older, run) {
			p.result(r)
		}
		if got := p.inserted(run); got != store.Pending {
			t.Errorf("inserted as %s", got)
		}
	})
	t.Run("ClaimUnderWay", func(t *testing.T) {
		p := newPlacing(t, 2)
		var hangs atomic.Bool
		claiming, release := kit.HangAt(t, p.w, "after claim", hangs.Load)
		p.begin()
		t.Cleanup(release)
		hangs.Store(true)
		p.s.Offer("default", "", 0, 0)
		await.Receive(t, claiming)
		run := p.start(p.c)
		if got := p.inserted(run); got != store.Pending {
			t.Errorf("inserted as %s", got)
		}
		release()
		close(p.g.Open)
		p.result(run)
	})
	// All slots are taken by runs that began in place: the hint of another run is served once a slot is free.
	t.Run("Full", func(t *testing.T) {
		p := newPlacing(t, 1)
		p.begin()
		first := p.start(p.c)
		if !worker.Calm(p.s) {
			t.Error("the worker is about to claim")
		}
		p.s.Offer("default", "", 0, 0)
		if worker.Calm(p.s) {
			t.Error("a run would overtake the one that was announced")
		}
		second := p.start(p.c)
		if a, b := p.inserted(first), p.inserted(second); a != store.Running || b != store.Pending {
			t.Errorf("inserted as %s and %s", a, b)
		}
		close(p.g.Open)
		p.result(first)
		p.result(second)
	})
}

// TestTakenIDLeavesTheSlot starts a run whose ID is taken: the slot that was kept for it is free again.
func TestTakenIDLeavesTheSlot(t *testing.T) {
	p := newPlacing(t, 1)
	p.begin()
	p.start(p.c, kagzi.ID("id"), kagzi.Queue("other"))
	p.calm()
	if run := p.start(p.c, kagzi.ID("id")); !run.Existed() {
		t.Error("the ID was not taken")
	}
	p.calm()
	close(p.g.Open)
	run := p.start(p.c)
	p.result(run)
	if got := p.inserted(run); got != store.Running {
		t.Errorf("inserted as %s", got)
	}
}

// TestLostStartInPlace loses the statement of a start in place, or the answer to it. In the latter case no worker
// executes the run, so it is yielded.
func TestLostStartInPlace(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*pgproxy.Proxy, pgproxy.Match) *pgproxy.Drop{"Answer": (*pgproxy.Proxy).
		DropAck, "Request": (*pgproxy.Proxy).DropRequest} {
		t.Run(name, func(t *testing.T) {
			p := newPlacing(t, 1)
			p.begin()
			close(p.g.Open)
			drop := lose(p.proxy, pgproxy.Contains("INSERT INTO kagzi.workflow_runs"))
			run := p.start(p.c)
			await.Receive(t, drop.Done())
			p.result(run)
			if n := dbtest.QueryOne[int](t, p.db.Pool, `SELECT sum(recoveries)::int FROM kagzi.workflow_runs`); n != 0 {
				t.Errorf("%d recoveries", n)
			}
			await.True(t, "the slot is free again", func() bool { return worker.Slots(p.s) == 1 })
		})
	}
}

// TestLateCommitOfAStartInPlace has the statement of a start commit after its answer was given up, and after the first
// look.
func TestLateCommitOfAStartInPlace(t *testing.T) {
	p := newPlacing(t, 1)
	p.begin()
	close(p.g.Open)
	if err := p.db.Pool.Ping(t.Context()); err != nil { // a call to the store waits briefly for a new connection
		t.Fatal(err)
	}
	st := store.New(p.db.Pool, "default")
	run := &store.NewRun{
		RunID: uuid.Must(uuid.NewV7()), Spec: store.Spec{Queue: "default", Type: "gate", Priority: 3},
		Input: []byte(`1`),
	}
	reservation := p.s.Reserve(run)
	if reservation == nil {
		t.Fatal("no reservation")
	}
	var looks atomic.Int64
	p.proxy.DropAck(func(_ int, sql string) bool {
		if strings.Contains(sql, "u.wake_at > 0") {
			looks.Add(1)
		}
		return false
	})
	reservation.GiveBack(time.Now())
	await.True(t, "the worker looks", func() bool { return looks.Load() > 0 })
	if _, _, err := st.Starts.Together(t.Context(),
		func() []*store.NewRun { return []*store.NewRun{run} }); err != nil {
		t.Fatal(err)
	}
	p.result(kit.Find(t, p.c, p.g.Workflow, kagzi.RunID(run.RunID.String())))
}

// TestEndOfAReservation has something happen to the worker between the commit of a start in place and the begin of its
// run. The run is yielded unexecuted, and another worker executes it.
func TestEndOfAReservation(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(p *placing, stop func()){
		"Drain": func(p *placing, stop func()) {
			go stop()
			await.True(p.t, "the worker drains", func() bool { return worker.Drains(p.s) })
		},
		"Fence": func(p *placing, _ func()) { worker.Fence(p.s, "test") },
		"DeclaredDead": func(p *placing, _ func()) {
			dbtest.Exec(p.t, p.db.Pool, `UPDATE kagzi.workers SET status = 'OFFLINE', stopped_at = now()`)
			p.s.Refresh([]uuid.UUID{p.s.ID()})
			await.True(p.t, "the worker ends all", func() bool { return worker.HasStoppedAll(p.s) })
			await.True(p.t, "the worker registers again", func() bool {
				return dbtest.QueryOne[int](p.t, p.db.Pool, `SELECT count(*) FROM kagzi.workers
					WHERE status <> 'OFFLINE'`) == 1
			})
			p.calm()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlacing(t, 2)
			hung, release, stop := p.beginHanging()
			id, started := p.startHanging(p.g.Workflow)
			await.Receive(t, hung)
			happens(p, stop)
			release()
			await.Receive(t, started)
			close(p.g.Open)
			p.rescued(id, 0)
			if second := dbtest.QueryOne[string](t, p.db.Pool, `
				SELECT new_status FROM kagzi_audit.changes WHERE relation = 'workflow_runs' ORDER BY change_id OFFSET 1
					LIMIT 1`); second != store.Pending {
				t.Errorf("the run was %s next", second)
			}
			stop()
		})
	}
}

// TestLateBeginOfAReservation has the answer to a start in place come after the lease: another worker has taken the run
// over, as after a crash, and only that one executes it.
func TestLateBeginOfAReservation(t *testing.T) {
	p := newPlacing(t, 1, func(cfg *kagzi.WorkerConfig) {
		cfg.LeaseTimeout, cfg.FixedLease, cfg.Heartbeat = time.Second, true, 0
	})
	hung, release, _ := p.beginHanging()
	id, started := p.startHanging(p.g.Workflow)
	await.Receive(t, hung)
	close(p.g.Open)
	p.rescued(id, 1)
	release()
	await.Receive(t, started)
	await.True(t, "the slot is free again", func() bool { return worker.Slots(p.s) == 1 })
	if n := len(p.g.Begun); n != 1 {
		t.Errorf("the run was executed %d times", n)
	}
}

// TestCancelBeforeTheBeginOfAReservation cancels a run between the commit of its start in place and its begin. No
// heartbeat comes that would tell.
func TestCancelBeforeTheBeginOfAReservation(t *testing.T) {
	p := newPlacing(t, 1)
	writesNothing, open := kagzi.Define[int, string]("writes-nothing"), make(chan struct{})
	t.Cleanup(func() { close(open) })
	// so it does not learn of the cancel by itself
	kagzi.Handle(p.w, writesNothing, func(kagzi.Context, int) (string, error) {
		await.Opened(t, open)
		return "", nil
	})
	hung, release, _ := p.beginHanging()
	id, started := p.startHanging(writesNothing)
	await.Receive(t, hung)
	run := uuid.MustParse(id)
	// it announces nothing
	if _, err := store.New(p.db.Pool, "default").Runs.Cancel(t.Context(), nil, run, store.Why{}, 0); err != nil {
		t.Fatal(err)
	}
	p.s.Refresh([]uuid.UUID{run})
	release()
	cancelled := await.Receive(t, started)
	if _, err := cancelled.Result(t.Context()); kagzi.KindOf(err) != kind.Cancelled {
		t.Errorf("got %v", err)
	}
	await.True(t, "the slot is free again", func() bool { return worker.Slots(p.s) == 1 })
}
