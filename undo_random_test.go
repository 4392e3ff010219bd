package kagzi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// A deed is one operation of a random workflow function.
type deed struct {
	kind string
	name string
	ways [][]deed // branches; of a failure, what is done about it
	on   bool     // with compensation; of a failure: it fails the branch; of a group: CollectErrors
	more int      // of a group: 1 with Timeout, 2 with Concurrency; of a signal: 0 for one that others wait for, too
}

func (d deed) String() string {
	s := d.kind + ":" + d.name
	if d.on {
		s += "!"
	}
	for _, w := range d.ways {
		s += fmt.Sprint(w)
	}
	return s
}

// A teller makes random workflow functions.
type teller struct {
	r    *rand.Rand
	n    int
	keys []string        // of signals
	on   map[string]bool // has a compensation
}

func (m *teller) deeds(depth int) []deed {
	var all []deed
	for range 1 + m.r.IntN(3) {
		all = append(all, m.deed(depth))
	}
	return all
}

func (m *teller) deed(depth int) deed {
	kinds := []string{"step", "step", "steptx", "steptx", "sleep", "signal", "child", "start", "fail", "fail", "nap"}
	if depth > 0 {
		kinds = append(kinds, "go", "parallel", "map", "race", "parallel", "race", "go")
	}
	m.n++
	d := deed{kind: kinds[m.r.IntN(len(kinds))], on: m.r.IntN(3) > 0, more: m.r.IntN(4)}
	d.name = d.kind + strconv.Itoa(m.n)
	if d.kind == "signal" {
		m.keys = append(m.keys, d.name)
	}
	m.on[d.name] = d.on && strings.HasPrefix(d.kind, "step")
	switch d.kind {
	case "go":
		d.ways = [][]deed{m.deeds(depth - 1), m.deeds(depth - 1)}
	case "parallel", "race":
		for range 2 + m.r.IntN(2) {
			d.ways = append(d.ways, m.deeds(depth-1))
		}
		d.on = m.r.IntN(3) == 0
	case "map":
		d.ways = [][]deed{m.deeds(depth - 1)}
		d.on = m.r.IntN(3) == 0
	case "fail":
		d.ways = [][]deed{m.deeds(0)}
	}
	return d
}

// A world is what a random run does outside.
type world struct {
	mu   sync.Mutex
	n    map[string]int      // executions of each step
	seen map[string][]string // what each undo saw
	line []string            // all that happened
}

func (w *world) do(ctx context.Context) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := CurrentStep(ctx).Step
	w.n[id]++
	w.line = append(w.line, id)
	return fmt.Sprintf("%s=%d", id, w.n[id])
}

func (w *world) undo(ctx context.Context, saw string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := strings.Replace(CurrentStep(ctx).Step, "undo-", "", 1)
	w.seen[id] = append(w.seen[id], saw)
	w.line = append(w.line, "undo:"+id+":"+saw)
}

var (
	news  = DefineSignal[string]("told")
	grown = Define[string, string]("grown")
)

