package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/waits"
)

// ask asks the limit for the step of each run.
func askLimit(t *testing.T, s *Store, limit string, runs ...*ClaimedRun) []LimitAnswer {
	t.Helper()
	return serve(t, s, limit, LimitRequest{Asks: placesOf(runs...)}).Answers
}

func serve(t *testing.T, s *Store, limit string, req LimitRequest) LimitResult {
	t.Helper()
	out, err := s.Limits.Serve(t.Context(), []string{limit}, req)
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

func setLimit(t *testing.T, s *Store, l StepLimit) {
	t.Helper()
	l.Burst = max(l.Burst, 1)
	if err := s.Limits.Set(t.Context(), l, Why{}); err != nil {
		t.Fatal(err)
	}
}

// elapse lets time pass for the limits, and for the runs that sleep until a time.
func elapse(t *testing.T, s *Store, d time.Duration) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = next_at - $1::interval, last_at = last_at - $1::interval,
		paused_until = paused_until - $1::interval`, d)
	exec(t, s.pool, `UPDATE kagzi.limit_places SET asked_at = asked_at - $1::interval,
		due_at = due_at - $1::interval`, d)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = available_at - $1::interval
		WHERE status = 'SLEEPING' AND available_at < 'infinity'`, d)
}

// park suspends runs that wait for a call. A worker lives that takes them.
func park(t *testing.T, s *Store, runs ...*ClaimedRun) {
	t.Helper()
	serves(t, s, "queue", "type")
	suspendAll(t, s, runs...)
}

func suspendAll(t *testing.T, s *Store, runs ...*ClaimedRun) {
	t.Helper()
	var all []*Suspension
	for _, r := range runs {
		all = append(all, &Suspension{
			RunID: r.RunID, Lease: r.Lease, Status: Sleeping, Wake: -1, Need: 1,
			WaitingOn: waits.List{{Kind: waits.Limit}},
		})
	}
	flush(t, s, &Flush{Suspensions: all})
}

// serves adds a live worker of the queue and the workflow.
func serves(t *testing.T, s *Store, queue, typ string) {
	t.Helper()
	if err := s.Workers.Register(t.Context(), s.pool, Worker{
		ID: uuid.New(), Queues: []string{queue}, Types: []string{typ}, LeaseTimeout: time.Minute,
		StaleAfter: time.Minute, MaxConcurrent: 1,
	}); err != nil {
		t.Fatal(err)
	}
}

// called returns which of the runs were called, in this order.
func called(out LimitResult, runs []*ClaimedRun) (which []int) {
	for i, r := range runs {
		for _, c := range out.Called {
			if c.RunID == r.RunID {
				which = append(which, i)
			}
		}
	}
	return which
}

