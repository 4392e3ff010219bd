package store

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// A lineCase is a limit, and the steps that ask and wait, each described by words: had what, of how many units if not
// one, and when it asked, in milliseconds before now.
type lineCase struct {
	name    string
	slots   int // free ones; zero: the limit has none
	running int // those that steps have
	every   time.Duration
	nextAt  time.Duration // from now
	called  int
	more    bool
	asks    string // "new", "new*3", "waiting 500", "called 500", "running"
	head    string // "comes 500", "paused 500", "over 500"
	want    string // of the asks, "|", and of the head
	short   bool
}

// Steps begin at the times of their tokens, are called for a time, or wait.
func TestTurnsOfALimit(t *testing.T) {
	t.Parallel()
	for _, c := range []lineCase{
		{name: "Slots", slots: 2, asks: "new, new, new", want: "begins 0, begins 0, waits"},
		{name: "NoLimit", asks: "new, new", want: "begins 0, begins 0"},
		{name: "HeadFirst", slots: 1, asks: "new", head: "comes 5", want: "waits | called 0"},
		{name: "HereAsLongAsIt", slots: 1, asks: "waiting 9", head: "comes 5", want: "begins 0 | stays"},
		{name: "Paused", slots: 1, asks: "new", head: "paused 9, paused 8", want: "begins 0 | passed, passed"},
		{name: "PausedAlone", slots: 1, head: "paused 9, paused 8", want: " | passed, stays"},
		{name: "Over", slots: 1, asks: "new", head: "over 9", want: "begins 0 | dropped"},
		{name: "Kept", slots: 2, called: 1, asks: "new, new", want: "begins 0, waits"},
		{name: "CalledComesBeforeOthers", slots: 1, called: 1, asks: "new, called 9", want: "waits, begins 0"},
		{name: "LateOneTakesWhatIsKept", slots: 1, called: 1, asks: "late 9", want: "begins 0"},
		{name: "NoRoom", slots: 1, called: 1, asks: "called 9, late 10, new", want: "waits, begins 0, waits"},
		{name: "Repeated", slots: 1, asks: "running, new", want: "stays, begins 0"},
		{
			name: "Tokens", every: 90 * time.Millisecond, asks: "new, new, new, new, new",
			want: "begins 0, begins 90, begins 180, called 70, called 160",
		},
		{
			name: "TokensOfASecond", every: 400 * time.Millisecond, asks: "new, new, new, new",
			want: "begins 0, called 200, called 600, waits",
		},
		{name: "NextToken", every: time.Hour, nextAt: time.Hour, asks: "new, new", want: "called 3599800, waits"},
		{name: "NextIsCalled", every: time.Hour, nextAt: time.Hour, called: 1, asks: "new", want: "waits"},
		{
			name: "Burst", every: time.Hour, nextAt: -2 * time.Hour, asks: "new, new, new, new",
			want: "begins 0, begins 0, begins 0, called 3599800",
		},
		{
			name: "CallsComeBeforeNewOnes", every: 100 * time.Millisecond, called: 1, asks: "new, new, new",
			want: "begins 0, begins 100, called 100",
		},
		{
			name: "Stopped", nextAt: time.Minute, asks: "new, new", head: "comes 5",
			want: "waits, waits | called 59800",
		},
		{
			name: "SlotsAndTokens", slots: 5, every: time.Minute, asks: "new, new, new",
			want: "begins 0, called 59800, waits",
		},
		{
			name: "HeadIsShort", slots: 2, more: true, asks: "new", head: "paused 9, comes 8, paused 7",
			want: "begins 0 | passed, called 0, passed", short: true,
		},
		{
			name: "HeadIsLongEnough", slots: 1, more: true, asks: "new", head: "paused 9, comes 8",
			want: "waits | passed, called 0",
		},
		{
			name: "HereAtTheHead", slots: 1, more: true, asks: "waiting 9", head: "comes 9",
			want: "begins 0 | stays",
		},
		{name: "UnitsAreSlots", slots: 5, asks: "new*2, new*3, new", want: "begins 0, begins 0, waits"},
		{name: "NoneOvertakesALargeStep", slots: 2, running: 1, asks: "new*3, new", want: "waits, waits"},
		{name: "LargeStepAtTheHead", slots: 2, running: 1, asks: "new", head: "comes*3 5", want: "waits | stays"},
		{name: "LargerThanTheLimitAlone", slots: 2, asks: "new*3, new", want: "begins 0, waits"},
		{name: "LargerThanTheLimitBesideOthers", slots: 2, running: 1, asks: "new*3", want: "waits"},
		{name: "LargerThanTheLimitBesideACall", slots: 2, called: 1, asks: "new*3", want: "waits"},
		{name: "LargeCallComes", slots: 3, called: 3, asks: "new, called*3 9", want: "waits, begins 0"},
		{name: "LargeCallIsKept", slots: 3, called: 3, asks: "new", want: "waits"},
		{
			name: "UnitsAreTokens", every: 10 * time.Millisecond, asks: "new*10, new*20, new",
			want: "begins 0, begins 100, called 100",
		},
		{
			name: "LargeStepNeedsOneTokenToBegin", every: time.Hour, asks: "new*3, new, new",
			want: "begins 0, called 10799800, waits",
		},
		{
			name: "UnitsOfABurst", every: time.Hour, nextAt: -4 * time.Hour, asks: "new*3, new, new*9",
			want: "begins 0, begins 0, begins 0",
		},
		{
			name: "LargeHeadIsLongEnough", slots: 4, more: true, asks: "new", head: "comes*4 9",
			want: "waits | called 0",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			l := limitLine{
				now: now, nextAt: now.Add(c.nextAt), every: c.every, free: c.slots, running: c.running,
				called: c.called, more: c.more,
			}
			if c.slots == 0 {
				l.free = 1 << 40
			}
			at := map[string]Place{} // a step that asks and is at the head has one time
			step := func(text string) (s *limitStep, kind string) {
				var ago int
				fmt.Sscan(text, &kind, &ago)
				s = &limitStep{line: &l, askedAt: now.Add(-time.Duration(ago) * time.Millisecond)}
				kind, units, _ := strings.Cut(kind, "*")
				s.units, _ = strconv.Atoi(cmp.Or(units, "1"))
				s.keeps = s.units
				s.RunID = uuid.New()
				if _, when, ok := strings.Cut(text, " "); ok {
					if old, ok := at[when]; ok {
						s.Place.RunID = old.RunID
					}
					at[when] = s.Place
				}
				return s, kind
			}
			for i, text := range words(c.asks) {
				s, kind := step(text)
				s.ord = i + 1
				switch kind {
				case "waiting":
					s.had = placeWaiting
				case "called":
					s.had, s.dueAt = placeCalled, now.Add(time.Second)
				case "late":
					s.had, s.dueAt = placeCalled, now.Add(-time.Second)
				case "running":
					s.had = placeRunning
				}
				l.asks = append(l.asks, s)
			}
			for _, text := range words(c.head) {
				s, kind := step(text)
				s.had, s.comes, s.over = placeWaiting, kind == "comes", kind == "over"
				l.head = append(l.head, s)
			}
			if short := serveLines([]*limitLine{&l}); short != c.short {
				t.Errorf("short: %t", short)
			}
			got := outcomes(&l, l.asks)
			if c.head != "" {
				got += " | " + outcomes(&l, l.head)
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func words(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ", ")
}

// outcomes describes the ends of steps, with times in milliseconds from now.
func outcomes(l *limitLine, steps []*limitStep) string {
	var out []string
	for _, s := range steps {
		text := "stays"
		switch {
		case s.over:
			text = "dropped"
		case s.state == placeRunning:
			text = fmt.Sprint("begins ", s.dueAt.Sub(l.now).Milliseconds())
		case s.state == placeCalled && !s.dueAt.After(l.now):
			text = "passed"
		case s.state == placeCalled:
			text = fmt.Sprint("called ", s.callAt.Sub(l.now).Milliseconds())
		case s.state == placeWaiting && s.ord > 0:
			text = "waits"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}
