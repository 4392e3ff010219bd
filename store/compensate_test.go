package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// registering is the record by which a run registers the compensation of a step, as the first under its name.
func registering(r *ClaimedRun, step string, place int64, change ...func(*Record)) *Record {
	rec := &Record{
		StepRow: StepRow{
			RunID: r.RunID, StepID: CompensationID(step), Attempt: 1, FirstAttempt: 1, RunAttempt: 1, Status: Running, Kind: KindCompensation,
			Output: []byte("hash of " + step), Position: place,
		},
		Lease: r.Lease, Wake: -1, Worker: uuid.New(), Compensation: &Compensation{Type: "undo", Input: []byte(step)},
	}
	for _, f := range change {
		f(rec)
	}
	return rec
}

// announcing makes a registration the announcement of one.
func announcing(r *Record) { r.Compensation, r.Output = nil, nil }

// failing ends a run badly.
func failing(r *ClaimedRun) *Finish {
	return &Finish{RunID: r.RunID, Lease: r.Lease, Parent: r.ParentRunID, Status: Failed, ErrorKind: "kind", Error: "broken"}
}

// compensate takes the run's next step.
func compensate(t *testing.T, s *Store, id uuid.UUID) *CancelledRuns {
	t.Helper()
	out, err := s.Compensate(t.Context(), id)
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
	flush(t, s, &Flush{Finishes: []*Finish{failing(r)}})
	compensate(t, s, r.RunID)
	return r
}

// claimCompensations claims what compensations there are.
func claimCompensations(t *testing.T, s *Store) []*ClaimedRun {
	t.Helper()
	return claim(t, s, request(100, types(Handled{"undo", []int{1}, 1}))).Runs
}

// claimCompensation claims the only compensation there is: that of the step.
func claimCompensation(t *testing.T, s *Store, step string) *ClaimedRun {
	t.Helper()
	all := claimCompensations(t, s)
	if len(all) != 1 || string(all[0].Input) != step {
		t.Fatalf("claimed %+v, want the compensation of %s", all, step)
	}
	return all[0]
}

// runCompensations completes all compensations that are due, and those that come after them.
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

// stepAll takes the next steps of runs, and of those whose turn it is after them.
func stepAll(t *testing.T, s *Store, ids []uuid.UUID) {
	t.Helper()
	for len(ids) > 0 {
		ids = append(ids[1:], compensate(t, s, ids[0]).Step...)
	}
}

// wantWaiting checks what a run that compensates waits for.
func wantWaiting(t *testing.T, s *Store, id uuid.UUID, what string) {
	t.Helper()
	if got := one[string](t, s.pool, `SELECT concat_ws(' ', status, available_at, wakeups_awaited > wakeups, waiting_on) FROM kagzi.workflow_runs WHERE run_id = $1`, id); got != "SLEEPING infinity t "+what {
		t.Errorf("run %v: %s; want it to wait for %s", id, got, what)
	}
}

