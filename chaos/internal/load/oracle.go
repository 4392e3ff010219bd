package load

import (
	"fmt"
	"slices"
	"strings"
)

// An Ending is how a run must end if no client interferes with it.
type Ending struct {
	Failed bool
	// it completes, once it has undone what it has registered
	RollsBack bool
	Poison    bool   // it kills its workers, so it ends as quarantined
	Output    string // of a run that completes
	Value     string // what it sets its value to, last; empty: it sets none
	// the compensations, in the order in which it registers them; one that fails runs them from the last to the first
	Registered []string
	Read       []string // the payloads of the messages and requests that it reads until its end, in this order
}

// Expect returns how a run of the job with this version of the code must end.
func Expect(job Job, version int) Ending {
	e := evaluation{job: job, version: version}
	v := e.ops(Of(job).Ops, start(job))
	if version >= 2 && job.Generation == 0 && !e.failed && !e.poison {
		v = Link(v, "v2")
	}
	end := Ending{Failed: e.failed || e.poison, Poison: e.poison, Registered: e.registered, Read: e.got, Value: e.value}
	if !end.Failed {
		_, end.RollsBack = beforeRollback(Of(job).Ops)
		end.Output = v
	}
	return end
}

// start returns the first value of a job's chain.
func start(job Job) string {
	return Link("", fmt.Sprintf("%d/%d/%d/%s", job.Seed, job.N, job.Generation, job.Kind))
}

// An evaluation computes what a program must return, without any of Kagzi.
type evaluation struct {
	job        Job
	version    int
	messages   int // that were read
	requests   inbox
	got        []string // the payloads of both
	registered []string
	value      string
	failed     bool
	poison     bool
}

func (e *evaluation) ops(ops []Op, v string) string {
	for _, op := range ops {
		if e.failed || e.poison {
			return v
		}
		v = e.op(op, v)
	}
	return v
}

// read returns the payloads that an operation reads.
func (e *evaluation) read(op Op) (payloads []string) {
	switch op.Kind {
	case opWait:
		for range op.N {
			payloads = append(payloads, message(e.messages))
			e.messages++
		}
	case opAsked:
		for range op.N {
			payloads = append(payloads, asked(e.requests.take(true)))
		}
	case opLeave:
		payloads = append(payloads, asked(e.requests.take(false)))
	case opContinue:
		e.requests.reopen()
	}
	e.got = append(e.got, payloads...)
	return payloads
}

// An inbox has the requests of a run by their numbers.
type inbox struct {
	read int   // how many were read at least once
	open []int // that an earlier epoch has read and not answered
	left []int // that this epoch has read and not answered
}

// take reads the oldest request that was not answered, and that this epoch has not read.
func (i *inbox) take(answer bool) (n int) {
	if len(i.open) > 0 {
		n, i.open = i.open[0], i.open[1:]
	} else {
		n = i.read
		i.read++
	}
	if !answer {
		i.left = append(i.left, n)
	}
	return n
}

// reopen begins the next epoch: it reads what was left again.
func (i *inbox) reopen() {
	i.open = append(i.open, i.left...)
	slices.Sort(i.open)
	i.left = nil
}

func (e *evaluation) op(op Op, v string) string {
	switch op.Kind {
	case opSleep, opPublish, opMetadata, opRollback:
		return v
	case opValue:
		e.value = v
		return v
	case opUndo:
		e.registered = append(e.registered, op.Name)
		return v
	case opBig:
		return Link(v, Link("", Big(v, op.N)))
	case opParallel, opMap:
		var all strings.Builder
		for i, ops := range op.Branches {
			all.WriteString(e.ops(ops, Link(v, branchName(i))))
		}
		return Link(v, all.String())
	case opRace:
		return Link(v, op.Name)
	case opEvent:
		return Link(v, news(e.job, op))
	case opWait, opAsked, opLeave, opContinue:
		for _, payload := range e.read(op) {
			v = Link(v, payload)
		}
		return v
	case opChild:
		return Link(v, childValue(Expect(op.Child, e.version)))
	case opAgain:
		return v
	case opFail, opExit:
		e.failed = true
		return v
	case opPoison:
		e.poison = true
		return v
	default:
		return Link(v, op.Name)
	}
}

func childValue(end Ending) string {
	if end.Failed {
		return "failed"
	}
	return end.Output
}

func branchName(i int) string { return string(rune('a' + i)) }

// Big returns n bytes that depend on the value v.
func Big(v string, n int) string { return strings.Repeat(v, n/len(v)+1)[:n] }
