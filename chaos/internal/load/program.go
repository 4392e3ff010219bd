// Package load has the workloads of chaos: programs made from a seed, the workflow that executes them, and the oracle
// that says what each of them must return and undo.
package load

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// A Job is the input of a run: it determines the program.
type Job struct {
	Seed       uint64 `json:"seed"`
	N          int    `json:"n"`
	Generation int    `json:"generation,omitempty"` // 1 is a child, 2 a child's child
	// "tick" is the job of a schedule's run, "poison" kills its workers; empty is random
	Kind string `json:"kind,omitempty"`

	// of a run that has continued: how often, and the value that the epochs before have computed
	Epoch int    `json:"epoch,omitempty"`
	Value string `json:"value,omitempty"`
}

// generations is how deep families are.
const generations = 3

// An Op is one operation of a program.
type Op struct {
	Kind     string
	Name     string
	N        int    // what it means depends on the kind: milliseconds, bytes, failures, messages
	Branches [][]Op // of a group
	Child    Job
}

// The kinds of operations.
const (
	opStep     = "step"     // a step
	opTx       = "tx"       // a transactional step that moves money from an account to another
	opParts    = "parts"    // as tx, N times, with a checkpoint after each
	opFlaky    = "flaky"    // a step whose first N attempts fail
	opSlow     = "slow"     // a step that takes N ms
	opDeaf     = "deaf"     // a step that takes N ms and ignores its context
	opOverlong = "overlong" // a step whose first attempt is longer than its Timeout
	opPanic    = "panic"    // a step that panics, in one of several ways; its failure is part of the value
	opLimited  = "limited"  // a step that a limit of the whole namespace lets begin
	opOnce     = "once"     // a step that is called at most once; its first N calls fail
	opSleep    = "sleep"    // a sleep of N ms
	opBig      = "big"      // a step that returns N bytes
	opParallel = "parallel"
	opMap      = "map"
	opRace     = "race"     // all branches return the same value
	opWait     = "wait"     // waits for N messages
	opAsked    = "asked"    // waits for N requests, and answers them
	opLeave    = "leave"    // reads a request, and leaves it to the next epoch
	opContinue = "continue" // the run continues: the rest is the program of its next epoch
	opChild    = "child"    // runs a child and takes its result, also if it fails
	opUndo     = "undo"     // registers a compensation
	opPublish  = "publish"  // publishes an event
	opMetadata = "metadata" // changes the run's metadata
	opValue    = "value"    // sets the run's value to that of the program
	opEvent    = "event"    // waits for an event that customers publish, with a timeout if N is above zero
	opDie      = "die"      // a step that ends the process when it is executed for the first time
	opPoison   = "poison"   // a step that ends the process each time
	opAgain    = "again"    // the first attempt of the run fails here
	opRollback = "rollback" // the run ends here: its compensations run, and it completes with the value
	opExit     = "exit"     // a step that ends its goroutine; so the run fails
	opFail     = "fail"     // the run fails here, for good
)

// A Program is what a run does.
type Program struct {
	Job Job
	Ops []Op
}

// Of returns the program of a job.
func Of(job Job) Program {
	g := generator{r: job.random(), job: job}
	switch job.Kind {
	case "tick":
		return Program{job, []Op{
			{Kind: opStep, Name: "first"},
			{Kind: opSlow, Name: "work", N: 20 + int(job.Seed%1500)},
			{Kind: opStep, Name: "last"},
		}}
	case "poison":
		return Program{job, []Op{{Kind: opStep, Name: "first"}, {Kind: opPoison, Name: "poison"}}}
	}
	most := 20 >> (2 * job.Generation) // 20, 5, 1
	ops := g.ops(1+g.r.IntN(most), 2)
	if g.r.IntN(6) == 0 {
		ops = g.continued(ops)
	}
	switch n := g.r.IntN(100); {
	case n < 8:
		ops = append(ops, Op{Kind: opAgain, Name: "again"}, Op{Kind: opStep, Name: "after"})
	case n < 10:
		ops = append(ops, Op{Kind: opExit, Name: "exit"})
	case n < 20:
		ops = append(ops, Op{Kind: opFail, Name: "fail"})
	case n < 28:
		ops = append(ops, Op{Kind: opRollback, Name: "rollback"})
	}
	return Program{job, job.withEvents(job.withValues(ops))}
}

