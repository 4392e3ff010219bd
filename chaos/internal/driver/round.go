package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/chaos/internal/fault"
	"github.com/kagzi/kagzi/chaos/internal/fleet"
	"github.com/kagzi/kagzi/chaos/internal/load"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pgproxy"
)

// A round is a plan that is carried out.
type round struct {
	plan  Plan
	site  *fault.Site
	world *fault.World
	bases
	client    *fleet.Place // the proxy of the customers
	places    []*fleet.Place
	said      *os.File     // what the driver's clients log
	customers []*customers // of each namespace
	sampler   *sampler
	gauges    *gauges
	deaf      []*pgproxy.Imposed // by deafen
	since     time.Time          // of the schedules: their ticks are from since to until
	until     time.Time
	progress
	notes
}

// A progress is how far a round has come.
type progress struct {
	faults   atomic.Int64 // under way
	lastOver atomic.Int64 // when the last one was over
	closing  atomic.Bool  // workers are not started again
}

// The notes of a round are the events in it.
type notes struct {
	mu       sync.Mutex
	injected []evidence.Injected
	exits    []evidence.Exit
	stuck    []string // runs and waits without their end
}

// stuckWith records a run or a wait that did not end as it should have.
func (r *round) stuckWith(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck = append(r.stuck, fmt.Sprintf(format, args...))
}

func (r *round) log(format string, args ...any) { r.plan.Options.Log(format, args...) }

// A Result is the outcome of a round.
type Result struct {
	Evidence *evidence.Evidence
	Tables   []string // violations that the statements found
	Stuck    []string // runs that did not end in time
	Lossy    bool     // a failover has lost acknowledged writes
	Took     time.Duration
}

// prepare makes the tables, the limits and the schedules, and starts the workers.
func (r *round) prepare(ctx context.Context) error {
	migrate := func(ctx context.Context, pool *pgxpool.Pool) error { return kagzi.Migrate(ctx, pool) }
	tables := []func(context.Context, *pgxpool.Pool) error{migrate, evidence.CreateTables, load.OpenAccounts}
	if !r.plan.Options.Soak {
		tables = append(tables, dbtest.InstallAudit)
	}
	if r.second != nil {
		tables = append(tables, leaveOutMovers)
	}
	for _, create := range tables {
		for _, pool := range r.all() {
			if err := create(ctx, pool); err != nil {
				return err
			}
		}
	}
	var err error
	if r.said, err = os.OpenFile(filepath.Join(r.plan.Options.Dir, "clients.log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE,
		0o600); err != nil {
		return err
	}
	o := r.plan.Options
	r.since = time.Now().Add(3 * time.Second).Truncate(time.Second).UTC()
	r.until = r.since.Add(o.Duration.Truncate(time.Second))
	for i, namespace := range r.namespaces() {
		if err := r.furnish(ctx, i, namespace); err != nil {
			return err
		}
	}
	base := fleet.Spec{Seed: o.Seed, Config: r.plan.Config(load.Queues), Version: 1, Conns: 8}
	if r.second != nil {
		base.Routed, base.Config.Coordinator.Grace = true, 0 // no worker has a session of its own
	}
	if r.client, err = fleet.NewPlace(0, r.site.DSN, o.Dir, base); err != nil {
		return err
	}
	for i := range o.Workers {
		p, err := fleet.NewPlace(i+1, r.site.DSN, o.Dir, base)
		if err != nil {
			return err
		}
		r.places = append(r.places, p)
	}
	if o.Deaf {
		r.deafen()
	}
	r.gauges = &gauges{pool: r.pool, places: r.places}
	return r.openCustomers(ctx)
}

// furnish sets the limits of a namespace, and its share of the schedules.
func (r *round) furnish(ctx context.Context, number int, namespace string) error {
	c, err := kagzi.NewClient(r.all()[r.routes.Of(namespace)], r.clientConfig(namespace))
	if err != nil {
		return err
	}
	for _, l := range load.Limits {
		if err := admin.New(c).Queues.Set(ctx, l); err != nil {
			return err
		}
	}
	limits := admin.New(c).Limits
	if err := errors.Join(limits.Set(ctx, load.Gate), limits.Set(ctx, load.Door)); err != nil {
		return err
	}
	for i, s := range load.Schedules(r.plan.Options.Seed, r.since, r.until) {
		if i%len(r.namespaces()) == number {
			err = errors.Join(err, c.Schedule(ctx, s))
		}
	}
	return err
}

// openCustomers makes the customers and the sampler.
func (r *round) openCustomers(ctx context.Context) error {
	var pools []*pgxpool.Pool
	for _, dsn := range fleet.DSNs(r.client.Base().DSN)[:len(r.all())] {
		cfg, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			return err
		}
		cfg.MaxConns = 20
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return err
		}
		pools = append(pools, pool)
	}
	for i, namespace := range r.namespaces() {
		c := &customers{
			office: office{namespace: namespace, number: i, of: len(r.namespaces()), routes: r.routes, pools: pools},
			seed:   r.plan.Options.Seed, poison: r.plan.Poison, forgetful: r.site.Losing,
		}
		for _, pool := range pools {
			client, err := kagzi.NewClient(pool, r.clientConfig(namespace))
			if err != nil {
				return err
			}
			c.clients = append(c.clients, client)
		}
		c.next.Store(int64(i) * jobsOfNamespace)
		c.bursts.Store(int64(i) * jobsOfNamespace)
		r.customers = append(r.customers, c)
	}
	r.sampler = &sampler{
		pools: r.all(), places: r.places, slots: r.plan.Config(load.Queues).MaxConcurrent,
		poll: r.plan.Times.Poll + time.Second, trouble: r.inTrouble,
	}
	return nil
}

