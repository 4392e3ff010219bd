package outage

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An outage that fails four statements a second is logged at once, then once a minute with the number of failures, and
// so is its end. A database that is unavailable now and then does not fill the log either.
func TestOutagesAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	for _, flapping := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			logged := &bytes.Buffer{}
			over := 0
			o := New(slog.New(slog.NewTextHandler(logged, nil)), func() { over++ })
			o.End() // of nothing
			for range 6 * 60 * 4 {
				o.Begin(errors.New("oops"))
				if !o.UnderWay() {
					t.Fatal("it is not under way")
				}
				time.Sleep(125 * time.Millisecond)
				if flapping {
					o.End()
				}
				time.Sleep(125 * time.Millisecond)
			}
			o.End()
			o.End()
			text := logged.String()
			begins, times, ends := strings.Count(text, "does not answer"), strings.Count(text, "times=240"),
				strings.Count(text, "kagzi: the database is back")
			if want := map[bool]int{true: 6, false: 1}[flapping]; begins != 6 || times != 5 || ends != want {
				t.Errorf("flapping %t: logged %d beginnings, %d numbers of failures, %d ends; want 6, 5 and %d:\n%s",
					flapping, begins, times, ends, want, text)
			}
			if want := map[bool]int{true: 6 * 60 * 4, false: 1}[flapping]; over != want {
				t.Errorf("flapping %t: the function for the end was called %d times, want %d", flapping, over, want)
			}
		})
	}
}