func (w *world) live(ctx Context, all []deed) error {
	for _, d := range all {
		if err := w.act(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) act(ctx Context, d deed) (err error) {
	var got string
	if d.on && slices.Contains([]string{"step", "steptx", "signal", "child"}, d.kind) {
		Compensate(ctx, "undo-"+d.name, func(ctx context.Context) error {
			w.undo(ctx, got)
			return nil
		})
	}
	step := func(ctx context.Context) (string, error) { return w.do(ctx), nil }
	switch d.kind {
	case "step":
		got, err = Step(ctx, d.name, step)
	case "steptx":
		got, err = StepTx(ctx, d.name, func(ctx context.Context, _ pgx.Tx) (string, error) { return step(ctx) })
	case "sleep":
		err = Sleep(ctx, d.name, 250*time.Millisecond)
	case "nap":
		err = Sleep(ctx, d.name, time.Millisecond)
	case "signal":
		sig := news
		if d.more > 0 {
			sig = news.For(d.name)
		}
		got, err = WaitSignal(ctx, sig)
	case "child":
		got, err = RunChild(ctx, d.name, grown, d.name, Queue("kids"))
	case "start":
		_, err = StartChild(ctx, d.name, grown, d.name, Queue("kids"))
	case "fail":
		err = Do(ctx, d.name, func(ctx context.Context) error {
			if s := w.do(ctx); strings.HasSuffix(s, "=1") {
				return errors.New("no")
			}
			return nil
		}, noRetry)
		if _, failed := errors.AsType[*StepError](err); failed {
			if e := w.live(ctx, d.ways[0]); e != nil {
				return e
			}
			if !d.on {
				err = nil
			}
		}
	case "go":
		f := Go(ctx, d.name, func(ctx Context) (int, error) { return 0, w.live(ctx, d.ways[0]) })
		if err = w.live(ctx, d.ways[1]); err == nil {
			_, err = f.Result(ctx)
		}
	case "parallel":
		ways := map[string]func(Context) error{}
		for i, way := range d.ways {
			ways[fmt.Sprint("b", i)] = func(ctx Context) error { return w.live(ctx, way) }
		}
		err = Parallel(ctx, d.name, ways, d.options()...)
	case "map":
		_, err = Map(ctx, d.name, []int{1, 2, 3}, func(ctx Context, _ int) (int, error) { return 0, w.live(ctx, d.ways[0]) }, d.options()...)
	case "race":
		ways := map[string]func(Context) (int, error){}
		for i, way := range d.ways {
			ways[fmt.Sprint("b", i)] = func(ctx Context) (int, error) { return 0, w.live(ctx, way) }
		}
		_, _, err = Race(ctx, d.name, ways, d.options()...)
	}
	return err
}

func (d deed) options() (opts []BranchOption) {
	if d.on {
		opts = append(opts, CollectErrors())
	}
	switch d.more {
	case 1:
		opts = append(opts, Timeout(time.Hour))
	case 2:
		if d.kind != "race" {
			opts = append(opts, Concurrency(2))
		}
	}
	if d.kind == "race" && d.on {
		opts = opts[1:]
	}
	return opts
}

// TestRandomUndo lets random workflow functions run into workers that hang at a random point and are taken for dead, another
// go on, and cancels them at some time: what was done is undone, by closures that know what is recorded. SWEEP="1000 500"
// tries other seeds, from the first on.
func TestRandomUndo(t *testing.T) {
	k := newKit(t)
	first, count := uint64(1262), 16
	if s := os.Getenv("SWEEP"); s != "" {
		if _, err := fmt.Sscan(s, &first, &count); err != nil {
			t.Fatal(err)
		}
	}
	w := newTestWorker(t, newTestClient(t, k.pool), WorkerConfig{Queue: "kids"})
	Handle(w, grown, func(_ Context, s string) (string, error) { return "grown " + s, nil })
	startWorker(t, w)
	slots := make(chan bool, 4)
	var wg sync.WaitGroup
	for seed := first; seed < first+uint64(count); seed++ {
		slots <- true
		wg.Go(func() {
			defer func() { <-slots }()
			u := newRandomUndo(k, seed)
			if err := u.run(); err != nil {
				t.Errorf("seed %d: %v\n%v\n%s\nhappened:\n%s", seed, err, u.program, u.plan, strings.Join(u.world.line, "\n"))
			}
		})
	}
	wg.Wait()
}

// A randomUndo is one random function and what becomes of its run.
type randomUndo struct {
	k       *kit
	teller  *teller
	seed    uint64
	program []deed
	hosts   int // that hang
	when    int // the number of the host under which the run is cancelled
	plan    string
	wf      Workflow[int, int]
	handle  *Run[int]
	world   *world
	over    chan struct{} // closed when who hangs may go on
}

func newRandomUndo(k *kit, seed uint64) *randomUndo {
	m := &teller{r: rand.New(rand.NewPCG(seed, 7)), on: map[string]bool{}}
	u := &randomUndo{k: k, teller: m, seed: seed, program: m.deeds(2), over: make(chan struct{})}
	u.world = &world{n: map[string]int{}, seen: map[string][]string{}}
	attempts := 1 + m.r.IntN(3)
	u.wf = Define[int, int](fmt.Sprint("wf", seed), RetryPolicy{MaxAttempts: attempts, Backoff: time.Millisecond})
	u.hosts = m.r.IntN(5)
	u.when = m.r.IntN(u.hosts + 1)
	u.plan = fmt.Sprintf("%d attempts, %d hosts hang, cancelled at %d", attempts, u.hosts, u.when)
	return u
}

func (u *randomUndo) run() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if u.handle, err = Start(ctx, u.k.c, u.wf, 1, Queue(u.queue(0))); err != nil {
		return err
	}
	for i := range 30 {
		err = errors.Join(err, u.k.c.Signal(ctx, u.handle.ID(), news.With(fmt.Sprint("m", i))))
	}
	for _, key := range u.teller.keys {
		for i := range 9 { // a Map in a Map
			err = errors.Join(err, u.k.c.Signal(ctx, u.handle.ID(), news.For(key).With(fmt.Sprint("m", i))))
		}
	}
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.Background())
	var hosts sync.WaitGroup
	defer hosts.Wait()
	defer stop()
	defer close(u.over)
	for i := 0; ; i++ {
		w, hangs, err := u.host(i)
		if err != nil {
			return err
		}
		hosts.Go(func() { _ = w.Run(serving) })
		if done, err := u.under(ctx, i, hangs); done || err != nil {
			return err
		}
		// The host is taken for dead.
		if _, err := u.k.pool.Exec(ctx, `UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), task_queue = $2,
			available_at = CASE WHEN status = 'RUNNING' THEN now() ELSE available_at END WHERE run_id = $1`, string(u.handle.ID()), u.queue(i+1)); err != nil {
			return err
		}
	}
}

