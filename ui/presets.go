package ui

// A preset is a link to a page for a time that is often asked for.
type preset struct {
	Title   string
	To      string // path
	Current bool
}

// presets are the times in the order of their links: as a field has them, and in words.
var presets = [][2]string{
	{"15m", "15 min"}, {"1h", "1 h"}, {"24h", "24 h"}, {"7d", "7 d"}, {"30d", "30 d"}, {"", "any time"},
}

// Presets returns the links that set a field of the page to a time.
func (s *screen) Presets(field string) (out []preset) {
	for _, p := range presets {
		out = append(out, preset{p[1], s.Query.With(field, p[0]), s.Query.Get(field) == p[0]})
	}
	return out
}
