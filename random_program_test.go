package kagzi

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
)

// An act is one operation of a random workflow function.
type act struct {
	kind   string
	name   string
	parts  [][]act // branches
	rescue []act   // done once the act has failed, before it is dealt with; none if nil
	deal   string  // with a failure: "ignore" it, return it "bare" or "wrapped", or return an "other" error
	undo   int     // of a step: bits of undoBefore, undoneBy, undoAfter
	fails  int     // executions of a step that fail at first
	tries  int     // of a step
	opts   []BranchOption
	since  int  // the first host whose code has a step in front of the act; zero: none has
	patch  bool // that step is behind a Patched
}

const (
	undoBefore = 1 << iota
	undoneBy1
	undoAfter
)

func (a act) String() string {
	s := fmt.Sprintf("%s[%s", a.name, a.deal)
	if a.undo > 0 || a.fails > 0 {
		s += fmt.Sprintf(" undo%d fails%d/%d", a.undo, a.fails, a.tries)
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

// An author makes random programs.
type author struct {
	r     *rand.Rand
	n     int
	keys  []string         // of signals
	kids  map[string][]act // programs of children, by name
	young bool             // it writes for a child
	grows bool             // the code changes
}

func (m *author) acts(depth int) []act {
	var all []act
	for range 1 + m.r.IntN(3) {
		all = append(all, m.act(depth))
	}
	return all
}

func (m *author) act(depth int) act {
	kinds := []string{"step", "step", "step", "steptx", "steptx", "sleep", "nap"}
	if !m.young {
		kinds = append(kinds, "signal", "child", "child", "start")
	}
	if depth > 0 {
		kinds = append(kinds, "go", "left", "shared", "parallel", "parallel", "map", "race", "race")
	}
	m.n++
	a := act{kind: kinds[m.r.IntN(len(kinds))], deal: []string{"ignore", "bare", "wrapped", "other"}[m.r.IntN(4)], tries: 1 + m.r.IntN(2)}
	a.name = a.kind + strconv.Itoa(m.n)
	if m.grows && m.r.IntN(4) == 0 {
		a.since, a.patch = 1+m.r.IntN(3), m.r.IntN(3) == 0
	}
	branches := 0
	switch a.kind {
	case "step", "steptx":
		a.undo = []int{0, undoBefore, undoBefore, undoneBy1, undoBefore | undoneBy1, undoBefore | undoAfter}[m.r.IntN(6)]
		a.fails = []int{0, 0, 0, 1, 1, 2, 99}[m.r.IntN(7)]
	case "signal":
		m.keys = append(m.keys, a.name)
	case "child", "start":
		kid := &author{r: m.r, n: 1000 * m.n, young: true}
		m.kids[a.name] = kid.acts(min(depth, 1))
	case "go", "shared":
		branches = 2
	case "left", "map":
		branches = 1
	case "parallel", "race":
		branches = 2 + m.r.IntN(2)
	}
	for range branches {
		a.parts = append(a.parts, m.acts(depth-1))
	}
	a.opts = m.options(a.kind)
	if (a.fails > 0 || branches > 0 || a.kind == "child") && m.r.IntN(2) == 0 {
		a.rescue = m.acts(0)
	}
	return a
}

func (m *author) options(kind string) (opts []BranchOption) {
	if kind != "parallel" && kind != "map" && kind != "race" {
		return nil
	}
	if kind != "race" && m.r.IntN(3) == 0 {
		opts = append(opts, CollectErrors())
	}
	switch m.r.IntN(6) {
	case 0:
		opts = append(opts, Timeout(time.Hour))
	case 1:
		opts = append(opts, Timeout(150*time.Millisecond))
	}
	if kind != "race" && m.r.IntN(4) == 0 {
		opts = append(opts, Concurrency(2))
	}
	return opts
}

// An effect is what a step has done; of execution 0 it is what may have been done.
type effect struct {
	Seed uint64
	Run  RunID
	Step string
	N    int // of the step's executions
}

func (f effect) String() string { return fmt.Sprintf("%s=%d", f.Step, f.N) }

// An entry is something that happened.
type entry struct {
	what    string // "executes", "returns", "recorded", "registers", "registered", "undone"
	host    int
	run     RunID // of "undone" that of the compensation
	effect  effect
	attempt int
}

func (e entry) String() string {
	return fmt.Sprintf("%s %d %s %v %d", string(e.run)[max(0, len(e.run)-4):], e.host, e.what, e.effect, e.attempt)
}

// A sight is what a branch saw in one execution of its run.
type sight struct {
	host  int
	lines []string
	firm  int // lines up to the last of a step: that is recorded, with all before it
}

// A world is what the runs of a random program do outside, and see.
type world struct {
	seed   uint64
	kids   map[string][]act
	mu     sync.Mutex
	n      map[string]int // executions of each step of each run
	line   []entry
	sights map[string][]*sight // by run, attempt and branch
	unmade map[effect]int      // how often the compensation of an effect was tried
	wrong  []string
	still  bool // the code does not change
}

func (w *world) add(e entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = append(w.line, e)
}

// A performer is one execution of a run's function, by a host's code.
type performer struct {
	w      *world
	host   int
	run    RunID
	sights map[string]*sight
}

func (w *world) performer(ctx Context, host int) *performer {
	return &performer{w: w, host: host, run: ctx.RunID(), sights: map[string]*sight{}}
}

// see notes what the branch saw; firm says that it is recorded.
func (p *performer) see(ctx Context, path, line string, err error, firm bool) {
	if errors.Is(err, KindCancelled) { // how far a branch gets that is cancelled is another matter
		return
	}
	if err != nil {
		line += ": " + err.Error()
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	s := p.sights[path]
	if s == nil {
		s = &sight{host: p.host}
		p.sights[path] = s
		key := fmt.Sprint(p.run, " attempt ", ctx.Attempt(), " branch ", path)
		p.w.sights[key] = append(p.w.sights[key], s)
	}
	s.lines = append(s.lines, line)
	if firm {
		s.firm = len(s.lines)
	}
}

func (p *performer) live(ctx Context, path string, all []act) error {
	for _, a := range all {
		if err := p.act(ctx, path, a); err != nil {
			return err
		}
	}
	return nil
}

func (p *performer) act(ctx Context, path string, a act) error {
	if a.since > 0 && p.host >= a.since && (!a.patch || Patched(ctx, "p-"+a.name)) {
		if err := Do(ctx, "new-"+a.name, func(ctx context.Context) error { return nil }); err != nil {
			return err
		}
	}
	var err error
	switch a.kind {
	case "step", "steptx":
		err = p.step(ctx, path, a)
	case "sleep":
		err = Sleep(ctx, a.name, 250*time.Millisecond)
	case "nap":
		err = Sleep(ctx, a.name, time.Millisecond)
	case "signal":
		sig := hint
		if len(a.name)%2 == 0 {
			sig = hint.For(a.name)
		}
		var got string
		got, err = WaitSignal(ctx, sig)
		p.see(ctx, path, got, err, false)
	case "child":
		_, err = RunChild(ctx, a.name, grown, kid{p.w.seed, a.name}, Queue("kids"))
		p.see(ctx, path, a.name, err, false)
	case "start":
		_, err = StartChild(ctx, a.name, grown, kid{p.w.seed, a.name}, Queue("kids"))
	default:
		err = p.group(ctx, path, a)
		p.see(ctx, path, a.name, err, false)
	}
	if err == nil || errors.Is(err, KindCancelled) {
		return err
	}
	if a.rescue != nil {
		if e := p.live(ctx, path, a.rescue); e != nil {
			return e
		}
	}
	switch a.deal {
	case "ignore":
		return nil
	case "wrapped":
		return fmt.Errorf("%s: %w", a.name, err)
	case "other":
		return errors.New("no " + a.name)
	}
	return err
}

func (p *performer) step(ctx Context, path string, a act) error {
	maybe := effect{p.w.seed, p.run, path + a.name, 0}
	if len(a.name)%2 == 0 { // else a fork registers another input
		maybe.Run = ""
	}
	if a.undo&undoBefore > 0 {
		p.compensate(ctx, a.name, maybe)
	}
	fn := func(ctx context.Context) (effect, error) {
		info := CurrentStep(ctx)
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		key := string(info.Run) + "/" + info.Step
		if info.Key != key || info.Step != maybe.Step || info.Run != p.run {
			p.w.wrong = append(p.w.wrong, fmt.Sprintf("step %v is called as %+v", maybe, info))
		}
		p.w.n[key]++
		did := effect{p.w.seed, p.run, maybe.Step, p.w.n[key]}
		p.w.line = append(p.w.line, entry{"executes", p.host, p.run, did, info.Attempt})
		if did.N <= a.fails {
			return did, errors.New("not today")
		}
		return did, nil
	}
	opts := []StepOption{RetryPolicy{MaxAttempts: a.tries, Backoff: time.Millisecond}}
	if a.undo&undoneBy1 > 0 {
		opts = append(opts, UndoneBy(unmake))
	}
	var did effect
	var err error
	if a.kind == "step" {
		did, err = Step(ctx, a.name, fn, opts...)
	} else {
		did, err = StepTx(ctx, a.name, func(ctx context.Context, tx pgx.Tx) (effect, error) {
			did, err := fn(ctx)
			if err == nil {
				_, err = tx.Exec(ctx, `INSERT INTO public.effects VALUES ($1, $2)`, string(did.Run), did.Step)
			}
			return did, err
		}, opts...)
	}
	p.see(ctx, path, did.String(), err, true)
	if err != nil {
		return err
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

func (p *performer) compensate(ctx Context, name string, f effect) {
	p.w.add(entry{"registers", p.host, p.run, f, 0})
	Compensate(ctx, name, unmake.With(f))
	if ctx.Err() == nil && !ctx.(*branch).closed { // else it may have done nothing
		p.w.add(entry{"registered", p.host, p.run, f, 0})
	}
}

func (p *performer) group(ctx Context, path string, a act) (err error) {
	below := func(part int, name string) func(Context) (int, error) {
		return func(ctx Context) (int, error) { return part, p.live(ctx, path+name+"/", a.parts[part]) }
	}
	switch a.kind {
	case "go":
		f := Go(ctx, a.name, below(0, a.name))
		if err = p.live(ctx, path, a.parts[1]); err == nil {
			_, err = f.Result(ctx)
		}
	case "left":
		Go(ctx, a.name, below(0, a.name))
	case "shared":
		f := Go(ctx, a.name+"f", below(0, a.name+"f"))
		if err = Parallel(ctx, a.name, map[string]func(Context) error{
			"asks": func(ctx Context) error { _, err := f.Result(ctx); return err },
			"does": func(ctx Context) error { _, err := below(1, a.name+"/does")(ctx); return err },
		}); err == nil {
			_, err = f.Result(ctx)
		}
	case "parallel":
		parts := map[string]func(Context) error{}
		for i := range a.parts {
			name := fmt.Sprint("b", i)
			parts[name] = func(ctx Context) error { _, err := below(i, a.name+"/"+name)(ctx); return err }
		}
		err = Parallel(ctx, a.name, parts, a.opts...)
	case "map":
		_, err = Map(ctx, a.name, []int{0, 1, 2}, func(ctx Context, i int) (int, error) { return below(0, fmt.Sprint(a.name, "/", i))(ctx) }, a.opts...)
	case "race":
		parts := map[string]func(Context) (int, error){}
		for i := range a.parts {
			name := fmt.Sprint("b", i)
			parts[name] = below(i, a.name+"/"+name)
		}
		var winner string
		winner, _, err = Race(ctx, a.name, parts, a.opts...)
		p.see(ctx, path, winner, err, false)
	}
	return err
}

// A kid is the input of a child.
type kid struct {
	Seed uint64
	Name string
}

var (
	hint   = DefineSignal[string]("hint")
	grown  = Define[kid, string]("grown", RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	unmake = Define[effect, int]("unmake", Queue("unmakes"))
)

// unmakes is the function of unmake: some fail at first.
func (w *world) unmakes(ctx Context, f effect) (int, error) {
	return 0, Do(ctx, "unmake", func(ctx context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.unmade[f]++; w.unmade[f] == 1 && len(f.Step)%3 == 0 {
			return errors.New("not yet")
		}
		w.line = append(w.line, entry{"undone", 0, CurrentStep(ctx).Run, f, CurrentStep(ctx).Attempt})
		return nil
	}, RetryPolicy{Backoff: time.Millisecond})
}

// story is all that happened, for people.
func (w *world) story() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var s strings.Builder
	for _, e := range w.line {
		fmt.Fprintln(&s, e)
	}
	for _, key := range sortedKeys(w.sights) {
		for _, g := range w.sights[key] {
			fmt.Fprintf(&s, "%s, host %d: %q firm %d\n", key, g.host, g.lines, g.firm)
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
