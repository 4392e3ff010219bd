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

// ended are the final statuses.
var ended = []kagzi.Status{kagzi.StatusCompleted, kagzi.StatusFailed, kagzi.StatusCancelled}

// Replay executes fn, the current code of the workflow, against the histories of the ended runs that filter finds in
// client's database. It reports each run whose history fn does not repeat, with the first difference, as an error of
// the test. It returns the number of runs that it replayed; a test checks that it is not zero. Replay writes nothing
// and calls no step function, so the database may be that of production. It omits runs of another version than the
// code's, which is 1 unless opts has a [kagzi.Version]. A Limit of zero means all runs. With [kagzi.AllowAdditions] a
// step that the code has and the history lacks is no error.
func Replay[In, Out any](t testing.TB, client *kagzi.Client, wf kagzi.Workflow[In, Out],
	fn func(kagzi.Context, In) (Out, error), filter kagzi.RunFilter, opts ...kagzi.HandleOption,
) int {
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
		t.Fatalf("kagzitest: the filter is for workflow %q, but the code is for %q", filter.Workflow, wf.Name())
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

// each calls f with each ended run that filter finds, page by page.
func each(ctx context.Context, t testing.TB, client *kagzi.Client, filter kagzi.RunFilter,
	f func(kagzi.RunInfo),
) error {
	t.Helper() // f reports errors at the line of the caller
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

// replay fails the test if the worker's code does not repeat the history of run. do is advice to append to the error.
func replay(ctx context.Context, t testing.TB, worker *kagzi.Worker, run kagzi.RunInfo, do string,
	opts ...kagzi.HandleOption,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, replayPatience)
	defer cancel()
	err := worker.Replay(ctx, run.ID, opts...)
	// the run was deleted or resumed meanwhile
	if errors.Is(err, kagzi.ErrNotFound) || errors.Is(err, kagzi.ErrRunActive) {
		return
	}
	if _, diverges := errors.AsType[*kagzi.DivergenceError](err); diverges {
		t.Errorf("kagzitest: replay: %v%s", err, do)
	} else if err != nil {
		t.Errorf("kagzitest: replay: %v", err)
	}
}

// replayAll replays all runs in client's database that have ended. It omits runs whose code worker does not have,
// because other workers executed them.
func replayAll(ctx context.Context, t testing.TB, client *kagzi.Client, worker *kagzi.Worker,
	handles func(workflow string, version int) bool,
) {
	t.Helper()
	const do = "; the code is the same, so take what differs from the result of a step"
	err := each(ctx, t, client, kagzi.RunFilter{}, func(run kagzi.RunInfo) {
		if handles(run.Workflow, run.Version) {
			replay(ctx, t, worker, run, do)
		}
	})
	if err != nil {
		t.Errorf("kagzitest: replay the runs of the test: %v", err)
	}
}
