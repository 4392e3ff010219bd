package kagzi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestRandomPrograms lets random workflow functions run on workers that die, or hang and are taken for dead, at a random
// point, while their code changes and somebody cancels them: each sees in a replay what it saw before, executes nothing that
// is recorded, and in the end what it did is compensated or stands. SWEEP="1000 500" tries other seeds, from the first on.
func TestRandomPrograms(t *testing.T) {
	k := newKit(t, dbtest.MaxConns(40))
	k.exec(`CREATE TABLE public.effects (run_id uuid, step text)`)
	t.Cleanup(func() { execSQL(t, k.pool, `DROP TABLE public.effects`) })
	first, count := uint64(1262), 16
	if s := os.Getenv("SWEEP"); s != "" {
		if _, err := fmt.Sscan(s, &first, &count); err != nil {
			t.Fatal(err)
		}
	}
	var worlds sync.Map
	worldOf := func(seed uint64) *world {
		w, _ := worlds.Load(seed)
		return w.(*world)
	}
	kids := newTestWorker(t, newTestClient(t, k.pool), WorkerConfig{Queue: "kids", Coordinator: CoordinatorConfig{Interval: 50 * time.Millisecond}})
	Handle(kids, grown, func(ctx Context, in kid) (string, error) {
		w := worldOf(in.Seed)
		return "grown " + in.Name, w.performer(ctx, 0).live(ctx, "", w.kids[in.Name])
	})
	startWorker(t, kids)
	unmakes := newTestWorker(t, newTestClient(t, k.pool), WorkerConfig{Queue: "unmakes", NoCoordinator: true})
	Handle(unmakes, unmake, func(ctx Context, f effect) (int, error) { return worldOf(f.Seed).unmakes(ctx, f) })
	startWorker(t, unmakes)
	slots := make(chan bool, 4)
	var all sync.WaitGroup
	for seed := first; seed < first+uint64(count); seed++ {
		slots <- true
		all.Go(func() {
			defer func() { <-slots }()
			g := newGamble(k, seed)
			worlds.Store(seed, g.world)
			if err := g.play(); err != nil {
				t.Errorf("seed %d: %v\n%v\nchildren %v\n%s\nhappened:\n%s", seed, err, g.program, g.world.kids, g.plan, g.world.story())
			}
		})
	}
	all.Wait()
}

// A gamble is one random program and what becomes of its runs.
type gamble struct {
	k       *kit
	r       *rand.Rand
	seed    uint64
	keys    []string
	program []act
	world   *world
	wf      Workflow[int, int]
	hosts   int    // that do not last
	host    int    // the next one
	ending  string // "completes", "fails" or "sleeps"
	fails   int    // attempts that fail so
	id      RunID  // of the run that is under way
	plan    string
	over    chan struct{} // closed when who hangs may go on
}

func newGamble(k *kit, seed uint64) *gamble {
	g := &gamble{k: k, r: rand.New(rand.NewPCG(seed, 7)), seed: seed, over: make(chan struct{})}
	m := &author{r: g.r, kids: map[string][]act{}, grows: g.r.IntN(2) == 0}
	g.program = m.acts(2)
	g.keys = m.keys
	g.world = &world{seed: seed, kids: m.kids, n: map[string]int{}, sights: map[string][]*sight{}, unmade: map[effect]int{}, still: !m.grows}
	attempts := 1 + g.r.IntN(3)
	g.wf = Define[int, int](fmt.Sprint("wf", seed), RetryPolicy{MaxAttempts: attempts, Backoff: time.Millisecond})
	g.hosts = g.r.IntN(4)
	g.ending = []string{"completes", "fails", "sleeps"}[g.r.IntN(3)]
	g.fails = []int{0, 1, 2, 99}[g.r.IntN(4)]
	g.plan = fmt.Sprintf("%d attempts, %s, %d fail", attempts, g.ending, g.fails)
	return g
}

func (g *gamble) play() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	run, err := Start(ctx, g.k.c, g.wf, 1, Queue(g.queue()))
	if err != nil {
		return err
	}
	g.id = run.ID()
	for i := range 20 {
		err = errors.Join(err, g.k.c.Signal(ctx, g.id, hint.With(fmt.Sprint("m", i))))
	}
	for _, key := range g.keys {
		for i := range 9 { // a Map in a Map
			err = errors.Join(err, g.k.c.Signal(ctx, g.id, hint.For(key).With(fmt.Sprint("m", i))))
		}
	}
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.Background())
	var hosts sync.WaitGroup
	defer hosts.Wait()
	defer stop()
	defer close(g.over)
	root := g.id
	for round := range 3 {
		if err := g.finish(ctx, serving, &hosts); err != nil {
			return err
		}
		if err := g.check(ctx, root); err != nil {
			return err
		}
		if again, err := g.goOn(ctx); err != nil || !again {
			return err
		}
		g.hosts = g.host + round
	}
	return nil
}

// finish has hosts execute the run, one after the other, until it is over.
func (g *gamble) finish(ctx, serving context.Context, hosts *sync.WaitGroup) error {
	for {
		h, err := g.newHost(ctx)
		if err != nil {
			return err
		}
		ctx2, stop := context.WithCancel(serving)
		h.stop = stop
		gone := make(chan struct{})
		hosts.Go(func() {
			defer close(gone)
			_ = h.w.Run(ctx2)
		})
		done, err := g.under(ctx, h)
		if h.killed.Load() || done {
			stop()
		}
		if h.killed.Load() {
			<-gone
		}
		if done || err != nil {
			return err
		}
		// The host is dead, or taken for it.
		g.host++
		rows, err := g.k.pool.Query(ctx, `UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), task_queue = $2,
			available_at = CASE WHEN status = 'RUNNING' THEN now() ELSE available_at END WHERE run_id = $1 RETURNING 1`, string(g.id), g.queue())
		if err != nil {
			return err
		}
		rows.Close()
		if err := g.noteRecords(ctx); err != nil {
			return err
		}
	}
}

