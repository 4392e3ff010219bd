package replay

import (
	"maps"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/internal/text"
)

// forgets returns the IDs of the failures that the run's next attempt forgets and retries. err is the error that the
// function returned; the execution's goroutines are gone.
//
// The next attempt forgets the failures in err's chain, and those that no operation followed. With a failure it forgets
// the failures of the branches that contain it, and of their groups. The function has handled all other failures: they
// stand. Otherwise the next attempt would take another path than the recorded one. See doc_steps.go.
//
// again says that the next attempt follows by itself: then the failures of steps with AtMostOnce stand, too.
func (c *crew) forgets(err error, again bool) []string {
	ids, kept := map[string]bool{}, map[string]bool{}
	c.mu.Lock()
	failures, branches := c.knownLocked()
	for _, f := range failures {
		f.keptLocked(kept)
	}
	c.mu.Unlock()
	for _, f := range failures {
		f.addTo(ids)
	}
	c.env.addChain(ids, err, branches)
	maps.DeleteFunc(ids, func(id string, _ bool) bool { return again && kept[id] })
	// A StepError that the application made itself may have any text.
	maps.DeleteFunc(ids, func(id string, _ bool) bool { return id == "" || !text.IsSane(id) })
	for id := range maps.Clone(ids) {
		for end := strings.LastIndexByte(id, '/'); end > 0; end = strings.LastIndexByte(id[:end], '/') {
			ids[id[:end]] = true
		}
	}
	return slices.Sorted(maps.Keys(ids))
}
