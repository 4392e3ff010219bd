package store

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

// ask asks the limit for the step of each run.
func askLimit(t *testing.T, s *Store, limit string, runs ...*ClaimedRun) []LimitAnswer {
	t.Helper()
	return serve(t, s, limit, LimitRequest{Asks: placesOf(runs...)}).Answers
}

func serve(t *testing.T, s *Store, limit string, req LimitRequest) LimitResult {
	t.Helper()
	out, err := s.Limits.Serve(t.Context(), limit, req)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func placesOf(runs ...*ClaimedRun) (places []Place) {
	for _, r := range runs {
		places = append(places, Place{RunID: r.RunID, Lease: r.Lease, StepID: "step"})
	}
	return places
}

func setLimit(t *testing.T, s *Store, l StepLimit) []Signalled {
	t.Helper()
	l.Burst = max(l.Burst, 1)
	woken, err := s.Limits.Set(t.Context(), l, Why{})
	if err != nil {
		t.Fatal(err)
	}
	return woken
}

// granted returns which of the answers grant.
func granted(answers []LimitAnswer) (which []int) {
	for i, a := range answers {
		if a.Granted {
			which = append(which, i)
		}
	}
	return which
}

func TestLimitThatIsMissing(t *testing.T) {
	t.Parallel()
	s := open(t)
	if out := serve(t, s, "api", LimitRequest{Asks: placesOf(running(t, s, 1)...)}); !out.Missing {
		t.Errorf("a limit that nobody has set answers %+v", out)
	}
}

// The tokens are one interval apart. A step that finds none soon gets a time in the line, and its token when it is
// back.
func TestTokensOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	const every = 90 * time.Millisecond
	setLimit(t, s, StepLimit{Name: "api", Every: every})
	runs := running(t, s, 6)
	answers := askLimit(t, s, "api", runs...)
	if got := fmt.Sprint(granted(answers)); got != "[0 1 2]" {
		t.Fatalf("granted %s, want the three tokens of the next 200 ms", got)
	}
	for i, a := range answers {
		if want := answers[0].At.Add(time.Duration(i) * every); !a.At.Equal(want) {
			t.Errorf("step %d gets %v, want %v", i, a.At, want)
		}
	}
	again := askLimit(t, s, "api", runs[3:]...)
	for i, a := range again {
		if a.At.Before(answers[3+i].At) {
			t.Errorf("step %d came early and gets %v, before its time %v", 3+i, a.At, answers[3+i].At)
		}
	}
	// Those who come back take the next tokens, before those who come now.
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = next_at - interval '10 s', line_at = line_at - interval '9 s'`)
	exec(t, s.pool, `UPDATE kagzi.limit_places SET due_at = due_at - interval '10 s'`)
	both := askLimit(t, s, "api", append(running(t, s, 1), runs[4], runs[5])...)
	if !both[1].Granted || !both[2].Granted || both[2].At.Sub(both[1].At) != every ||
		both[0].At.Sub(both[2].At) != every {
		t.Errorf("a newcomer and two of the line get %+v", both)
	}
}

// Steps that have left the line do not hold up those that come, and no step in the line is delayed by these.
func TestHolesInTheLineOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Minute})
	runs := running(t, s, 6)
	answers := askLimit(t, s, "api", runs[:4]...)
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[1:3]...)})
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = next_at - interval '1 min'`) // a minute passes
	if got := askLimit(t, s, "api", runs[4]); !got[0].Granted {
		t.Errorf("a step that comes when a token is there, and the next of the line is due in three minutes, "+
			"gets %+v", got)
	}
	exec(t, s.pool, `UPDATE kagzi.limit_places SET due_at = clock_timestamp() + interval '10 s' WHERE run_id = $1`,
		runs[3].RunID)
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = clock_timestamp()`)
	if got := askLimit(t, s, "api", runs[5]); got[0].Granted || !got[0].At.After(answers[3].At) {
		t.Errorf("a step that would delay the first of the line gets %+v", got)
	}
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs...)})
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = clock_timestamp()`)
	if got := askLimit(t, s, "api", runs[0], runs[1]); !got[0].Granted || got[1].At.Sub(got[0].At) != time.Minute {
		t.Errorf("when the line is empty: %+v", got)
	}
}