func wantCalled(t *testing.T, out LimitResult, runs []*ClaimedRun, want string) {
	t.Helper()
	if got := fmt.Sprint(called(out, runs)); got != want || len(out.Called) != len(called(out, runs)) {
		t.Errorf("called %s of %+v, want %s", got, out.Called, want)
	}
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

// A service that has found no limit to lock gives nothing of one that was set meanwhile: another service may have it.
// The next one gives it.
func TestLimitThatIsSetDuringAService(t *testing.T) {
	t.Parallel()
	s := open(t)
	runs := running(t, s, 2)
	for try, late := 0, true; late; try++ { // a service waits for the lock of a place only briefly
		limit := fmt.Sprint("api", try)
		exec(t, s.pool, `INSERT INTO kagzi.limit_places (run_id, step_id, namespace_id, limit_name, state, asked_at,
			due_at) VALUES ($1, 'step', $2, $3, 'WAITING', now(), now()) ON CONFLICT DO NOTHING`, runs[0].RunID,
			s.namespace, limit)
		tx := begin(t, s)
		exec(t, tx, `SELECT FROM kagzi.limit_places FOR UPDATE`)
		meetsLock(t, s, func(context.Context) {
			out, err := s.Limits.Serve(t.Context(), []string{limit}, LimitRequest{
				Leaves: placesOf(runs[0]), Asks: placesOf(runs[1]),
			})
			if late = pg.Locked(err); !late && (err != nil || len(granted(out.Answers)) != 1) {
				t.Errorf("with a lock of its own: %+v, %v", out, err)
			}
		}, func() {
			setLimit(t, s, StepLimit{Name: limit, MaxRunning: 1})
			commit(t, tx)
		})
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

// Many ask for two slots at the same time, and give them back. Some give up instead of waiting, so that slots are often
// free.
func TestRaceForSlotsOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	const slots, each = 2, 40
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: slots})
	patiently := func(req LimitRequest) LimitResult { // as a session does
		for {
			if out, err := s.Limits.Serve(t.Context(), []string{"api"}, req); err == nil {
				return out
			} else if !pg.Locked(err) && !pg.Unavailable(err) { // a loaded machine answers late
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

// The tokens are one interval apart. A step that finds none soon is told when to come for it.
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
		want := answers[0].At.Add(time.Duration(i) * every)
		if !a.Granted {
			want = want.Add(-LimitSoon)
		}
		if !a.At.Equal(want) {
			t.Errorf("step %d gets %v, want %v", i, a.At, want)
		}
	}
	for i, a := range askLimit(t, s, "api", runs[3:]...) {
		if a.At.Before(answers[3+i].At) {
			t.Errorf("step %d came early and gets %v, before its time %v", 3+i, a.At, answers[3+i].At)
		}
	}
	// Those who come back take the next tokens, before those who come now.
	// On a slow machine they were called before the time that elapses.
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[3])})
	elapse(t, s, 10*time.Second)
	both := askLimit(t, s, "api", append(running(t, s, 1), runs[4], runs[5])...)
	if !both[1].Granted || !both[2].Granted || both[2].At.Sub(both[1].At) < every ||
		both[0].At.Sub(both[2].At) < every {
		t.Errorf("a newcomer and two of the line get %+v", both)
	}
}

// Steps that have left the line hold up no others.
func TestHolesInTheLineOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Minute})
	runs := running(t, s, 6)
	askLimit(t, s, "api", runs[:4]...)
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[2])})
	wantCalled(t, serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[1])}), runs, "[3]")
	if got := askLimit(t, s, "api", runs[4]); got[0].Granted || !got[0].At.IsZero() {
		t.Errorf("a step that comes while the next token is kept gets %+v", got)
	}
	elapse(t, s, time.Minute)
	if got := askLimit(t, s, "api", runs[5], runs[3]); got[0].Granted || !got[1].Granted {
		t.Errorf("a step that comes now, and the called one: %+v", got)
	}
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs...)})
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = clock_timestamp()`)
	if got := askLimit(t, s, "api", runs[0], runs[1]); !got[0].Granted ||
		got[1].At.Sub(got[0].At) != time.Minute-LimitSoon {
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
	elapse(t, s, 24*time.Hour)
	if got := fmt.Sprint(granted(askLimit(t, s, "api", running(t, s, 5)...))); got != "[0 1 2]" {
		t.Errorf("granted %s, want a burst of 3", got)
	}
}

// If many runs come late together, they come no faster than the rate.
func TestManyComeLateToALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: 300 * time.Millisecond})
	runs := running(t, s, 5)
	askLimit(t, s, "api", runs...)
	elapse(t, s, time.Hour)
	late := askLimit(t, s, "api", runs[1:]...)
	if got := fmt.Sprint(granted(late)); got != "[0]" {
		t.Fatalf("granted %s, want one token", got)
	}
	for i, want := range []time.Duration{100, 400, 700} {
		if d := late[i+1].At.Sub(late[0].At); d != want*time.Millisecond {
			t.Errorf("step %d is to come %v later", i+1, d)
		}
	}
}

// The steps of paused runs keep no tokens: the only step that can begin waits as long as an idle limit lets it.
func TestTokensOfPausedRuns(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: 200 * time.Millisecond})
	runs := running(t, s, 300)
	answers := askLimit(t, s, "api", runs...)
	waiting := 0 // those that were not called yet
	for _, a := range answers {
		if a.At.IsZero() {
			waiting++
		}
	}
	park(t, s, runs[len(granted(answers)):]...)
	pause(t, s, Pause{Type: "type"})
	elapse(t, s, 3*time.Second) // those that were called do not come
	start(t, s, newRun(ofType("other")))
	next := claim(t, s, request(1, types(WorkflowVersions{"other", []int{1}, 1}))).Runs
	if got := askLimit(t, s, "api", next...)[0]; !got.Granted {
		t.Errorf("the only step that can begin gets %+v, and the limit is idle", got)
	}
	// They come by themselves when the pause is over, each once.
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE available_at <= now()
		AND status = 'SLEEPING'`); n != waiting {
		t.Errorf("%d runs were woken, want %d", n, waiting)
	}
	if out := serve(t, s, "api", LimitRequest{}); len(out.Called) != 0 {
		t.Errorf("called again: %d", len(out.Called))
	}
	exec(t, s.pool, `DELETE FROM kagzi.pauses`)
	exec(t, s.pool, `UPDATE kagzi.run_keys SET paused_at = NULL`)
	elapse(t, s, time.Second)
	if got := granted(askLimit(t, s, "api", claim(t, s, request(3)).Runs...)); len(got) != 2 {
		t.Errorf("after the pause, granted %v: want the tokens of the next 200 ms", got)
	}
}

