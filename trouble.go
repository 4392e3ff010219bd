package kagzi

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
)

// sessionTroubles adds to the report what the workers of this client cannot do although the database answers.
func (e *examination) sessionTroubles() {
	var all []string
	e.c.mu.Lock()
	sessions := slices.Collect(maps.Keys(e.c.sessions))
	e.c.mu.Unlock()
	for _, s := range sessions {
		for _, f := range s.failures.Now() {
			all = append(all, fmt.Sprintf("cannot %s for %s: %s", f.What, duration.About(time.Since(f.Since)), store.Reason(f.Err)))
		}
	}
	if all != nil {
		e.note("work", Degraded, "A worker of this process %s. It tries again.", text.List(all, fewNamed))
	}
}
