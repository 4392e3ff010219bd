// Package driver makes a plan from a seed, carries it out against real worker processes and a real Postgres, and
// gathers the evidence.
package driver

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"

	"github.com/kagzi/kagzi/chaos/internal/fault"
)

// Options are the flags of a round.
type Options struct {
	Seed      uint64
	Duration  time.Duration  // from the first start to the end of the last fault
	Faults    *regexp.Regexp // nil: all
	Server    string         // the kind of server: the name of a fault.ServerKind, AnyServer, or empty for a plain one
	Workers   int
	Customers int
	Deaf      bool   // all hints are lost, and no listener knows: everything goes on by polling
	Soak      bool   // ended runs are deleted soon, nothing is audited, and what must not grow is watched
	Dir       string // for ledgers and logs
	Log       func(format string, args ...any)
}

// flags returns the flags, but for the seed, that give the same plan.
func (o Options) flags() string {
	text := fmt.Sprintf("-server %q -duration %v -workers %d -customers %d", cmp.Or(o.Server, "plain"), o.Duration,
		o.Workers, o.Customers)
	if o.Deaf {
		text += " -deaf"
	}
	if o.Soak {
		text += " -soak"
	}
	if o.Faults != nil {
		text += fmt.Sprintf(" -faults %q", o.Faults)
	}
	return text
}

// A Plan is what a round does. It depends on the options only.
type Plan struct {
	Options Options
	Times   fault.Times
	Clash   []Clash
	Keep    time.Duration // of ended runs; zero: they are kept
	Poison  int           // jobs that kill their workers
}

// A Clash is one or several faults that overlap.
type Clash struct {
	At     time.Duration // after the round's begin
	Faults []Injection
	Calm   time.Duration // after them nothing is broken for so long, while work goes on
}

// An Injection is a fault of a clash.
type Injection struct {
	Fault fault.Fault
	After time.Duration // after the clash's begin
	For   time.Duration
	Seed  uint64
}

// The profiles are configurations of workers. Short times make many takeovers, long ones make takeovers depend on the
// loss of connections.
var profiles = []fault.Times{
	{
		Lease: 3 * time.Second, Heartbeat: 300 * time.Millisecond, Stale: 3 * time.Second, Poll: 300 * time.Millisecond,
		Grace: 1500 * time.Millisecond,
	},
	{
		Lease: 5 * time.Minute, Heartbeat: 500 * time.Millisecond, Stale: 3 * time.Second, Poll: 500 * time.Millisecond,
		Grace: 1500 * time.Millisecond,
	},
	{
		Lease: 2 * time.Second, Heartbeat: 500 * time.Millisecond, Stale: 6 * time.Second, Poll: time.Second,
		Grace: 3 * time.Second,
	},
}

// chosen returns the faults that the options allow, and those among them that only this kind of server has: a plan has
// more of these, or they would be rare.
func chosen(o Options, all []fault.Fault) (faults, special []fault.Fault) {
	plain := map[string]bool{}
	for _, f := range fault.All() {
		plain[f.Name] = true
	}
	for _, f := range all {
		if o.Faults != nil && !o.Faults.MatchString(f.Name) {
			continue
		}
		faults = append(faults, f)
		if !plain[f.Name] {
			special = append(special, f)
		}
	}
	return faults, special
}

const (
	// clashes is after how many clashes there is a calm.
	clashes = 5

	// first is when the first clash begins, pause what is between two, and last how long before the end none begins any
	// more.
	first = 4 * time.Second
	pause = time.Second
	last  = 2 * time.Second

	// long is how long a round is at least that ends with a calm.
	long = 30 * time.Second
)

// calm is how long nothing is broken, so that liveness is judged under load: until what was broken has no effect any
// more, and then for some time that is judged.
func (p Plan) calm() time.Duration { return p.recovers() + 8*time.Second }

// Make returns the plan for the options, on a server that allows these faults.
func Make(o Options, all []fault.Fault) (Plan, error) {
	r := rand.New(rand.NewPCG(o.Seed, 0x6368616f73))
	p := Plan{Options: o, Times: profiles[r.IntN(len(profiles))], Poison: r.IntN(2)}
	if r.IntN(3) == 0 {
		p.Keep = 10 * time.Second
	}
	faults, special := chosen(o, all)
	if len(faults) == 0 && o.Faults != nil {
		return p, badOption("no fault on the server %q has a name that matches `%s`. Its faults are:\n%s",
			cmp.Or(o.Server, "plain"), o.Faults, names(all))
	}
	for at := first; len(faults) > 0 && at < o.Duration-last; {
		c := Clash{At: at}
		longest := time.Duration(0)
		add := func(f fault.Fault) {
			i := Injection{
				Fault: f, After: time.Duration(r.IntN(800)) * time.Millisecond,
				For:  []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second}[r.IntN(4)],
				Seed: r.Uint64(),
			}
			c.Faults = append(c.Faults, i)
			longest = max(longest, i.After+i.For)
		}
		for range []int{1, 1, 2, 2, 2, 3}[r.IntN(6)] {
			f := faults[r.IntN(len(faults))]
			if len(special) > 0 && r.IntN(4) == 0 {
				f = special[r.IntN(len(special))]
			}
			if c.allows(f) {
				add(f)
			}
		}
		for _, f := range c.joining(r, faults) {
			add(f)
		}
		if local := locals(faults); len(c.Faults) == 1 && c.Faults[0].Fault.Away && len(local) > 0 && r.IntN(2) == 0 {
			add(local[r.IntN(len(local))]) // a worker dies or starves as the server is away
		}
		if len(p.Clash)%clashes == clashes-1 {
			c.Calm = p.calm()
		}
		p.Clash = append(p.Clash, c)
		at += longest + pause + c.Calm
	}
	if n := len(p.Clash); o.Duration >= long && n > 0 {
		p.Clash[n-1].Calm = p.calm()
	}
	return p, nil
}

