package engine

import (
	"maps"
	"strings"

	"github.com/kagzi/kagzi/store"
)

// historyOf returns a run's rows by step ID.
func historyOf(rows []*store.StepRow) map[string]*store.StepRow {
	if len(rows) == 0 {
		return nil
	}
	return maps.Collect(func(yield func(string, *store.StepRow) bool) {
		for _, r := range rows {
			if !yield(r.StepID, r) {
				return
			}
		}
	})
}

// ownOf returns, for each branch's prefix, the number of steps and branches in the history directly under it. A record
// whose name begins with '#' is neither: see [Patched].
func ownOf(history map[string]*store.StepRow) map[string]int {
	own, seen := map[string]int{}, map[string]bool{}
	for id := range history {
		for end := len(id); end > 0 && !seen[id[:end]]; {
			seen[id[:end]] = true
			start := strings.LastIndexByte(id[:end], '/') + 1
			if strings.HasPrefix(id[start:end], "#") || strings.HasSuffix(id[:end], store.CompensationID("")) {
				own[id[:start]] += 0 // the branch gets an entry all the same
			} else {
				own[id[:start]]++
			}
			end = start - 1
		}
	}
	return own
}
