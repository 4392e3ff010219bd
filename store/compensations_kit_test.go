package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
)

// registering returns the record of a step's first registered compensation.
func registering(r *ClaimedRun, step string, place int64, change ...func(*Record)) *Record {
	rec := &Record{
		StepRow: StepRow{
			RunID: r.RunID, StepID: CompensationID(step), Attempt: 1, FirstAttempt: 1, RunAttempt: 1, Status: Running,
			Kind:   KindCompensation,
			Output: []byte("hash of " + step), Position: place,
		},
		Lease: r.Lease, Wake: -1, Worker: uuid.New(),
		Compensation: &Compensation{Spec: Spec{Type: "undo"}, Input: []byte(step)},
	}
	for _, f := range change {
		f(rec)
	}
	return rec
}

// announcing turns a registration into the announcement of one.
func announcing(r *Record) { r.Compensation, r.Output = nil, nil }

// asSecond turns a registration into the second one under its name, with another input.
func asSecond(r *Record) { r.Attempt, r.FirstAttempt, r.Compensation.Input = 2, 2, []byte("again") }

// flushEnds writes the ends of runs and returns the flush.
func flushEnds(t *testing.T, s *Store, ends ...*Finish) *Flush {
	t.Helper()
	f := &Flush{Finishes: ends}
	flush(t, s, f)
	return f
}

// failing returns the end of a run that fails.
func failing(r *ClaimedRun) *Finish {
	return &Finish{
		RunID: r.RunID, Lease: r.Lease, Parent: r.ParentRunID, Status: Failed, ErrorKind: "kind",
		Error: "broken",
	}
}

// compensate takes the run's next step.
func compensate(t *testing.T, s *Store, id uuid.UUID) *CancelledRuns {
	t.Helper()
	out, err := s.Ends.Compensate(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// withCompensations returns a run that has registered the steps' compensations, in their order, and is RUNNING.
func withCompensations(t *testing.T, s *Store, steps []string, change ...func(*NewRun)) *ClaimedRun {
	t.Helper()
	r := running(t, s, 1, change...)[0]
	f := &Flush{}
	for i, step := range steps {
		f.Records = append(f.Records, registering(r, step, int64(i+1)))
	}
	flush(t, s, f)
	return r
}

// compensating returns a run that has failed, and whose first compensation has started.
func compensating(t *testing.T, s *Store, steps []string, change ...func(*NewRun)) *ClaimedRun {
	t.Helper()
	r := withCompensations(t, s, steps, change...)
	flushEnds(t, s, failing(r))
	compensate(t, s, r.RunID)
	return r
}

// claimCompensations claims all compensations that are due.
func claimCompensations(t *testing.T, s *Store) []*ClaimedRun {
	t.Helper()
	return claim(t, s, request(100, types(WorkflowVersions{"undo", []int{1}, 1}))).Runs
}

// claimCompensation claims the only compensation that is due, which must be that of the step.
func claimCompensation(t *testing.T, s *Store, step string) *ClaimedRun {
	t.Helper()
	all := claimCompensations(t, s)
	if len(all) != 1 || string(all[0].Input) != step {
		t.Fatalf("claimed %+v, want the compensation of %s", all, step)
	}
	return all[0]
}

// runCompensations completes all compensations that are due, and those that follow them.
func runCompensations(t *testing.T, s *Store) {
	t.Helper()
	for runs := claimCompensations(t, s); len(runs) > 0; runs = claimCompensations(t, s) {
		f := &Flush{}
		for _, r := range runs {
			f.Finishes = append(f.Finishes, finish(r))
		}
		flush(t, s, f)
		stepAll(t, s, f.Step)
	}
}

// stepAll takes the next steps of the runs, and of the runs that become due by that.
func stepAll(t *testing.T, s *Store, ids []uuid.UUID) {
	t.Helper()
	for len(ids) > 0 {
		ids = append(ids[1:], compensate(t, s, ids[0]).Step...)
	}
}

// mustDue returns the runs that a coordinator finds due.
func mustDue(t *testing.T, s *Store) []uuid.UUID {
	t.Helper()
	ids, err := s.Ends.DueCompensations(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// wantWaiting checks what a compensating run waits for.
func wantWaiting(t *testing.T, s *Store, id uuid.UUID, what string) {
	t.Helper()
	if got := one[string](t, s.pool, `SELECT concat_ws(' ', status, available_at, wakeups_awaited > wakeups,
		waiting_on -> 0 ->> 'kind', waiting_on -> 0 ->> 'name')
		FROM kagzi.workflow_runs WHERE run_id = $1`, id); got != "SLEEPING infinity t "+what {
		t.Errorf("run %v: %s; want it to wait for %s", id, got, what)
	}
}

// wantOutcomeOf checks the outcome that a compensating run will end with: "FAILED kind: text".
func wantOutcomeOf(t *testing.T, s *Store, id uuid.UUID, want string) {
	t.Helper()
	run, err := s.Runs.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if run.Outcome == nil {
		t.Errorf("no outcome is decided for run %v", id)
		return
	}
	if got := fmt.Sprintf("%s %s: %s", run.Outcome.Status, run.Outcome.Kind, run.Outcome.Error); got != want {
		t.Errorf("run %v will end as %s, want %s", id, got, want)
	}
}

// compensationsIn returns the registered compensations, the last first, each with its status, workflow, input and
// error.
func compensationsIn(t *testing.T, s *Store, id uuid.UUID) []string {
	t.Helper()
	return column[string](t, s.pool, `
		SELECT concat_ws(' ', step_id, attempt_number, status, call->>'type', convert_from(input, 'UTF8'), error_kind,
			error) FROM kagzi.step_runs
		WHERE run_id = $1 AND step_kind = 'COMPENSATION' ORDER BY position DESC, attempt_number`, id)
}

func wantCompensations(t *testing.T, s *Store, id uuid.UUID, want ...string) {
	t.Helper()
	if got := compensationsIn(t, s, id); !slices.Equal(got, want) {
		t.Errorf("compensations\n%q, want\n%q", got, want)
	}
}
