package fault_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/fault"
	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/chaos/internal/worker"
	"github.com/kagzi/kagzi/internal/testhook"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(fleet.Env); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// job is what the workers of these tests execute: some steps, a sleep, some steps.
var job = kagzi.Define[int, int]("job")

func doJob(ctx kagzi.Context, n int) (int, error) {
	for i := range 4 {
		if i == 2 {
			if err := kagzi.Sleep(ctx, "rest", 50*time.Millisecond); err != nil {
				return 0, err
			}
		}
		m, err := kagzi.Step(ctx, fmt.Sprint("add ", i), func(ctx context.Context) (int, error) {
			select {
			case <-time.After(time.Duration(20*(1+n%8)) * time.Millisecond):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			return n + 1, nil
		})
		if err != nil {
			return 0, err
		}
		n = m
	}
	return n, nil
}

// work is the program of a worker process.
func work(text string) error {
	var spec fleet.Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	if spec.Move != nil {
		os.Exit(worker.Main(text))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the test has ended
	}()
	ledger, err := evidence.OpenLedger(spec.Ledger, spec.Name)
	if err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(spec.DSN)
	if err != nil {
		return err
	}
	cfg.MaxConns = spec.Conns
	cfg.ConnConfig.RuntimeParams["application_name"] = spec.Name
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	w, err := kagzi.NewWorker(client, spec.Config)
	if err != nil {
		return err
	}
	for v := 1; v <= max(1, spec.Version); v++ {
		opts := []kagzi.HandleOption{kagzi.Version(v)}
		if v == max(1, spec.Version) {
			opts = append(opts, kagzi.DefaultVersion())
		}
		kagzi.Handle(w, job, doJob, opts...)
	}
	var hits atomic.Int64
	err = w.Run(testhook.With(ctx, &testhook.Hooks{Point: func(point string, _ uuid.UUID) {
		if spec.Signal != 0 && point == spec.Point && hits.Add(1) == int64(spec.Nth) {
			ledger.Write(evidence.Line{Event: evidence.Point, Detail: point})
			_ = syscall.Kill(os.Getpid(), spec.Signal)
		}
	}}))
	if err != nil {
		ledger.Write(evidence.Line{Event: evidence.Stopped, Detail: "error: " + err.Error()})
	}
	return err
}

// A world is a World with load.
type world struct {
	*fault.World
	t      *testing.T
	client *kagzi.Client
	ended  atomic.Int64 // runs that a customer has seen the result of
}

var times = fault.Times{
	Lease: time.Second, Heartbeat: 200 * time.Millisecond, Stale: 2 * time.Second,
	Poll: 200 * time.Millisecond, Grace: 1500 * time.Millisecond,
}

// newWorld starts a server, with workers and customers. Everything ends with the test.
func newWorld(t *testing.T, g fault.ServerKind) (*world, *fault.Site) {
	t.Helper()
	site, err := g.Open(t.Context(), fault.Options{MaxConnections: 60, Dir: os.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := site.Close(); err != nil {
			t.Error(err)
		}
	})
	return populate(t, &fault.World{Server: site.Server}, site.Admin, site.DSN), site
}

// populate starts workers and customers, who connect to dsn.
func populate(t *testing.T, fw *fault.World, owner, dsn string) *world {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() { end(); all.Wait() })
	w := &world{World: fw, t: t}
	w.Dir, w.Times = t.TempDir(), times
	var err error
	if w.Admin, err = pgxpool.New(ctx, owner); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Admin.Close)
	if err := kagzi.Migrate(ctx, w.Admin); err != nil {
		t.Fatal(err)
	}
	base := fleet.Spec{Version: 1, Conns: 4, Config: kagzi.WorkerConfig{
		MaxConcurrent: 6, LeaseTimeout: times.Lease, Heartbeat: times.Heartbeat, StaleAfter: times.Stale,
		PollInterval: times.Poll,
		DrainTimeout: 2 * time.Second, Coordinator: kagzi.CoordinatorConfig{
			Interval: 200 * time.Millisecond,
			Grace:    times.Grace,
		},
	}}
	for i := range 3 {
		place, err := fleet.NewPlace(i, dsn, w.Dir, base)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = place.Close() })
		if i == 0 {
			w.Client = place
			continue
		}
		w.Places = append(w.Places, place)
		all.Go(func() { supervise(ctx, place) })
	}
	pool, err := pgxpool.New(ctx, w.Client.Base().DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if w.client, err = kagzi.NewClient(pool, kagzi.ClientConfig{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Schedule(ctx, kagzi.Schedule{Name: "often", Every: time.Second, Run: job.With(1)}); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		all.Go(func() { w.order(ctx, i) })
	}
	w.Burst = func(ctx context.Context, n int, at time.Time) (started int, err error) {
		var opts []kagzi.StartOption
		if !at.IsZero() {
			opts = append(opts, kagzi.At(at))
		}
		for i := range n {
			if _, err := kagzi.Start(ctx, w.client, job, 8*i, opts...); err != nil {
				return started, err
			}
			started++
		}
		return started, nil
	}
	w.Cancel = func(ctx context.Context, run uuid.UUID) bool {
		return w.client.Cancel(ctx, kagzi.RunID(run.String())) == nil
	}
	w.Bulk = func(ctx context.Context, _ *rand.Rand) int {
		done, _ := admin.New(w.client).Runs.RestartAll(ctx,
			kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusCompleted}, Limit: 2})
		return len(done.Changed)
	}
	t.Cleanup(func() { end(); all.Wait() }) // before pools and places are closed
	w.wantProgress()
	return w
}