// clientConfig is that of the driver's clients: what they log goes to a file beside those of the workers.
func (r *round) clientConfig(namespace string) kagzi.ClientConfig {
	return kagzi.ClientConfig{Namespace: namespace, RunEvents: true, Logger: slog.New(slog.NewTextHandler(r.said, nil))}
}

func (r *round) close() {
	r.closing.Store(true)
	for _, pool := range r.customers[0].pools {
		pool.Close()
	}
	_ = r.said.Close()
	for _, p := range append(r.places, r.client) {
		_ = p.Close()
	}
}

func (r *round) inTrouble() bool {
	return r.faults.Load() > 0 || evidence.Now()-time.Duration(r.lastOver.Load()) < r.plan.recovers()
}

// play lets the workers, the customers and the faults go on at once until the plan's end, and then waits for the last
// runs.
func (r *round) play(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var helpers, working sync.WaitGroup
	var hung atomic.Bool // the server
	defer helpers.Wait()
	defer end()
	for _, p := range r.places {
		if err := p.Ensure(); err != nil {
			return err
		}
		helpers.Go(func() { r.supervise(ctx, p) })
	}
	helpers.Go(func() { r.sampler.run(ctx) })
	helpers.Go(func() {
		if r.sampler.awaitSilence(ctx, mute) {
			hung.Store(!r.serverAnswers(ctx))
			end()
		}
	})
	for i := range r.plan.Options.Customers {
		working.Go(func() { r.customers[i%len(r.customers)].serve(ctx, i+1) })
	}
	for _, c := range r.customers {
		working.Go(func() { c.whisper(ctx, r.plan.Options.Duration) })
		working.Go(func() { c.murmur(ctx) })
	}
	if r.site.Losing || r.plan.Options.Soak {
		helpers.Go(func() { r.customers[0].tellAgain(ctx, r.pool) })
	}
	if r.plan.Options.Soak {
		helpers.Go(func() { r.gauges.run(ctx, 5*time.Second) })
	}
	begun := time.Now()
	r.injectAll(ctx, begun)
	if len(r.stuck) == 0 {
		sleep(ctx, r.plan.Options.Duration-time.Since(begun))
	}
	for _, c := range r.customers {
		c.shut.Store(true)
	}
	r.log("%6.1fs everything is healed; %d runs have ended", time.Since(begun).Seconds(), r.sampler.ended())
	r.settle(ctx, &working)
	r.drain()
	end()
	working.Wait()
	if hung.Load() {
		return fmt.Errorf("the server has not answered for %v: nothing is known of Kagzi then", mute)
	}
	return nil
}

// mute is how long no look at the tables may succeed until a round is given up. Faults end sooner.
const mute = 3 * time.Minute

