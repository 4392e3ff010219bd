package limits

import (
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

// All steps take their limits in one order: those with slots, or of which nothing is known yet, by name, then those
// with tokens alone, the slowest first.
func TestOrderOfLimits(t *testing.T) {
	t.Parallel()
	want := []*Line{{name: "d"}, {name: "e"}, {name: "f"}, {name: "b"}, {name: "c"}, {name: "a"}, {name: "g"}}
	for i, out := range map[int]store.LimitResult{
		0: {Slots: 1, Every: time.Second}, 2: {Slots: 3}, 3: {Every: time.Hour}, 4: {Every: time.Second},
		5: {Every: time.Millisecond}, 6: {},
	} {
		want[i].served(out)
	}
	got := slices.Clone(want)
	slices.SortFunc(got, func(a, b *Line) int { return -Compare(a, b) })
	slices.SortFunc(got, Compare)
	if !slices.Equal(got, want) {
		for _, l := range got {
			t.Error(l.name)
		}
	}
}
