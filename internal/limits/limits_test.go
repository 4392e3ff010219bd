package limits

import (
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

// All steps take their limits in one order: by name, and then those that are known to have tokens alone, the slowest
// first.
func TestOrderOfLimits(t *testing.T) {
	t.Parallel()
	want := []*Line{{name: "d"}, {name: "e"}, {name: "f"}, {name: "g"}, {name: "b"}, {name: "c"}, {name: "a"}}
	for i, out := range map[int]store.LimitResult{
		0: {Slots: 1, Every: time.Second}, 2: {Slots: 3}, 3: {}, 4: {Every: time.Hour}, 5: {Every: time.Second},
		6: {Every: time.Millisecond},
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
