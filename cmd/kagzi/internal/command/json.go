package command

import (
	"encoding/json"
	"io"
	"os"
	"strings"
)

// ReadJSON returns the JSON that a flag gives: as text, in a file (@name), or on standard input (@- or -).
func (p *Program) ReadJSON(flag, s string) (json.RawMessage, error) {
	text, from := []byte(s), "--"+flag
	switch {
	case s == "-" || s == "@-":
		data, err := io.ReadAll(p.World.In)
		if err != nil {
			return nil, Usagef("standard input cannot be read: %s", err)
		}
		text, from = data, "standard input"
	case strings.HasPrefix(s, "@"):
		data, err := os.ReadFile(s[1:])
		if err != nil {
			return nil, Usagef("--%s: %s: give a file that exists after the @", flag, err)
		}
		text, from = data, s[1:]
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, Usagef("%s is not JSON (%s): write text in double quotes inside of single ones, as in --%s "+
			"'\"ada\"'", from, err, flag)
	}
	return json.RawMessage(text), nil
}
