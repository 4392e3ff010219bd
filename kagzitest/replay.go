package kagzitest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
)

// replayPatience bounds the replay of one run.
const replayPatience = 10 * time.Second

// ended are the statuses of runs that are over.
var ended = []kagzi.Status{kagzi.StatusCompleted, kagzi.StatusFailed, kagzi.StatusCancelled}

// Replay runs fn, today's code of the workflow, against the histories of the runs that filter finds in client's database
// and that are over, and reports each run whose history it does not repeat, with what differs first, as an error of the
// test. It returns how many runs it replayed: a test checks that it is not zero. Nothing is written, and no step function
// is called: the database may be that of production. Runs of another version than the code's, which is 1 unless a
// [kagzi.Version] says otherwise, are left out. A Limit of zero means all. With [kagzi.AllowAdditions] a step that the code
// has and the history has not is no error.
func Replay[In, Out any](t testing.TB, client *kagzi.Client, wf kagzi.Workflow[In, Out], fn func(kagzi.Context, In) (Out, error), filter kagzi.RunFilter, opts ...kagzi.HandleOption) int {
	t.Helper()
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{NoCoordinator: true})
	if err != nil {
		t.Fatalf("kagzitest: %v", err)
	}
	version := kagzi.Version(1)
	for _, o := range opts {
		if v, ok := o.(kagzi.Version); ok {
			version = v
		}
	}
	kagzi.Handle(worker, wf, fn, version)
	if filter.Workflow != "" && filter.Workflow != wf.Name() {
		t.Fatalf("kagzitest: the filter is for workflow %q, the code for %q", filter.Workflow, wf.Name())
	}
	filter.Workflow = wf.Name()
	n := 0
	err = each(t.Context(), t, client, filter, func(run kagzi.RunInfo) {
		t.Helper()
		if run.Version == int(version) {
			n++
			replay(t.Context(), t, worker, run, "", opts...)
		}
	})
	if err != nil {
		t.Fatalf("kagzitest: %v", err)
	}
	return n
}

// each calls f with the runs that filter finds and that are over, page by page.
func each(ctx context.Context, t testing.TB, client *kagzi.Client, filter kagzi.RunFilter, f func(kagzi.RunInfo)) error {
	t.Helper() // an error that f reports is the caller's
	all := filter.Limit == 0
	if filter.Status == nil {
		filter.Status = ended
	}
	for {
		page, err := client.List(ctx, filter)
		if err != nil {
			return err
		}
		for _, run := range page {
			if !run.EndedAt.IsZero() {
				f(run)
			}
		}
		if !all || len(page) == 0 {
			return nil
		}
		filter.After = page[len(page)-1].ID
	}
}

// replay reports the run as an error of the test if the worker's code does not repeat its history, with what to do.
func replay(ctx context.Context, t testing.TB, worker *kagzi.Worker, run kagzi.RunInfo, do string, opts ...kagzi.HandleOption) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, replayPatience)
	defer cancel()
	err := worker.Replay(ctx, run.ID, opts...)
	if errors.Is(err, kagzi.ErrNotFound) || errors.Is(err, kagzi.ErrRunActive) { // deleted, or resumed, meanwhile
		return
	}
	if _, diverges := errors.AsType[*kagzi.DivergenceError](err); diverges {
		t.Errorf("kagzitest: replay: %v%s", err, do)
	} else if err != nil {
		t.Errorf("kagzitest: replay: %v", err)
	}
}

// replayAll replays what ended in the test. Runs that other workers executed, whose code is not here, are left out.
func (e *Env) replayAll(ctx context.Context) {
	e.t.Helper()
	const do = "; the code is the same, so take what differs from the result of a step"
	err := each(ctx, e.t, e.Client, kagzi.RunFilter{}, func(run kagzi.RunInfo) {
		if e.session.Handles(run.Workflow, run.Version) {
			replay(ctx, e.t, e.Worker, run, do)
		}
	})
	if err != nil {
		e.t.Errorf("kagzitest: replay the runs of the test: %v", err)
	}
}