// No slot is kept for the steps of runs that no worker takes.
func TestSlotsOfStrandedRuns(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
	runs := running(t, s, 101)
	askLimit(t, s, "api", runs...)
	suspendAll(t, s, runs[1:]...)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET task_queue = 'lonely' WHERE run_id <> $1`, runs[100].RunID)
	serves(t, s, "queue", "type")
	serves(t, s, "lonely", "other")
	serves(t, s, "other", "type")
	wantCalled(t, serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0])}), runs, "[100]")
	again := claim(t, s, request(10)).Runs
	if got := askLimit(t, s, "api", again...); len(got) != 1 || !got[0].Granted {
		t.Errorf("the called one gets %+v", got)
	}
	// When a worker comes, it finds them due, in the order of the line.
	req := request(200)
	req.Queue = "lonely"
	if back := claim(t, s, req).Runs; len(back) != 99 {
		t.Errorf("a worker that comes finds %d runs", len(back))
	}
}

// A step can begin if its run is in memory, or if a live worker has code for it.
func TestWhoseStepIsCalled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change string // of the run that waits
		calls  bool
	}{
		"Sleeping":   {"wakeups = wakeups", true},
		"Version":    {"version = 1", true},
		"OldVersion": {"version = 7", false},
		"Paused":     {"paused_at = now()", false},
		"OtherWait":  {"wakeups_awaited = wakeups + 2", false},
		"Due":        {"wakeups_awaited = wakeups + 2, available_at = now()", true},
		"Retry":      {"status = 'PENDING', available_at = now() + interval '1 hour'", false},
		"GivenBack":  {"status = 'PENDING', available_at = now()", true},
		"InMemory": {`status = 'RUNNING', locked_by = gen_random_uuid(), available_at = now() + interval '1 hour',
			task_queue = 'other'`, true},
		"LostInQueue": {"task_queue = 'other'", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
			runs := running(t, s, 3)
			askLimit(t, s, "api", runs[:2]...)
			suspendAll(t, s, runs[1])
			if err := s.Workers.Register(t.Context(), s.pool, Worker{
				ID: uuid.New(), Queues: []string{"queue"}, Types: []string{"type"}, Handlers: []string{"type/1"},
				LeaseTimeout: time.Minute, StaleAfter: time.Minute, MaxConcurrent: 1,
			}); err != nil {
				t.Fatal(err)
			}
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET `+c.change+` WHERE run_id = $1`, runs[1].RunID)
			out := serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0])})
			if (len(out.Called) == 1) != c.calls {
				t.Errorf("called %+v", out.Called)
			}
			if free := askLimit(t, s, "api", runs[2])[0].Granted; free == c.calls {
				t.Errorf("the next one begins: %t", free)
			}
		})
	}
}