// withValues lets some programs set their value at one to four places. The rest of the programs stays as it is.
func (j Job) withValues(ops []Op) []Op {
	r := j.random("values")
	if r.IntN(3) > 0 {
		return ops
	}
	for n := range 1 + r.IntN(4) {
		ops = slices.Insert(ops, r.IntN(len(ops)), Op{Kind: opValue, Name: opValue + strconv.Itoa(n)})
	}
	return ops
}

// withEvents lets some programs wait for one or two events, also in branches. The rest of the programs stays as it is.
func (j Job) withEvents(ops []Op) []Op {
	r := j.random("events")
	if r.IntN(3) > 0 {
		return ops
	}
	for n := range 1 + r.IntN(2) {
		wait := Op{Kind: opEvent, Name: opEvent + strconv.Itoa(n), N: r.IntN(2)}
		at := r.IntN(len(ops))
		group := slices.IndexFunc(ops, func(op Op) bool { return len(op.Branches) > 0 })
		if group < 0 || r.IntN(2) == 0 {
			ops = slices.Insert(ops, at, wait)
			continue
		}
		branch := &ops[group].Branches[r.IntN(len(ops[group].Branches))]
		*branch = slices.Insert(*branch, r.IntN(len(*branch)+1), wait)
	}
	return ops
}

// newsID returns the ID of the event for which an operation of the job waits. All runs of the job wait for it.
func newsID(job Job, op string) string { return fmt.Sprintf("%d/%d/%s", job.N, job.Generation, op) }

// news returns the payload of the event for which an operation of the job waits.
func news(job Job, op Op) string { return NewsPayload(newsID(job, op.Name)) }

// NewsPayload returns the payload that an event of News has.
func NewsPayload(id string) string { return Link("news", id) }

// deadly reports whether programs end their processes. They do in a third of the rounds, several times a second: no
// worker lives for long. In the others only faults end one.
func (j Job) deadly() bool { return j.Seed%3 == 0 }

// random returns the source of all that is decided for the job. Sources of other names are independent.
func (j Job) random(what ...string) *rand.Rand {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %d %s %s", j.Seed, j.N, j.Generation, j.Kind, what))
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])))
}

// A generator makes a program.
type generator struct {
	r     *rand.Rand
	job   Job
	names int
	inner bool // within a branch
}

// weights say how often each kind is chosen. Kinds below the line cannot be in a branch.
var weights = []struct {
	kind   string
	weight int
	inner  bool
}{
	{opStep, 27, true},
	{opLimited, 3, true},
	{opOnce, 4, true},
	{opTx, 9, true},
	{opParts, 3, true},
	{opFlaky, 8, true},
	{opSlow, 6, true},
	{opDeaf, 2, true},
	{opOverlong, 2, true},
	{opPanic, 2, true},
	{opSleep, 10, true},
	{opBig, 1, true},
	{opChild, 5, true},
	{opPublish, 4, true},
	{opDie, 1, true},
	{opUndo, 8, false},
	{opParallel, 4, false},
	{opMap, 3, false},
	{opRace, 3, false},
	{opWait, 5, false},
	{opAsked, 4, false},
	{opMetadata, 2, false},
}

func (g *generator) kind() string {
	sum := 0
	for _, w := range weights {
		sum += w.weight
	}
	for {
		n := g.r.IntN(sum)
		for _, w := range weights {
			if n -= w.weight; n < 0 {
				if g.inner && !w.inner || w.kind == opChild && g.job.Generation+1 >= generations ||
					(w.kind == opWait || w.kind == opAsked) && g.job.Generation > 0 {
					break
				}
				return w.kind
			}
		}
	}
}

func (g *generator) ops(n, depth int) (ops []Op) {
	for range n {
		ops = append(ops, g.op(depth))
	}
	return ops
}