// allows reports whether a fault may be under way at the same time as those of the clash.
func (c Clash) allows(f fault.Fault) bool {
	return !slices.ContainsFunc(c.Faults, func(i Injection) bool {
		other := i.Fault
		return f.Alone || other.Alone || f.Away && !other.Local || other.Away && !f.Local
	})
}

// locals returns the faults that can meet one in which the server is away.
func locals(all []fault.Fault) (local []fault.Fault) {
	for _, f := range all {
		if f.Local {
			local = append(local, f)
		}
	}
	return local
}

// joining returns one of the faults that join each clash, if there are any and the clash allows it.
func (c Clash) joining(r *rand.Rand, all []fault.Fault) (one []fault.Fault) {
	for _, f := range all {
		if f.Joins {
			one = append(one, f)
		}
	}
	if len(one) > 0 {
		n := r.IntN(len(one))
		one = one[n : n+1]
	}
	return slices.DeleteFunc(one, func(f fault.Fault) bool { return !c.allows(f) })
}

// names lists faults, a line each. Two may have one name.
func names(all []fault.Fault) string {
	var lines []string
	for _, f := range all {
		if line := "\t" + f.Name; !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// Config returns the configuration of the plan's workers.
func (p Plan) Config(queues map[string]int) kagzi.WorkerConfig {
	keep := kagzi.CoordinatorConfig{Interval: 500 * time.Millisecond, Grace: p.Times.Grace, KeepForever: true}
	if p.Keep > 0 {
		keep.KeepForever, keep.KeepCompleted, keep.KeepFailed = false, p.Keep, p.Keep
	}
	if p.Options.Soak {
		keep.KeepForever, keep.KeepCompleted, keep.KeepFailed, keep.KeepEvents = false, 20*time.Second, 20*time.Second,
			time.Minute
	}
	return kagzi.WorkerConfig{
		Queues: queues, MaxConcurrent: 12, LeaseTimeout: p.Times.Lease, Heartbeat: p.Times.Heartbeat,
		StaleAfter:   p.Times.Stale,
		PollInterval: p.Times.Poll, DrainTimeout: 5 * time.Second, HungAfter: 2 * time.Second,
		Coordinator: keep,
	}
}

// recovers is how long the effects of a fault may last after its end.
func (p Plan) recovers() time.Duration {
	return 2*p.Times.Stale + p.Times.Grace + p.Times.Poll + 3*time.Second
}

// patience is how long the last runs may take to end once everything is healed.
func (p Plan) patience() time.Duration { return 60*time.Second + 4*p.recovers() }

// String returns the plan for people.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d on %s, %v, %d workers, %d customers", p.Options.Seed, cmp.Or(p.Options.Server, "plain"),
		p.Options.Duration, p.Options.Workers, p.Options.Customers)
	if p.Poison > 0 {
		b.WriteString(", and a run that kills each worker that executes it")
	}
	b.WriteString("\n")
	if p.Keep > 0 {
		fmt.Fprintf(&b, "ended runs are deleted after %v\n", p.Keep)
	}
	fmt.Fprintf(&b, "lease %v, heartbeat %v, stale after %v, poll %v, grace %v\n", p.Times.Lease, p.Times.Heartbeat,
		p.Times.Stale, p.Times.Poll, p.Times.Grace)
	if len(p.Clash) == 0 {
		fmt.Fprintf(&b, "no faults: the first is at %v, and the last begins %v before the end\n", first, last)
	}
	for _, c := range p.Clash {
		fmt.Fprintf(&b, "%7.1fs ", c.At.Seconds())
		for i, f := range c.Faults {
			if i > 0 {
				b.WriteString(" +")
			}
			fmt.Fprintf(&b, " %s (after %v, for %v)", f.Fault.Name, f.After, f.For)
		}
		if c.Calm > 0 {
			fmt.Fprintf(&b, ", then a calm of %v", c.Calm)
		}
		b.WriteString("\n")
	}
	return b.String()
}