// A worker that was lost calls nothing: the coordinator has to mark it, or its heartbeat is old.
func TestStepsOfALostWorker(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]string{
		"Offline": `UPDATE kagzi.workers SET status = 'OFFLINE'`,
		"Drains":  `UPDATE kagzi.workers SET status = 'DRAINING'`,
		"Silent":  `UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 hour'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
			runs := running(t, s, 2)
			askLimit(t, s, "api", runs...)
			park(t, s, runs[1])
			exec(t, s.pool, lost)
			wantCalled(t, serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0])}), runs, "[]")
		})
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
	if got := askLimit(t, s, "api", runs[1]); !got[0].Granted || !got[0].At.Equal(answers[1].At) {
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
	// After a second others may have the slot.
	elapse(t, s, 2*time.Second)
	if got := askLimit(t, s, "api", runs[4]); !got[0].Granted {
		t.Error("a slot is kept for ever")
	}
}

// Runs that are over hold no others up, although one of them was called for the next token.
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
	park(t, s, runs[1])
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

// A call for a token wakes the run a little before the token's time, so that it is in memory then.
func TestCallForAToken(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Minute})
	runs := running(t, s, 3)
	answers := askLimit(t, s, "api", runs...)
	park(t, s, runs[2])
	out := serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[1])})
	wantCalled(t, out, runs, "[2]")
	at := one[time.Time](t, s.pool, `SELECT available_at FROM kagzi.workflow_runs WHERE run_id = $1`, runs[2].RunID)
	if d := at.Sub(answers[0].At); d != time.Minute-LimitSoon {
		t.Errorf("the run is due %v after the token before", d)
	}
	elapse(t, s, time.Minute-LimitSoon)
	again := claim(t, s, request(10)).Runs
	if got := askLimit(t, s, "api", again...); len(got) != 1 || !got[0].Granted {
		t.Errorf("it came in time, and gets %+v", got)
	}
}

// A worker asks again for a step that waits, and suspends its run before the answer comes. The answer gives the step a
// time: then that makes the run due, or no call ever would.
func TestAnswerToARunThatIsSuspended(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Minute, MaxRunning: 5})
	runs := running(t, s, 3)
	askLimit(t, s, "api", runs...) // the first begins, the second is to come, the third waits
	out := serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[1]), Asks: placesOf(runs[2])})
	if out.Answers[0].At.IsZero() {
		t.Fatalf("the answer is %+v, want the time of the next token", out.Answers)
	}
	park(t, s, runs[2])
	if due := one[bool](t, s.pool, `SELECT available_at < clock_timestamp() + interval '1 minute'
		FROM kagzi.workflow_runs WHERE run_id = $1`, runs[2].RunID); !due {
		t.Error("nothing makes the run due")
	}
}

// A run that was called and comes late takes the slot, if it is free, although it is kept for another one then. If not,
// it waits at its place.
func TestCalledRunThatComesLate(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 1})
	runs := running(t, s, 4)
	askLimit(t, s, "api", runs...)
	wantCalled(t, serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0])}), runs, "[1]")
	elapse(t, s, 2*time.Second)
	wantCalled(t, serve(t, s, "api", LimitRequest{}), runs, "[2]")
	if got := askLimit(t, s, "api", runs[1]); !got[0].Granted {
		t.Fatalf("the run that comes late got %+v", got)
	}
	if got := askLimit(t, s, "api", runs[2]); got[0].Granted {
		t.Fatalf("the other one got %+v too", got)
	}
	elapse(t, s, 2*time.Second)
	wantCalled(t, serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[1])}), runs, "[2]")
}

// The next one is called in the stead of a run that is paused. This one comes when it is paused no more, and goes
// first.
func TestPausedRunsInTheLineOfALimit(t *testing.T) {
	t.Parallel()
	for name, pauses := range map[string]func(*Store, *ClaimedRun){
		"run": func(s *Store, r *ClaimedRun) {
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET paused_at = now() WHERE run_id = $1`, r.RunID)
		},
		"workflow": func(s *Store, r *ClaimedRun) {
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET workflow_type = 'other' WHERE run_id = $1`, r.RunID)
			serves(t, s, "queue", "other")
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
		runs := running(t, s, 4)
		askLimit(t, s, "api", runs...)
		park(t, s, runs[1:]...)
		pauses(s, runs[1])
		out := serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0])})
		wantCalled(t, out, runs, "[2]")
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET paused_at = NULL, workflow_type = 'type'`)
		exec(t, s.pool, `DELETE FROM kagzi.pauses`)
		exec(t, s.pool, `UPDATE kagzi.run_keys SET paused_at = NULL`)
		back := claim(t, s, request(10)).Runs
		if len(back) != 2 {
			t.Fatalf("%s: %d runs are due, want the one that was paused and the called one", name, len(back))
		}
		for _, r := range back {
			if got := askLimit(t, s, "api", r)[0].Granted; got != (r.RunID == back[0].RunID) {
				t.Errorf("%s: granted %t", name, got)
			}
		}
	}
}

