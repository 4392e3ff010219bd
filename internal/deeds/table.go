package deeds

import (
	"slices"
	"strings"
)

// table has all deeds.
var table = slices.Concat(ofRuns(), ofWorkflows(), ofSchedules(), ofWorkers(), ofLimits(), ofTargets(), ofConsumers())

// All returns all deeds, those of runs first.
func All() []Deed { return slices.Clone(table) }

// Find returns the deed with the key.
func Find(key string) Deed {
	verb, object, _ := strings.Cut(key, " ")
	i := slices.IndexFunc(table, func(d Deed) bool { return d.Verb == verb && string(d.Object) == object })
	if i < 0 {
		panic("there is no deed " + key)
	}
	return table[i]
}
