package language_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
)

// TestRandomPrograms runs random workflow functions on workers that die, or hang and are declared dead, at a random
// point, while their code changes and runs are cancelled. A replay sees the same values as before, no recorded step is
// executed again, and in the end all effects of a run stand or are compensated. SWEEP="1000 500" tries 500 seeds from
// 1000 on.
func TestRandomPrograms(t *testing.T) {
	k := kit.New(t, dbtest.MaxConns(40))
	k.Exec(`CREATE TABLE public.effects (run_id uuid, step text)`)
	t.Cleanup(func() { dbtest.Exec(t, k.Pool, `DROP TABLE public.effects`) })
	first, count := uint64(1262), campaign.Size(4, 16)
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
	children := kit.NewWorker(t, kit.NewClient(t, k.Pool),
		kagzi.WorkerConfig{Queue: "children", Coordinator: kagzi.CoordinatorConfig{Interval: 50 * time.Millisecond}})
	kagzi.Handle(children, randomChild, func(ctx kagzi.Context, in childInput) (string, error) {
		w := worldOf(in.Seed)
		return "grown " + in.Name, w.performer(ctx, 0).perform(ctx, "", w.children[in.Name])
	})
	kit.StartWorker(t, children)
	undoEffects := kit.NewWorker(t, kit.NewClient(t, k.Pool), kagzi.WorkerConfig{
		Queue:         "undo-effects",
		NoCoordinator: true,
	})
	kagzi.Handle(undoEffects, undoEffect, func(ctx kagzi.Context, f effect) (int, error) {
		return worldOf(f.Seed).undoEffects(ctx, f)
	})
	kit.StartWorker(t, undoEffects)
	slots := make(chan bool, 4)
	var all sync.WaitGroup
	for seed := first; seed < first+uint64(count); seed++ {
		slots <- true
		all.Go(func() {
			defer func() { <-slots }()
			tr := newTrial(k, seed)
			worlds.Store(seed, tr.world)
			if err := tr.execute(); err != nil {
				t.Errorf("seed %d: %v\n%v\nchildren %v\n%s\nhappened:\n%s", seed, err, tr.program, tr.world.children,
					tr.plan, tr.world.report())
			}
		})
	}
	all.Wait()
}

// A trial is one random program with its run, forks and hosts.
type trial struct {
	k       *kit.Kit
	r       *rand.Rand
	seed    uint64
	keys    []string
	program []action
	world   *world
	wf      kagzi.Workflow[int, int]
	hosts   int         // that die or hang
	host    int         // the next one
	ending  string      // "completes", "fails" or "sleeps"
	fails   int         // attempts that fail at the end, with ending "fails"
	id      kagzi.RunID // of the run that is under way
	plan    string
	over    chan struct{} // closed when hung hosts may go on
}

func newTrial(k *kit.Kit, seed uint64) *trial {
	tr := &trial{k: k, r: rand.New(rand.NewPCG(seed, 7)), seed: seed, over: make(chan struct{})}
	gen := &generator{r: tr.r, children: map[string][]action{}, changes: tr.r.IntN(2) == 0}
	tr.program = gen.actions(2)
	tr.keys = gen.keys
	tr.world = &world{
		seed: seed, children: gen.children, n: map[string]int{},
		observations: map[string][]*observation{}, undoTries: map[effect]int{},
	}
	attempts := 1 + tr.r.IntN(3)
	tr.wf = kagzi.Define[int, int](fmt.Sprint("wf", seed),
		kagzi.RetryPolicy{MaxAttempts: attempts, Backoff: time.Millisecond})
	tr.hosts = tr.r.IntN(4)
	tr.ending = []string{"completes", "fails", "sleeps"}[tr.r.IntN(3)]
	tr.fails = []int{0, 1, 2, 99}[tr.r.IntN(4)]
	tr.plan = fmt.Sprintf("%d attempts, %s, %d fail", attempts, tr.ending, tr.fails)
	return tr
}

