package kagzi

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi/store"
)

// A StrandedRuns is what of one version of a workflow waits in a queue in which no live worker can execute it.
type StrandedRuns struct {
	Workflow string    `json:"workflow"`
	Version  int       `json:"version"` // zero: runs that name none and were never executed
	Queue    string    `json:"queue"`
	Count    int       `json:"count"`
	More     bool      `json:"more,omitempty"`  // there may be more: see Client.Stranded
	Oldest   time.Time `json:"oldest,omitzero"` // when the oldest of those counted was started
	DueAt    time.Time `json:"due_at,omitzero"` // when the first of them became due, or will; zero if time alone makes none due
}

// Stranded returns the active runs that no live worker of their queue has a handler for, in their version, by queue,
// workflow and version. Live is a worker that is [WorkerOnline] and was heard of within its own StaleAfter; one that drains
// is not. Runs that sleep count, because nobody will execute them when they wake; so do runs that a draining worker
// executes still.
//
// Ask before the last workers of an old version are removed for good: drain them, and if Stranded then lists that
// version, start them again. Nothing is lost meanwhile: a stranded run waits for a worker.
//
// It does not read through millions of rows: of each workflow in each queue it looks at the 25,000 runs of each priority
// that are due first, or at fewer if there are more than four workflows, of 100 at least. With fewer active runs the
// answer is complete. With more, Count is what was found among these, and a version that occurs only behind them, among
// runs that sleep for longer, is not listed yet; stranded runs that are due are, because they are due the longest.
// As in [Client.Health], at most a thousand queues and a thousand workflows are looked at.
func (c *Client) Stranded(ctx context.Context) ([]StrandedRuns, error) {
	err := c.checkSchema(ctx, nil)
	var active []store.ActiveWork
	if err == nil {
		active, err = c.store.ActiveWork(ctx)
	}
	var workers []store.LiveWorker
	if err == nil && len(active) > 0 {
		workers, err = c.store.LiveWorkers(ctx, c.store.Pool(), math.MaxInt32)
	}
	if err != nil {
		return nil, failed(c.public(ctx, err), "stranded runs")
	}
	able := fleet{}
	for _, w := range workers {
		if !w.Silent && !w.Draining {
			able.add(w)
		}
	}
	var out []StrandedRuns
	for _, a := range active {
		if !able[place{a.Queue, a.Type}].can(a.Version) {
			out = append(out, StrandedRuns{Workflow: a.Type, Version: a.Version, Queue: a.Queue, Count: a.Count, More: a.More, Oldest: a.Oldest, DueAt: a.DueAt})
		}
	}
	return out, nil
}

// A place is where runs of one workflow wait.
type place struct{ queue, workflow string }

// A fleet is what workers can execute.
type fleet map[place]*able

// An able is the workers that can execute a workflow, and in which versions.
type able struct {
	n        int
	versions map[int]bool
}

// can reports whether one of the workers can execute the version; zero is a run that has none yet.
func (a *able) can(version int) bool {
	return a != nil && (version == 0 || a.versions[version])
}

func (f fleet) add(w store.LiveWorker) {
	for _, t := range w.Types {
		p := place{w.Queue, t}
		if f[p] == nil {
			f[p] = &able{versions: map[int]bool{}}
		}
		f[p].n++
	}
	for _, h := range w.Handlers {
		cut := strings.LastIndexByte(h, '/') // the workflow's name may contain others
		if cut < 0 {
			continue
		}
		if a := f[place{w.Queue, h[:cut]}]; a != nil {
			version, _ := strconv.Atoi(h[cut+1:]) // written by Worker.serves
			a.versions[version] = true
		}
	}
}
