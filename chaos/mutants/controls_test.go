//go:build long

package main

import (
	"regexp"
	"strings"
	"testing"
)

// Rounds and tests that have killed mutants pass once with the code as it is. Others are not tried.
func TestControls(t *testing.T) {
	t.Parallel()
	tests := Shown{Test: "./internal/plainjson"}
	null := Edit{"internal/plainjson/plainjson.go", `[]byte("null")`, `[]byte("nil")`}
	empty := Edit{"internal/plainjson/plainjson.go", `[]byte("{}")`, `[]byte("[]")`}
	comment := Edit{"internal/plainjson/plainjson.go", "// Marshal is json.Marshal.", "// Marshal is another."}
	var out strings.Builder
	l := lab{dir: t.TempDir(), out: &out, control: true}
	code := l.all(t.Context(), []Mutant{
		{Name: "null", Edits: []Edit{null}, Shown: tests},
		{Name: "empty", Edits: []Edit{empty}, Shown: tests},
		{Name: "harmless", Edits: []Edit{comment}, Shown: Shown{Test: "-count=1 ./internal/plainjson"}},
	})
	want := regexp.MustCompile(`^\Q` + header + `\E
\| null \| .*killed by .*
\| none: go test \./internal/plainjson \| nothing \| the tests pass, .*
\| empty \| .*killed by .*
\| harmless \| .*SURVIVED.*
$`)
	if code != 1 || !want.MatchString(out.String()) {
		t.Errorf("exit code %d\n%s", code, out.String())
	}
}