// wantOutcomeOf checks how a run is to end that compensates: "FAILED kind: text".
func wantOutcomeOf(t *testing.T, s *Store, id uuid.UUID, want string) {
	t.Helper()
	run, err := s.Run(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if run.Outcome == nil {
		t.Errorf("nothing is decided of run %v", id)
		return
	}
	if got := fmt.Sprintf("%s %s: %s", run.Outcome.Status, run.Outcome.Kind, run.Outcome.Error); got != want {
		t.Errorf("run %v is to end as %s, want %s", id, got, want)
	}
}

// compensationsIn returns what is registered, the last place first, with its status, and what it would start.
func compensationsIn(t *testing.T, s *Store, id uuid.UUID) []string {
	t.Helper()
	rows, err := s.pool.Query(t.Context(), `
		SELECT concat_ws(' ', step_id, attempt_number, status, call->>'type', convert_from(input, 'UTF8'), error_kind, error) FROM kagzi.step_runs
		WHERE run_id = $1 AND step_kind = 'COMPENSATION' ORDER BY position DESC, attempt_number`, id)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantCompensations(t *testing.T, s *Store, id uuid.UUID, want ...string) {
	t.Helper()
	if got := compensationsIn(t, s, id); !slices.Equal(got, want) {
		t.Errorf("compensations\n%q, want\n%q", got, want)
	}
}

func TestRecordCompensation(t *testing.T) {
	t.Parallel()

	// A registration is written once, whatever is lost; an announcement becomes it; another one is another attempt.
	t.Run("Attempts", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		write := func(rec *Record) {
			t.Helper()
			flush(t, s, &Flush{Records: []*Record{rec}})
			wantOutcome(t, rec.StepID, rec.Outcome, Done)
			if rec.StartedAt.IsZero() || !rec.FinishedAt.IsZero() {
				t.Errorf("recorded %+v", rec.StepRow)
			}
		}
		write(registering(r, "a", 1, announcing))
		write(registering(r, "a", 1, announcing))
		wantCompensations(t, s, r.RunID, "a#compensation 1 RUNNING")
		for range 2 {
			write(registering(r, "a", 2))
		}
		write(registering(r, "b", 3))
		again := func(rec *Record) { rec.Attempt, rec.FirstAttempt, rec.Compensation.Input = 2, 2, []byte("again") }
		write(registering(r, "a", 4, again))
		wantCompensations(t, s, r.RunID, "a#compensation 2 RUNNING undo again", "b#compensation 1 RUNNING undo b", "a#compensation 1 RUNNING undo a")
		h, err := s.History(t.Context(), []uuid.UUID{r.RunID})
		if err != nil || len(h[r.RunID]) != 2 {
			t.Fatalf("history %+v, error %v: want the last registrations", h, err)
		}
		for _, row := range h[r.RunID] {
			if row.StepID == CompensationID("a") && (row.Attempt != 2 || row.Position != 4 || string(row.Output) != "hash of a" || row.Status != Running) {
				t.Errorf("history %+v", row)
			}
		}
	})

	t.Run("NotUnderALostLease", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		expire(t, s, r.RunID)
		claim(t, s, request(1))
		rec := registering(r, "a", 1)
		flush(t, s, &Flush{Records: []*Record{rec}})
		wantOutcome(t, "registration", rec.Outcome, Lost)
		wantCompensations(t, s, r.RunID)
	})

	// With its step it is there, or neither is.
	t.Run("InAStepTx", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		tx := begin(t, s)
		if ok, err := s.RecordIn(t.Context(), tx, record(r, "a", "x"), registering(r, "a", 1)); err != nil || !ok {
			t.Errorf("written %t, error %v", ok, err)
		}
		wantCompensations(t, s, r.RunID)
		commit(t, tx)
		wantCompensations(t, s, r.RunID, "a#compensation 1 RUNNING undo a")
		expire(t, s, r.RunID)
		claim(t, s, request(1))
		tx = begin(t, s)
		if ok, err := s.RecordIn(t.Context(), tx, record(r, "b", "x"), registering(r, "b", 2)); err != nil || ok {
			t.Errorf("written %t under a lost lease, error %v", ok, err)
		}
	})
}

