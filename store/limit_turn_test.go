package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// A step with several limits begins when all of them let it begin. Else it waits for the first that lacks room, those
// with the fewest slots first: what these have is kept for it, and others keep nothing.
func TestTurnsOfSeveralLimits(t *testing.T) {
	t.Parallel()
	type line struct {
		slots, free, called int // free: of the slots
		every, nextAt       time.Duration
		older               bool // a step waits that has asked before
	}
	few, many := line{slots: 1, free: 1}, line{slots: 5, free: 5}
	busy, full := line{slots: 1}, line{slots: 5}
	kept := line{slots: 1, free: 1, called: 1}
	unset := line{slots: 0, free: -1}
	queue := line{every: time.Minute, called: 2}
	slow, late := line{every: time.Minute}, line{every: time.Minute, nextAt: 5 * time.Second}
	before := func(l line) line { l.older = true; return l }
	for _, c := range []struct {
		name  string
		lines []line
		asks  string // the states of a step's places in the lines: "new", "-", "called", "late", "waiting"
		want  string // what becomes of them
	}{
		{"RoomInAll", []line{few, many}, "- -", "begins begins"},
		{"NoRoomInTheLarger", []line{few, full}, "- -", "kept60 waits"},
		{"NoRoomInTheSmaller", []line{busy, many}, "- -", "waits stays"},
		{"OrderIsBySlots", []line{full, few}, "- -", "waits kept60"},
		{"UnlimitedComesLast", []line{slow, busy}, "- -", "stays waits"},
		{"NoRoomInBoth", []line{busy, full}, "- -", "waits stays"},
		{"CalledByTheSmaller", []line{kept, full}, "called waiting", "kept60 waits"},
		{"CalledByTheLarger", []line{kept, many}, "called called", "begins begins"},
		{"CalledByTheLargerAfterThat", []line{few, many}, "late called", "begins begins"},
		{"CalledByTheLargerTooLate", []line{busy, many}, "late called", "waits leaves"},
		{"WaitsInOne", []line{few, full}, "waiting waiting", "kept60 waits"},
		{"TokenLater", []line{few, late}, "- -", "called 4800 called 4800"},
		{"TwoTokens", []line{slow, late}, "- -", "called 4800 called 4800"},
		{"TwoTokensTheOtherWay", []line{late, slow}, "- -", "called 4800 called 4800"},
		{"TokenMuchLater", []line{few, {every: time.Hour, nextAt: time.Hour}}, "- -", "stays called 3599800"},
		{"TwoTokensNow", []line{slow, slow}, "- -", "begins begins"},
		{"NotSet", []line{few, unset}, "- -", "stays waits"},
		{"FirstOfARateKeepsItsSlot", []line{many, queue}, "- -, - -", "kept60 waits, stays waits"},
		{"FirstOfSlotsKeepsItsToken", []line{busy, queue}, "- called, - called", "waits kept60, waits leaves"},
		{"TokenOfAnotherIsNotKept", []line{busy, queue}, "- -", "waits stays"},
		{"BehindOthersOfTheLarger", []line{few, before(full)}, "- -", "kept10 waits"},
		{"BehindOthersOfARate", []line{many, before(queue)}, "- -", "stays waits"},
		{"BehindOthersOfSlots", []line{before(busy), queue}, "- called", "waits leaves"},
		{"SecondOfTwo", []line{few, many}, "- -, - -", "begins begins, waits stays"},
		{"OneSlotIsKeptForOne", []line{few, full}, "- -, - -", "kept60 waits, waits stays"},
		{"NextHasRoom", []line{many, many, busy}, "- - -, - - -", "stays stays waits, stays stays waits"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			var lines []*limitLine
			for _, l := range c.lines {
				one := &limitLine{
					slots: l.slots, free: l.free, running: l.slots - l.free, called: l.called, every: l.every,
					now: now, nextAt: now.Add(l.nextAt),
				}
				switch {
				case l.free < 0:
					one.free, one.running, one.unset = 0, 0, true
				case l.slots == 0:
					one.free = 1 << 40
				}
				if l.older {
					one.head = []*limitStep{{line: one, askedAt: now.Add(-time.Hour)}}
				}
				lines = append(lines, one)
			}
			for n, ask := range words(c.asks) {
				id := uuid.New()
				for i, had := range strings.Fields(ask) {
					s := &limitStep{line: lines[i], units: 1, keeps: 1, ord: n + 1, askedAt: now.Add(-time.Second)}
					s.RunID, s.dueAt = id, now.Add(time.Second)
					switch had {
					case "waiting":
						s.had = placeWaiting
					case "called":
						s.had = placeCalled
					case "late":
						s.had, s.dueAt = placeCalled, now.Add(-time.Second)
					}
					lines[i].asks = append(lines[i].asks, s)
				}
			}
			serveLines(lines)
			var all []string
			for n := range lines[0].asks {
				var got []string
				for _, l := range lines {
					got = append(got, fate(l.asks[n]))
				}
				all = append(all, strings.Join(got, " "))
			}
			if got := strings.Join(all, ", "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// fate describes what becomes of a place of a step with several limits.
func fate(s *limitStep) string {
	switch {
	case s.state == "":
		return "stays"
	case s.state == placeRunning:
		return "begins"
	case s.state == placeWaiting:
		return "waits"
	case s.state == placeLeft:
		return "leaves"
	case !s.isHeld():
		return fmt.Sprint("called ", s.callAt.Sub(s.line.now).Milliseconds())
	}
	return fmt.Sprintf("kept%.0f", s.dueAt.Sub(s.line.now).Seconds())
}
