package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// The ledger has the starts of each debounce in the order in which they replaced each other's inputs, as far as they
// were committed.
const windowLedger = `
CREATE TABLE public.ledger (place bigserial, run_id uuid, start_id uuid);
CREATE FUNCTION public.enter() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ledger (run_id, start_id) VALUES (NEW.run_id, NEW.start_id);
		RETURN NULL;
	END $$;
CREATE TRIGGER enter AFTER UPDATE ON kagzi.start_windows FOR EACH ROW
	WHEN (NEW.policy = 'debounce') EXECUTE FUNCTION public.enter();`

// A windowRace starts in windows from many goroutines, in transactions of their own, whose answers may be lost, and in
// transactions of callers, which are committed or rolled back. Meanwhile others claim, end and terminate the runs.
type windowRace struct {
	t         *testing.T
	direct    *Store
	lossy     *Store
	proxy     *pgproxy.Proxy
	mu        sync.Mutex
	committed map[string]bool   // items of batches; false: it is not known whether they were
	executed  map[string]int    // how often each item was executed or ended with its run
	inputs    map[string]string // by run, what a claim of a debounced run got
	starts    atomic.Int64
}

const racePeriod = 20 * time.Millisecond

// random returns some runs to start, whose inputs are their IDs.
func (w *windowRace) random() (runs []NewRun) {
	taken := map[string]bool{}
	for range 1 + rand.N(4) {
		r := newRun()
		r.Input = []byte(r.RunID.String() + ";")
		switch key := fmt.Sprint(rand.N(2)); rand.N(3) {
		case 0:
			if taken[key] {
				continue
			}
			taken[key] = true
			r.ExternalID, r.Type = key, "once"
			oncePer(racePeriod)(&r)
		case 1:
			r.Type = "debounce"
			debounced(key, rand.N(3*time.Millisecond)+time.Microsecond, 5*time.Millisecond)(&r)
		default:
			r.Type = "batch"
			r.Window = &Window{Policy: Batch, Key: key, Open: 4 * time.Millisecond, Most: 5, MostBytes: 1 << 20}
		}
		runs = append(runs, r)
	}
	return runs
}

func (w *windowRace) note(runs []NewRun, committed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range runs {
		if r.Type == "batch" {
			w.committed[string(r.Input)] = committed
		}
	}
	w.starts.Add(int64(len(runs)))
}

func (w *windowRace) start(ctx context.Context) error {
	runs := w.random()
	if len(runs) == 0 {
		return nil
	}
	if rand.N(3) > 0 {
		if rand.N(4) == 0 {
			w.proxy.DropAck(pgproxy.Exactly("commit"))
		}
		_, err := w.lossy.Starts.Start(ctx, nil, runs)
		w.note(runs, err == nil)
		if pg.Unavailable(err) { // no caller knows: it may have been lost too often
			return nil
		}
		return err
	}
	tx, err := w.direct.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // it may be committed
	if _, err := w.direct.Starts.Start(ctx, tx, runs); err != nil {
		return err
	}
	if rand.N(3) == 0 {
		return nil
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	w.note(runs, true)
	return nil
}

// work claims runs, reads their inputs as a worker does, and ends them.
func (w *windowRace) work(ctx context.Context) error {
	c, err := w.direct.Claims.Claim(ctx, request(3, types(WorkflowVersions{"once", []int{1}, 1},
		WorkflowVersions{"debounce", []int{1}, 1}, WorkflowVersions{"batch", []int{1}, 1})))
	if err != nil {
		return err
	}
	f := &Flush{}
	for _, r := range c.Runs {
		input := r.Input
		if input == nil {
			out, err := w.direct.Histories.Load(ctx, LoadRequest{
				Runs: []uuid.UUID{r.RunID}, Inputs: []uuid.UUID{r.RunID},
				Most: NoLimit, Timeout: time.Minute,
			})
			if err != nil {
				return err
			}
			input = out.Inputs[r.RunID]
		}
		w.executes(r.RunID, r.Type, string(input))
		f.Finishes = append(f.Finishes, finish(r))
	}
	return w.direct.Records.Flush(ctx, f)
}

func (w *windowRace) executes(id uuid.UUID, typ, input string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch typ {
	case "debounce":
		w.inputs[id.String()] = strings.TrimSuffix(input, ";")
	case "batch":
		items := strings.SplitAfter(strings.TrimSuffix(input, ";"), ";")
		if len(items) > 5 {
			w.t.Errorf("a batch has %d items", len(items))
		}
		for _, item := range items {
			w.executed[strings.TrimSuffix(item, ";")+";"]++
		}
	}
}

// terminate ends a waiting run, if there is one.
func (w *windowRace) terminate(ctx context.Context) error {
	var id uuid.UUID
	err := w.direct.pool.QueryRow(ctx, `SELECT run_id FROM kagzi.workflow_runs WHERE status = 'PENDING'
		ORDER BY random() LIMIT 1`).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		_, err = w.direct.Runs.Terminate(ctx, nil, id, Why{})
	}
	if errors.Is(err, ErrRunFinished) {
		err = nil
	}
	return err
}