func (tr *trial) execute() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	run, err := kagzi.Start(ctx, tr.k.Client, tr.wf, 1, kagzi.Queue(tr.queue()))
	if err != nil {
		return err
	}
	tr.id = run.ID()
	for i := range 20 {
		err = errors.Join(err, tr.k.Client.Signal(ctx, tr.id, hint.With(fmt.Sprint("m", i))))
	}
	for _, key := range tr.keys {
		for i := range 9 { // a Map in a Map
			err = errors.Join(err, tr.k.Client.Signal(ctx, tr.id, hint.For(key).With(fmt.Sprint("m", i))))
		}
	}
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.Background())
	var hosts sync.WaitGroup
	defer hosts.Wait()
	defer stop()
	defer close(tr.over)
	root := tr.id
	for round := range 3 {
		if err := tr.finish(ctx, serving, &hosts); err != nil {
			return err
		}
		if err := tr.check(ctx, root); err != nil {
			return err
		}
		if again, err := tr.forkOrResume(ctx); err != nil || !again {
			return err
		}
		tr.hosts = tr.host + round
	}
	return nil
}

// finish starts hosts, one after the other, until the run has ended.
func (tr *trial) finish(ctx, serving context.Context, hosts *sync.WaitGroup) error {
	for {
		h, err := tr.newHost(ctx)
		if err != nil {
			return err
		}
		ctx2, stop := context.WithCancel(serving)
		h.stop = stop
		gone := make(chan struct{})
		hosts.Go(func() {
			defer close(gone)
			_ = h.w.Run(kit.HookedContext(ctx2, h.w))
		})
		done, err := tr.watch(ctx, h)
		if h.killed.Load() || done {
			stop()
		}
		if h.killed.Load() {
			<-gone
		}
		if done || err != nil {
			return err
		}
		// The host is dead, or declared dead.
		tr.host++
		rows, err := tr.k.Pool.Query(ctx, `UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), task_queue = $2,
			available_at = CASE WHEN status = 'RUNNING' THEN now() ELSE available_at END WHERE run_id = $1
				RETURNING 1`, string(tr.id), tr.queue())
		if err != nil {
			return err
		}
		rows.Close()
		if err := tr.noteRecords(ctx); err != nil {
			return err
		}
	}
}

// noteRecords reads the records before the next host begins.
func (tr *trial) noteRecords(ctx context.Context) error {
	var step string
	rows, _ := tr.k.Pool.Query(ctx, `SELECT step_id FROM kagzi.step_runs WHERE run_id = $1 AND status = 'COMPLETED'
		AND step_kind = 'FUNCTION'`, string(tr.id))
	_, err := pgx.ForEachRow(rows, []any{&step}, func() error {
		tr.world.add(entry{"recorded", tr.host, tr.id, effect{Step: step}, 0})
		return nil
	})
	return err
}

func (tr *trial) queue() string { return fmt.Sprintf("q%d.%d", tr.seed, tr.host) }

// A randomHost is a worker that may die or hang.
type randomHost struct {
	w      *kagzi.Worker
	stop   func()
	hung   atomic.Bool
	killed atomic.Bool
}

func (h *randomHost) down() bool { return h.hung.Load() || h.killed.Load() }

