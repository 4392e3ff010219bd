package ui

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/ui/internal/web"
	"github.com/kagzi/kagzi/waits"
)

// A column is one that the list of runs has if its address asks for it.
type column struct {
	Name, Title string // as the address has it, and its heading
	of          func(kagzi.RunInfo) cell
}

// A cell is what a column says of a run: a time, or a text that may lead to a page. The zero one says nothing.
type cell struct {
	Text, To string
	At       time.Time
}

// Of returns what the column says of the run.
func (c column) Of(r kagzi.RunInfo) cell { return c.of(r) }

// runColumns are the columns in their order, before those of tags.
var runColumns = []column{
	{"ended", "Ended", func(r kagzi.RunInfo) cell { return cell{At: r.EndedAt} }},
	{"attempts", "Failed attempts", func(r kagzi.RunInfo) cell { return numberCell(r.Attempts) }},
	{"recoveries", "Recoveries", func(r kagzi.RunInfo) cell { return numberCell(r.Recoveries) }},
	{"priority", "Priority", func(r kagzi.RunInfo) cell { return numberCell(r.Priority) }},
	{"group", "Group", func(r kagzi.RunInfo) cell { return cell{Text: string(r.Group)} }},
	{"schedule", "Schedule", func(r kagzi.RunInfo) (c cell) {
		if r.Schedule != "" {
			c = cell{Text: r.Schedule, To: at("/schedules/", r.Schedule)}
		}
		return c
	}},
	{"worker", "Worker", func(r kagzi.RunInfo) (c cell) {
		if r.Worker != "" {
			c = cell{Text: first(8, r.Worker), To: "/workers/" + r.Worker}
		}
		return c
	}},
	{"tags", "Tags", func(r kagzi.RunInfo) cell {
		var tags []string
		for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
			tags = append(tags, name+"="+r.Metadata[name])
		}
		return cell{Text: strings.Join(tags, ", ")}
	}},
}

func numberCell(n int) cell {
	if n == 0 {
		return cell{}
	}
	return cell{Text: strconv.Itoa(n)}
}

// mostTagColumns bounds the columns of tags.
const mostTagColumns = 6

// Columns returns the columns that the address asks for: those of runColumns that "show" names, and one for each tag
// that "tag" names.
func (s *screen) Columns() (out []column) {
	for _, c := range runColumns {
		if s.Shows(c.Name) {
			out = append(out, c)
		}
	}
	tags := strings.FieldsFunc(s.Query.Get("tag"), func(r rune) bool { return r == ',' })
	for _, name := range tags[:min(len(tags), mostTagColumns)] {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, column{name, first(40, name), func(r kagzi.RunInfo) cell {
				return cell{Text: r.Metadata[name]}
			}})
		}
	}
	return out
}

// AllColumns returns the columns that the list can have besides those of tags.
func (s *screen) AllColumns() []column { return runColumns }

// Shows reports whether the list has the column.
func (s *screen) Shows(name string) bool { return slices.Contains(s.Query.Values["show"], name) }

// Cleared returns the path of the list without its filter. It keeps the columns.
func (s *screen) Cleared() string {
	kept := url.Values{}
	for _, name := range []string{"show", "tag"} {
		if s.Query.Has(name) {
			kept[name] = s.Query.Values[name]
		}
	}
	return web.Query{URL: "/runs", Values: kept}.With()
}

// mostSuggested bounds the suggestions of a field.
const mostSuggested = 50

// usualWaits are suggested for what runs wait on.
var usualWaits = []waits.Kind{
	waits.Signal, waits.Timer, waits.Child, waits.Retry, waits.Limit, waits.Doubt, waits.Recovery, waits.History,
}

// suggestFrom returns suggestions for the fields that have no list of their own, from the runs of the page.
func suggestFrom(runs []kagzi.RunInfo) map[string][]string {
	found := map[string]map[string]bool{}
	add := func(field, value string) {
		if found[field] == nil {
			found[field] = map[string]bool{}
		}
		if value != "" && len(found[field]) < mostSuggested {
			found[field][value] = true
		}
	}
	for _, kind := range usualWaits {
		add("waiting-on", string(kind))
	}
	for _, r := range runs {
		add("key", string(r.Key))
		add("group", string(r.Group))
		add("schedule", r.Schedule)
		for _, w := range r.WaitingOn {
			if w.Kind == waits.Signal || w.Kind == waits.Timer || w.Kind == waits.Limit {
				add("waiting-on", strings.TrimSpace(string(w.Kind)+" "+w.Name))
			}
		}
		for name, value := range r.Metadata {
			add("tag", name)
			add("metadata", name+"="+value)
		}
	}
	out := map[string][]string{}
	for field, values := range found {
		out[field] = slices.Sorted(maps.Keys(values))
	}
	return out
}