// The last registered runs first, with what was registered last under its name, one after the other; then the run ends.
func TestCompensateInOrder(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	parent := running(t, s, 1)[0]
	flush(t, s, &Flush{Parks: []*Park{sleep(parent, -1)}})
	r := running(t, s, 1, withParent(parent.RunID), withPriority(2), withTimeout(time.Hour))[0]
	again := func(rec *Record) { rec.Attempt, rec.FirstAttempt, rec.Compensation.Input = 2, 2, []byte("again") }
	flush(t, s, &Flush{Records: []*Record{registering(r, "a", 1), registering(r, "b", 2), registering(r, "c", 3), registering(r, "d", 4, announcing)}})
	flush(t, s, &Flush{Records: []*Record{registering(r, "a", 5, again)}})
	f := &Flush{Finishes: []*Finish{failing(r)}}
	flush(t, s, f)
	wantOutcome(t, "finish", f.Finishes[0].Outcome, Done)
	wantIDs(t, "to be stepped", f.Step, r.RunID)
	if !f.Finishes[0].Compensating || len(f.Woken) > 0 {
		t.Errorf("finish %+v, woken %v", f.Finishes[0], f.Woken)
	}
	wantOutcomeOf(t, s, r.RunID, "FAILED kind: broken")
	if row := look(t, s.pool, r.RunID); row.Status != Sleeping || !row.Due || row.Ended || row.LockedBy != nil || row.Attempts != 1 || *row.ErrorKind != "kind" {
		t.Errorf("row %+v", row)
	}
	if c := claim(t, s, request(10)); len(c.Runs) > 0 {
		t.Errorf("claimed %v", c.Runs)
	}
	stepped := compensate(t, s, r.RunID)
	for i, step := range []string{"again", "c", "b"} {
		wantWaiting(t, s, r.RunID, "compensation "+[]string{"a", "c", "b"}[i])
		c := claimCompensation(t, s, step)
		if len(stepped.Due) != 1 || stepped.Due[0] != (Woken{c.RunID, "queue", "undo", 0}) || len(stepped.Moved())+len(stepped.Step) > 0 {
			t.Errorf("stepped %+v", stepped)
		}
		run, err := s.Run(t.Context(), c.RunID)
		if err != nil || run.Parent != r.RunID || run.ParentStep != CompensationID([]string{"a", "c", "b"}[i]) || run.Priority != 2 || run.ExternalID != "" || !run.DeadlineAt.IsZero() {
			t.Errorf("compensation %+v, %v", run, err)
		}
		end := &Flush{Finishes: []*Finish{finish(c)}}
		flush(t, s, end)
		wantIDs(t, "to be stepped", end.Step, r.RunID)
		if len(end.Woken) > 0 || end.Finishes[0].Compensating {
			t.Errorf("flush %+v", end)
		}
		stepped = compensate(t, s, r.RunID)
	}
	wantIDs(t, "ended", stepped.Ended, r.RunID)
	wantIDs(t, "woken", stepped.Woken, parent.RunID)
	if len(stepped.Due) != 1 || stepped.Due[0].RunID != parent.RunID || len(stepped.Step) > 0 {
		t.Errorf("stepped %+v", stepped)
	}
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
	if row := look(t, s.pool, r.RunID); !row.Ended || row.Attempts != 1 || row.WaitingOn != nil || row.In != 0 {
		t.Errorf("row %+v", row)
	}
	if row := look(t, s.pool, parent.RunID); row.Wakeups != 1 || !row.Due {
		t.Errorf("the parent %+v", row)
	}
	wantCompensations(t, s, r.RunID, "a#compensation 2 COMPLETED undo again", "d#compensation 1 RUNNING", "c#compensation 1 COMPLETED undo c",
		"b#compensation 1 COMPLETED undo b", "a#compensation 1 RUNNING undo a")
}

// Which ends run compensations.
func TestCompensatesOnlyWhatEndsBadly(t *testing.T) {
	t.Parallel()
	s := open(t)
	for name, tt := range map[string]struct {
		finish      Finish
		steps       []string
		compensates bool
	}{
		"Completed":   {Finish{Status: Completed}, []string{"a"}, false},
		"Failed":      {Finish{Status: Failed, ErrorKind: "crash_loop"}, []string{"a"}, true}, // what kind an error has decides nothing
		"Quarantined": {Finish{Status: Failed, ErrorKind: "crash_loop", Quarantined: true}, []string{"a"}, false},
		"Cancelled":   {Finish{Status: Cancelled, ErrorKind: "cancelled"}, []string{"a"}, true},
		"Nothing":     {Finish{Status: Failed, ErrorKind: "kind"}, nil, false},
	} {
		r := withCompensations(t, s, tt.steps)
		flush(t, s, &Flush{Records: []*Record{registering(r, "announced", 9, announcing)}})
		tt.finish.RunID, tt.finish.Lease = r.RunID, r.Lease
		f := &Flush{Finishes: []*Finish{&tt.finish}}
		flush(t, s, f)
		wantOutcome(t, name, tt.finish.Outcome, Done)
		row := look(t, s.pool, r.RunID)
		if tt.finish.Compensating != tt.compensates || row.Ended == tt.compensates || len(f.Step) == 1 != tt.compensates {
			t.Errorf("%s: %+v, row %+v, to be stepped %v", name, tt.finish, row, f.Step)
		}
		before := one[string](t, s.pool, `SELECT to_jsonb(r)::text FROM kagzi.workflow_runs r WHERE run_id = $1`, r.RunID)
		out := compensate(t, s, r.RunID)
		after := one[string](t, s.pool, `SELECT to_jsonb(r)::text FROM kagzi.workflow_runs r WHERE run_id = $1`, r.RunID)
		if (len(out.Due) == 1) != tt.compensates || (before != after) != tt.compensates {
			t.Errorf("%s: stepped %+v, the row was %s and is %s", name, out, before, after)
		}
		if q := one[bool](t, s.pool, `SELECT quarantined FROM kagzi.workflow_runs WHERE run_id = $1`, r.RunID); q != tt.finish.Quarantined {
			t.Errorf("%s: quarantined %t", name, q)
		}
	}
	for name, r := range map[string]uuid.UUID{"Unknown": uuid.New(), "Pending": start(t, s, newRun(withDelay(time.Hour)))[0], "Sleeping": asleepWith(t, s, ofType("type"))} {
		if out := compensate(t, s, r); len(out.Moved())+len(out.Due)+len(out.Step) > 0 {
			t.Errorf("%s: %+v", name, out)
		}
	}
	runCompensations(t, s)
}

