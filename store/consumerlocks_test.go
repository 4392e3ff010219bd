package store

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// fails ends the run, and makes a claim look at the keys of all consumers.
func fails(t *testing.T, s *Store, r *ClaimedRun) {
	t.Helper()
	e := finish(r)
	e.Status, e.ErrorKind, e.Error, e.Output = Failed, "kind", "error", nil
	flush(t, s, &Flush{Finishes: []*Finish{e}})
	look(t, s)
}

// A transaction of the application that changes a consumer stays open. Claims take the runs of other keys, and plain
// ones.
func TestClaimsDoNotWaitForChangesOfConsumers(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"Trigger", "Delete", "Skip", "Pause", "Unpause", "Resume", "Restart"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			subscribe(t, s, consumerOf("c", "a"), consumerOf("d", "a"))
			runs := due(t, s, "c", "d")
			slices.SortFunc(runs, func(a, b *ClaimedRun) int { return strings.Compare(a.Type, b.Type) })
			completes(t, s, runs[1], "", time.Time{})
			switch what {
			case "Trigger", "Delete", "Skip":
				completes(t, s, runs[0], "", time.Time{})
			case "Pause", "Unpause":
				if what == "Unpause" {
					pause(t, s, Pause{Key: runs[0].Key})
				}
				fails(t, s, runs[0])
			case "Resume", "Restart":
				if _, err := s.Runs.Terminate(t.Context(), nil, runs[0].RunID, Why{}); err != nil {
					t.Fatal(err)
				}
				exec(t, s.pool, `UPDATE kagzi.workflow_runs SET finished_at = finished_at - interval '1 hour'`)
				look(t, s)
			}
			if what == "Trigger" || what == "Delete" || what == "Skip" {
				mustNotRun(t, s, "c", "d")
			}
			if what == "Skip" {
				publishes(t, s, named("a", "skipped")...)
			}
			tx := begin(t, s)
			var err error
			switch what {
			case "Trigger":
				_, err = s.Consumers.Trigger(t.Context(), tx, "c", false, Why{})
			case "Delete":
				err = s.Consumers.Delete(t.Context(), tx, "c", Why{})
			case "Skip":
				err = s.Consumers.SkipEvent(t.Context(), tx, "c", "a", "skipped", Why{})
			case "Pause":
				_, err = s.Pauses.Pause(t.Context(), tx, Pause{Key: runs[0].Key})
			case "Unpause":
				_, err = s.Pauses.Unpause(t.Context(), tx, Pause{Key: runs[0].Key})
			case "Resume":
				_, err = s.Runs.Resume(t.Context(), tx, runs[0].RunID, Why{})
			case "Restart":
				_, err = s.Runs.Restart(t.Context(), tx,
					Restart{Run: runs[0].RunID, New: newID(), Hash: func(b []byte) ([]byte, error) { return b, nil }})
			}
			if err != nil {
				t.Fatal(err)
			}
			publishes(t, s, named("a", "1")...)
			start(t, s, newRun())
			req := consumersRequest("c", "d")
			req.Types = append(req.Types, WorkflowVersions{Type: "type", Versions: []int{1}, Default: 1})
			got, err := s.Claims.Claim(t.Context(), req)
			if err != nil {
				t.Fatalf("the claim: %v", err)
			}
			var types []string
			for _, r := range got.Runs {
				types = append(types, r.Type)
			}
			slices.Sort(types)
			if !slices.Equal(types, []string{"d", "type"}) {
				t.Errorf("claimed %v", types)
			}
			if what == "Trigger" {
				exec(t, tx, "ROLLBACK")
				exec(t, s.pool, `UPDATE kagzi.run_keys SET available_at = available_at - interval '1 minute',
					consumers_at = consumers_at - interval '1 minute'`)
				mustRun(t, s, "c")
			}
		})
	}
}

// A flush with the end of a consumer's run does not hold up the other writes.
func TestFlushBesideChangeOfConsumer(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"Trigger", "Delete"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			subscribe(t, s, consumerOf("c", "a"))
			publishes(t, s, named("a", "1")...)
			r := mustRun(t, s, "c")
			other := running(t, s, 1)[0]
			p := peek(t, s, "c", "a")
			tx := begin(t, s)
			var err error
			if what == "Trigger" {
				_, err = s.Consumers.Trigger(t.Context(), tx, "c", false, Why{})
			} else {
				err = s.Consumers.Delete(t.Context(), tx, "c", Why{})
			}
			if err != nil {
				t.Fatal(err)
			}
			e := finish(r)
			e.Consumed = &Consumed{Consumer: "c", Topics: []ConsumedTopic{consumption(p, "a", "1")}}
			f := &Flush{Finishes: []*Finish{e}, Records: []*Record{record(other, "step", "1")}}
			if err := s.Records.Flush(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			wantOutcome(t, "the record", f.Records[0].Outcome, Done)
			wantOutcome(t, "the end", e.Outcome, Busy)
			rollback(t, tx)
			flush(t, s, &Flush{Finishes: []*Finish{e}})
			wantOutcome(t, "the end", e.Outcome, Done)
			if got := eventIDs(peek(t, s, "c", "a")); len(got) != 0 {
				t.Errorf("peeked %v", got)
			}
		})
	}
}

