package epochs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/request"
	"github.com/kagzi/kagzi/value"
)

// A tally is the input of an epoch: what those before have counted.
type tally struct{ Signals, Requests, Sum, Epochs int }

// A counting is a run that counts signals and requests, epoch by epoch, on hosts that die or hang.
type counting struct {
	k     *kit.Kit
	r     *rand.Rand
	seed  uint64
	wf    kagzi.Workflow[tally, tally]
	total int           // signals, and as many requests
	turns []int         // of each epoch, how many it reads; the last one for all later
	over  chan struct{} // closed when hung hosts may go on

	plan   string
	mu     sync.Mutex
	epochs map[string]int // of steps, by key
}

// TestRandomEpochs lets runs count messages of two kinds while their workers die, or hang and lose the run. Each
// message counts once, in its order, each request gets one answer, and no step of one epoch is taken for another's.
func TestRandomEpochs(t *testing.T) {
	k := kit.New(t)
	slots := make(chan bool, 3)
	var all sync.WaitGroup
	for seed := range uint64(campaign.Size(6, 60)) {
		slots <- true
		all.Go(func() {
			defer func() { <-slots }()
			r := rand.New(rand.NewPCG(seed, 11))
			c := &counting{
				k: k, r: r, seed: seed, total: 5 + r.IntN(10), over: make(chan struct{}), epochs: map[string]int{},
				wf: kagzi.Define[tally, tally](fmt.Sprint("count", seed),
					kagzi.RetryPolicy{MaxAttempts: 100, Backoff: time.Millisecond}),
			}
			for range 6 {
				c.turns = append(c.turns, 1+r.IntN(4))
			}
			if err := c.execute(); err != nil {
				t.Errorf("seed %d, turns of %v, %s: %v", seed, c.turns, c.plan, err)
			}
		})
	}
	all.Wait()
}

func (c *counting) queue(host int) string { return fmt.Sprintf("q%d.%d", c.seed, host) }

// epoch reads some messages, and continues until all are counted.
func (c *counting) epoch(ctx kagzi.Context, in tally) (tally, error) {
	for i := range c.turns[min(in.Epochs, len(c.turns)-1)] {
		if in.Signals+in.Requests == 2*c.total {
			return in, nil
		}
		n, err := kagzi.Step(ctx, "step", func(ctx context.Context) (int, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			key := kagzi.CurrentStep(ctx).Key
			if of, ok := c.epochs[key]; ok && of != in.Epochs {
				c.k.T.Errorf("epochs %d and %d have the key %s", of, in.Epochs, key)
			}
			c.epochs[key] = in.Epochs
			return in.Epochs, nil
		}, kagzi.RetryPolicy{Backoff: time.Millisecond})
		if err == nil && n != in.Epochs {
			err = kagzi.Permanent(fmt.Errorf("epoch %d finds the step of epoch %d", in.Epochs, n))
		}
		if err == nil && in.Signals < c.total && (i%2 == 0 || in.Requests == c.total) {
			err = c.signal(ctx, &in)
		} else if err == nil {
			err = c.request(ctx, &in)
		}
		if err == nil {
			err = value.Set(ctx, state, fmt.Sprint(in.Signals+in.Requests))
		}
		if err == nil && ctx.Attempt() == 1 && in.Sum%5 == 0 {
			err = fmt.Errorf("attempt 1 of epoch %d fails", in.Epochs)
		}
		if err != nil {
			return in, err
		}
	}
	in.Epochs++
	return in, kagzi.Continue(ctx, in)
}

func (c *counting) signal(ctx kagzi.Context, in *tally) error {
	got, err := kagzi.WaitSignal(ctx, goOn)
	if err == nil && got != fmt.Sprint(in.Signals) {
		err = kagzi.Permanent(fmt.Errorf("got signal %s, want %d", got, in.Signals))
	}
	in.Signals++
	in.Sum++
	return err
}

func (c *counting) request(ctx kagzi.Context, in *tally) error {
	r, err := request.Wait(ctx, add)
	if err != nil {
		return err
	}
	in.Requests++
	in.Sum += r.In
	return r.Reply(ctx, in.Requests)
}