// serverAnswers reports whether the server answers a session of its own. Then something has kept all others waiting,
// which is a failure.
func (r *round) serverAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.site.Admin)
	if err != nil {
		return false
	}
	defer conn.Close(ctx)
	var waiting string
	err = conn.QueryRow(ctx,
		`SELECT coalesce(string_agg(concat_ws(' ', application_name, state, wait_event, left(query, 100)), '; '), '')
			FROM pg_stat_activity WHERE state <> 'idle'`).Scan(&waiting)
	if err != nil {
		return false
	}
	r.stuckWith("for %v no look at the tables has succeeded, although the server answers: %s", mute, waiting)
	return true
}

// supervise starts another process when one has died, as the system of a service would.
func (r *round) supervise(ctx context.Context, p *fleet.Place) {
	random := rand.New(rand.NewPCG(r.plan.Options.Seed, uint64(p.Number)))
	for ctx.Err() == nil {
		if process := p.Process(); process != nil {
			select {
			case <-process.Done():
				r.exited(process)
			case <-ctx.Done():
				return
			}
		}
		if !sleep(ctx, time.Duration(random.IntN(1500))*time.Millisecond) || r.closing.Load() {
			return
		}
		if err := p.Ensure(); err != nil {
			r.log("place %d: %v", p.Number, err)
		}
	}
}

// exited records the end of a worker process.
func (r *round) exited(p *fleet.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exits = append(r.exits, evidence.Exit{At: evidence.Now(), Worker: p.Spec.Name, Killed: p.Err() != nil})
}

// injectAll carries out the plan's clashes, one after the other.
func (r *round) injectAll(ctx context.Context, begun time.Time) {
	r.world = &fault.World{
		Server: r.site.Server, Admin: r.pool, Places: r.places, Client: r.client,
		Dir: r.plan.Options.Dir, Times: r.plan.Times, Burst: r.burst, Cancel: r.cancel, Bulk: r.bulk,
		Routes: r.routes, LeftBehind: r.leftBehind,
	}
	for _, c := range r.plan.Clash {
		if !sleep(ctx, c.At-time.Since(begun)) {
			return
		}
		if growing := r.gauges.slopes(); len(growing) > 0 {
			r.stuckWith("after %v: %s", time.Since(begun).Round(time.Second), strings.Join(growing, "; "))
			return
		}
		var clash sync.WaitGroup
		for _, i := range c.Faults {
			clash.Go(func() {
				if sleep(ctx, i.After) {
					r.inject(ctx, begun, i)
				}
			})
		}
		clash.Wait()
		sleep(ctx, c.Calm)
	}
}

func (r *round) inject(ctx context.Context, begun time.Time, i Injection) {
	r.faults.Add(1)
	at := evidence.Now()
	// a server that accepts no connections may still answer the others
	limited, cancel := context.WithTimeout(ctx, i.For+2*mute)
	defer cancel()
	effect, note, err := i.Fault.Inject(limited, r.world, rand.New(rand.NewPCG(i.Seed, 1)), i.For)
	v := evidence.Injected{Fault: i.Fault.Name, Began: at, Ended: evidence.Now(), Effect: effect, Note: note}
	r.lastOver.Store(int64(v.Ended))
	r.faults.Add(-1)
	if broken, ok := errors.AsType[*fault.Violation](err); ok {
		r.stuckWith("%s: %s", v.Fault, broken.Promise)
		err = nil
	}
	if err != nil {
		v.Err = err.Error()
	}
	r.log("%s", reported(time.Since(begun), v))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.injected = append(r.injected, v)
}

// reported is the line that tells people what a fault was seen to do.
func reported(at time.Duration, v evidence.Injected) string {
	text := fmt.Sprintf("%6.1fs %s, %.1f s long: ", at.Seconds(), v.Fault, (v.Ended - v.Began).Seconds())
	switch {
	case v.Effect == 1:
		text += "1 effect"
	case v.Effect > 1:
		text += fmt.Sprint(v.Effect, " effects")
	default:
		text += "no effect"
	}
	for _, more := range []string{v.Note, v.Err} {
		if more = strings.Trim(more, "; "); more != "" {
			text += "; " + more
		}
	}
	return text
}

