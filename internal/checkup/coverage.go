package checkup

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store/inspect"
)

// Stranded returns the active work whose version no live worker of its queue has a handler for.
func Stranded(ctx context.Context, v *inspect.View, db pg.DB) ([]inspect.ActiveWork, error) {
	active, err := v.ActiveWork(ctx)
	if err != nil || len(active) == 0 {
		return nil, err
	}
	workers, err := v.LiveWorkers(ctx, db, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	live := fleet{}
	for _, w := range workers {
		if w.Live() {
			live.add(w)
		}
	}
	var stranded []inspect.ActiveWork
	for _, a := range active {
		if !live[route{a.Queue, a.Type}].has(a.Version) {
			stranded = append(stranded, a)
		}
	}
	return stranded, nil
}

// A route is a queue and a workflow that has runs in it.
type route struct{ queue, workflow string }

// A fleet holds the workers for each route.
type fleet map[route]*coverage

// A coverage describes the workers that execute a route.
type coverage struct {
	workers  int
	versions map[int]bool // that at least one of the workers has a handler for
}

// has reports whether one of the workers can execute the version; zero stands for a run that has none yet.
func (c *coverage) has(version int) bool {
	return c != nil && (version == 0 || c.versions[version])
}

func (f fleet) add(w inspect.LiveWorker) {
	for _, queue := range w.Queues {
		f.addTo(queue, w)
	}
}

func (f fleet) addTo(queue string, w inspect.LiveWorker) {
	for _, t := range w.Types {
		r := route{queue, t}
		if f[r] == nil {
			f[r] = &coverage{versions: map[int]bool{}}
		}
		f[r].workers++
	}
	for _, h := range w.Handlers {
		slash := strings.LastIndexByte(h, '/') // the workflow's name may contain others
		if slash < 0 {
			continue
		}
		if c := f[route{queue, h[:slash]}]; c != nil {
			version, _ := strconv.Atoi(h[slash+1:]) // a worker wrote it, so it is a number
			c.versions[version] = true
		}
	}
}

// lack returns a part of a sentence, in brackets, that says why no worker takes the runs of a route that are of these
// versions, and of those that have none yet: "" if there is no worker at all.
func (f fleet) lack(r route, versions []int) string {
	if c := f[r]; c != nil {
		return fmt.Sprintf(" (they are of %s, and its workers have %s)", versionsText(versions),
			versionsText(slices.Sorted(maps.Keys(c.versions))))
	}
	var of string
	if len(versions) > 0 {
		of = "they are of " + versionsText(versions) + ", and "
	}
	for other := range f {
		if other.queue == r.queue {
			return " (" + of + "the workers of the queue do not have the workflow)"
		}
	}
	switch {
	case len(f) > 0:
		return " (" + of + "no worker has the queue)"
	case of != "":
		return " (they are of " + versionsText(versions) + ")"
	}
	return ""
}

// versionsText returns "version 3", "versions 1, 2" or "no version".
func versionsText(versions []int) string {
	text := strings.ReplaceAll(strings.Trim(fmt.Sprint(versions), "[]"), " ", ", ")
	switch len(versions) {
	case 0:
		return "no version"
	case 1:
		return "version " + text
	}
	return "versions " + text
}
