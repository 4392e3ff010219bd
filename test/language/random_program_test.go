package language_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// An action is one operation of a random workflow function.
type action struct {
	kind    string
	name    string
	parts   [][]action // branches
	rescue  []action   // run once the action has failed, before onError; none if nil
	onError string     // what a failure does: "ignore" it, return it "bare" or "wrapped", or return an "other" error
	undo    int        // of a step: bits of undoBefore, undoneBy1, undoAfter
	fails   int        // executions of a step that fail at first
	tries   int        // of a step
	repeats bool       // the step is repeatable
	opts    []kagzi.BranchOption
	since   int  // the first host whose code has a step in front of the action; zero: none has
	patch   bool // that step is behind a Patched
}

const (
	undoBefore = 1 << iota
	undoneBy1
	undoAfter
)

func (a action) String() string {
	s := fmt.Sprintf("%s[%s", a.name, a.onError)
	if a.undo > 0 || a.fails > 0 {
		s += fmt.Sprintf(" undo%d fails%d/%d", a.undo, a.fails, a.tries)
	}
	if a.repeats {
		s += " repeatable"
	}
	if a.since > 0 {
		s += fmt.Sprintf(" since%d %v", a.since, a.patch)
	}
	for _, o := range a.opts {
		s += fmt.Sprintf(" %T%v", o, o)
	}
	s += "]"
	for _, p := range a.parts {
		s += fmt.Sprint(p)
	}
	if a.rescue != nil {
		s += fmt.Sprint(" rescue", a.rescue)
	}
	return s
}

// A generator makes random programs.
type generator struct {
	r        *rand.Rand
	n        int
	keys     []string            // of signals
	children map[string][]action // programs of children, by name
	forChild bool                // the program is a child's
	changes  bool                // later hosts have other code
}

func (g *generator) actions(depth int) []action {
	var all []action
	for range 1 + g.r.IntN(3) {
		all = append(all, g.action(depth))
	}
	return all
}

func (g *generator) action(depth int) action {
	kinds := []string{"step", "step", "step", "steptx", "steptx", "sleep", "nap"}
	if !g.forChild {
		kinds = append(kinds, "signal", "child", "child", "start")
	}
	if depth > 0 {
		kinds = append(kinds, "go", "left", "shared", "parallel", "parallel", "map", "race", "race")
	}
	g.n++
	a := action{
		kind: kinds[g.r.IntN(len(kinds))], onError: []string{"ignore", "bare", "wrapped", "other"}[g.r.IntN(4)],
		tries: 1 + g.r.IntN(2),
	}
	a.name = a.kind + strconv.Itoa(g.n)
	if g.changes && g.r.IntN(4) == 0 {
		a.since, a.patch = 1+g.r.IntN(3), g.r.IntN(3) == 0
	}
	branches := 0
	switch a.kind {
	case "step", "steptx":
		a.undo = []int{
			0, undoBefore, undoBefore, undoneBy1, undoBefore | undoneBy1,
			undoBefore | undoAfter,
		}[g.r.IntN(6)]
		a.fails = []int{0, 0, 0, 1, 1, 2, 99}[g.r.IntN(7)]
		a.repeats = a.kind == "step" && a.undo&undoneBy1 == 0 && g.n%2 == 0
	case "nap":
		if g.n%2 == 0 {
			a.kind, a.name = "publish", "publish"+strconv.Itoa(g.n)
		}
	case "signal":
		g.keys = append(g.keys, a.name)
	case "child", "start":
		child := &generator{r: g.r, n: 1000 * g.n, forChild: true}
		g.children[a.name] = child.actions(min(depth, 1))
	case "go", "shared":
		branches = 2
	case "left", "map":
		branches = 1
	case "parallel", "race":
		branches = 2 + g.r.IntN(2)
	}
	for range branches {
		a.parts = append(a.parts, g.actions(depth-1))
	}
	a.opts = g.options(a.kind)
	if (a.fails > 0 || branches > 0 || a.kind == "child") && g.r.IntN(2) == 0 {
		a.rescue = g.actions(0)
	}
	return a
}

