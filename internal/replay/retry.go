package replay

import (
	"math/rand/v2"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
)

// A RetryPolicy decides whether another attempt follows, and when.
type RetryPolicy interface {
	Allows(attempt int, last kind.Kind) bool
	Backoff(attempt int, random float64) time.Duration // random is in [0, 1)
}

// nextAttempt returns the pause before another attempt after a failure of the class, if the policy allows one after so
// many.
func nextAttempt(c failure.Class, p RetryPolicy, made int) (pause time.Duration, follows bool) {
	if c.Permanent || !p.Allows(made, c.Kind) {
		return 0, false
	}
	return max(p.Backoff(made, rand.Float64()), c.After), true
}