// settle waits until each run has ended and each customer is content, or patience has ended.
func (r *round) settle(ctx context.Context, working *sync.WaitGroup) {
	ctx, cancel := context.WithTimeout(ctx, r.plan.patience())
	defer cancel()
	content := make(chan struct{})
	go func() {
		working.Wait()
		close(content)
	}()
	quiet := 0
	for quiet < 5 { // also a schedule's last ticks, and the events of the last runs, have been dealt with
		if !sleep(ctx, 200*time.Millisecond) {
			break
		}
		left, awaited, err := r.unended(ctx)
		quiet++
		if err != nil || left > 0 || awaited > 0 || time.Now().Before(r.until.Add(2*time.Second)) {
			quiet = 0
		}
		if err == nil && left > 0 {
			r.endOrphans(ctx)
		}
	}
	select {
	case <-content:
	case <-ctx.Done():
		if !closed(content) {
			r.stuckWith("customers still wait %v after the last fault", r.plan.patience())
		}
	}
}

// endOrphans terminates the runs that wait for messages and of which no customer knows, for longer than a customer
// waits for an answer: that to their start was lost.
func (r *round) endOrphans(ctx context.Context) {
	for _, c := range r.customers {
		// CollectRows returns its error
		rows, _ := r.all()[r.routes.Of(c.namespace)].Query(ctx, `SELECT run_id::text FROM kagzi.workflow_runs
			WHERE status = 'SLEEPING' AND namespace_id = $3
			AND waiting_on @> jsonb_build_array(jsonb_build_object('kind', 'signal', 'name', $1::text))
			AND created_at < clock_timestamp() - $2::interval`, load.Mail.Name(), 2*callTimeout, c.namespace)
		waiting, _ := pgx.CollectRows(rows, pgx.RowTo[string]) // the next look comes soon
		for _, run := range waiting {
			if !c.knows(run) {
				c.change(ctx, 0, load.Job{}, kagzi.RunID(run), "terminate")
			}
		}
	}
}

// unended returns how many runs have not ended, and how many events runs are not told of.
func (r *round) unended(ctx context.Context) (left, awaited int, err error) {
	for _, pool := range r.all() {
		var runs, events int
		err = errors.Join(err, pool.QueryRow(ctx, `SELECT count(*), (SELECT count(*) FROM kagzi.awaited_events)
			FROM kagzi.workflow_runs WHERE finished_at IS NULL`).Scan(&runs, &events))
		left, awaited = left+runs, awaited+events
	}
	return left, awaited, err
}

// drain ends the workers as a deploy does.
func (r *round) drain() {
	r.closing.Store(true)
	var all sync.WaitGroup
	for _, p := range r.places {
		all.Go(func() {
			if process := p.Process(); process != nil && process.Alive() {
				if err := process.Drain(20 * time.Second); err != nil {
					r.stuckWith("worker %s: %v", process.Spec.Name, err)
				}
			}
		})
	}
	all.Wait()
}

// result gathers the evidence.
func (r *round) result(ctx context.Context) (*Result, error) {
	over := evidence.Now()
	samples, clock := r.sampler.seen()
	var strays []string
	if r.second != nil {
		var err error
		if strays, err = r.gather(ctx); err != nil {
			return nil, fmt.Errorf("gather the evidence of both databases: %w", err)
		}
	}
	tables, err := dbtest.Violations(ctx, r.pool, check.Steady(clock))
	if err != nil {
		return nil, fmt.Errorf("check the tables: %w", err)
	}
	tables = append(strays, tables...)
	e := &evidence.Evidence{}
	if !r.plan.Options.Soak {
		if e, err = evidence.Load(ctx, r.pool, r.plan.Options.Dir); err != nil {
			return nil, err
		}
	}
	locked, err := r.deadlocks()
	if err != nil {
		return nil, err
	}
	tables = append(tables, locked...)
	for _, c := range r.customers {
		e.Calls = append(e.Calls, c.calls...)
	}
	e.Injected, e.Over, e.Healed = append(r.injected, r.unheard()...), over,
		time.Duration(r.lastOver.Load())
	e.Samples, e.Clock = samples, clock
	e.Exits = r.exits
	for _, s := range load.Schedules(r.plan.Options.Seed, r.since, r.until) {
		ticks, err := check.Ticks(check.Timetable{
			Schedule: s.Name, Cron: s.Cron, Every: s.Every, Start: r.since,
			Overlap: string(s.Overlap),
		}, r.since.Add(-time.Second), r.until)
		if err != nil {
			return nil, err
		}
		e.Ticks = append(e.Ticks, ticks...)
	}
	return &Result{Evidence: e, Tables: tables, Stuck: r.stuck, Lossy: len(r.world.Losses()) > 0}, nil
}