// A burst of unused tokens is kept.
func TestBurstOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Hour, Burst: 3})
	runs := running(t, s, 5)
	if got := fmt.Sprint(granted(askLimit(t, s, "api", runs...))); got != "[0]" {
		t.Errorf("a new limit grants %s, want one token: none was unused", got)
	}
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs...)})
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = next_at - interval '1 day',
		line_at = line_at - interval '1 day'`)
	if got := fmt.Sprint(granted(askLimit(t, s, "api", running(t, s, 5)...))); got != "[0 1 2]" {
		t.Errorf("granted %s, want a burst of 3", got)
	}
}

// If many runs come late together, each gets a time of its own, and none takes the token of another.
func TestManyComeLateToALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Second})
	runs := running(t, s, 5)
	askLimit(t, s, "api", runs...)
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = next_at - interval '1 hour',
		line_at = line_at - interval '1 hour'`)
	exec(t, s.pool, `UPDATE kagzi.limit_places SET due_at = due_at - interval '1 hour'`)
	late := askLimit(t, s, "api", runs[1:]...)
	if got := fmt.Sprint(granted(late)); got != "[0]" {
		t.Fatalf("granted %s, want one token", got)
	}
	for i, a := range late[1:] {
		if a.At.Sub(late[i].At) != time.Second {
			t.Errorf("%v follows %v", a.At, late[i].At)
		}
	}
	// The second one is back in time: it has its token already, so it takes no other.
	exec(t, s.pool, `UPDATE kagzi.limit_places SET due_at = now(), token_at = now() WHERE run_id = $1`, runs[2].RunID)
	before := one[time.Time](t, s.pool, `SELECT next_at FROM kagzi.limits`)
	if back := askLimit(t, s, "api", runs[2]); !back[0].Granted {
		t.Errorf("a step that is back at the time of its token gets %+v", back)
	}
	if after := one[time.Time](t, s.pool, `SELECT next_at FROM kagzi.limits`); !after.Equal(before) {
		t.Errorf("it took another token: the next one is %v, was %v", after, before)
	}
}

// Slots are counted, given in order, and free when the step leaves, or when its run is not held under the lease any
// more.
func TestSlotsOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 2})
	runs := running(t, s, 5)
	answers := askLimit(t, s, "api", runs...)
	if got := fmt.Sprint(granted(answers)); got != "[0 1]" || !answers[0].Kept || !answers[2].At.IsZero() {
		t.Fatalf("granted %s: %+v", got, answers)
	}
	if got := askLimit(t, s, "api", runs[1]); !got[0].Granted {
		t.Errorf("a repeated request of who has a slot gets %+v", got)
	}
	if got := askLimit(t, s, "api", runs[4]); got[0].Granted {
		t.Error("a third slot was given")
	}
	// The one that leaves makes room for the next in the line, which is called. A slot is kept for it.
	out := serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0]), Asks: placesOf(runs[4])})
	if out.Answers[0].Granted || len(out.Called) != 1 || out.Called[0].RunID != runs[2].RunID ||
		!out.Called[0].Running {
		t.Fatalf("with one free slot: %+v", out)
	}
	if n := one[int](t, s.pool, `SELECT wakeups FROM kagzi.workflow_runs WHERE run_id = $1`, runs[2].RunID); n != 1 {
		t.Errorf("the called run has %d wake-ups", n)
	}
	if got := askLimit(t, s, "api", runs[3], runs[2]); got[0].Granted || !got[1].Granted {
		t.Errorf("behind the called one, and the called one: %+v", got)
	}
	// A run that is over, and one that another worker has claimed.
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'FAILED', error_kind = 'unknown', available_at = NULL,
		finished_at = now() - interval '1 minute' WHERE run_id = $1`, runs[1].RunID)
	if got := askLimit(t, s, "api", runs[3]); !got[0].Granted {
		t.Error("the slot of a run that is over is not free")
	}
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET lease = gen_random_uuid() WHERE run_id = $1`, runs[2].RunID)
	out = serve(t, s, "api", LimitRequest{Asks: placesOf(runs[2], runs[4])})
	if !out.Answers[0].Lost || out.Answers[1].Granted || len(out.Called) != 1 || out.Called[0].RunID != runs[2].RunID {
		t.Errorf("a zombie, the last of the line: %+v, want the zombie's run called, at its old place", out)
	}
	// After some seconds others may have the slot.
	exec(t, s.pool, `UPDATE kagzi.limit_places SET called_at = called_at - interval '1 minute'`)
	if got := askLimit(t, s, "api", runs[4]); !got[0].Granted {
		t.Error("a slot is kept for ever")
	}
}

