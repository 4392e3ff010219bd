package replay

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/waits"
)

// A run's row has at most mostNamed waits, whose texts have about mostNamedBytes bytes: a Map may have thousands of
// branches, and a name within others is long.
const (
	mostNamed      = 3
	mostNamedBytes = 500
)

// waitingOnLocked returns what the execution waits for. Waits that end by their time come first, in the order of their
// times, and then the others in the order of their texts. Equal texts are named once. Waits of branches for one another
// are left out.
func (c *crew) waitingOnLocked() (out waits.List) {
	var all waits.List
	for _, w := range c.waits {
		if !w.until.IsZero() || w.need > 0 {
			what := w.what
			if !w.looks {
				what.Until = w.until
			}
			all = append(all, what)
		}
	}
	slices.SortStableFunc(all, func(a, b waits.Wait) int {
		if timed := !a.Until.IsZero(); timed != !b.Until.IsZero() {
			if timed {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.String(), b.String()))
	})
	seen, more, length := map[string]bool{}, 0, 0
	for _, w := range all {
		text := w.String()
		if seen[text] {
			continue
		}
		seen[text] = true
		length += len(text)
		if len(out) > 0 && (len(out) == mostNamed || length > mostNamedBytes) {
			more++
		} else {
			out = append(out, w)
		}
	}
	if more > 0 {
		out = append(out, waits.Wait{Kind: waits.More, Count: more})
	}
	return out
}
