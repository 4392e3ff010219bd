package store

import (
	"fmt"
	"testing"
	"time"
)

// unitsOf gives each of the places a number of units.
func unitsOf(places []Place, units ...int) []Place {
	for i := range places {
		places[i].Units = units[i]
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
		return one[time.Time](t, s.pool, `SELECT next_at FROM kagzi.limits`).Sub(first.At)
	}
	if d := next(); d != 10*time.Minute {
		t.Errorf("the next token comes after %v, want ten minutes", d)
	}
	l.RetryAfter = true
	setLimit(t, s, l)
	serve(t, s, "api", LimitRequest{Leaves: asks, Pause: time.Hour})
	l.Every = time.Millisecond
	setLimit(t, s, l)
	if d := next(); d < time.Hour {
		t.Errorf("the next token comes after %v, and the error asks for an hour", d)
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
	setLimit(t, s, StepLimit{Name: "api", Every: 2 * 365 * 24 * time.Hour})
	serve(t, s, "api", LimitRequest{Asks: asks[1:]})
}