// noteRecords notes what the table has before the next host begins.
func (g *gamble) noteRecords(ctx context.Context) error {
	var step string
	rows, _ := g.k.pool.Query(ctx, `SELECT step_id FROM kagzi.step_runs WHERE run_id = $1 AND status = 'COMPLETED' AND step_kind = 'FUNCTION'`, string(g.id))
	_, err := pgx.ForEachRow(rows, []any{&step}, func() error {
		g.world.add(entry{"recorded", g.host, g.id, effect{Step: step}, 0})
		return nil
	})
	return err
}

func (g *gamble) queue() string { return fmt.Sprintf("q%d.%d", g.seed, g.host) }

// A randomHost is a worker that does not last.
type randomHost struct {
	w      *Worker
	stop   func()
	hung   atomic.Bool
	killed atomic.Bool
}

func (h *randomHost) down() bool { return h.hung.Load() || h.killed.Load() }

func (g *gamble) newHost(ctx context.Context) (*randomHost, error) {
	c, err := NewClient(g.k.pool, ClientConfig{Logger: g.k.c.cfg.Logger})
	if err != nil {
		return nil, err
	}
	w, err := NewWorker(c, WorkerConfig{
		Queue: g.queue(), PollInterval: 30 * time.Millisecond, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour,
		VisibilityTimeout: 24 * time.Hour, DrainTimeout: time.Millisecond, NoCoordinator: true,
	})
	if err != nil {
		return nil, err
	}
	h := &randomHost{w: w}
	n := g.host
	Handle(w, g.wf, func(ctx Context, _ int) (int, error) {
		p := g.world.performer(ctx, n)
		if err := p.live(ctx, "", g.program); err != nil {
			return 0, err
		}
		switch {
		case g.ending == "sleeps":
			return 0, sleepLong(ctx)
		case g.ending == "fails" && ctx.Attempt() <= g.fails:
			return 0, errors.New("broken")
		}
		return 1, nil
	})
	if n < g.hosts {
		points := []string{"after claim", "before step", "after step", "before flush", "after flush", "after record", "suspend", "finish"}
		point, nth, what := points[g.r.IntN(len(points))], int64(1+g.r.IntN(8)), []string{"hangs", "hangs", "dies", "dies", "cancel"}[g.r.IntN(5)]
		g.plan += fmt.Sprintf(", %s %d %s", point, nth, what)
		var reached atomic.Int64
		id := g.id
		w.failpoint = func(at string, _ uuid.UUID) {
			switch {
			case at != point || reached.Add(1) != nth:
			case what == "hangs":
				h.hung.Store(true)
				<-g.over
			case what == "dies":
				h.killed.Store(true)
				h.stop()
			default:
				go func() { _ = g.k.c.Cancel(ctx, id) }()
			}
		}
	}
	return h, nil
}

// under waits until the host is down or has no more to do, and cancels a run that sleeps for long. It returns true if the run is
// over.
func (g *gamble) under(ctx context.Context, h *randomHost) (done bool, err error) {
	var info RunInfo
	cancelled := false
	if !comesTrue(patience, func() bool {
		info, err = g.k.c.Get(ctx, g.id)
		if err == nil && !cancelled && info.Status == StatusSleeping && info.WaitingOn == "timer long" {
			cancelled = true
			if err = g.k.c.Cancel(ctx, g.id); errors.Is(err, ErrRunFinished) {
				err = nil
			}
		}
		return err != nil || info.Status.Ended() || h.down()
	}) {
		return false, fmt.Errorf("stuck: %s %s", info.Status, info.WaitingOn)
	}
	return info.Status.Ended(), err
}

// goOn sometimes forks or resumes the run, which is over. It returns true if there is more to do.
func (g *gamble) goOn(ctx context.Context) (again bool, err error) {
	info, err := g.k.c.Get(ctx, g.id)
	if err != nil {
		return false, err
	}
	what := g.r.IntN(5)
	g.host++
	switch {
	case what == 0:
		return false, nil
	case what == 1 && info.Status != StatusCompleted:
		err = g.k.c.Resume(ctx, g.id)
		g.plan += ", resumed"
	default:
		steps, e := g.k.c.Steps(ctx, g.id)
		var names []string
		for _, s := range steps {
			if s.Type != StepCompensation && validateStepID(s.Step) == nil && !s.StartedAt.IsZero() {
				names = append(names, s.Step)
			}
		}
		if len(names) == 0 || e != nil {
			return false, e
		}
		step := names[g.r.IntN(len(names))]
		var opts []RestartOption
		if g.r.IntN(2) == 0 {
			opts = append(opts, InheritCompensations())
		}
		g.plan += fmt.Sprintf(", forked from %s %v", step, opts)
		var id RunID
		if id, err = g.k.c.Fork(ctx, g.id, step, opts...); err == nil {
			g.id = id
		}
	}
	if errors.Is(err, ErrCompensated) {
		g.plan += " in vain"
		return false, nil
	}
	if err == nil {
		_, err = g.k.pool.Exec(ctx, `UPDATE kagzi.workflow_runs SET task_queue = $2 WHERE run_id = $1`, string(g.id), g.queue())
	}
	return err == nil, err
}