func TestWindowRaces(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner())
	exec(t, db.Pool, windowLedger, pgx.QueryExecModeSimpleProtocol)
	t.Cleanup(func() {
		if _, err := db.Pool.Exec(context.Background(),
			`DROP TRIGGER enter ON kagzi.start_windows; DROP FUNCTION public.enter; DROP TABLE public.ledger`,
			pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Error(err)
		}
	})
	w := &windowRace{
		t: t, proxy: pgproxy.Start(t, db.DSN), committed: map[string]bool{}, executed: map[string]int{},
		inputs: map[string]string{},
	}
	many := func(c *pgxpool.Config) { c.MaxConns = 8 }
	w.direct, w.lossy = New(poolWith(t, db.DSN, many), "test"), New(poolWith(t, w.proxy.DSN(), many), "test")
	ctx := context.WithoutCancel(t.Context())
	var starting, working sync.WaitGroup
	var over atomic.Bool
	for range 8 {
		starting.Go(func() {
			for range campaign.Size(12, 40) {
				if err := w.start(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, act := range []func(context.Context) error{w.work, w.work, w.terminate} {
		working.Go(func() {
			for !over.Load() {
				if err := act(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	starting.Wait()
	w.proxy.Disarm()
	over.Store(true)
	working.Wait()
	exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now() WHERE status = 'PENDING'`)
	for one[int](t, db.Pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'PENDING'`) > 0 {
		if err := w.work(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.check(db.Pool)
}

func (w *windowRace) check(pool *pgxpool.Pool) {
	t := w.t
	for _, id := range column[uuid.UUID](t, pool, `SELECT run_id FROM kagzi.workflow_runs WHERE status = 'CANCELLED'
		AND workflow_type = 'batch' AND started_at IS NULL`) {
		w.executes(id, "batch", inputOf(t, w.direct, id))
	}
	for item, known := range w.committed {
		if n := w.executed[item]; n > 1 || known && n != 1 {
			t.Errorf("item %s was executed %d times", item, n)
		}
	}
	for item := range w.executed {
		if _, ok := w.committed[item]; !ok {
			t.Errorf("item %s was executed, and its transaction was rolled back", item)
		}
	}
	for run, input := range w.inputs {
		if last := one[string](t, pool, `SELECT coalesce((SELECT start_id::text FROM public.ledger WHERE run_id = $1
			ORDER BY place DESC LIMIT 1), '')`, run); last != input {
			t.Errorf("run %s was executed with the input of %s, and the last one was that of %s", run, input, last)
		}
	}
	close := one[int](t, pool, `
		SELECT count(*) FROM (
			SELECT created_at - lag(created_at) OVER (PARTITION BY external_id ORDER BY created_at) AS apart
				FROM kagzi.workflow_runs WHERE external_id IS NOT NULL
		) p WHERE p.apart < $1 * interval '1 microsecond'`, pg.Micros(racePeriod))
	if close > 0 {
		t.Errorf("%d times two runs were started in one period", close)
	}
	t.Logf("%d starts, %d items executed, %d debounced runs, %d runs once per period, %d answers lost", w.starts.Load(),
		len(w.executed), len(w.inputs),
		one[int](t, pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE external_id IS NOT NULL`), w.proxy.Dropped())
	if n := one[int](t, pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'
		AND workflow_type = 'batch'`); n == 0 || len(w.inputs) == 0 {
		t.Error("the test shows nothing")
	}
}