// Retention deletes a failed run while its group is paused. The end of the pause is followed by another run
// nevertheless.
func TestConsumerWhoseFailedRunIsDeleted(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"failed", "cancelled", "completed"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			publishes(t, s, named("a", "1")...)
			subscribe(t, s, consumerOf("c", "a"))
			r := mustRun(t, s, "c")
			switch what {
			case "failed":
				fails(t, s, r)
			case "cancelled":
				pause(t, s, Pause{Key: r.Key})
				if _, err := s.Runs.Terminate(t.Context(), nil, r.RunID, Why{}); err != nil {
					t.Fatal(err)
				}
			default:
				completes(t, s, r, "", time.Time{})
			}
			mustNotRun(t, s, "c")
			exec(t, s.pool, `DELETE FROM kagzi.run_events`)
			exec(t, s.pool, `DELETE FROM kagzi.workflow_runs`)
			look(t, s)
			mustNotRun(t, s, "c")
			if what != "completed" {
				unpause(t, s, Pause{Key: r.Key})
				mustRun(t, s, "c")
			}
		})
	}
}

// A run that is started in place of a failed one is its consumer's.
func TestRestartOfConsumerRun(t *testing.T) {
	t.Parallel()
	s := open(t)
	publishes(t, s, named("a", "1")...)
	subscribe(t, s, consumerOf("c", "a"))
	r := mustRun(t, s, "c")
	fails(t, s, r)
	mustNotRun(t, s, "c")
	_, err := s.Runs.Restart(t.Context(), nil,
		Restart{Run: r.RunID, New: newID(), Hash: func(b []byte) ([]byte, error) {
			return b, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	unpause(t, s, Pause{Key: r.Key})
	next := mustRun(t, s, "c")
	completes(t, s, next, "state", time.Time{}, consumption(peek(t, s, "c", "a"), "a", "1"))
	if got := eventIDs(peek(t, s, "c", "a")); len(got) != 0 {
		t.Errorf("events that a restarted run has consumed: %v", got)
	}
	mustNotRun(t, s, "c")
}

// The restart of a run that has completed would bring back the state from before it.
func TestRestartOfCompletedConsumerRun(t *testing.T) {
	t.Parallel()
	s := open(t)
	publishes(t, s, named("a", "1", "2")...)
	subscribe(t, s, consumerOf("c", "a"))
	r := mustRun(t, s, "c")
	p := peek(t, s, "c", "a")
	completes(t, s, r, "one", time.Time{}, consumption(p, "a", "1"))
	mustNotRun(t, s, "c")
	_, err := s.Runs.Restart(t.Context(), nil,
		Restart{Run: r.RunID, New: newID(), Hash: func(b []byte) ([]byte, error) {
			return b, nil
		}})
	wantError(t, err, ErrIDConflict)
}

// The longer a publisher takes, the less often a claim looks whether it has rolled back: there may be many consumers.
func TestLooksBehindAPublisherBecomeRare(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	completes(t, s, mustRun(t, s, "c"), "", time.Time{})
	mustNotRun(t, s, "c")
	tx := begin(t, s)
	publishIn(t, s, tx, named("a", "first")...)
	publishes(t, s, named("a", "second")...)
	for _, want := range []struct{ age, least, most time.Duration }{
		{0, 0, time.Second / 2},
		{4 * time.Second, time.Second, 3 * time.Second},
		{time.Hour, 4 * time.Second, 5 * time.Second},
	} {
		// The claim is between the times of these two statements: on a slow machine long after the first, and long
		// before the second.
		before := one[time.Time](t, s.pool, `SELECT now()`)
		exec(t, s.pool, `UPDATE kagzi.events SET published_at = now() - $1 * interval '1 second'
			WHERE event_id = 'second'`, want.age.Seconds())
		look(t, s)
		mustNotRun(t, s, "c")
		next, after := one[time.Time](t, s.pool, `SELECT consumers_at FROM kagzi.run_keys`),
			one[time.Time](t, s.pool, `SELECT now()`)
		if next.Sub(before) < want.least || next.Sub(after) > want.most+after.Sub(before) {
			t.Errorf("after %v the next look is in %v to %v", want.age, next.Sub(after), next.Sub(before))
		}
		exec(t, s.pool, `UPDATE kagzi.run_keys SET available_at = 'infinity'`)
	}
	rollback(t, tx)
	look(t, s)
	mustRun(t, s, "c")
}
