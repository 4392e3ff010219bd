package requests_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/request"
)

// finished stands for the answer of a run that has ended without one.
const finished = -1

// TestAskWhileTheRunEnds asks a run while it is cancelled or terminated, and while another one is started in its place.
// Each question is answered, or its asker hears that the run has ended. Who asks again hears the same.
func TestAskWhileTheRunEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(k *kit.Kit, run kagzi.RunID) (next kagzi.RunID, err error){
		"Cancel": func(k *kit.Kit, run kagzi.RunID) (kagzi.RunID, error) {
			return "", k.Client.Cancel(k.Ctx, run)
		},
		"Terminate": func(k *kit.Kit, run kagzi.RunID) (kagzi.RunID, error) {
			return "", admin.New(k.Client).Runs.Terminate(k.Ctx, run)
		},
		"Restart": func(k *kit.Kit, run kagzi.RunID) (kagzi.RunID, error) {
			if err := admin.New(k.Client).Runs.Terminate(k.Ctx, run); err != nil {
				return "", err
			}
			return admin.New(k.Client).Runs.Restart(k.Ctx, run)
		},
		"Fork": func(k *kit.Kit, run kagzi.RunID) (kagzi.RunID, error) {
			if err := admin.New(k.Client).Runs.Terminate(k.Ctx, run); err != nil {
				return "", err
			}
			return admin.New(k.Client).Runs.Fork(k.Ctx, run, "add")
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			var answers atomic.Int64
			kit.Serve(k, cart, func(ctx kagzi.Context, _ struct{}) (int, error) {
				for {
					r, err := request.Wait(ctx, add)
					if err != nil {
						return 0, err
					}
					if err := r.Reply(ctx, int(answers.Add(1))); err != nil { // another one in each execution
						return 0, err
					}
				}
			})
			kit.Serve(k, asker, func(ctx kagzi.Context, _ struct{}) (int, error) {
				n, err := request.AskStep(ctx, "ask", kagzi.RunID(ctx.Headers()["to"]), add.With(1))
				if errors.Is(err, kagzi.ErrRunFinished) {
					return finished, nil
				}
				return n, err
			})
			for seed := range uint64(campaign.Size(4, 60)) {
				r := &race{
					k: k, id: kagzi.ID(fmt.Sprint(name, seed)), heard: map[question]int{}, came: make(chan bool, 100),
					forks: name == "Fork",
				}
				r.run = kit.Begin(k, cart, struct{}{}, r.id).ID()
				r.play(rand.New(rand.NewPCG(seed, 3)), end)
			}
		})
	}
}

// A race is between askers of a run and its end.
type race struct {
	k    *kit.Kit
	id   kagzi.ID
	run  kagzi.RunID
	came chan bool // for each first answer

	forks bool // the next run is a fork, which has the questions of the first one

	mu    sync.Mutex
	heard map[question]int
}

// A question has an ID of its own, and names the run by its RunID or its ID.
type question struct {
	number int
	byID   bool
}

// ask asks the run to, and returns the answer.
func (r *race) ask(q question, to request.Target) int {
	ctx, cancel := context.WithTimeout(r.k.Ctx, await.Patience)
	defer cancel()
	n, err := request.Ask(ctx, r.k.Client, to, add.With(q.number).WithID(kagzi.ID(fmt.Sprint("q", q))))
	switch {
	case errors.Is(err, kagzi.ErrRunFinished):
		return finished
	case err != nil:
		r.k.T.Errorf("%s: question %v: %v", r.id, q, err)
	}
	return n
}

// to returns whom the question is asked.
func (r *race) to(q question) request.Target {
	if q.byID {
		return r.id
	}
	return r.run
}

func (r *race) play(random *rand.Rand, end func(*kit.Kit, kagzi.RunID) (kagzi.RunID, error)) {
	k := r.k
	var askers sync.WaitGroup
	for i := range 6 {
		askers.Go(func() {
			for j := range 3 {
				q := question{10*i + j, i%2 == 0}
				n := r.ask(q, r.to(q))
				r.mu.Lock()
				r.heard[q] = n
				r.mu.Unlock()
				r.came <- true
			}
		})
	}
	var runs []*kagzi.Run[int]
	for range 3 {
		runs = append(runs, kit.Begin(k, asker, struct{}{}, kagzi.Headers{"to": string(r.run)}))
	}
	for range 1 + random.IntN(12) { // a fork needs a step
		await.Receive(k.T, r.came)
	}
	next, err := end(k, r.run)
	if err != nil {
		k.T.Fatal(err)
	}
	askers.Wait()
	r.check(next)
	for _, run := range runs {
		await.True(k.T, "the run that asks has ended", func() bool {
			due(k) // else it would find the end of the other run in its own time
			return k.InfoOf(run).Status.Ended()
		})
		n := kit.ResultOf(k, run)
		given := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE run_id = $1 AND step_kind = 'REPLY'
			AND convert_from(output, 'UTF8')::int = $2`, string(r.run), n)
		if n != finished && given != 1 {
			k.T.Errorf("%s: run %s got %d, which is no answer of the run that it asked", r.id, run.ID(), n)
		}
	}
	if next != "" {
		k.Cancel(next)
	}
}

// check asks again. next is the run in the place of the one that has ended; empty: none.
func (r *race) check(next kagzi.RunID) {
	for q, n := range r.heard {
		again, want := r.ask(q, r.to(q)), n
		if next != "" {
			now := r.ask(q, next)
			if now == finished || now != r.ask(q, next) {
				r.k.T.Errorf("%s: question %v: the active run answers %d", r.id, q, now)
			}
			if q.byID && (r.forks || n == finished && again != finished) { // else the first run has it, and no other
				want = now
			}
		}
		if again != want {
			r.k.T.Errorf("%s: question %v: %d, and then %d, want %d", r.id, q, n, again, want)
		}
	}
}
