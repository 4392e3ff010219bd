package cron_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/cron"
)

// plain is an expression that the reference can read: digits, without names and days of a special kind.
var plain = regexp.MustCompile(`^((\*|\d{1,2}(-\d{1,2})?)(/\d{1,2})?(,(\*|\d{1,2}(-\d{1,2})?)(/\d{1,2})?)*( |$)){5}$`)

// Next and Between find the ticks that the reference finds by looking at each second or minute, around a change of the
// clocks. The expression is the fuzzer's own, or made from its seed.
func FuzzNext(f *testing.F) {
	f.Add("30 2 * * *", byte(1), byte(0), uint64(1))
	f.Add("*/15 0-3,5/4 * * *", byte(4), byte(1), uint64(2))
	f.Add("59 23 31 12 *", byte(18), byte(2), uint64(3))
	f.Add("", byte(9), byte(0), uint64(4))
	f.Add("0 0 1 * 1", byte(15), byte(0), uint64(5))
	known := map[string][]time.Time{} // the search for the changes of a year takes longer than the rest
	f.Fuzz(func(t *testing.T, expr string, place, nth byte, seed uint64) {
		c := changes[int(place)%len(changes)]
		loc := zone(t, c.zone)
		name := fmt.Sprint(c)
		if known[name] == nil {
			known[name] = moments(loc, c.year)
		}
		all := known[name]
		r := newRandom(seed)
		if _, err := cron.Parse(expr, loc); err != nil || !plain.MatchString(expr) {
			expr = fmt.Sprintf("%s %s %s %s", r.clock(), r.day(), r.month(), r.weekday())
			if _, err := cron.Parse(expr, loc); err != nil {
				return // it never fires
			}
		}
		a := around{change: all[int(nth)%len(all)], loc: loc}
		a.check(t, r, expr)
	})
}