func (tr *trial) newHost(ctx context.Context) (*randomHost, error) {
	c, err := kagzi.NewClient(tr.k.Pool, kagzi.ClientConfig{Logger: testlog.New(tr.k.T)})
	if err != nil {
		return nil, err
	}
	w, err := kagzi.NewWorker(c, kagzi.WorkerConfig{
		Queue: tr.queue(), PollInterval: 30 * time.Millisecond, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour,
		LeaseTimeout: 24 * time.Hour, DrainTimeout: time.Millisecond, NoCoordinator: true,
	})
	if err != nil {
		return nil, err
	}
	h := &randomHost{w: w}
	n := tr.host
	kagzi.Handle(w, tr.wf, func(ctx kagzi.Context, _ int) (int, error) {
		p := tr.world.performer(ctx, n)
		if err := p.perform(ctx, "", tr.program); err != nil {
			return 0, err
		}
		switch {
		case tr.ending == "sleeps":
			return 0, kit.SleepLong(ctx)
		case tr.ending == "fails" && ctx.Attempt() <= tr.fails:
			return 0, errors.New("broken")
		}
		return 1, nil
	})
	if n < tr.hosts {
		points := []string{
			"after claim", "before step", "after step", "before flush", "after flush", "after record",
			"suspend", "finish",
		}
		point, nth, what := points[tr.r.IntN(len(points))], int64(1+tr.r.IntN(8)),
			[]string{"hangs", "hangs", "dies", "dies", "cancel"}[tr.r.IntN(5)]
		tr.plan += fmt.Sprintf(", %s %d %s", point, nth, what)
		var reached atomic.Int64
		id := tr.id
		kit.Failpoint(tr.k.T, w, func(at string, _ uuid.UUID) {
			switch {
			case at != point || reached.Add(1) != nth:
			case what == "hangs":
				h.hung.Store(true)
				<-tr.over
			case what == "dies":
				h.killed.Store(true)
				h.stop()
			default:
				go func() { _ = tr.k.Client.Cancel(ctx, id) }()
			}
		})
	}
	return h, nil
}

// watch waits until the host is down or the run is over, and cancels a run that sleeps for long. It returns true if the
// run is over.
func (tr *trial) watch(ctx context.Context, h *randomHost) (done bool, err error) {
	var info kagzi.RunInfo
	cancelled := false
	if !await.BecomesTrue(await.Patience, func() bool {
		info, err = tr.k.Client.Get(ctx, tr.id)
		if err == nil && !cancelled && info.Status == kagzi.StatusSleeping &&
			strings.HasPrefix(info.WaitingOn.String(), "timer long") {
			cancelled = true
			if err = tr.k.Client.Cancel(ctx, tr.id); errors.Is(err, kagzi.ErrRunFinished) {
				err = nil
			}
		}
		return err != nil || info.Status.Ended() || h.down()
	}) {
		return false, fmt.Errorf("stuck: %s %s", info.Status, info.WaitingOn)
	}
	return info.Status.Ended(), err
}

// forkOrResume does one of the two with the finished run, or neither. It returns true if a run is to be executed again.
func (tr *trial) forkOrResume(ctx context.Context) (again bool, err error) {
	info, err := tr.k.Client.Get(ctx, tr.id)
	if err != nil {
		return false, err
	}
	what := tr.r.IntN(5)
	tr.host++
	switch {
	case what == 0:
		return false, nil
	case what == 1 && info.Status != kagzi.StatusCompleted:
		err = admin.New(tr.k.Client).Runs.Resume(ctx, tr.id)
		tr.plan += ", resumed"
	default:
		steps, e := tr.k.Client.Steps(ctx, tr.id)
		var names []string
		for _, s := range steps {
			if s.Type != "COMPENSATION" && !strings.HasPrefix(s.Step, "#") && !strings.Contains(s.Step, "/#") &&
				!s.StartedAt.IsZero() {
				names = append(names, s.Step)
			}
		}
		if len(names) == 0 || e != nil {
			return false, e
		}
		step := names[tr.r.IntN(len(names))]
		var opts []admin.RestartOption
		if tr.r.IntN(2) == 0 {
			opts = append(opts, admin.InheritCompensations())
		}
		tr.plan += fmt.Sprintf(", forked from %s %v", step, opts)
		var id kagzi.RunID
		if id, err = admin.New(tr.k.Client).Runs.Fork(ctx, tr.id, step, opts...); err == nil {
			tr.id = id
		}
	}
	if errors.Is(err, admin.ErrCompensated) {
		tr.plan += " in vain"
		return false, nil
	}
	if err == nil {
		_, err = tr.k.Pool.Exec(ctx, `UPDATE kagzi.workflow_runs SET task_queue = $2 WHERE run_id = $1`, string(tr.id),
			tr.queue())
	}
	return err == nil, err
}
