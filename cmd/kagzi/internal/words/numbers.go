package words

import (
	"fmt"
	"strconv"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

// Plural counts things: "1 run", "2 runs".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// OrMore writes a number that may be a part of what there is.
func OrMore(n int, more bool) string {
	if more {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}

// Took returns how long an attempt has taken, or takes by now if it is under way.
func Took(on *screen.Screen, s kagzi.StepAttempt) string {
	end := s.EndedAt
	if end.IsZero() {
		end = on.Now()
	}
	if s.StartedAt.IsZero() || end.Before(s.StartedAt) || s.Status == kagzi.StatusPending {
		return "-"
	}
	return screen.Short(end.Sub(s.StartedAt))
}