// A step that finds a slot and no token leaves the slot to the next one, who may have a token.
func TestSlotOfAStepWithoutAToken(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Hour, MaxRunning: 1})
	runs := running(t, s, 3)
	askLimit(t, s, "api", runs[0])
	askLimit(t, s, "api", runs[1:]...) // they wait for the slot
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0])})
	exec(t, s.pool, `UPDATE kagzi.limit_places SET token_at = clock_timestamp() WHERE run_id = $1`, runs[2].RunID)
	out := serve(t, s, "api", LimitRequest{Asks: placesOf(runs[1], runs[2])})
	if out.Answers[0].Granted || out.Answers[0].At.IsZero() || out.Answers[1].Granted || !out.More {
		t.Errorf("the first has no token, the second one has: %+v, want to serve again", out)
	}
	if out = serve(t, s, "api", LimitRequest{Asks: placesOf(runs[2])}); !out.Answers[0].Granted {
		t.Errorf("the second one has lost its token: %+v", out)
	}
}

// A slot counts for a while after the end of its run: the step may not have returned.
func TestSlotOfARunThatWasEnded(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
	runs := running(t, s, 2)
	askLimit(t, s, "api", runs[0])
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'CANCELLED', available_at = NULL,
		finished_at = clock_timestamp(), error_kind = 'cancelled' WHERE run_id = $1`, runs[0].RunID)
	if got := askLimit(t, s, "api", runs[1]); got[0].Granted {
		t.Error("the slot is free although the step has not returned")
	}
	out := serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0]), Asks: placesOf(runs[1])})
	if !out.Answers[0].Granted {
		t.Error("the slot is not free although the step has returned")
	}
}

// A cancelled run loses its lease, and its slot counts until the step has returned.
func TestSlotOfARunThatWasCancelled(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
	runs := running(t, s, 2)
	askLimit(t, s, "api", runs[0])
	if _, err := s.Runs.Cancel(t.Context(), nil, runs[0].RunID, Why{}, 0); err != nil {
		t.Fatal(err)
	}
	if got := askLimit(t, s, "api", runs[1]); got[0].Granted {
		t.Error("the slot is free although the step has not returned")
	}
	if out := serve(t, s, "api",
		LimitRequest{Leaves: placesOf(runs[0]), Asks: placesOf(runs[1])}); !out.Answers[0].Granted {
		t.Error("the slot is not free although the step has returned")
	}
}

// A caller that deletes a run that was just terminated does not end its step: the slot counts until the step has
// returned, or for a while. The coordinator frees it if the worker never says that the step has returned.
func TestSlotOfARunThatWasDeleted(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"Delete", "DeleteInPortions", "Retention"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			setLimit(t, s, StepLimit{Name: "api", MaxRunning: 2})
			runs := running(t, s, 4)
			askLimit(t, s, "api", runs[:3]...) // the third one waits
			for _, r := range runs[:3] {
				if _, err := s.Runs.Terminate(t.Context(), nil, r.RunID, Why{}); err != nil {
					t.Fatal(err)
				}
				switch by {
				case "Delete":
					mustDelete(t, s, r.RunID)
				case "DeleteInPortions":
					withRows(t, s, r.RunID, deletedRows)
					mustDelete(t, s, r.RunID)
				default:
					if out := prune(t, s, Retention{}, deletedRows, r.RunID); out.Deleted != 1 {
						t.Fatalf("pruned %+v", out)
					}
				}
			}
			if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.limit_places`); n != 2 {
				t.Errorf("%d places, want those of the steps that may still run", n)
			}
			if askLimit(t, s, "api", runs[3])[0].Granted {
				t.Error("the slot is free although the step has not returned")
			}
			if out := serve(t, s, "api",
				LimitRequest{Leaves: placesOf(runs[0]), Asks: placesOf(runs[3])}); !out.Answers[0].Granted {
				t.Error("the slot is not free although the step has returned")
			}
			serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[3])})
			if names, err := s.Limits.Waiting(t.Context()); err != nil || len(names) != 1 {
				t.Errorf("limits to serve: %v, %v", names, err)
			}
			exec(t, s.pool, `UPDATE kagzi.limit_places SET due_at = due_at - interval '10 s'`) // ten seconds pass
			serve(t, s, "api", LimitRequest{})
			if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.limit_places`); n != 0 {
				t.Errorf("%d places are left", n)
			}
		})
	}
}

// A run that was suspended while it got a slot waits for the slot again. Its place is not in the line, so no other
// worker may be there to serve the limit.
func TestSlotThatASuspendedRunGot(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
	runs := running(t, s, 1)
	waiting := func(want string) {
		t.Helper()
		names, err := s.Limits.Waiting(t.Context())
		if got := fmt.Sprint(names); err != nil || got != want {
			t.Errorf("limits to serve: %s, %v, want %s", got, err, want)
		}
	}
	askLimit(t, s, "api", runs...)
	waiting("[]")
	p := sleep(runs[0], time.Hour)
	p.Need = 1
	flush(t, s, &Flush{Suspensions: []*Suspension{p}})
	waiting("[api]")
	if out := serve(t, s, "api", LimitRequest{}); len(out.Called) != 1 || !out.Called[0].Due {
		t.Errorf("%+v, want that the run is called", out)
	}
	waiting("[]")
}

// Runs that are over hold no others up, although their times in the line are still to come.
func TestCancelledRunsInTheLineOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Minute})
	runs := running(t, s, 6)
	askLimit(t, s, "api", runs[:5]...)
	for _, r := range runs[1:5] {
		if _, err := s.Runs.Cancel(t.Context(), nil, r.RunID, Why{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = next_at - interval '1 min'`) // a minute passes
	if got := askLimit(t, s, "api", runs[5]); !got[0].Granted {
		t.Errorf("a step that comes when a token is there, and all in the line are cancelled, gets %+v", got)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.limit_places`); n != 0 {
		t.Errorf("%d places of runs that are over", n)
	}
}

// A call wakes a run that sleeps, and not a run that another transaction has locked: that one is called later.
func TestCallOfASleepingRun(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
	runs := running(t, s, 2)
	askLimit(t, s, "api", runs...)
	p := sleep(runs[1], time.Hour)
	p.Need = 1
	flush(t, s, &Flush{Suspensions: []*Suspension{p}})
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec(t, tx, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`, runs[1].RunID)
	if out := serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0])}); len(out.Called) != 0 || !out.More {
		t.Errorf("a locked run: %+v", out)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := serve(t, s, "api", LimitRequest{}); len(out.Called) != 1 || !out.Called[0].Due || out.More {
		t.Errorf("the run that sleeps: %+v", out)
	}
	again := claim(t, s, request(10)).Runs
	if len(again) != 1 || again[0].RunID != runs[1].RunID {
		t.Fatalf("claimed %v, want the called run", again)
	}
	if got := askLimit(t, s, "api", again...); !got[0].Granted {
		t.Error("the called run has no slot")
	}
}

