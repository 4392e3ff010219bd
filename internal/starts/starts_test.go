package starts

import (
	"context"
	"errors"
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
	"github.com/kagzi/kagzi/internal/hints"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/store"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const insertion = "INSERT INTO kagzi.workflow_runs"

// A fixture is a client's starts, through a proxy.
type fixture struct {
	t      *testing.T
	db     *dbtest.DB
	proxy  *pgproxy.Proxy
	starts *Starts
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	db := dbtest.Database(t)
	proxy := pgproxy.Start(t, db.DSN)
	pool := dbtest.OpenPool(t, proxy.DSN(), dbtest.Conns(10), func(cfg *pgxpool.Config) {
		cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	})
	// A shared statement does not wait long for a connection. So there are idle ones, also beside notifications and
	// other starts.
	for range 6 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
	s := store.New(pool, "default")
	starts := New(s, hints.New(s, testlog.New(t), func(context.Context) error { return nil }))
	return &fixture{t: t, db: db, proxy: proxy, starts: starts}
}

func newRun(change ...func(*store.NewRun)) store.NewRun {
	r := store.NewRun{
		Spec:  store.Spec{Queue: "default", Type: "wf", Priority: 3},
		RunID: uuid.Must(uuid.NewV7()), Input: []byte(`1`),
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func withID(id string) func(*store.NewRun) {
	return func(r *store.NewRun) { r.ExternalID, r.InputHash = id, []byte("hash") }
}

// A returned is what one call of Start returned.
type returned struct {
	run store.NewRun
	store.StartedRun
	err error
}

// waits is a context that tells when its caller waits for the batcher.
type waits struct {
	context.Context
	once  *sync.Once
	begun chan struct{}
}

func (w waits) Done() <-chan struct{} {
	w.once.Do(func() { close(w.begun) })
	return w.Context.Done()
}

// start starts run, and returns once that is in the batcher.
func (f *fixture) start(ctx context.Context, run store.NewRun) <-chan returned {
	f.t.Helper()
	w := waits{ctx, new(sync.Once), make(chan struct{})}
	ended := make(chan returned, 1)
	go func() {
		out := returned{run: run}
		started, err := f.starts.Start(w, nil, []store.NewRun{run})
		if out.err = err; err == nil {
			out.StartedRun = started[0]
		}
		ended <- out
	}()
	await.Receive(f.t, w.begun)
	return ended
}

// busy makes the batcher busy with a run until release is called, which waits until that is started.
func (f *fixture) busy() (release func()) {
	f.t.Helper()
	hold := f.proxy.HoldAck(pgproxy.Contains(insertion))
	first := f.start(f.t.Context(), newRun())
	await.True(f.t, "the first statement is under way", hold.Holds)
	return func() {
		hold.Release()
		if out := await.Receive(f.t, first); out.err != nil {
			f.t.Error(out.err)
		}
	}
}

// count counts the statements that insert runs from now on.
func (f *fixture) count() func() int {
	var mu sync.Mutex
	n := 0
	f.proxy.DropAck(func(_ int, sql string) bool {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(sql, insertion) {
			n++
		}
		return false
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// exists reports whether the run is in the table.
func (f *fixture) exists(r store.NewRun) bool {
	f.t.Helper()
	return dbtest.QueryOne[bool](f.t, f.db.Pool, `SELECT EXISTS (SELECT FROM kagzi.workflow_runs WHERE run_id = $1)`,
		r.RunID)
}

// wantStarted fails the test unless the call has started its own run.
func (f *fixture) wantStarted(outs ...returned) {
	f.t.Helper()
	for _, o := range outs {
		if o.err != nil || o.RunID != o.run.RunID || o.Existed || !f.exists(o.run) {
			f.t.Errorf("%+v, %v: want a new run", o.StartedRun, o.err)
		}
	}
}

func (f *fixture) all(ended []<-chan returned) []returned {
	f.t.Helper()
	outs := make([]returned, len(ended))
	for i, ch := range ended {
		outs[i] = await.Receive(f.t, ch)
	}
	return outs
}

func TestStartsShareAStatement(t *testing.T) {
	f := newFixture(t)
	release := f.busy()
	var ended []<-chan returned
	for i := range 20 {
		change := func(*store.NewRun) {}
		if i%2 == 0 {
			change = withID(fmt.Sprint(i))
		}
		ended = append(ended, f.start(t.Context(), newRun(change)))
	}
	statements := f.count()
	release()
	f.wantStarted(f.all(ended)...)
	if n := statements(); n != 1 {
		t.Errorf("%d statements, want 1", n)
	}
}

// Two callers give the same ID, and a third one with another input: they get what they would get one after the other.
func TestOneIDTwiceInAStatement(t *testing.T) {
	f := newFixture(t)
	release := f.busy()
	var ended []<-chan returned
	for range 2 {
		ended = append(ended, f.start(t.Context(), newRun(withID("same"))))
	}
	other := f.start(t.Context(), newRun(withID("same"), func(r *store.NewRun) { r.InputHash = []byte("other") }))
	release()
	outs := f.all(ended)
	// The statement's order decides which of the three is the one that is started.
	third := await.Receive(t, other)
	var started []uuid.UUID
	conflicts := 0
	for _, o := range append(outs, third) {
		switch {
		case errors.Is(o.err, store.ErrIDConflict):
			conflicts++
		case o.err != nil:
			t.Error(o.err)
		case o.Existed == (o.RunID == o.run.RunID):
			t.Errorf("%+v for run %v", o.StartedRun, o.run.RunID)
		default:
			started = append(started, o.RunID)
		}
	}
	if same := len(slices.Compact(started)); same != 1 || conflicts == 0 || conflicts+len(started) != 3 {
		t.Errorf("runs %v and %d conflicts: want one run", started, conflicts)
	}
	if n := dbtest.QueryOne[int](t, f.db.Pool, `SELECT count(*) FROM kagzi.workflow_runs
		WHERE external_id = 'same'`); n != 1 {
		t.Errorf("%d runs with the ID", n)
	}
}

func TestAHeldIDHoldsUpNobody(t *testing.T) {
	f := newFixture(t)
	tx := dbtest.Begin(t, f.db.Pool)
	if _, err := f.starts.Start(t.Context(), tx, []store.NewRun{newRun(withID("held"))}); err != nil {
		t.Fatal(err)
	}
	release := f.busy()
	held := f.start(t.Context(), newRun(withID("held")))
	ended := []<-chan returned{
		f.start(t.Context(), newRun(withID("free"))), f.start(t.Context(), newRun()),
		f.start(t.Context(), newRun()),
	}
	statements := f.count()
	release()
	f.wantStarted(f.all(ended)...)
	if n := statements(); n < 3 || n > 4 { // one for all, one for those without ID, one or two for those with one
		t.Errorf("%d statements, want 3 or 4", n)
	}
	// The next start of the ID shares no statement with others.
	if f.starts.shares(new(newRun(withID("held")))) {
		t.Error("the ID is not remembered")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.wantStarted(await.Receive(t, held))
}

func TestARefusedRunFailsAlone(t *testing.T) {
	f := newFixture(t)
	dbtest.Exec(t, f.db.Pool, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF NEW.workflow_type = 'bad' THEN RAISE 'not this one'; END IF;
			RETURN NEW;
		END $$`)
	dbtest.Exec(t, f.db.Pool, `CREATE TRIGGER refuse BEFORE INSERT ON kagzi.workflow_runs
		FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
	t.Cleanup(func() { dbtest.Exec(t, f.db.Pool, `DROP TRIGGER refuse ON kagzi.workflow_runs`) })
	release := f.busy()
	bad := f.start(t.Context(), newRun(func(r *store.NewRun) { r.Type = "bad" }))
	ended := []<-chan returned{f.start(t.Context(), newRun()), f.start(t.Context(), newRun(withID("id")))}
	release()
	f.wantStarted(f.all(ended)...)
	if out := await.Receive(t, bad); !pg.Refused(out.err) || !strings.Contains(out.err.Error(), "not this one") {
		t.Errorf("%+v, %v", out.StartedRun, out.err)
	}
}

func TestLostStatementOfSeveralStarts(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*pgproxy.Proxy, pgproxy.Match) *pgproxy.Drop{"Answer": (*pgproxy.Proxy).
		DropAck, "Request": (*pgproxy.Proxy).DropRequest} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			release := f.busy()
			ended := []<-chan returned{
				f.start(t.Context(), newRun()), f.start(t.Context(), newRun(withID("id"))),
				f.start(t.Context(), newRun()),
			}
			drop := lose(f.proxy, pgproxy.Contains(insertion))
			release()
			f.wantStarted(f.all(ended)...)
			await.Receive(t, drop.Done())
		})
	}
}

// A start that may share a run with others has a transaction of its own, and does not begin in place.
func TestStartInAWindowSharesNoStatement(t *testing.T) {
	f := newFixture(t)
	r := newRun(func(r *store.NewRun) {
		r.Window = &store.Window{Policy: store.Debounce, Key: "key", Delay: time.Minute, Open: time.Hour}
	})
	if f.starts.shares(&r) {
		t.Error("it shares a statement")
	}
	f.wantStarted(await.Receive(t, f.start(t.Context(), r)))
	if out, err := f.starts.Start(t.Context(), nil,
		[]store.NewRun{newRun(func(n *store.NewRun) { n.Window = r.Window })}); err != nil || out[0].RunID != r.RunID {
		t.Errorf("%+v, %v", out, err)
	}
}

// The item that fills a batch makes its run due, and so does the commit of a caller's transaction that held the run:
// that is announced.
func TestItemThatFillsABatchIsAnnounced(t *testing.T) {
	f := newFixture(t)
	item := func(r *store.NewRun) {
		r.Window = &store.Window{Policy: store.Batch, Open: time.Hour, Most: 3, MostBytes: 100}
	}
	direct := store.New(f.db.Pool, f.starts.store.Namespace())
	if _, err := direct.Starts.Start(t.Context(), nil, []store.NewRun{newRun(item)}); err != nil { // announces nothing
		t.Fatal(err)
	}
	conn := dbtest.Connect(t, f.db.DSN)
	if _, err := conn.Exec(t.Context(), `LISTEN kagzi_work`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx := dbtest.Begin(t, f.db.Pool)
	if _, err := f.starts.Start(ctx, tx, []store.NewRun{newRun(item)}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.WaitForNotification(ctx); err != nil {
		t.Error("after a commit: ", err)
	}
	if out, err := f.starts.Start(ctx, nil, []store.NewRun{newRun(item)}); err != nil || !out[0].Due {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := conn.WaitForNotification(ctx); err != nil {
		t.Error("when it is full: ", err)
	}
}

// A caller that gives up before its run is sent has started nothing.
func TestGivingUpBeforeTheStatement(t *testing.T) {
	f := newFixture(t)
	release := f.busy()
	ctx, cancel := context.WithCancel(t.Context())
	run := newRun()
	given := f.start(ctx, run)
	stays := f.start(t.Context(), newRun())
	cancel()
	out := await.Receive(t, given)
	if !errors.Is(out.err, context.Canceled) || !strings.Contains(out.err.Error(), "nothing was started") {
		t.Errorf("%+v, %v", out.StartedRun, out.err)
	}
	release()
	f.wantStarted(await.Receive(t, stays))
	if f.exists(run) {
		t.Error("the run was started")
	}
}

// A caller that gives up later waits for the answer, unless its context has a deadline.
func TestGivingUpDuringTheStatement(t *testing.T) {
	t.Run("Cancelled", func(t *testing.T) {
		f := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		hold := f.proxy.HoldAck(pgproxy.Contains(insertion))
		ended := f.start(ctx, newRun())
		await.True(t, "the statement is under way", hold.Holds)
		cancel()
		hold.Release()
		f.wantStarted(await.Receive(t, ended))
	})
	t.Run("Deadline", func(t *testing.T) {
		f := newFixture(t)
		conn := dbtest.Connect(t, f.db.DSN)
		if _, err := conn.Exec(t.Context(), `LISTEN kagzi_work`); err != nil {
			t.Fatal(err)
		}
		hold := f.proxy.HoldAck(pgproxy.Contains(insertion))
		defer hold.Release()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		run := newRun()
		ended := f.start(pastDeadline{ctx}, run)
		await.True(t, "the statement is under way", hold.Holds)
		cancel()
		out := await.Receive(t, ended)
		if !errors.Is(out.err, context.DeadlineExceeded) ||
			!strings.Contains(out.err.Error(), "may have been started") {
			t.Errorf("%+v, %v", out.StartedRun, out.err)
		}
		hold.Release()
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := conn.WaitForNotification(ctx); err != nil { // its caller does not announce it
			t.Error(err)
		}
		if !f.exists(run) {
			t.Error("a run was announced that was not started")
		}
	})
}

// A pastDeadline is a context whose deadline has passed when it ends.
type pastDeadline struct{ context.Context }

func (pastDeadline) Deadline() (time.Time, bool) { return time.Now(), true }

// A statement has at most 8 MiB of inputs, or one.
func TestStatementsOfStartsAreBounded(t *testing.T) {
	f := newFixture(t)
	release := f.busy()
	var ended []<-chan returned
	for _, size := range []int{9 << 20, 5 << 20, 2 << 20, 2 << 20} {
		ended = append(ended, f.start(t.Context(),
			newRun(func(r *store.NewRun) { r.Input = []byte(`"` + strings.Repeat("x", size) + `"`) })))
	}
	statements := f.count()
	release()
	f.wantStarted(f.all(ended)...)
	if n := statements(); n != 3 {
		t.Errorf("%d statements, want 3", n)
	}
}

// offered is a worker that notes after which times it is to claim, and has no slot.
type offered struct {
	hints.Worker
	after []time.Duration
}

func (o *offered) Offer(_, _ string, _ int, after time.Duration) (room int) {
	o.after = append(o.after, after)
	return 0
}

func (*offered) Reserve(*store.NewRun) hints.Reservation { return nil }

// A worker of the process hears of a delayed start when the run is due. It claims at once for one with a key, because
// only a claim finds out when its key is due, and for one with a time of the database's clock.
func TestDelayedStartsAreOfferedForLater(t *testing.T) {
	f := newFixture(t)
	worker := &offered{}
	f.starts.hints.JoinWorker(worker)
	delay := func(r *store.NewRun) { r.Delay = time.Hour }
	keyed := func(r *store.NewRun) { r.Key.Name = "key" }
	at := func(r *store.NewRun) { r.At = time.Now().Add(time.Hour) }
	for name, tt := range map[string]struct {
		runs []store.NewRun
		want []time.Duration
	}{
		"no delay":          {[]store.NewRun{newRun()}, []time.Duration{0}},
		"a delay":           {[]store.NewRun{newRun(delay)}, []time.Duration{time.Hour}},
		"delays":            {[]store.NewRun{newRun(delay), newRun(delay)}, []time.Duration{time.Hour, time.Hour}},
		"a delay and a key": {[]store.NewRun{newRun(delay, keyed)}, []time.Duration{0}},
		"a time":            {[]store.NewRun{newRun(at)}, []time.Duration{0}},
	} {
		worker.after = nil
		if _, err := f.starts.Start(t.Context(), nil, tt.runs); err != nil {
			t.Fatal(err)
		}
		// the delay has begun when the statement was sent
		near := func(got, want time.Duration) bool { return got == want || got < want && got > want/2 }
		if !slices.EqualFunc(worker.after, tt.want, near) {
			t.Errorf("%s: a worker was offered runs after %v, want %v", name, worker.after, tt.want)
		}
		if slices.Contains(worker.after, time.Hour) {
			t.Errorf("%s: a worker was offered runs after %v: that was counted from the answer", name, worker.after)
		}
	}
}