// A compensation takes what its registration says, and the rest from its run.
func TestCompensationStarts(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := running(t, s, 1, withPriority(2))[0]
	rec := registering(r, "a", 1)
	rec.Compensation = &Compensation{
		Queue: "other", Type: "undo", Version: 7, Priority: 4, Delay: time.Hour, Timeout: 2 * time.Hour,
		RetryPolicy: []byte(`{"a": [1]}`), Metadata: []byte(`{"k": "it's"}`), Input: []byte{0, 0xff},
	}
	flush(t, s, &Flush{Records: []*Record{rec}})
	flush(t, s, &Flush{Finishes: []*Finish{failing(r)}})
	out := compensate(t, s, r.RunID)
	if len(out.Due) != 1 || out.Due[0] != (Woken{out.Due[0].RunID, "other", "undo", 7}) {
		t.Fatalf("stepped %+v", out)
	}
	got, err := s.Run(t.Context(), out.Due[0].RunID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Queue != "other" || got.Version != 7 || got.Priority != 4 || string(got.Metadata) != `{"k": "it's"}` || string(got.Input) != "\x00\xff" || got.Status != Pending {
		t.Errorf("compensation %+v", got)
	}
	if d := time.Until(got.AvailableAt); d < 50*time.Minute || d > 70*time.Minute {
		t.Errorf("due in %v, want an hour", d)
	}
	if d := got.DeadlineAt.Sub(got.AvailableAt).Round(time.Second); d != 2*time.Hour {
		t.Errorf("ends %v after it is due, want 2 hours", d)
	}
	if row := one[string](t, s.pool, `SELECT concat_ws(' ', retry_policy, detached) FROM kagzi.workflow_runs WHERE run_id = $1`, got.RunID); row != `{"a": [1]} t` {
		t.Errorf("compensation %s", row)
	}
}

// The children end first, whatever ends them, but for those that are detached.
func TestCompensateWaitsForChildren(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	r := withCompensations(t, s, []string{"a"})
	starts := &Flush{Records: []*Record{starting(r, "one"), starting(r, "two"), starting(r, "three"), starting(r, "stays", detached)}}
	flush(t, s, starts)
	children := map[string]*ClaimedRun{}
	for _, c := range claim(t, s, request(4)).Runs {
		i := slices.IndexFunc(starts.Records, func(rec *Record) bool { return rec.ChildRunID == c.RunID })
		children[starts.Records[i].StepID] = c
	}
	flush(t, s, &Flush{Records: []*Record{registering(children["two"], "below", 1)}})
	ends := &Flush{Finishes: []*Finish{failing(r), finish(children["one"])}} // one ends with its parent
	flush(t, s, ends)
	wantIDs(t, "to be stepped", ends.Step, r.RunID)
	if out := compensate(t, s, r.RunID); len(out.Due)+len(out.Moved()) > 0 {
		t.Errorf("stepped %+v", out)
	}
	wantWaiting(t, s, r.RunID, "children")
	f := &Flush{Finishes: []*Finish{failing(children["two"])}} // which compensates, too
	flush(t, s, f)
	wantIDs(t, "to be stepped", f.Step, children["two"].RunID)
	compensate(t, s, children["two"].RunID)
	f = &Flush{Finishes: []*Finish{finish(children["three"])}}
	flush(t, s, f)
	wantIDs(t, "to be stepped", f.Step)
	wantWaiting(t, s, r.RunID, "children")
	below := claimCompensation(t, s, "below")
	f = &Flush{Finishes: []*Finish{finish(below)}}
	flush(t, s, f)
	wantIDs(t, "to be stepped", f.Step, children["two"].RunID)
	out := compensate(t, s, children["two"].RunID)
	wantIDs(t, "ended", out.Ended, children["two"].RunID)
	wantIDs(t, "to be stepped", out.Step, r.RunID)
	if len(out.Due) > 0 {
		t.Errorf("nobody claims a run that compensates: %v", out.Due)
	}
	compensate(t, s, r.RunID)
	runCompensations(t, s)
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
	if row := look(t, s.pool, children["stays"].RunID); row.Status != Running {
		t.Errorf("the detached child is %s", row.Status)
	}
}

// Those that come after one that fails run all the same. The run has failed by that, until it is resumed.
func TestCompensationFails(t *testing.T) {
	t.Parallel()
	s := open(t)
	dbtest.Audit(t, s.pool)
	r := compensating(t, s, []string{"a", "b", "c", "d"}, withID("id"))
	fail := func(step string, end func(*ClaimedRun)) uuid.UUID {
		t.Helper()
		c := claimCompensation(t, s, step)
		end(c)
		stepAll(t, s, []uuid.UUID{r.RunID})
		return c.RunID
	}
	fails := func(c *ClaimedRun) { flush(t, s, &Flush{Finishes: []*Finish{failing(c)}}) }
	cancels := func(c *ClaimedRun) {
		if err := cancelled(s.Cancel(t.Context(), nil, c.RunID, "", 0)); err != nil {
			t.Fatal(err)
		}
	}
	d, _, b := fail("d", fails), fail("c", fails), fail("b", cancels)
	fail("a", func(c *ClaimedRun) { flush(t, s, &Flush{Finishes: []*Finish{finish(c)}}) })
	const text = "not compensated: d#compensation: broken\nc#compensation: broken\nb#compensation: run was cancelled; the run ended because: broken (kind)"
	wantEnded(t, s, r.RunID, "FAILED compensation: "+text)
	wantCompensations(t, s, r.RunID, "d#compensation 1 FAILED undo d kind broken", "c#compensation 1 FAILED undo c kind broken",
		"b#compensation 1 FAILED undo b cancelled run was cancelled", "a#compensation 1 COMPLETED undo a")
	_, err := s.Restart(t.Context(), nil, Restart{Run: r.RunID, New: newID(), Step: "a"})
	wantError(t, err, ErrCompensated)

	// One of them was put right by itself, and another is under way again.
	for _, id := range []uuid.UUID{d, b} {
		if _, err := s.Resume(t.Context(), nil, id, ""); err != nil {
			t.Fatal(err)
		}
	}
	again := claimCompensations(t, s)
	for _, c := range again {
		if c.RunID == d {
			f := &Flush{Finishes: []*Finish{finish(c)}}
			flush(t, s, f)
			wantIDs(t, "to be stepped", f.Step) // the run is over
		}
	}
	other := start(t, s, newRun(withID("id")))[0]
	_, err = s.Resume(t.Context(), nil, r.RunID, "")
	wantError(t, err, ErrIDConflict)
	if err := cancelled(s.Cancel(t.Context(), nil, other, "", 0)); err != nil {
		t.Fatal(err)
	}
	resumed, err := s.Resume(t.Context(), nil, r.RunID, "mine")
	if err != nil || resumed.Queue != "queue" || resumed.Ends == nil || len(resumed.Ends.Due) != 1 {
		t.Fatalf("resumed %+v, error %v", resumed, err)
	}
	wantWaiting(t, s, r.RunID, "compensation c")
	wantOutcomeOf(t, s, r.RunID, "FAILED kind: broken")
	if row := look(t, s.pool, r.RunID); row.Ended || *row.ErrorKind != "kind" {
		t.Errorf("row %+v", row)
	}
	wantCompensations(t, s, r.RunID, "d#compensation 1 COMPLETED undo d", "c#compensation 1 RUNNING undo c", "b#compensation 1 RUNNING undo b", "a#compensation 1 COMPLETED undo a")
	_, err = s.Resume(t.Context(), nil, r.RunID, "")
	wantError(t, err, ErrRunActive)
	fail("c", func(c *ClaimedRun) { flush(t, s, &Flush{Finishes: []*Finish{finish(c)}}) })
	wantWaiting(t, s, r.RunID, "compensation b") // which was not started anew
	if more := claimCompensations(t, s); len(more) > 0 {
		t.Errorf("claimed %+v", more)
	}
	for _, c := range again {
		if c.RunID == b {
			f := &Flush{Finishes: []*Finish{finish(c)}}
			flush(t, s, f)
			stepAll(t, s, f.Step)
		}
	}
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
	_, err = s.Resume(t.Context(), nil, r.RunID, "")
	wantError(t, err, ErrCompensated)
	if events, err := s.RunEvents(t.Context(), r.RunID); err != nil || len(events) != 1 || events[0].Reason != "mine" {
		t.Errorf("events %+v, error %v", events, err)
	}
}

// A run whose compensations were all put right by themselves ends as it is resumed.
func TestResumeEndsARun(t *testing.T) {
	t.Parallel()
	s := open(t)
	parent := running(t, s, 1)[0]
	flush(t, s, &Flush{Parks: []*Park{sleep(parent, -1)}})
	r := compensating(t, s, []string{"a"}, withParent(parent.RunID))
	c := claimCompensation(t, s, "a")
	flush(t, s, &Flush{Finishes: []*Finish{failing(c)}})
	compensate(t, s, r.RunID)
	wantEnded(t, s, r.RunID, "FAILED compensation: not compensated: a#compensation: broken; the run ended because: broken (kind)")
	if _, err := s.Resume(t.Context(), nil, c.RunID, ""); err != nil {
		t.Fatal(err)
	}
	flush(t, s, &Flush{Finishes: []*Finish{finish(claimCompensation(t, s, "a"))}})
	resumed, err := s.Resume(t.Context(), nil, r.RunID, "")
	if err != nil || resumed.Ends == nil {
		t.Fatalf("resumed %+v, error %v", resumed, err)
	}
	wantIDs(t, "ended", resumed.Ends.Ended, r.RunID)
	wantIDs(t, "woken", resumed.Ends.Woken, parent.RunID)
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
}

// A compensation's run that was deleted has not run it, as far as anybody knows.
func TestCompensationIsDeleted(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := compensating(t, s, []string{"a"})
	c := claimCompensation(t, s, "a")
	exec(t, s.pool, `DELETE FROM kagzi.workflow_payloads WHERE run_id = $1`, c.RunID)
	exec(t, s.pool, `DELETE FROM kagzi.workflow_runs WHERE run_id = $1`, c.RunID)
	compensate(t, s, r.RunID)
	wantEnded(t, s, r.RunID, "FAILED compensation: not compensated: a#compensation: its run "+c.RunID.String()+" was deleted; the run ended because: broken (kind)")
	if _, err := s.Resume(t.Context(), nil, r.RunID, ""); err != nil {
		t.Fatal(err)
	}
	runCompensations(t, s)
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
}

// While its execution may register more, a run is marked, and its worker has the grace to end it.
// A mark whose worker is gone: another worker finds it, or its deadline passes.
// Whatever ends a compensation makes the run's next step due, which whoever ended it takes.
func TestEndOfACompensationSteps(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *Store, *ClaimedRun) []uuid.UUID{
		"Flush": func(t *testing.T, s *Store, c *ClaimedRun) []uuid.UUID {
			f := &Flush{Finishes: []*Finish{failing(c)}}
			flush(t, s, f)
			return f.Step
		},
		"FlushBesideALock": func(t *testing.T, s *Store, c *ClaimedRun) []uuid.UUID {
			r := running(t, s, 1)[0]
			lockRow(t, begin(t, s), r.RunID)
			f := &Flush{Records: []*Record{record(r, "a", "x")}, Finishes: []*Finish{failing(c)}}
			flush(t, s, f)
			wantOutcome(t, "record", f.Records[0].Outcome, Busy)
			return f.Step
		},
		"Cancel": func(t *testing.T, s *Store, c *ClaimedRun) []uuid.UUID {
			out, err := s.Cancel(t.Context(), nil, c.RunID, "", 0)
			if err != nil || len(out.Due) > 0 {
				t.Errorf("%+v, %v", out, err)
			}
			return out.Step
		},
		"Terminate": func(t *testing.T, s *Store, c *ClaimedRun) []uuid.UUID {
			out, err := s.Terminate(t.Context(), nil, c.RunID, "")
			if err != nil || len(out.Due) > 0 {
				t.Errorf("%+v, %v", out, err)
			}
			return out.Step
		},
		"Deadline": func(t *testing.T, s *Store, c *ClaimedRun) []uuid.UUID {
			pass(t, s, 2*grace, c.RunID)
			out := endOverdueRuns(t, s)
			wantIDs(t, "ended", out.Ended, c.RunID)
			return out.Step
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			dbtest.Audit(t, s.pool)
			r := compensating(t, s, []string{"a", "b"})
			wantIDs(t, "to be stepped", end(t, s, claimCompensation(t, s, "b")), r.RunID)
			due, err := s.DueCompensations(t.Context(), 10)
			if err != nil {
				t.Fatal(err)
			}
			wantIDs(t, "due", due, r.RunID)
			compensate(t, s, r.RunID)
			runCompensations(t, s)
			if got := one[string](t, s.pool, `SELECT error_kind FROM kagzi.workflow_runs WHERE run_id = $1`, r.RunID); got != "compensation" {
				t.Errorf("ended as %s", got)
			}
		})
	}
}