// A run that was called, and then finds that another one has the slot, waits again and is called again. The slot was
// kept for the other one before, which came too late for that.
func TestCalledRunThatFindsNoSlot(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
	runs := running(t, s, 3)
	askLimit(t, s, "api", runs...)
	wantCalled := func(out LimitResult, want *ClaimedRun) {
		t.Helper()
		if len(out.Called) != 1 || out.Called[0].RunID != want.RunID {
			t.Fatalf("called %+v, want %s", out.Called, want.RunID)
		}
	}
	wantCalled(serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0])}), runs[1])
	exec(t, s.pool, `UPDATE kagzi.limit_places SET called_at = called_at - interval '1 minute'
		WHERE called_at IS NOT NULL`)
	wantCalled(serve(t, s, "api", LimitRequest{}), runs[2])
	if got := askLimit(t, s, "api", runs[1]); !got[0].Granted {
		t.Fatalf("the run that comes late got %+v", got)
	}
	if got := askLimit(t, s, "api", runs[2]); got[0].Granted {
		t.Fatalf("the other one got %+v too", got)
	}
	exec(t, s.pool, `UPDATE kagzi.limit_places SET called_at = called_at - interval '1 minute'
		WHERE called_at IS NOT NULL`)
	wantCalled(serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[1])}), runs[2])
}

