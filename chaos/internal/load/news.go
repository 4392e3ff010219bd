package load

import (
	"strings"
	"time"
)

// A Publication is an event for which runs wait, and how a customer publishes it.
type Publication struct {
	ID, Payload string
	After       time.Duration // after the customer has begun with the job, whose start comes then
	Open        time.Duration // how long its transaction stays open; zero: it has none
	Again       time.Duration // so long after that it is published again, with another payload; zero: it is not
	Awaited     bool          // the customer waits for it, too
}

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
		p.After = time.Duration(r.IntN(8000)) * time.Millisecond
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