// A faster rate brings the runs of the line earlier.
func TestSetLimitHurries(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Hour})
	runs := running(t, s, 3)
	askLimit(t, s, "api", runs...)
	park(t, s, runs[1])
	setLimit(t, s, StepLimit{Name: "api", Every: 2 * time.Hour})
	wantCalled(t, serve(t, s, "api", LimitRequest{}), runs, "[]")
	setLimit(t, s, StepLimit{Name: "api", Every: time.Hour})
	setLimit(t, s, StepLimit{Name: "api", Every: time.Minute})
	wantCalled(t, serve(t, s, "api", LimitRequest{}), runs, "[1]")
	if d := time.Duration(one[float64](t, s.pool, `SELECT extract(epoch FROM available_at - now())::float8
		FROM kagzi.workflow_runs WHERE run_id = $1`, runs[1].RunID) * 1e9); d > time.Minute {
		t.Errorf("the run sleeps for %v", d)
	}
	setLimit(t, s, StepLimit{Name: "api"})
	wantCalled(t, serve(t, s, "api", LimitRequest{}), runs, "[1 2]")
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
	elapse(t, s, 24*time.Hour)
	askLimit(t, s, "api", runs[1:]...)
	elapse(t, s, 24*time.Hour)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Minute})
	if got := fmt.Sprint(granted(askLimit(t, s, "api", runs[2:]...))); got != "[0]" {
		t.Errorf("granted %s, want one token", got)
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
	setLimit(t, s, l)
	wantCalled(t, serve(t, s, "api", LimitRequest{}), runs, "[1]")
	if !askLimit(t, s, "api", runs[1])[0].Granted {
		t.Error("the step may not begin")
	}
}

// The same with a rate: the steps then begin as it says.
func TestPauseOfALimitWithARateIsLifted(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := StepLimit{Name: "api", Every: time.Second, RetryAfter: true}
	setLimit(t, s, l)
	runs := running(t, s, 3)
	first := askLimit(t, s, "api", runs[0])
	serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0]), Pause: time.Hour})
	askLimit(t, s, "api", runs[1:]...)
	l.RetryAfter = false
	setLimit(t, s, l)
	wantCalled(t, serve(t, s, "api", LimitRequest{}), runs, "[1]")
	at := one[time.Time](t, s.pool, `SELECT next_at FROM kagzi.limits`)
	if d := at.Sub(first[0].At); d < l.Every || d > time.Minute {
		t.Errorf("the next token comes %v after the one before", d)
	}
	setLimit(t, s, l)
	wantCalled(t, serve(t, s, "api", LimitRequest{}), runs, "[]")
	if !one[time.Time](t, s.pool, `SELECT next_at FROM kagzi.limits`).Equal(at) {
		t.Error("the same limit again changes the next token's time")
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
	park(t, s, runs...)
	waiting("[api]")
	if out := serve(t, s, "api", LimitRequest{}); len(out.Called) != 1 || !out.Called[0].Due {
		t.Errorf("%+v, want that the run is called", out)
	}
	waiting("[]")
}

// Of a limit with slots and tokens, no slot is kept for longer than a token.
func TestSlotsAndTokensOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Hour, MaxRunning: 2})
	runs := running(t, s, 4)
	first := askLimit(t, s, "api", runs...)
	if !first[0].Granted || first[1].Granted || first[1].At.IsZero() || !first[2].At.IsZero() {
		t.Fatalf("asked first: %+v, want one to begin, one to have a time, and the others to wait", first)
	}
	// The time of the second one has come, and there is no slot.
	elapse(t, s, time.Hour)
	exec(t, s.pool, `UPDATE kagzi.limits SET max_running = 1`)
	if got := askLimit(t, s, "api", runs[1]); got[0].Granted || !got[0].At.IsZero() {
		t.Errorf("without a slot: %+v", got)
	}
	out := serve(t, s, "api", LimitRequest{Leaves: placesOf(runs[0]), Asks: placesOf(runs[1], runs[2])})
	if got := fmt.Sprint(granted(out.Answers)); got != "[0]" {
		t.Errorf("with a slot, granted %s: want that the second one has not lost its turn", got)
	}
}