func (g *generator) op(depth int) Op {
	op := Op{Kind: g.kind()}
	if depth == 0 && (op.Kind == opParallel || op.Kind == opMap || op.Kind == opRace) {
		op.Kind = opStep
	}
	if op.Kind == opDie && !g.job.deadly() {
		op.Kind = opStep
	}
	g.names++
	op.Name = op.Kind + strconv.Itoa(g.names)
	switch op.Kind {
	case opFlaky:
		op.N = 1 + g.r.IntN(3)
	case opOnce:
		op.N = g.r.IntN(3)
	case opSlow:
		op.N = 5 + g.r.IntN(200)
	case opDeaf:
		op.N = 50 + g.r.IntN(1500)
	case opSleep:
		op.N = []int{1, 20, 200, 500, 1500}[g.r.IntN(5)]
	case opBig:
		op.N = []int{2_000, 9_000, 100_000, 1_000_000, 3_900_000}[g.r.IntN(5)]
	case opWait, opAsked, opParts:
		op.N = 1 + g.r.IntN(4)
	case opPanic:
		op.N = g.r.IntN(panics)
	case opChild:
		op.Child = Job{Seed: g.job.Seed, N: int(g.r.Uint32()), Generation: g.job.Generation + 1}
	case opParallel, opMap, opRace:
		inner := &generator{r: g.r, job: g.job, names: g.names * 100, inner: true}
		for range 2 + g.r.IntN(2) {
			op.Branches = append(op.Branches, inner.ops(1+g.r.IntN(3), depth-1))
		}
	}
	return op.named()
}

// named returns the operation with the number of its parts in its name, so that a check knows it.
func (op Op) named() Op {
	if op.Kind == opParts {
		op.Name += partsSeparator + strconv.Itoa(op.N)
	}
	return op
}

// beforeRollback returns the operations without the rollback at their end, and whether there is one.
func beforeRollback(ops []Op) (_ []Op, rollsBack bool) {
	last := len(ops) - 1
	if last < 0 || ops[last].Kind != opRollback {
		return ops, false
	}
	return ops[:last], true
}

// partsSeparator is before the number of parts in the name of a step.
const partsSeparator = "x"

// Parts returns how many parts a transactional step has; zero: it is a whole.
func Parts(step string) int {
	name, ok := strings.CutPrefix(step[strings.LastIndex(step, "/")+1:], opParts)
	if !ok {
		return 0
	}
	_, n, _ := strings.Cut(name, partsSeparator)
	parts, _ := strconv.Atoi(n)
	return parts
}

// continued lets the run continue at one to three places. Such a run cannot register compensations.
func (g *generator) continued(ops []Op) []Op {
	for i := range ops {
		if ops[i].Kind == opUndo {
			ops[i].Kind = opStep
		}
	}
	for range 1 + g.r.IntN(3) {
		g.names++
		name := strconv.Itoa(g.names)
		more := []Op{{Kind: opContinue, Name: opContinue + name}}
		if g.job.Generation == 0 && g.r.IntN(3) == 0 {
			more = []Op{{Kind: opLeave, Name: opLeave + name}, more[0], {Kind: opAsked, Name: opAsked + name, N: 1}}
		}
		ops = slices.Insert(ops, g.r.IntN(len(ops)+1), more...)
	}
	return ops
}

// epoch returns the operations of an epoch, and reports whether the run continues after them.
func (p Program) epoch(n int) (ops []Op, continues bool) {
	ops = p.Ops
	for {
		end := slices.IndexFunc(ops, func(op Op) bool { return op.Kind == opContinue })
		switch {
		case end < 0:
			return ops, false
		case n == 0:
			return ops[:end], true
		}
		ops = ops[end+1:]
		n--
	}
}

// Link returns the next value of a hash chain. So a value tells everything that went into it.
func Link(previous, by string) string {
	sum := sha256.Sum256([]byte(previous + "\x00" + by))
	return hex.EncodeToString(sum[:8])
}

// Messages returns the payloads of the messages and the requests for which the program of a job waits.
func Messages(job Job) (messages, requests []string) {
	e := evaluation{}
	for _, op := range Of(job).Ops {
		e.read(op)
	}
	for i := range e.messages {
		messages = append(messages, message(i))
	}
	for i := range e.requests.read {
		requests = append(requests, asked(i))
	}
	return messages, requests
}

func message(i int) string { return fmt.Sprint("message ", i) }

func asked(i int) string { return fmt.Sprint("request ", i) }

// Answer returns the answer to a request.
func Answer(request string) string { return Link("answer", request) }
