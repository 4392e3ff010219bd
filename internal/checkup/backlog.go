package checkup

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// A backlog sums up due work, and compares it with the live workers.
type backlog struct {
	live     fleet
	queues   []health.Queue
	longest  time.Duration // no run has waited for longer
	stranded []string      // texts of the work that no live worker has a handler for
	missing  []int         // its versions, if workers serve the workflow in others
	late     []lateWork
}

// A lateWork has waited for too long although live workers have handlers for it.
type lateWork struct {
	queue   health.Queue
	key     store.Key
	waiting time.Duration
	holding time.Duration // of the first run that holds a slot of its queue; zero if none waits
}

// add adds the due runs of a workflow in a queue, or of one key.
func (b *backlog) add(d inspect.DueWork) {
	q := health.Queue{Queue: d.Queue, Workflow: d.Type, More: d.More}
	uncovered := q // the runs that no live worker can execute
	var stuck, late, holding time.Duration
	covered := b.live[route{d.Queue, d.Type}]
	if covered != nil {
		q.Workers = covered.workers
	}
	for _, v := range d.Versions {
		q.Due += v.Due
		if q.Since.IsZero() || v.Since.Before(q.Since) {
			q.Since = v.Since
		}
		if v.Version != 0 {
			q.Versions = append(q.Versions, v.Version)
		}
		if covered.has(v.Version) {
			late, holding = max(late, v.Turn), max(holding, v.Holding)
			continue
		}
		uncovered.Due += v.Due
		stuck = max(stuck, v.Waiting)
		if v.Version != 0 {
			uncovered.Versions = append(uncovered.Versions, v.Version)
		}
	}
	q.Stranded = uncovered.Versions
	b.count(q)
	b.longest = max(b.longest, stuck, late)
	if stuck > strandedAfter {
		b.stranded = append(b.stranded, workText(uncovered, d.Key, stuck)+
			b.live.lack(route{d.Queue, d.Type}, uncovered.Versions))
		if covered != nil { // workers serve the workflow in other versions
			b.missing = append(b.missing, uncovered.Versions...)
		}
	}
	if late > overdueAfter {
		b.late = append(b.late, lateWork{q, d.Key, late, holding})
	}
}

// count adds q to the queues of the report.
func (b *backlog) count(q health.Queue) {
	i := slices.IndexFunc(b.queues, func(o health.Queue) bool { return o.Queue == q.Queue && o.Workflow == q.Workflow })
	if i < 0 {
		b.queues = append(b.queues, q)
		return
	}
	o := &b.queues[i]
	o.Due, o.More = o.Due+q.Due, o.More || q.More
	if q.Since.Before(o.Since) {
		o.Since = q.Since
	}
	o.Versions, o.Stranded = union(o.Versions, q.Versions), union(o.Stranded, q.Stranded)
}

// union returns the versions of both lists, in order.
func union(a, b []int) []int {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// sorted returns the queues of the report in order.
func (b *backlog) sorted() []health.Queue {
	slices.SortFunc(b.queues, func(a, o health.Queue) int {
		return cmp.Or(cmp.Compare(a.Queue, o.Queue), cmp.Compare(a.Workflow, o.Workflow))
	})
	return b.queues
}

// workText returns a part of a sentence that names the queue, and says how long its runs have waited.
func workText(q health.Queue, key store.Key, waiting time.Duration) string {
	named := fmt.Sprintf("%s of workflow %q in queue %q", counted(q.Due, q.More), q.Workflow, q.Queue)
	if key.Name != "" {
		named += " with " + keyText(key)
	}
	named += " for " + duration.About(waiting)
	return named
}

func keyText(k store.Key) string {
	if k.Group {
		return fmt.Sprintf("group %q", k.Name)
	}
	return fmt.Sprintf("key %q", k.Name)
}
