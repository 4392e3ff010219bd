package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

func serveBoth(t *testing.T, s *Store, req LimitRequest) LimitResult {
	t.Helper()
	out, err := s.Limits.Serve(t.Context(), []string{"b", "a"}, req)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// twoLimits returns a store whose limit a has one slot, and b two, which the first two of the runs have.
func twoLimits(t *testing.T) (s *Store, runs []*ClaimedRun) {
	t.Helper()
	s = open(t)
	setLimit(t, s, StepLimit{Name: "a", MaxRunning: 1})
	setLimit(t, s, StepLimit{Name: "b", MaxRunning: 2})
	runs = running(t, s, 4)
	askLimit(t, s, "b", runs[:2]...)
	return s, runs
}

func wantGranted(t *testing.T, answers []LimitAnswer, want string) {
	t.Helper()
	if got := fmt.Sprint(granted(answers)); got != want {
		t.Errorf("granted %s of %+v, want %s", got, answers, want)
	}
}

// A step takes all of its limits at once. While it waits for one, the slot of the narrower one is kept for it.
func TestSeveralLimits(t *testing.T) {
	t.Parallel()
	s, runs := twoLimits(t)
	both := placesOf(runs[2])
	out := serveBoth(t, s, LimitRequest{Asks: both})
	if a := out.Answers[0]; a.Granted || a.Waits != "b" || !a.At.IsZero() || !a.Kept {
		t.Fatalf("while b has no slot: %+v", a)
	}
	wantGranted(t, askLimit(t, s, "a", runs[3]), "[]")
	park(t, s, runs[2])
	wantCalled(t, serve(t, s, "b", LimitRequest{Leaves: placesOf(runs[0])}), runs, "[2]")
	woken := claim(t, s, request(1)).Runs
	for range 2 { // the first answer is lost
		out = serveBoth(t, s, LimitRequest{Asks: placesOf(woken...)})
		if a := out.Answers[0]; !a.Granted || out.Slots != 1 {
			t.Fatalf("with room in both: %+v", out)
		}
	}
	wantGranted(t, askLimit(t, s, "a", runs[3]), "[]")
	wantGranted(t, askLimit(t, s, "b", runs[3]), "[]")
	serveBoth(t, s, LimitRequest{Leaves: placesOf(woken...)})
	wantGranted(t, serveBoth(t, s, LimitRequest{Asks: placesOf(runs[3])}).Answers, "[0]")
	serveBoth(t, s, LimitRequest{Leaves: placesOf(runs...)})
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.limit_places`); n != 0 {
		t.Errorf("%d places are left", n)
	}
}

// The place of a step in each line is that of its first question, also if it has waited in another one.
func TestPlaceInALaterLine(t *testing.T) {
	t.Parallel()
	s, runs := twoLimits(t)
	askLimit(t, s, "a", runs[3])
	serveBoth(t, s, LimitRequest{Asks: placesOf(runs[2])})
	park(t, s, runs[2])
	later := running(t, s, 1)
	askLimit(t, s, "b", later...)
	park(t, s, later...)
	wantCalled(t, serve(t, s, "a", LimitRequest{Leaves: placesOf(runs[3])}), runs, "[2]")
	woken := claim(t, s, request(1)).Runs
	if a := serveBoth(t, s, LimitRequest{Asks: placesOf(woken...)}).Answers[0]; a.Granted || a.Waits != "b" {
		t.Fatalf("while b has no slot: %+v", a)
	}
	park(t, s, woken...)
	wantCalled(t, serve(t, s, "b", LimitRequest{Leaves: placesOf(runs[0])}), runs, "[2]")
}

// A slot is not kept for longer than a minute. The step keeps its place in the line.
func TestKeptSlotOfAStepThatDoesNotCome(t *testing.T) {
	t.Parallel()
	s, runs := twoLimits(t)
	serveBoth(t, s, LimitRequest{Asks: placesOf(runs[2])})
	park(t, s, runs[2])
	elapse(t, s, limitHeldFirst+time.Second)
	wantGranted(t, askLimit(t, s, "a", runs[3]), "[0]")
	wantCalled(t, serve(t, s, "b", LimitRequest{Leaves: placesOf(runs[0])}), runs, "[2]")
	woken := claim(t, s, request(1)).Runs
	if a := serveBoth(t, s, LimitRequest{Asks: placesOf(woken...)}).Answers[0]; a.Granted || a.Waits != "a" {
		t.Errorf("while a has no slot: %+v", a)
	}
	wantGranted(t, askLimit(t, s, "b", runs[0]), "[0]") // b keeps nothing for it
	serve(t, s, "b", LimitRequest{Leaves: placesOf(runs[:2]...)})
	park(t, s, woken[0])
	wantCalled(t, serve(t, s, "a", LimitRequest{Leaves: placesOf(runs[3])}), runs, "[2]")
	woken = claim(t, s, request(1)).Runs
	wantGranted(t, serveBoth(t, s, LimitRequest{Asks: placesOf(woken...)}).Answers, "[0]")
}

// A slot that is kept for a run is free as soon as the run is over, and so is one of a step that leaves.
func TestKeptSlotOfAStepThatLeaves(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]func(t *testing.T, s *Store, r *ClaimedRun){
		"RunIsOver": func(t *testing.T, s *Store, r *ClaimedRun) {
			exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'CANCELLED', finished_at = now(), lease = NULL,
				available_at = 'infinity' WHERE run_id = $1`, r.RunID)
		},
		"StepLeaves": func(t *testing.T, s *Store, r *ClaimedRun) {
			serveBoth(t, s, LimitRequest{Leaves: placesOf(r)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, runs := twoLimits(t)
			serveBoth(t, s, LimitRequest{Asks: placesOf(runs[2])})
			leaves(t, s, runs[2])
			wantGranted(t, askLimit(t, s, "a", runs[3]), "[0]")
		})
	}
}