func (g *generator) options(kind string) (opts []kagzi.BranchOption) {
	if kind != "parallel" && kind != "map" && kind != "race" {
		return nil
	}
	if kind != "race" && g.r.IntN(3) == 0 {
		opts = append(opts, kagzi.CollectErrors())
	}
	switch g.r.IntN(6) {
	case 0:
		opts = append(opts, kagzi.Timeout(time.Hour))
	case 1:
		opts = append(opts, kagzi.Timeout(150*time.Millisecond))
	}
	if kind != "race" && g.r.IntN(4) == 0 {
		opts = append(opts, kagzi.Concurrency(2))
	}
	return opts
}

// An effect is the effect of an execution of a step. Execution 0 stands for any of them.
type effect struct {
	Seed uint64
	Run  kagzi.RunID
	Step string
	N    int // of the step's executions
}

func (f effect) String() string { return fmt.Sprintf("%s=%d", f.Step, f.N) }

// An entry of the log is an event.
type entry struct {
	what    string // "executes", "returns", "recorded", "registers", "registered", "undone"
	host    int
	run     kagzi.RunID // of "undone" that of the compensation
	effect  effect
	attempt int
}

func (e entry) String() string {
	return fmt.Sprintf("%s %d %s %v %d", string(e.run)[max(0, len(e.run)-4):], e.host, e.what, e.effect, e.attempt)
}

// An observation is a value that a branch saw in one execution of its run.
type observation struct {
	host     int
	lines    []string
	recorded int // lines up to that of the last step, which is recorded with all before it
}

// A world has the effects of a random program's runs outside of the database, and their observations.
type world struct {
	seed         uint64
	children     map[string][]action
	mu           sync.Mutex
	n            map[string]int // executions of each step of each run
	log          []entry
	observations map[string][]*observation // by run, attempt and branch
	undoTries    map[effect]int            // how often the compensation of an effect was tried
	wrong        []string
}

func (w *world) add(e entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, e)
}

// A performer is one execution of a run's function, by a host's code.
type performer struct {
	w            *world
	host         int
	run          kagzi.RunID
	observations map[string]*observation
	early        map[string][]effect // by branch: results of repeatable steps that nothing outside has seen yet
}

func (w *world) performer(ctx kagzi.Context, host int) *performer {
	return &performer{
		w: w, host: host, run: ctx.RunID(), observations: map[string]*observation{},
		early: map[string][]effect{},
	}
}

