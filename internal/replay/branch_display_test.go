package replay

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type shownAttempts []int

func (s *shownAttempts) show(a attemptUnderWay) { *s = append(*s, a.number) }

// A display shows only the attempts that take long, each once, although a call of fire may come for an earlier one.
func TestDisplayShowsLongAttemptsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown shownAttempts
		var d display
		attempt := func(number int, length time.Duration) {
			d.begin(attemptUnderWay{number: number}, time.Now(), &shown)
			d.fire() // the timer of the attempt before
			time.Sleep(length)
			synctest.Wait()
			d.end()
			d.fire()
		}
		attempt(1, visibleAfter-1)
		attempt(2, visibleAfter)
		attempt(3, visibleAfter-1)
		attempt(4, 3*visibleAfter)
		time.Sleep(2 * visibleAfter)
		if want := []int{2, 4}; !slices.Equal(shown, want) {
			t.Errorf("shown: %v, want %v", shown, want)
		}
	})
}