// A run that is paused keeps its place in the line, and the next one is called in its stead.
func TestPausedRunsInTheLineOfALimit(t *testing.T) {
	t.Parallel()
	for name, pauses := range map[string]func(*Store, *ClaimedRun){
		"run": func(s *Store, r *ClaimedRun) {
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET paused_at = now() WHERE run_id = $1`, r.RunID)
		},
		"workflow": func(s *Store, r *ClaimedRun) {
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET workflow_type = 'other' WHERE run_id = $1`, r.RunID)
			pause(t, s, Pause{Type: "other"})
		},
		"key": func(s *Store, r *ClaimedRun) {
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET run_key = 'a', key_scope = task_queue, slot = 2
				WHERE run_id = $1`, r.RunID)
			pause(t, s, Pause{Queue: "queue", Key: Key{Name: "a"}})
		},
	} {
		s := open(t)
		setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
		runs := running(t, s, 3)
		askLimit(t, s, "api", runs...)
		for _, r := range runs[1:] {
			p := sleep(r, time.Hour)
			p.Need = 1
			flush(t, s, &Flush{Suspensions: []*Suspension{p}})
		}
		pauses(s, runs[1])
		s.pauses.Store(true) // as after a claim
		if out := serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0])}); len(out.Called) != 1 ||
			out.Called[0].RunID != runs[2].RunID {
			t.Errorf("%s paused: called %+v, want the one behind it", name, out.Called)
		}
		exec(t, s.pool, `UPDATE kagzi.limit_places SET called_at = called_at - interval '1 minute'
			WHERE called_at IS NOT NULL`)
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET paused_at = NULL`)
		exec(t, s.pool, `DELETE FROM kagzi.pauses`)
		if out := serve(t, s, "api", LimitRequest{}); len(out.Called) != 1 || out.Called[0].RunID != runs[1].RunID {
			t.Errorf("%s paused no more: called %+v", name, out.Called)
		}
	}
}

// A faster rate brings the runs of the line earlier.
func TestSetLimitHurries(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Hour})
	runs := running(t, s, 3)
	answers := askLimit(t, s, "api", runs...)
	p := sleep(runs[1], time.Hour)
	p.Need, p.Wake, p.WakeAt = 1, -1, answers[1].At
	flush(t, s, &Flush{Suspensions: []*Suspension{p}})
	if woken := setLimit(t, s, StepLimit{Name: "api", Every: 2 * time.Hour}); len(woken) != 0 {
		t.Errorf("a slower rate wakes %v", woken)
	}
	setLimit(t, s, StepLimit{Name: "api", Every: time.Hour})
	if woken := setLimit(t, s, StepLimit{Name: "api", Every: time.Minute}); len(woken) != 2 {
		t.Errorf("woken %v, want the run that sleeps and the one that waits in memory", woken)
	}
	if d := time.Duration(one[float64](t, s.pool, `SELECT extract(epoch FROM available_at - now())::float8
		FROM kagzi.workflow_runs WHERE run_id = $1`, runs[1].RunID) * 1e9); d > time.Minute {
		t.Errorf("the run sleeps for %v", d)
	}
	setLimit(t, s, StepLimit{Name: "api"})
	if got := fmt.Sprint(granted(askLimit(t, s, "api", runs[2]))); got != "[0]" {
		t.Error("a step waits although the limit was lifted")
	}
}

// Tokens that no step has used in time are not used at once when the rate becomes higher.
func TestLateTokensOfAFasterLimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Hour})
	runs := running(t, s, 4)
	askLimit(t, s, "api", runs...)
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = next_at - interval '1 day',
		line_at = line_at - interval '1 day'`)
	exec(t, s.pool, `UPDATE kagzi.limit_places SET due_at = due_at - interval '1 day'`)
	askLimit(t, s, "api", runs[1:]...)
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = next_at - interval '1 day',
		line_at = line_at - interval '1 day'`)
	exec(t, s.pool, `UPDATE kagzi.limit_places SET due_at = due_at - interval '1 day',
		token_at = token_at - interval '1 day'`)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Minute})
	if got := fmt.Sprint(granted(askLimit(t, s, "api", runs[2:]...))); got != "[0]" {
		t.Errorf("granted %s, want one token", got)
	}
}

func TestPauseOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "deaf", MaxRunning: 5})
	setLimit(t, s, StepLimit{Name: "polite", MaxRunning: 5, RetryAfter: true})
	runs := running(t, s, 3)
	for limit, waits := range map[string]bool{"deaf": false, "polite": true} {
		serve(t, s, limit, LimitRequest{Pause: time.Hour})
		if got := askLimit(t, s, limit, runs[0]); got[0].Granted == waits || waits &&
			time.Until(got[0].At) < 50*time.Minute {
			t.Errorf("%s: after an error that asks for a pause: %+v", limit, got)
		}
	}
}

// A limit that is set without a rate, and does not honor such errors any more, lets the steps begin that one has
// stopped.
func TestPauseOfALimitIsLifted(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := StepLimit{Name: "api", MaxRunning: 2, RetryAfter: true}
	setLimit(t, s, l)
	runs := running(t, s, 2)
	askLimit(t, s, "api", runs[0])
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0]), Pause: time.Hour})
	askLimit(t, s, "api", runs[1])
	setLimit(t, s, l) // as a process does that starts
	if got := askLimit(t, s, "api", runs[1]); got[0].Granted {
		t.Fatalf("the same limit again grants %+v", got)
	}
	l.RetryAfter = false
	if woken := setLimit(t, s, l); len(woken) != 1 || !askLimit(t, s, "api", runs[1])[0].Granted {
		t.Errorf("woken %+v, and the step may not begin", woken)
	}
}

