package tables

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

// Brief returns a payload for a cell: at a terminal, its beginning. Bytes that are no JSON are not shown.
func Brief(s *screen.Screen, data []byte) string {
	const most = 200
	if len(data) > 0 && !json.Valid(data) {
		return fmt.Sprintf("sealed or no JSON, %d bytes", len(data))
	}
	if s.Width > 0 && len(data) > most {
		return screen.Line(strings.ToValidUTF8(string(data[:most]), "")) + "…"
	}
	return screen.Line(cmp.Or(strings.ToValidUTF8(string(data), "?"), "-"))
}

// Payload returns a payload for people, empty if there is none.
func Payload(s *screen.Screen, data json.RawMessage) string {
	if len(data) == 0 {
		return ""
	}
	return Brief(s, data)
}

// Pairs returns names and values for people, in the order of the names.
func Pairs[M ~map[string]string](m M) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, screen.Line(k+"="+m[k]))
	}
	return strings.Join(pairs, " ")
}
