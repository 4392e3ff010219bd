package kagzitest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/campaign"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/kind"
)

// A plant is a random part of a workflow. It behaves the same in each execution.
type plant struct {
	kind    string
	name    string
	parts   []*plant
	fails   int // how often a step fails at first
	hours   int
	handles bool // errors of its parts are noted, and it goes on
	opts    []kagzi.BranchOption
}

func grow(r *rand.Rand, depth int, name string) *plant {
	p := &plant{name: name, handles: r.IntN(2) == 0, hours: 1 + r.IntN(20)}
	kinds := []string{"step", "step", "sleep", "list", "go", "left", "parallel", "race", "map"}
	if depth == 0 {
		kinds = kinds[:3]
	}
	p.kind = kinds[r.IntN(len(kinds))]
	if depth == 3 {
		p.kind = "list"
	}
	if r.IntN(3) == 0 {
		p.fails = 1 + r.IntN(3)
	}
	if r.IntN(4) == 0 {
		p.opts = append(p.opts, kagzi.Timeout(time.Duration(1+r.IntN(15))*time.Hour))
	}
	if r.IntN(4) == 0 {
		p.opts = append(p.opts, kagzi.CollectErrors())
	}
	if r.IntN(4) == 0 {
		p.opts = append(p.opts, kagzi.Concurrency(2))
	}
	if depth > 0 {
		for i := range 2 + r.IntN(3) {
			p.parts = append(p.parts, grow(r, depth-1, fmt.Sprint(name, i)))
		}
	}
	return p
}

// A garden counts the executions of steps.
type garden struct {
	mu    sync.Mutex
	calls map[string]int
}

func (g *garden) run(ctx kagzi.Context, p *plant) (string, error) {
	branches := map[string]func(kagzi.Context) (string, error){}
	plain := map[string]func(kagzi.Context) error{}
	for _, part := range p.parts {
		branches[part.name] = func(ctx kagzi.Context) (string, error) { return g.run(ctx, part) }
		plain[part.name] = func(ctx kagzi.Context) error { _, err := g.run(ctx, part); return err }
	}
	switch p.kind {
	case "step":
		return kagzi.Step(ctx, p.name, func(ctx context.Context) (string, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			key := kagzi.CurrentStep(ctx).Key
			if g.calls[key]++; g.calls[key] <= p.fails {
				return "", errors.New("no " + p.name)
			}
			return p.name, nil
		}, kagzi.RetryPolicy{MaxAttempts: 1})
	case "sleep":
		return "", kagzi.Sleep(ctx, p.name, time.Duration(p.hours)*time.Hour)
	case "go":
		return kagzi.Go(ctx, p.name, branches[p.parts[0].name]).Result(ctx)
	case "left":
		kagzi.Go(ctx, p.name, branches[p.parts[0].name])
		return "", nil
	case "parallel":
		return "", kagzi.Parallel(ctx, p.name, plain, p.opts...)
	case "race":
		winner, got, err := kagzi.Race(ctx, p.name, branches, p.opts...)
		return winner + got, err
	case "map":
		got, err := kagzi.Map(ctx, p.name, []int{0, 1}, func(ctx kagzi.Context, i int) (string, error) {
			return g.run(ctx, p.parts[i])
		}, p.opts...)
		return strings.Join(got, ""), err
	}
	var out strings.Builder
	for _, part := range p.parts {
		got, err := g.run(ctx, part)
		if err != nil && !p.handles {
			return "", fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprint(&out, got, err, ctx.Now().Unix(), " ")
	}
	return out.String(), nil
}

// TestRandomBranches executes random workflows, whose branches fail, win, lose and finish too late, with sleeps at
// which they leave memory, and up to three attempts. The replay after the test must come to the same ends.
func TestRandomBranches(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	workflow := kagzi.Define[uint64, string]("random", kagzi.RetryPolicy{MaxAttempts: 3, Backoff: time.Hour})
	g := &garden{calls: map[string]int{}}
	kagzi.Handle(env.Worker, workflow, func(ctx kagzi.Context, seed uint64) (string, error) {
		return g.run(ctx, grow(rand.New(rand.NewPCG(seed, 1)), 3, "p"))
	})
	first := rand.Uint64N(1 << 40)
	t.Log("the first seed is", first)
	ends := map[kagzi.Status]int{}
	var runs []*kagzi.Run[string]
	for i := range uint64(campaign.Size(30, 150)) {
		runs = append(runs, kagzitest.Start(env, workflow, first+i))
	}
	env.Advance(1000 * time.Hour)
	for i, run := range runs {
		info := infoOf(t, env, run.ID())
		ends[info.Status]++
		if info.Kind == kind.Nondeterminism || !info.Status.Ended() {
			t.Errorf("seed %d: %s (%s) %s, waiting on %s", first+uint64(i), info.Status, info.Kind, info.Error,
				info.WaitingOn)
		}
	}
	t.Log(ends)
}
