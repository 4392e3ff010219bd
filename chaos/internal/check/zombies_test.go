package check_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// zombie is a run that another worker takes over, and whose step the first worker begins after that one has recorded
// it.
func zombie(late time.Duration) *world {
	w := good()
	w.start("x", "", nil)
	w.claim("1.1", "x", "X1")
	w.claim("2.1", "x", "X2")
	w.execute("2.1", "x", "s", 1, "X2", "one")
	w.now += late
	w.line("1.1", evidence.Begin, "x", "s", 1, "X1", "")
	w.ended()
	return w
}

func TestZombies(t *testing.T) {
	t.Parallel()
	t.Run("LongAfter", func(t *testing.T) {
		t.Parallel()
		exactly(t, zombie(2*time.Second), "S6")
	})
	t.Run("AtOnce", func(t *testing.T) {
		t.Parallel()
		exactly(t, zombie(0), "")
	})
}