func (c *counting) execute() error {
	ctx, cancel := context.WithTimeout(c.k.Ctx, await.Patience)
	defer cancel()
	run, err := kagzi.Start(ctx, c.k.Client, c.wf, tally{}, kagzi.Queue(c.queue(0)))
	if err != nil {
		return err
	}
	var asked sync.WaitGroup
	answers := make([]int, c.total)
	for i := range c.total {
		if err := c.k.Client.Signal(ctx, run, goOn.With(fmt.Sprint(i))); err != nil {
			return err
		}
		asked.Go(func() {
			q := add.With(2).WithID(kagzi.ID(fmt.Sprint("q", i)))
			first, err := request.Ask(ctx, c.k.Client, run, q)
			again, err2 := request.Ask(ctx, c.k.Client, run, q)
			if err != nil || err2 != nil || first != again {
				c.k.T.Errorf("request %d: answers %d and %d, %v, %v", i, first, again, err, err2)
			}
			answers[i] = first
		})
	}
	var hosts sync.WaitGroup
	defer hosts.Wait()
	defer close(c.over)
	for host := 0; ; host++ {
		if over, err := c.serve(ctx, run.ID(), host, &hosts); err != nil || over {
			asked.Wait()
			return c.check(ctx, run, answers, err)
		}
	}
}

// serve lets a host execute the run until it has ended or the host is down. Then the run goes to the next host's queue.
func (c *counting) serve(ctx context.Context, run kagzi.RunID, host int, hosts *sync.WaitGroup) (over bool, err error) {
	client, err := kagzi.NewClient(c.k.Pool, kagzi.ClientConfig{Logger: testlog.New(c.k.T)})
	if err != nil {
		return false, err
	}
	w, err := kagzi.NewWorker(client, kagzi.WorkerConfig{
		Queue: c.queue(host), PollInterval: 30 * time.Millisecond, Heartbeat: time.Hour, StaleAfter: 24 * time.Hour,
		LeaseTimeout: 24 * time.Hour, DrainTimeout: time.Millisecond, NoCoordinator: true,
	})
	if err != nil {
		return false, err
	}
	kagzi.Handle(w, c.wf, c.epoch)
	serving, stop := context.WithCancel(ctx)
	down, gone := make(chan struct{}), make(chan struct{})
	var once sync.Once
	if host < 5 {
		points := []string{"after claim", "after step", "before flush", "after flush", "suspend", "finish"}
		point, nth, dies := points[c.r.IntN(len(points))], int64(1+c.r.IntN(6)), c.r.IntN(2) == 0
		c.plan += fmt.Sprintf(", host %d at %s %d dies %v", host, point, nth, dies)
		var reached atomic.Int64
		kit.Failpoint(c.k.T, w, func(at string, _ uuid.UUID) {
			if at != point || reached.Add(1) != nth {
				return
			}
			once.Do(func() { close(down) })
			if dies {
				stop()
			} else {
				<-c.over
			}
		})
	}
	hosts.Go(func() {
		defer close(gone)
		_ = w.Run(kit.HookedContext(serving, w))
	})
	defer stop()
	await.BecomesTrue(await.Patience, func() bool {
		select {
		case <-down:
			return true
		default:
		}
		var info kagzi.RunInfo
		info, err = c.k.Client.Get(ctx, run)
		over = info.Status.Ended()
		return err != nil || over
	})
	if over || err != nil {
		return over, err
	}
	_, err = c.k.Pool.Exec(ctx, `UPDATE kagzi.workflow_runs SET lease = gen_random_uuid(), task_queue = $2,
		available_at = CASE WHEN status = 'RUNNING' THEN now() ELSE available_at END WHERE run_id = $1`, string(run),
		c.queue(host+1))
	return false, err
}

func (c *counting) check(ctx context.Context, run *kagzi.Run[tally], answers []int, err error) error {
	if err != nil {
		return err
	}
	got, err := run.Result(ctx)
	if err != nil || got.Signals != c.total || got.Requests != c.total || got.Sum != 3*c.total {
		return fmt.Errorf("counted %+v of %d each, %w", got, c.total, err)
	}
	seen := map[int]bool{}
	for i, a := range answers {
		if a < 1 || a > c.total || seen[a] {
			return fmt.Errorf("request %d has the answer %d: %v", i, a, answers)
		}
		seen[a] = true
	}
	info, err := c.k.Client.Get(ctx, run)
	if err != nil || info.Epoch != got.Epochs {
		return fmt.Errorf("epoch %d after %d, %w", info.Epoch, got.Epochs, err)
	}
	now, err := value.Get(ctx, c.k.Client, run, state)
	if err != nil || now.Value != fmt.Sprint(2*c.total) {
		return fmt.Errorf("the value is %+v, %w", now, err)
	}
	return nil
}