func (u *randomUndo) queue(host int) string { return fmt.Sprintf("q%d.%d", u.seed, host) }

// host makes the i-th worker of the run.
func (u *randomUndo) host(i int) (w *Worker, hangs func() bool, err error) {
	c, err := NewClient(u.k.pool, ClientConfig{Logger: u.k.c.cfg.Logger})
	if err != nil {
		return nil, nil, err
	}
	w, err = NewWorker(c, WorkerConfig{
		Queue: u.queue(i), PollInterval: 30 * time.Millisecond, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour,
		VisibilityTimeout: 24 * time.Hour, DrainTimeout: time.Millisecond, NoCoordinator: true,
	})
	if err != nil {
		return nil, nil, err
	}
	Handle(w, u.wf, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "undo-root", func(ctx context.Context) error {
			u.world.undo(ctx, "")
			return nil
		})
		if err := u.world.live(ctx, u.program); err != nil {
			return 0, err
		}
		return 0, sleepLong(ctx)
	})
	var hung atomic.Bool
	if i < u.hosts {
		points := []string{"after claim", "before step", "after step", "before flush", "after flush", "after record", "suspend", "finish"}
		point, nth := points[u.teller.r.IntN(len(points))], int64(1+u.teller.r.IntN(8))
		u.plan += fmt.Sprintf(", %s %d", point, nth)
		var reached atomic.Int64
		w.failpoint = func(at string, _ uuid.UUID) {
			if at == point && reached.Add(1) == nth {
				hung.Store(true)
				<-u.over
			}
		}
	}
	return w, hung.Load, nil
}

// under waits until the i-th host hangs, or has no more to do, and cancels the run if it is time. It returns true if the
// run is over, and was undone as it must be.
func (u *randomUndo) under(ctx context.Context, i int, hangs func() bool) (done bool, err error) {
	var info RunInfo
	until := func(what string, ok func() bool) error {
		if !comesTrue(patience, func() bool {
			info, err = u.handle.Info(ctx)
			return err != nil || hangs() || info.Status.Ended() || ok()
		}) {
			return fmt.Errorf("stuck %s: %s %s", what, info.Status, info.WaitingOn)
		}
		return err
	}
	asleep := func() bool { return info.Status == StatusSleeping && info.WaitingOn == "timer long" }
	if err := until("on its way", asleep); err != nil {
		return false, err
	}
	if !info.Status.Ended() && (i >= u.when || !hangs()) {
		if err := u.handle.Cancel(ctx); err != nil && !errors.Is(err, ErrRunFinished) {
			return false, err
		}
		if err := until("cancelled", func() bool { return false }); err != nil {
			return false, err
		}
	}
	if !info.Status.Ended() {
		return false, nil
	}
	if info.Status == StatusCompleted || info.Kind.setsAside() || info.Kind == KindCompensation {
		return true, fmt.Errorf("ended %s, %s: %s", info.Status, info.Kind, info.Error)
	}
	return true, u.check(ctx)
}

// check compares what happened with what was undone.
func (u *randomUndo) check(ctx context.Context) error {
	w := u.world
	w.mu.Lock()
	defer w.mu.Unlock()
	registered, recorded := map[string]bool{}, map[string]string{}
	var id, kind string
	var attempt int
	var output []byte
	rows, _ := u.k.pool.Query(ctx, `SELECT step_id, step_kind, attempt_number, output FROM kagzi.step_runs WHERE run_id = $1 AND status = 'COMPLETED'`, string(u.handle.ID()))
	_, err := pgx.ForEachRow(rows, []any{&id, &kind, &attempt, &output}, func() error {
		switch {
		case kind == "COMPENSATION" && attempt == 0:
			registered[strings.Replace(id, "undo-", "", 1)] = true
		case kind == "FUNCTION" || kind == "CHILD_WORKFLOW" || kind == "SIGNAL":
			var v string
			_ = json.Unmarshal(output, &v) // what is no text has no undo
			recorded[strings.Replace(id, "told:", "", 1)] = v
		}
		return nil
	})
	errs := []error{err}
	for id := range registered {
		if len(w.seen[id]) == 0 {
			errs = append(errs, fmt.Errorf("%s is not undone", id))
		}
	}
	for id := range w.n {
		if u.teller.on[id[strings.LastIndex(id, "/")+1:]] && !registered[id] {
			errs = append(errs, fmt.Errorf("%s was done, and its undo is not registered", id))
		}
	}
	for id, saw := range w.seen {
		want, ok := recorded[id]
		if wrong := slices.DeleteFunc(slices.Clone(saw), func(v string) bool { return v == want }); ok && len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("the undo of %s saw %q, recorded is %q", id, wrong, want))
		}
		if !registered[id] {
			errs = append(errs, fmt.Errorf("%s was undone, and its undo is not registered", id))
		}
	}
	return errors.Join(errs...)
}
