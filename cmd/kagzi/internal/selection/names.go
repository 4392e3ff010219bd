package selection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/waits"
)

// recentRuns is how many runs there are whose names are known.
const recentRuns = 200

// A census is the names that the namespace has: those of live workers, of the newest runs and of the current work.
type census struct {
	workflows, queues, kinds, schedules, waits []string
	empty                                      bool // there is no run and no worker
}

func censusOf(ctx context.Context, c *kagzi.Client) (n census, err error) {
	workers, _, err := admin.New(c).Workers.List(ctx, admin.WorkerFilter{Limit: recentRuns})
	if err != nil {
		return n, err
	}
	for _, w := range workers {
		if w.Status != "OFFLINE" {
			n.workflows, n.queues = append(n.workflows, w.Workflows...), append(n.queues, w.Queues...)
		}
	}
	runs, err := c.List(ctx, kagzi.RunFilter{Limit: recentRuns})
	if err != nil {
		return n, err
	}
	for _, r := range runs {
		n.workflows, n.queues = append(n.workflows, r.Workflow), append(n.queues, r.Queue)
		n.kinds, n.schedules = append(n.kinds, string(r.Kind)), append(n.schedules, r.Schedule)
		for _, w := range r.WaitingOn {
			n.waits = append(n.waits, waits.Wait{Kind: w.Kind, Name: w.Name}.String())
		}
	}
	st, err := admin.New(c).Stats(ctx)
	if err != nil {
		return n, err
	}
	for _, w := range st.Workflows {
		n.workflows, n.queues = append(n.workflows, w.Workflow), append(n.queues, w.Queue)
		for _, f := range w.Failed {
			n.kinds = append(n.kinds, f.Kind)
		}
	}
	schedules, err := admin.New(c).Schedules.List(ctx, admin.ScheduleFilter{Limit: recentRuns})
	for _, s := range schedules {
		n.schedules, n.workflows, n.queues = append(n.schedules, s.Name), append(n.workflows, s.Workflow),
			append(n.queues, s.Queue)
	}
	for _, k := range ownKinds {
		n.kinds = append(n.kinds, string(k))
	}
	n.waits = append(n.waits, waitWords...)
	n.empty = len(workers)+len(runs)+len(schedules) == 0
	return n, err
}

// ownKinds are those of package kind, which no run need have had yet.
var ownKinds = []kind.Kind{
	kind.Network, kind.Timeout, kind.Database, kind.RateLimited, kind.Unavailable, kind.Unknown, kind.Panic,
	kind.NotFound, kind.Unauthorized, kind.BadRequest,
	kind.Validation, kind.BadInput, kind.Cancelled, kind.Deadline, kind.CrashLoop, kind.Compensation,
	kind.Nondeterminism, kind.Unreadable,
}

// waitWords are the first words of runs' waits, in lists.
var waitWords = []string{
	"answer", "cancel", "child", "children", "compensation", "deletion", "history", "limit", "pause", "previous run",
	"recovery", "request", "retry", "signal", "timeout", "timer", "worker",
}

// WarnOfNames says on stderr which names of a filter exist nowhere. The look-ups are few and short, and what they
// cannot find out is not said.
func WarnOfNames(ctx context.Context, p *command.Program, c *kagzi.Client, f kagzi.RunFilter) {
	if f.Workflow == "" && f.Queue == "" && f.Kind == "" && f.Schedule == "" && f.WaitingOn == "" &&
		p.Namespace() == "default" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.Patience())
	defer cancel()
	known, err := censusOf(ctx, c)
	if err != nil {
		return
	}
	if known.empty {
		p.Say("The namespace %q has no run, no worker and no schedule: is it the right one?", p.Namespace())
		return
	}
	for _, n := range []struct {
		name, none string
		known      []string
		alone      kagzi.RunFilter
	}{
		{
			f.Workflow, "No run and no live worker has the workflow", known.workflows,
			kagzi.RunFilter{Workflow: f.Workflow},
		},
		{f.Queue, "No run and no live worker has the queue", known.queues, kagzi.RunFilter{Queue: f.Queue}},
		{string(f.Kind), "No run has failed with the kind", known.kinds, kagzi.RunFilter{Kind: f.Kind}},
		{f.Schedule, "There is no schedule", known.schedules, kagzi.RunFilter{Schedule: f.Schedule}},
		{f.WaitingOn, "No run waits for", known.waits, kagzi.RunFilter{WaitingOn: f.WaitingOn}},
	} {
		if n.name == "" || slices.Contains(n.known, n.name) {
			continue
		}
		n.alone.Limit = 1
		if runs, err := c.List(ctx, n.alone); err != nil || len(runs) > 0 {
			continue // older runs have it
		}
		p.Say("%s %q%s", n.none, n.name, meant(n.name, n.known))
	}
}

// WarnOfNamespace says on stderr that the namespace has nothing at all, unless it is the default.
func WarnOfNamespace(ctx context.Context, p *command.Program, c *kagzi.Client) {
	WarnOfNames(ctx, p, c, kagzi.RunFilter{})
}

// meant ends a sentence about a name that does not exist: with those that are much like it.
func meant(name string, known []string) string {
	far := min(max(len(name)/3, 1), 3)
	var like []string
	for _, k := range slices.Compact(slices.Sorted(slices.Values(known))) {
		if k != "" && (distance(strings.ToLower(name), strings.ToLower(k)) <= far || strings.HasPrefix(k, name)) {
			like = append(like, fmt.Sprintf("%q", k))
		}
	}
	if len(like) == 0 || len(like) > 3 {
		return "."
	}
	return ": do you mean " + strings.Join(like, " or ") + "?"
}

// distance is how many bytes must be inserted, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
