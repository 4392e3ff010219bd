package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A text of what a run waits for names at most mostNamed waits, and has about mostNamedBytes bytes: a Map may have
// thousands of branches, and a name within others is long.
const (
	mostNamed      = 3
	mostNamedBytes = 500
)

// waitingOnLocked returns what the execution waits for, for people: "timer cooling-off; signal approved; 2 more". Waits
// that end by their time come first, in the order of their times, and then the others in the order of their texts.
// Equal texts are named once. Waits of branches for one another are left out.
func (c *crew) waitingOnLocked() string {
	var waits []*wait
	for _, w := range c.waits {
		if !w.until.IsZero() || w.need > 0 {
			waits = append(waits, w)
		}
	}
	slices.SortStableFunc(waits, func(a, b *wait) int {
		if timed := !a.until.IsZero(); timed != !b.until.IsZero() {
			if timed {
				return -1
			}
			return 1
		}
		return cmp.Or(a.until.Compare(b.until), strings.Compare(a.why, b.why))
	})
	var texts []string
	seen, more, length := map[string]bool{}, 0, 0
	for _, w := range waits {
		if seen[w.why] {
			continue
		}
		seen[w.why] = true
		length += len(w.why)
		if len(texts) > 0 && (len(texts) == mostNamed || length > mostNamedBytes) {
			more++
		} else {
			texts = append(texts, w.why)
		}
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, "; ")
}
