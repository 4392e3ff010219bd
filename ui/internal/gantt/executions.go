package gantt

import (
	"slices"
	"time"

	"github.com/kagzi/kagzi"
)

// An Execution is a time in which one worker executed the run, from its first record to its last one.
type Execution struct {
	Span
	Worker  string
	Records int
	// in which its functions were under way, and moments at which it recorded something else; joined, in their order
	Work    []Span
	Current bool // the worker executes the run now
}

// A record is what an attempt says about its worker.
type record struct {
	worker string
	at     time.Time // when the worker was there
	work   Span
}

// Executions returns who executed the run, in the order of time. Consecutive records of one worker are one execution,
// even if it gave the run back in between. Nothing is known of workers that recorded nothing, but for the one that
// executes the run now.
func Executions(run kagzi.RunInfo, attempts []kagzi.StepAttempt, now time.Time) (all []Execution) {
	for _, r := range recordsOf(run, attempts, now) {
		n := len(all)
		if n == 0 || all[n-1].Worker != r.worker {
			all = append(all, Execution{Span: Span{r.at, r.at}, Worker: r.worker})
			n++
		}
		e, before := &all[n-1], time.Time{}
		if n > 1 {
			before = all[n-2].To
		}
		// an attempt keeps the time of its start when another worker makes it again
		r.work.From = later(r.work.From, before)
		e.From, e.To = earlier(e.From, r.work.From), later(e.To, r.at)
		e.Work = append(e.Work, r.work)
		e.Records++
	}
	all = addCurrent(all, run, attempts, now)
	for i := range all {
		slices.SortFunc(all[i].Work, func(a, b Span) int { return a.From.Compare(b.From) })
		all[i].Work = joined(all[i].Work)
	}
	return all
}

// recordsOf returns the records of the attempts, in the order in which workers wrote them. Who wrote the record of a
// child or of a cancelled attempt last, its times do not say. Those count only for workers of which there is nothing
// else.
func recordsOf(run kagzi.RunInfo, attempts []kagzi.StepAttempt, now time.Time) (records []record) {
	var vague []record
	known := map[string]bool{}
	for _, a := range attempts {
		r := record{worker: a.Worker, at: later(begun(a), a.EndedAt)}
		if a.EndedAt.IsZero() && a.Type == "FUNCTION" && a.Status == kagzi.StatusRunning && a.Worker == run.Worker {
			r.at = now
		}
		if a.Worker == "" || r.at.Before(run.CreatedAt) { // a fork has records of the run that it comes from
			continue
		}
		r.work = Span{r.at, r.at}
		if a.Type == "FUNCTION" {
			r.work.From = begun(a)
		}
		ofChild := (a.Type == "CHILD_WORKFLOW" || a.Type == "COMPENSATION") && !a.EndedAt.IsZero()
		if ofChild || a.Status == kagzi.StatusCancelled {
			vague = append(vague, r)
			continue
		}
		records = append(records, r)
		known[a.Worker] = true
	}
	vague = slices.DeleteFunc(vague, func(r record) bool { return known[r.worker] })
	records = append(records, vague...)
	slices.SortStableFunc(records, func(a, b record) int { return a.at.Compare(b.at) })
	return records
}

// addCurrent adds what the run's row says: who executes it now, or did until the worker fell silent. It began after the
// last record, and after the last wait that is over.
func addCurrent(all []Execution, run kagzi.RunInfo, attempts []kagzi.StepAttempt, now time.Time) []Execution {
	if run.Worker == "" {
		return all
	}
	n := len(all)
	if n == 0 || all[n-1].Worker != run.Worker {
		since := run.StartedAt
		if n > 0 {
			since = later(since, all[n-1].To)
		}
		for _, a := range attempts {
			if a.WakeAt.Before(now) {
				since = later(since, a.WakeAt)
			}
		}
		all = append(all, Execution{Span: Span{since, since}, Worker: run.Worker})
		n++
	}
	if !run.SilentSince.IsZero() {
		all[n-1].To = later(run.SilentSince, all[n-1].To)
		return all
	}
	all[n-1].To, all[n-1].Current = later(now, all[n-1].To), true
	return all
}