// route makes a second database, and namespaces in both that movers can move.
func (w *world) route(dsn string) {
	t, ctx := w.t, w.t.Context()
	t.Helper()
	var err error
	if _, err = w.Admin.Exec(ctx, "CREATE DATABASE "+fleet.Databases[1]); err != nil {
		t.Fatal(err)
	}
	var pools []*pgxpool.Pool
	for _, dsn := range fleet.DSNs(dsn) {
		pool, err := pgxpool.New(ctx, dsn)
		if err == nil {
			t.Cleanup(pool.Close)
			err = kagzi.Migrate(ctx, pool)
		}
		if err != nil {
			t.Fatal(err)
		}
		pools = append(pools, pool)
	}
	if w.Routes, err = fleet.NewRoutes(w.Dir); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range fleet.Namespaces[1:] {
		c, err := kagzi.NewClient(pools[w.Routes.Of(namespace)], kagzi.ClientConfig{Namespace: namespace})
		if err == nil {
			_, err = kagzi.Start(ctx, c, job, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.LeftBehind = func(ctx context.Context, namespace string, database int) (left string, err error) {
		err = pools[database].QueryRow(ctx, `SELECT coalesce(string_agg(run_id::text, ' '), '')
			FROM kagzi.workflow_runs WHERE namespace_id = $1`, namespace).Scan(&left)
		return left, err
	}
}

// supervise starts another process when one has ended.
func supervise(ctx context.Context, p *fleet.Place) {
	for ctx.Err() == nil {
		_ = p.Ensure() // a fault may be faster
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// order starts runs, one after the other, and awaits their results.
func (w *world) order(ctx context.Context, n int) {
	for ; ctx.Err() == nil; n += 8 {
		run, err := kagzi.Start(ctx, w.client, job, n)
		if err == nil {
			waiting, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err = run.Result(waiting)
			cancel()
		}
		if err == nil {
			w.ended.Add(1)
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// wantProgress fails the test unless the customers get more results.
func (w *world) wantProgress() {
	w.t.Helper()
	start := w.ended.Load()
	for end := time.Now().Add(2 * time.Minute); w.ended.Load() < start+16; {
		if time.Now().After(end) {
			w.t.Fatalf("only %d runs ended in two minutes%s", w.ended.Load()-start, w.logs())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// logs returns the end of each worker's log.
func (w *world) logs() string {
	var all strings.Builder
	for _, p := range w.Places {
		if process := p.Process(); process != nil {
			b, _ := os.ReadFile(strings.TrimSuffix(process.Spec.Ledger, ".ledger") + ".log")
			fmt.Fprintf(&all, "\nworker %s:\n%s", process.Spec.Name, b[max(0, len(b)-3000):])
		}
	}
	return all.String()
}

// snapshot describes what faults change and must restore: settings, sessions of their own, and troubles of the network.
func (w *world) snapshot() string {
	w.t.Helper()
	var s string
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := w.Admin.QueryRow(w.t.Context(), `SELECT concat_ws(E'\n',
			(SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_file_settings
				WHERE sourcefile LIKE '%postgresql.auto.conf'),
			(SELECT string_agg(s.setconfig::text, ' ') FROM pg_db_role_setting s),
			'the clock is ahead by so many minutes, or 90 more, or 180: ' || round(extract(epoch
				FROM clock_timestamp() - $1) / 60) % 90,
			'sessions of faults: ' || (SELECT count(*) FROM pg_stat_activity
				WHERE application_name = 'chaos'))`, time.Now()).Scan(&s)
		if err == nil && strings.HasSuffix(s, "sessions of faults: 0") || time.Now().After(end) {
			break
		}
	}
	for _, p := range append(w.Places[:len(w.Places):len(w.Places)], w.Client) {
		s += fmt.Sprintf("\ntroubles of place %d: %d", p.Number, p.Proxy.Troubles())
	}
	return s
}
