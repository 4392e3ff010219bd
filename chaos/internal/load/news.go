package load

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/topic"
)

// never is a timeout that does not strike, also if a fault sets the server's clock.
const never = 1000 * time.Hour

// A Publication is an event for which runs wait, and how a customer publishes it.
type Publication struct {
	ID, Payload string
	After       time.Duration // after the customer has begun with the job, whose start comes then
	Open        time.Duration // how long its transaction stays open; zero: it has none
	Again       time.Duration // so long after that it is published again, with another payload; zero: it is not
	Awaited     bool          // the customer waits for it, too
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

// NewsOf returns the events for which the runs of a job and their children wait.
func NewsOf(job Job) []Publication { return job.news(Of(job).Ops) }

func (j Job) news(ops []Op) (all []Publication) {
	for _, op := range ops {
		switch op.Kind {
		case opEvent:
			all = append(all, j.publication(op))
		case opChild:
			all = append(all, NewsOf(op.Child)...)
		}
		for _, branch := range op.Branches {
			all = append(all, j.news(branch)...)
		}
	}
	return all
}

// publication says how an event is published: often as the run starts, so that it is there before the run comes to its
// wait, and else within a few seconds.
func (j Job) publication(op Op) Publication {
	r := j.random("publication of " + op.Name)
	p := Publication{ID: newsID(j, op.Name), Payload: news(j, op)}
	if r.IntN(3) > 0 {
		p.After = time.Duration(r.IntN(4000)) * time.Millisecond
	}
	if r.IntN(4) == 0 {
		p.Open = time.Duration(1+r.IntN(1000)) * time.Millisecond
	}
	if r.IntN(4) == 0 {
		p.Again = time.Duration(1+r.IntN(1000)) * time.Millisecond
	}
	p.Awaited = r.IntN(4) == 0
	return p
}

// NewsIn returns the ID of the event for which the program of a job waits in a step, named by its ID. It returns false
// if the step is no such wait.
func NewsIn(job Job, step string) (id string, ok bool) {
	op, ok := find(Of(job).Ops, step[strings.LastIndex(step, "/")+1:])
	return newsID(job, op.Name), ok && op.Kind == opEvent
}

// hear waits for an event.
func (x execution) hear(ctx kagzi.Context, op Op, v string) (string, error) {
	var timeout []kagzi.Timeout
	if op.N > 0 {
		timeout = append(timeout, kagzi.Timeout(never))
	}
	e, err := topic.WaitEvent(ctx, op.Name, News, kagzi.ID(newsID(x.job, op.Name)), timeout...)
	return Link(v, e.Payload), err
}