// The same with a rate: the steps then begin as it says.
func TestPauseOfALimitWithARateIsLifted(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := StepLimit{Name: "api", Every: time.Second, RetryAfter: true}
	setLimit(t, s, l)
	runs := running(t, s, 4)
	first := askLimit(t, s, "api", runs[0])
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0]), Pause: time.Hour})
	askLimit(t, s, "api", runs[1:3]...)
	l.RetryAfter = false
	if woken := setLimit(t, s, l); len(woken) != 2 {
		t.Errorf("woken %+v, want those that wait", woken)
	}
	before := first[0].At
	for _, r := range append(runs[1:3:3], runs[3]) {
		got := askLimit(t, s, "api", r)[0]
		if d := got.At.Sub(before); d < l.Every || d > time.Minute {
			t.Errorf("a step may begin %v after the one before", d)
		}
		before = got.At
	}
	at := one[time.Time](t, s.pool, `SELECT next_at FROM kagzi.limits`)
	if woken := setLimit(t, s, l); len(woken) != 0 ||
		!one[time.Time](t, s.pool, `SELECT next_at FROM kagzi.limits`).Equal(at) {
		t.Errorf("the same limit again wakes %v, or changes the next token's time", woken)
	}
}

// Many ask for two slots at the same time, and give them back. Some give up instead of waiting, so that slots are often
// free.
func TestRaceForSlotsOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	const slots, each = 2, 40
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: slots})
	patiently := func(req LimitRequest) LimitResult { // as a session does
		for {
			if out, err := s.Limits.Serve(t.Context(), "api", req); err == nil {
				return out
			} else if !pg.Locked(err) {
				t.Error(err)
			}
		}
	}
	var inside, had atomic.Int64
	var all sync.WaitGroup
	for i, r := range running(t, s, 6) {
		all.Go(func() {
			for n := range each {
				out := patiently(LimitRequest{Asks: placesOf(r)})
				if out.Answers[0].Granted {
					if now := inside.Add(1); now > slots {
						t.Errorf("%d have a slot", now)
					}
					had.Add(1)
					one[int](t, s.pool, `SELECT count(*) FROM generate_series(1, 20000)`) // this takes a while
					inside.Add(-1)
				} else if (n+i)%2 == 0 {
					continue // it stays in the line
				}
				patiently(LimitRequest{Leaves: placesOf(r)})
			}
		})
	}
	all.Wait()
	if had.Load() == 0 {
		t.Error("nobody had a slot")
	}
}

// Steps that wait for a slot, of a limit that has tokens too, begin behind those that wait for their tokens.
func TestOrderOfALimitOfSlotsAndTokens(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Hour, MaxRunning: 2})
	runs := running(t, s, 4)
	first := askLimit(t, s, "api", runs...)
	if !first[0].Granted || first[1].Granted || first[1].At.IsZero() || !first[2].At.IsZero() {
		t.Fatalf("asked first: %+v, want one to begin, one to have a time, and the others to wait for slots", first)
	}
	for i, r := range runs[2:] { // the second one holds no slot while it waits
		out := serve(t, s, "api", LimitRequest{Asks: placesOf(r)})
		if got := out.Answers[0]; got.Granted || got.At.Sub(first[1].At).Round(time.Minute) != time.Duration(i+
			1)*time.Hour {
			t.Errorf("step %d got %+v, want a time %d hours behind %v", i+2, got, i+1, first[1].At)
		}
	}
	// The time of the second one has come, and there is no slot.
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = now() - interval '1 hour', max_running = 1`)
	exec(t, s.pool, `UPDATE kagzi.limit_places SET due_at = due_at - interval '1 hour' WHERE due_at IS NOT NULL`)
	if got := askLimit(t, s, "api", runs[1]); got[0].Granted || !got[0].At.IsZero() {
		t.Errorf("without a slot: %+v", got)
	}
	if out := serve(t, s, "api",
		LimitRequest{Leaves: placesOf(runs[0]), Asks: placesOf(runs[1])}); !out.Answers[0].Granted {
		t.Errorf("with a slot: %+v, want that it has not lost its turn", out)
	}
}