// observe records an observation of the branch; recorded says that the database has it.
func (p *performer) observe(ctx kagzi.Context, path, line string, err error, recorded bool) {
	if errors.Is(err, kind.Cancelled) { // how far a cancelled branch gets may differ
		return
	}
	if err != nil {
		line += ": " + err.Error()
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	s := p.observations[path]
	if s == nil {
		s = &observation{host: p.host}
		p.observations[path] = s
		key := fmt.Sprint(p.run, " attempt ", ctx.Attempt(), " branch ", path)
		p.w.observations[key] = append(p.w.observations[key], s)
	}
	s.lines = append(s.lines, line)
	if recorded {
		s.recorded = len(s.lines)
	}
}

func (p *performer) perform(ctx kagzi.Context, path string, all []action) error {
	for _, a := range all {
		if err := p.action(ctx, path, a); err != nil {
			return err
		}
	}
	return nil
}

func (p *performer) action(ctx kagzi.Context, path string, a action) error {
	if a.since > 0 && p.host >= a.since && (!a.patch || kagzi.Patched(ctx, "p-"+a.name)) {
		if err := kagzi.Do(ctx, "new-"+a.name, func(ctx context.Context) error { return nil }); err != nil {
			return err
		}
	}
	var err error
	switch a.kind {
	case "step", "steptx":
		err = p.step(ctx, path, a)
	case "sleep":
		err = kagzi.Sleep(ctx, a.name, 250*time.Millisecond)
	case "nap":
		err = kagzi.Sleep(ctx, a.name, time.Millisecond)
	case "publish":
		err = topic.Publish(ctx, a.name, told.With(string(p.run)+" "+a.name))
		p.observe(ctx, path, fmt.Sprint(a.name, ctx.Now()), err, false)
	case "signal":
		sig := hint
		if len(a.name)%2 == 0 {
			sig = hint.For(a.name)
		}
		var got string
		got, err = kagzi.WaitSignal(ctx, sig)
		p.observe(ctx, path, got, err, false)
	case "child":
		_, err = kagzi.RunChild(ctx, a.name, randomChild, childInput{p.w.seed, a.name}, kagzi.Queue("children"))
		p.observe(ctx, path, a.name, err, false)
	case "start":
		_, err = kagzi.StartChild(ctx, a.name, randomChild, childInput{p.w.seed, a.name}, kagzi.Queue("children"))
	default:
		err = p.group(ctx, path, a)
		p.observe(ctx, path, a.name, err, false)
	}
	if err == nil || errors.Is(err, kind.Cancelled) {
		return err
	}
	if a.rescue != nil {
		if e := p.perform(ctx, path, a.rescue); e != nil {
			return e
		}
	}
	switch a.onError {
	case "ignore":
		return nil
	case "wrapped":
		return fmt.Errorf("%s: %w", a.name, err)
	case "other":
		return errors.New("no " + a.name)
	}
	return err
}

func (p *performer) step(ctx kagzi.Context, path string, a action) error {
	maybe := effect{p.w.seed, p.run, path + a.name, 0}
	if len(a.name)%2 == 0 { // otherwise a fork registers another input
		maybe.Run = ""
	}
	if a.undo&undoBefore > 0 {
		p.compensate(ctx, a.name, maybe)
	}
	fn := func(ctx context.Context) (effect, error) {
		info := kagzi.CurrentStep(ctx)
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		key := string(info.Run) + "/" + info.Step
		if info.Key != key || info.Step != maybe.Step || info.Run != p.run {
			p.w.wrong = append(p.w.wrong, fmt.Sprintf("step %v is called as %+v", maybe, info))
		}
		if !a.repeats {
			for _, seen := range p.early[path] {
				p.w.log = append(p.w.log, entry{"returns", p.host, p.run, seen, 0})
			}
			delete(p.early, path)
		}
		p.w.n[key]++
		did := effect{p.w.seed, p.run, maybe.Step, p.w.n[key]}
		p.w.log = append(p.w.log, entry{"executes", p.host, p.run, did, info.Attempt})
		if did.N <= a.fails {
			return did, errors.New("not today")
		}
		return did, nil
	}
	opts := []kagzi.StepOption{kagzi.RetryPolicy{MaxAttempts: a.tries, Backoff: time.Millisecond}}
	if a.undo&undoneBy1 > 0 {
		opts = append(opts, kagzi.UndoneBy(undoEffect))
	}
	if a.repeats {
		opts = append(opts, kagzi.Repeatable())
	}
	var did effect
	var err error
	if a.kind == "step" {
		did, err = kagzi.Step(ctx, a.name, fn, opts...)
	} else {
		did, err = kagzi.StepTx(ctx, a.name, func(ctx context.Context, tx pgx.Tx) (effect, error) {
			did, err := fn(ctx)
			if err == nil {
				_, err = tx.Exec(ctx, `INSERT INTO public.effects VALUES ($1, $2)`, string(did.Run), did.Step)
			}
			return did, err
		}, opts...)
	}
	p.observe(ctx, path, did.String(), err, !a.repeats || err != nil)
	if err != nil {
		return err
	}
	if a.repeats {
		p.w.mu.Lock()
		p.early[path] = append(p.early[path], did)
		p.w.mu.Unlock()
		if a.undo&undoAfter > 0 {
			p.compensate(ctx, a.name, did)
		}
		return nil
	}
	if a.undo&undoneBy1 > 0 {
		p.w.add(entry{"registered", p.host, p.run, did, 0})
	}
	p.w.add(entry{"returns", p.host, p.run, did, 0})
	if a.undo&undoAfter > 0 {
		p.compensate(ctx, a.name, did)
	}
	return nil
}

func (p *performer) compensate(ctx kagzi.Context, name string, f effect) {
	p.w.add(entry{"registers", p.host, p.run, f, 0})
	kagzi.Compensate(ctx, name, undoEffect.With(f))
	if ctx.Err() == nil && !ctx.(testhook.Branch).Closed() { // otherwise it may have registered nothing
		p.w.add(entry{"registered", p.host, p.run, f, 0})
	}
}

func (p *performer) group(ctx kagzi.Context, path string, a action) (err error) {
	below := func(part int, name string) func(kagzi.Context) (int, error) {
		return func(ctx kagzi.Context) (int, error) { return part, p.perform(ctx, path+name+"/", a.parts[part]) }
	}
	switch a.kind {
	case "go":
		f := kagzi.Go(ctx, a.name, below(0, a.name))
		if err = p.perform(ctx, path, a.parts[1]); err == nil {
			_, err = f.Result(ctx)
		}
	case "left":
		kagzi.Go(ctx, a.name, below(0, a.name))
	case "shared":
		f := kagzi.Go(ctx, a.name+"f", below(0, a.name+"f"))
		if err = kagzi.Parallel(ctx, a.name, map[string]func(kagzi.Context) error{
			"asks": func(ctx kagzi.Context) error { _, err := f.Result(ctx); return err },
			"does": func(ctx kagzi.Context) error { _, err := below(1, a.name+"/does")(ctx); return err },
		}); err == nil {
			_, err = f.Result(ctx)
		}
	case "parallel":
		parts := map[string]func(kagzi.Context) error{}
		for i := range a.parts {
			name := fmt.Sprint("b", i)
			parts[name] = func(ctx kagzi.Context) error { _, err := below(i, a.name+"/"+name)(ctx); return err }
		}
		err = kagzi.Parallel(ctx, a.name, parts, a.opts...)
	case "map":
		_, err = kagzi.Map(ctx, a.name, []int{0, 1, 2}, func(ctx kagzi.Context, i int) (int, error) {
			return below(0, fmt.Sprint(a.name, "/", i))(ctx)
		}, a.opts...)
	case "race":
		parts := map[string]func(kagzi.Context) (int, error){}
		for i := range a.parts {
			name := fmt.Sprint("b", i)
			parts[name] = below(i, a.name+"/"+name)
		}
		var winner string
		winner, _, err = kagzi.Race(ctx, a.name, parts, a.opts...)
		p.observe(ctx, path, winner, err, false)
	}
	return err
}

// A childInput names the program of a child.
type childInput struct {
	Seed uint64
	Name string
}

var (
	hint        = kagzi.DefineSignal[string]("hint")
	randomChild = kagzi.Define[childInput, string]("random-child",
		kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	undoEffect = kagzi.Define[effect, int]("undo-effect", kagzi.Queue("undo-effects"))
)

// undoEffects is the function of undoEffect. For some effects its first attempt fails.
func (w *world) undoEffects(ctx kagzi.Context, f effect) (int, error) {
	return 0, kagzi.Do(ctx, "undo-effect", func(ctx context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.undoTries[f]++; w.undoTries[f] == 1 && len(f.Step)%3 == 0 {
			return errors.New("not yet")
		}
		w.log = append(w.log, entry{"undone", 0, kagzi.CurrentStep(ctx).Run, f, kagzi.CurrentStep(ctx).Attempt})
		return nil
	}, kagzi.RetryPolicy{Backoff: time.Millisecond})
}

// report lists all events, for the reader of a failed test.
func (w *world) report() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var s strings.Builder
	for _, e := range w.log {
		fmt.Fprintln(&s, e)
	}
	for _, key := range sortedKeys(w.observations) {
		for _, o := range w.observations[key] {
			fmt.Fprintf(&s, "%s, host %d: %q recorded %d\n", key, o.host, o.lines, o.recorded)
		}
	}
	return s.String()
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
