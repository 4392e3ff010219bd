package duration

import (
	"fmt"
	"time"
)

// Check refuses a negative duration, one that Postgres would round to zero, and one that is too long. It
// allows zero, which means the field's default.
func Check(field string, d time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("kagzi: %s is %s: it must not be negative", field, d)
	case 0 < d && d < time.Microsecond:
		return fmt.Errorf("kagzi: %s is %d ns: a time.Duration counts nanoseconds; did you mean %[2]d*time.Second?",
			field, int64(d))
	}
	return CheckLength(field, d)
}

// CheckLength refuses a duration that is too long.
func CheckLength(field string, d time.Duration) error {
	if d > Longest {
		return fmt.Errorf("kagzi: %s is %s: give at most %s, a hundred years", field, Format(d), Format(Longest))
	}
	return nil
}
