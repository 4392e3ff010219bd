package tables

import (
	"cmp"
	"strings"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

// Log is that of the logs of runs and of workers.
func Log(s *screen.Screen, none string) command.Listing[admin.LogEntry] {
	return command.Listing[admin.LogEntry]{
		Columns: []screen.Column{
			{Title: "TIME"},
			{Title: "EVENT"},
			{Title: "ACTOR", Min: 8},
			{Title: "OTHER RUN"},
			{Title: "STEP", Min: 8},
			{Title: "CHANGES", Min: 16},
			{Title: "REASON", Min: 16},
		},
		Row: func(e admin.LogEntry) []any {
			return []any{s.Time(e.At), e.Event, e.Actor, e.Other, e.Step, Changes(e.Changes), e.Reason}
		},
		None: none,
	}
}

// Changes says what an entry of a log changed, from what to what.
func Changes(changes []admin.LogChange) string {
	var parts []string
	for _, c := range changes {
		text := c.Field + " " + cmp.Or(c.From, "none")
		if c.To != "" {
			text += " → " + c.To
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}