// What nobody has stepped is found, the longest due first; what waits is not.
func TestDueCompensations(t *testing.T) {
	t.Parallel()
	s := open(t)
	compensating(t, s, []string{"a"})
	asleepWith(t, s)
	withCompensations(t, s, []string{"a"})
	foreign := New(s.pool, "other")
	flush(t, foreign, &Flush{Finishes: []*Finish{failing(withCompensations(t, foreign, []string{"a"}))}})
	var want []uuid.UUID
	for range 3 {
		r := withCompensations(t, s, []string{"a"})
		flush(t, s, &Flush{Finishes: []*Finish{failing(r)}})
		want = append(want, r.RunID)
	}
	for n := range 4 {
		got, err := s.DueCompensations(t.Context(), n)
		if err != nil || !slices.Equal(got, want[:n]) {
			t.Errorf("due %v, want %v, error %v", got, want[:n], err)
		}
	}
	stepAll(t, s, want)
	if got, err := s.DueCompensations(t.Context(), 10); err != nil || len(got) > 0 {
		t.Errorf("due %v, error %v", got, err)
	}
	// A message keeps nothing from going on.
	if _, err := s.Signal(t.Context(), nil, Message{RunID: want[0], Name: "signal", ID: "1"}); err != nil {
		t.Fatal(err)
	}
	stepAll(t, s, mustDue(t, s))
	runCompensations(t, s)
	wantEnded(t, s, want[0], "FAILED kind: broken")
}

// What is done to a run whose compensations are under way.
// mustDue is what a coordinator finds.
func mustDue(t *testing.T, s *Store) []uuid.UUID {
	t.Helper()
	ids, err := s.DueCompensations(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// Whatever is lost, each compensation starts once, and the run ends once.
// A flush that ends a run badly, and whose answer is lost, is found done: while the compensations run, too.
// Many take one run's steps at the same time: each compensation starts once, in order.
// An end that comes while the run's step is under way makes the next step due.
// Families of runs that compensate, while all that is done to runs is done to them: every run ends, its compensations have
// run in order, and nobody waits for another.
// An end that waits for the transaction of a step sees what that has registered.
// A cancel that is lost on the way takes place once, whatever it finds.