// Of limits that were never set, none keeps anything, and the step waits for these first.
func TestSeveralLimitsOfWhichOneIsNotSet(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "a", MaxRunning: 1})
	runs := running(t, s, 2)
	if a := serveBoth(t, s, LimitRequest{Asks: placesOf(runs[0])}).Answers[0]; a.Granted || a.Waits != "b" {
		t.Errorf("while b is not set: %+v", a)
	}
	wantGranted(t, askLimit(t, s, "a", runs[1]), "[0]")
	serve(t, s, "a", LimitRequest{Leaves: placesOf(runs[1])})
	park(t, s, runs[0])
	setLimit(t, s, StepLimit{Name: "b"})
	wantCalled(t, serve(t, s, "b", LimitRequest{}), runs, "[0]")
	woken := claim(t, s, request(1)).Runs
	wantGranted(t, serveBoth(t, s, LimitRequest{Asks: placesOf(woken...)}).Answers, "[0]")
}

// Each limit has its own units of a step.
func TestUnitsOfSeveralLimits(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "a", MaxRunning: 3})
	setLimit(t, s, StepLimit{Name: "b", MaxRunning: 30})
	runs := running(t, s, 3)
	asks := placesOf(runs...)
	for i, units := range [][]int{{10, 2}, {15, 1}, {5, 1}} { // of b, and of a
		asks[i].Units = units
	}
	wantGranted(t, serveBoth(t, s, LimitRequest{Asks: asks}).Answers, "[0 1]")
	for _, c := range []struct {
		limit string
		want  int
	}{{"a", 3}, {"b", 25}} {
		if n := one[int](t, s.pool, `SELECT sum(units) FROM kagzi.limit_places WHERE state = 'RUNNING'
			AND limit_name = '`+c.limit+`'`); n != c.want {
			t.Errorf("%d units of %s are in use, want %d", n, c.limit, c.want)
		}
	}
	wantGranted(t, serveBoth(t, s, LimitRequest{Leaves: asks[1:2], Asks: asks[2:]}).Answers, "[0]")
	if a := serveBoth(t, s, LimitRequest{Asks: []Place{{RunID: runs[0].RunID, StepID: "step"}}}).Answers[0]; !a.Lost {
		t.Errorf("under another lease: %+v", a)
	}
}

// Limits are locked in the order of their names, whatever the order in the code: no two services wait for each other.
func TestLocksOfSeveralLimits(t *testing.T) {
	t.Parallel()
	s, runs := twoLimits(t)
	tx := begin(t, s)
	exec(t, tx, `SELECT FROM kagzi.limits WHERE limit_name = 'a' FOR UPDATE`)
	meetsLock(t, s, func(ctx context.Context) {
		if _, err := s.Limits.Serve(ctx, []string{"b", "a"}, LimitRequest{Asks: placesOf(runs[2])}); err != nil &&
			!pg.Locked(err) {
			t.Error(err)
		}
	}, func() {
		exec(t, tx, `SELECT FROM kagzi.limits WHERE limit_name = 'b' FOR UPDATE NOWAIT`)
		commit(t, tx)
	})
}

// A step that asks one limit without the other has lost its lease in between, and takes nothing.
func TestLeaseThatIsLostBetweenTwoLimits(t *testing.T) {
	t.Parallel()
	a, b := &limitLine{}, &limitLine{}
	v := service{lines: []*limitLine{a, b}}
	for _, ord := range []int{1, 2} {
		a.asks = append(a.asks, &limitStep{line: a, ord: ord})
	}
	b.asks = []*limitStep{{line: b, ord: 2}}
	v.dropLost()
	if len(a.asks) != 1 || a.asks[0].ord != 2 || len(b.asks) != 1 {
		t.Errorf("%d steps ask a, and %d ask b", len(a.asks), len(b.asks))
	}
}

