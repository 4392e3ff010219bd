package ui

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// runFuncs are the functions of the run's template.
func runFuncs() template.FuncMap {
	return template.FuncMap{
		"percent": func(f *float64) string { return fmt.Sprintf("%.0f %%", 100**f) },
		"keep":    kept,
		"bond":    bond, "parentage": parentage,
		"stepStates": func() []string {
			return []string{"running", "pending", "completed", "failed", "cancelled", "in_doubt"}
		},
		"shape":  shapeHTML,
		"breaks": breaks,
		"fold": func(open bool) string {
			if open {
				return "open"
			}
			return "next"
		},
	}
}

// A keptField is a hidden field of a form.
type keptField struct{ Name, Value string }

// kept returns the values of the query that a filter of steps keeps: the window and the kind of axis.
func kept(q web.Query) (fields []keptField) {
	for _, name := range []string{"from", "to", "scale"} {
		if value := q.Get(name); value != "" {
			fields = append(fields, keptField{name, value})
		}
	}
	return slices.Clip(fields)
}

// shapeHTML returns the drawing of a status with its name for screen readers.
func shapeHTML(s kagzi.Status) template.HTML {
	name := strings.ToLower(string(s))
	if shapes[name] == "" {
		return ""
	}
	return `<span class="badge ` + template.HTML(name) +
		`"><svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">` + shapes[name] +
		`</svg><span class="hidden">` + template.HTML(name) + `</span></span>`
}

// breaks lets a step's name break behind the names of its branches.
func breaks(name string) template.HTML {
	return template.HTML(strings.ReplaceAll(template.HTMLEscapeString(name), "/", "/<wbr>"))
}
