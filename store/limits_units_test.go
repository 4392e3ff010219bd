package store

import (
	"fmt"
	"testing"
	"time"
)

// unitsOf gives each of the places a number of units.
func unitsOf(places []Place, units ...int) []Place {
	for i := range places {
		places[i].Units = units[i : i+1]
	}
	return places
}

// Steps of several units take so many slots. None overtakes one that does not fit, and one that wants more slots than
// there are begins alone.
func TestUnitsAreSlotsOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 5})
	runs := running(t, s, 4)
	all := unitsOf(placesOf(runs...), 3, 3, 1, 9)
	want := func(req LimitRequest, want string) {
		t.Helper()
		if got := fmt.Sprint(granted(serve(t, s, "api", req).Answers)); got != want {
			t.Errorf("granted %s, want %s", got, want)
		}
	}
	want(LimitRequest{Asks: all[:3]}, "[0]")
	want(LimitRequest{Asks: all[2:3]}, "[]") // there is a slot for it, and the second one is before it
	want(LimitRequest{Leaves: all[:1], Asks: all[1:]}, "[0 1]")
	want(LimitRequest{Leaves: all[1:2], Asks: all[3:]}, "[]") // the third one has a slot
	want(LimitRequest{Leaves: all[2:3], Asks: append(all[3:], all[0])}, "[0]")
	want(LimitRequest{Leaves: all[3:], Asks: all[:1]}, "[0]")
}

// A step of several units holds up the next one for so many tokens, by the rate that is set meanwhile.
func TestUnitsAreTokensOfALimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: 100 * time.Millisecond})
	runs := running(t, s, 3)
	asks := unitsOf(placesOf(runs...), 30, 2, 1)
	first := serve(t, s, "api", LimitRequest{Asks: asks[:1]}).Answers[0]
	second := serve(t, s, "api", LimitRequest{Asks: asks[1:2]}).Answers[0]
	if !first.Granted || second.Granted {
		t.Fatalf("the answers are %+v and %+v, want that the first one begins", first, second)
	}
	debt := func(want time.Duration) {
		t.Helper()
		if got := one[time.Time](t, s.pool, `SELECT next_at FROM kagzi.limits`).Sub(first.At); got != want {
			t.Errorf("the next token comes after %v, want %v", got, want)
		}
	}
	debt(3 * time.Second)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Hour})
	debt(30 * time.Hour)
	setLimit(t, s, StepLimit{Name: "api", Every: time.Millisecond})
	debt(30 * time.Millisecond)
}

// A pause that an error has asked for stays as long as it is, whatever rate is set meanwhile. It is told apart from a
// wait for many tokens.
func TestPauseBesideManyTokens(t *testing.T) {
	t.Parallel()
	s := open(t)
	l := StepLimit{Name: "api", Every: time.Minute, RetryAfter: true}
	setLimit(t, s, l)
	runs := running(t, s, 1)
	asks := unitsOf(placesOf(runs...), 600)
	first := serve(t, s, "api", LimitRequest{Asks: asks}).Answers[0]
	l.Every, l.RetryAfter = time.Second, false
	setLimit(t, s, l) // no error has paused it
	next := func() time.Duration {
		return one[time.Time](t, s.pool, `SELECT GREATEST(next_at, paused_until) FROM kagzi.limits`).Sub(first.At)
	}
	if d := next(); d != 10*time.Minute {
		t.Errorf("the next token comes after %v, want ten minutes", d)
	}
	l.RetryAfter = true
	setLimit(t, s, l)
	serve(t, s, "api", LimitRequest{Leaves: asks, Pause: time.Hour})
	for _, every := range []time.Duration{time.Millisecond, time.Second} {
		l.Every = every
		setLimit(t, s, l)
		if d := next(); d < time.Hour || d > time.Hour+time.Minute {
			t.Errorf("with a token each %v, the next one comes after %v, and the error asks for an hour", every, d)
		}
	}
	l.RetryAfter = false
	setLimit(t, s, l)
	if d := next(); d != 10*time.Minute {
		t.Errorf("without the pause, the next token comes after %v, want ten minutes", d)
	}
}

// While a step waits for the tokens of the one before it, it is called for its own, also if that is far behind all that
// there is room for.
func TestNextStepIsCalledAfterManyTokens(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: 600 * time.Microsecond})
	runs := running(t, s, 3)
	asks := unitsOf(placesOf(runs...), 3000, 3000, 3000)
	first := serve(t, s, "api", LimitRequest{Asks: asks}).Answers
	if !first[0].Granted || first[1].Granted || first[1].At.Sub(first[0].At) < time.Second || !first[2].At.IsZero() {
		t.Fatalf("the answers are %+v: want that the first step begins, and the second has a time", first)
	}
	park(t, s, runs[2])
	elapse(t, s, 1800*time.Millisecond)
	out := serve(t, s, "api", LimitRequest{Asks: asks[1:2]})
	if !out.Answers[0].Granted {
		t.Errorf("the second step: %+v", out.Answers[0])
	}
	wantCalled(t, out, runs, "[2]")
}

// A step does not overtake one that waits, however many slots those have that were called.
func TestNoneOvertakesBehindManyUnits(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", MaxRunning: 5000})
	runs := running(t, s, 4)
	asks := unitsOf(placesOf(runs...), 5000, 2000, 4000, 1)
	serve(t, s, "api", LimitRequest{Asks: asks[:3]})
	park(t, s, runs[1])
	out := serve(t, s, "api", LimitRequest{Leaves: asks[:1]})
	wantCalled(t, out, runs, "[1]")
	if got := serve(t, s, "api", LimitRequest{Asks: asks[3:]}).Answers; got[0].Granted {
		t.Error("a step of one unit has overtaken one of 4000")
	}
}

// A step that asks another limit by now, because its code is new, keeps what it has there.
func TestPlaceThatHasMovedToAnotherLimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "a", MaxRunning: 1})
	setLimit(t, s, StepLimit{Name: "b", MaxRunning: 1})
	runs := running(t, s, 2)
	askLimit(t, s, "a", runs...)
	if got := fmt.Sprint(granted(askLimit(t, s, "b", runs[1]))); got != "[0]" {
		t.Fatalf("b grants %s", got)
	}
	exec(t, s.pool, callRuns, calledColumns.args(s.namespace, []*limitStep{{Place: placesOf(runs[1])[0]}}, "a")...)
	state := one[string](t, s.pool, `SELECT state FROM kagzi.limit_places WHERE limit_name = 'b'`)
	if state != placeRunning {
		t.Errorf("the place in b is %s", state)
	}
}

// Times that are too far away for the database are cut.
func TestMillionUnitsOfAYearEach(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, StepLimit{Name: "api", Every: 365 * 24 * time.Hour})
	runs := running(t, s, 2)
	asks := unitsOf(placesOf(runs...), 1_000_000, 1_000_000)
	out := serve(t, s, "api", LimitRequest{Asks: asks})
	if got := fmt.Sprint(granted(out.Answers)); got != "[0]" {
		t.Errorf("granted %s", got)
	}
	for _, every := range []time.Duration{2 * 365 * 24 * time.Hour, time.Hour, time.Second} {
		setLimit(t, s, StepLimit{Name: "api", Every: every})
		serve(t, s, "api", LimitRequest{Asks: asks[1:]})
	}
	if d := time.Until(one[time.Time](t, s.pool, `SELECT next_at FROM kagzi.limits`)); d < 999_000*time.Second {
		t.Errorf("the next token comes in %v, want after a million seconds", d)
	}
}