// A step comes because one limit has called it, and waits for another. The next step of the first one has its turn at
// once.
func TestNextOfALineAfterAStepThatWaitsElsewhere(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "a", MaxRunning: 1})
	setLimit(t, s, StepLimit{Name: "b", Every: time.Hour})
	runs := running(t, s, 6)
	askLimit(t, s, "b", runs[:3]...) // the second one is called for the next token, and the third waits
	askLimit(t, s, "a", runs[3])
	serveBoth(t, s, LimitRequest{Asks: placesOf(runs[4])})
	askLimit(t, s, "a", runs[5])
	park(t, s, runs[4:]...)
	wantCalled(t, serve(t, s, "a", LimitRequest{Leaves: placesOf(runs[3])}), runs, "[4]")
	out := serveBoth(t, s, LimitRequest{Asks: placesOf(claim(t, s, request(1)).Runs...)})
	if a := out.Answers[0]; a.Granted || a.Waits != "b" {
		t.Fatalf("while b has no token: %+v", a)
	}
	wantCalled(t, out, runs, "[5]")
}

// The steps of two limits of one slot each end in turns, each after a minute. A step of both has its turn.
func TestStepOfTwoLimitsBesideLongSteps(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 2} {
		t.Run(fmt.Sprint("Slots", slots), func(t *testing.T) {
			t.Parallel()
			s := open(t)
			setLimit(t, s, StepLimit{Name: "a", MaxRunning: 1})
			setLimit(t, s, StepLimit{Name: "b", MaxRunning: slots})
			runs := running(t, s, 24)
			x, under, waiting := runs[0], map[string][]*ClaimedRun{}, map[string][]*ClaimedRun{
				"a": runs[1:12], "b": runs[12:],
			}
			next := func(limit string) {
				first := waiting[limit][0]
				if askLimit(t, s, limit, first)[0].Granted {
					under[limit], waiting[limit] = append(under[limit], first), waiting[limit][1:]
				}
			}
			next("a")
			for range slots {
				next("b")
			}
			serveBoth(t, s, LimitRequest{Asks: placesOf(x)})
			park(t, s, x)
			for i := range 20 {
				limit := []string{"b", "a"}[i%2]
				next(limit) // it waits
				elapse(t, s, 25*time.Second)
				var out LimitResult
				if ends := under[limit]; len(ends) > 0 {
					out, under[limit] = serve(t, s, limit, LimitRequest{Leaves: placesOf(ends[0])}), ends[1:]
				}
				if len(called(out, runs[:1])) > 0 {
					x = claim(t, s, request(1)).Runs[0]
					if serveBoth(t, s, LimitRequest{Asks: placesOf(x)}).Answers[0].Granted {
						return
					}
					park(t, s, x)
				}
				next(limit)
			}
			t.Error("the step had no turn in twenty turns of others")
		})
	}
}

// Of the steps that wait for a slot of a limit, only the first keeps its token of another.
func TestOnlyTheFirstKeepsItsToken(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "a", MaxRunning: 5})
	setLimit(t, s, StepLimit{Name: "b", Every: time.Millisecond})
	runs := running(t, s, 6)
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = now() + interval '1 hour' WHERE limit_name = 'b'`)
	for _, r := range runs[:5] {
		serveBoth(t, s, LimitRequest{Asks: placesOf(r)})
	}
	park(t, s, runs[:5]...)
	elapse(t, s, time.Hour)
	big := placesOf(runs[5])
	big[0].Units = []int{5}
	elapse(t, s, 11*time.Second)
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = now() WHERE limit_name = 'b'`)
	if a := serve(t, s, "a", LimitRequest{Asks: big}).Answers[0]; !a.Granted {
		t.Fatal(a)
	}
	serve(t, s, "b", LimitRequest{})
	for _, r := range claim(t, s, request(5)).Runs {
		serveBoth(t, s, LimitRequest{Asks: placesOf(r)})
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.limit_places WHERE limit_name = 'b' AND state = 'CALLED'
		AND due_at > now() + interval '2 s'`); n > 1 {
		t.Errorf("%d steps keep a token", n)
	}
}

// A step of two rates has as long to begin as one of the slower one.
func TestLateStepOfTwoRates(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "a", Every: time.Second})
	setLimit(t, s, StepLimit{Name: "b", Every: time.Millisecond})
	exec(t, s.pool, `UPDATE kagzi.limits SET next_at = clock_timestamp() + interval '150 ms' WHERE limit_name = 'a'`)
	a := serveBoth(t, s, LimitRequest{Asks: placesOf(running(t, s, 1)...)}).Answers[0]
	if !a.Granted || a.Late != LimitSoon {
		t.Fatalf("the answer is %+v", a)
	}
	if next := one[time.Time](t, s.pool, `SELECT next_at FROM kagzi.limits WHERE limit_name = 'b'`); next.Sub(a.At) !=
		time.Millisecond {
		t.Errorf("the faster rate has its next token %v after the step", next.Sub(a.At))
	}
}
