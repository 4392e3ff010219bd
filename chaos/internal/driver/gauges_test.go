package driver

import (
	"math"
	"testing"
)

// TestSlope has series that grow and others that do not.
func TestSlope(t *testing.T) {
	t.Parallel()
	series := func(n int, f func(i float64) float64) (s []float64) {
		for i := range n {
			s = append(s, f(float64(i)))
		}
		return s
	}
	for name, c := range map[string]struct {
		f     func(i float64) float64
		n     int
		grows bool
	}{
		"a leak":                {func(i float64) float64 { return 100 + 10*i }, 200, true},
		"a slow leak":           {func(i float64) float64 { return 1000 + 10*i + 50*math.Sin(i) }, 400, true},
		"a constant":            {func(float64) float64 { return 1e6 }, 200, false},
		"a sawtooth":            {func(i float64) float64 { return 1000 * math.Mod(i, 10) }, 200, false},
		"warm-up":               {func(i float64) float64 { return 1000 * (1 - math.Exp(-i/10)) }, 200, false},
		"a peak at the end":     {func(i float64) float64 { return 100 + 1e6*math.Max(0, i-195) }, 200, false},
		"too few samples":       {func(i float64) float64 { return i * i * 1000 }, 20, false},
		"growth of little size": {func(i float64) float64 { return i / 10 }, 200, false},
	} {
		if from, to, grows := slope(series(c.n, c.f), 40); grows != c.grows {
			t.Errorf("%s: grows %t, from %v to %v", name, grows, from, to)
		}
	}
}
