package deeds

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestSameJSON(t *testing.T) {
	t.Parallel()
	if !sameJSON(json.RawMessage(`{"a": 1}`), json.RawMessage("{\n\"a\":1}")) ||
		sameJSON(json.RawMessage(`1`), json.RawMessage(`1.0`)) {
		t.Error("payloads are compared wrongly")
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind        Kind
		right       []string
		wrong, says string
	}{
		{Duration, []string{"30s", "1 day 2h", "0"}, "soon", "{x} is \"soon\": give a duration, such as 30s"},
		{Number, []string{"1", "17"}, "0", "{x} is 0: give a number from 1"},
		{Count, []string{"0", "17"}, "-1", "{x} is -1: give a positive number"},
		{Count, nil, "many", "{x} is \"many\": give a number"},
		{Version, []string{"1", "default"}, "0", "give a number from 1, or default"},
		{Past, []string{"7d", "2026-10-01", "2026-10-01 08:00", "now"}, "soon", "without a zone it is UTC"},
		{Rate, []string{"10/s", "600/m", "5/10s", "5 / 1h", "0"}, "10", "write it as 10/s"},
		{Rate, nil, "0/s", "write it as 10/s"},
		{Pairs, []string{"a=b", "a=b=c\n\nd=e"}, "a", "{x} is \"a\": write it as name=value"},
		{JSON, []string{"1", `{"a": [1]}`}, "{\"a\":1,\n\"b\":x}", "line 2, column 5"},
		{JSON, nil, "nul", "line 1, column"},
		{JSON, nil, `"a" 1`, "line 1, column 5"},
		{JSON, nil, `{"a`, "line 1"},
		{Text, []string{"anything"}, "", "{x} is missing: give one"},
	} {
		d := Deed{Fields: []Field{{Name: "x", Kind: c.kind, Required: "give one"}}}
		for _, s := range c.right {
			if err := d.Check(Asked{Values: Values{"x": {s}}, Zone: time.UTC}); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
		err := d.Check(Asked{Values: Values{"x": {c.wrong}}, Zone: time.UTC})
		if m, ok := err.(*Mistake); !ok || !strings.Contains(m.Text, c.says) {
			t.Errorf("%q: %v, not %q", c.wrong, err, c.says)
		}
	}
	m := &Mistake{`{a} and {b} are {"x": {`}
	if got := m.In(func(name string) string { return "--" + name }); got != `--a and --b are {"x": {` {
		t.Error(got)
	}
}

// Both readers of the table need these of each deed.
func TestDeedsAreWhole(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, d := range All() {
		if seen[d.Key()] || d.Past == "" || d.Short == "" || len(d.Says) == 0 || d.Do == nil {
			t.Errorf("%s is there twice, or lacks something", d.Key())
		}
		seen[d.Key()] = true
		for _, s := range d.Says {
			if !strings.HasSuffix(s, ".") {
				t.Errorf("%s says %q, which is no sentence", d.Key(), s)
			}
		}
		for _, f := range d.Fields {
			if f.Kind != Hidden && f.Flag != "-" && !strings.HasSuffix(f.Help, ".") {
				t.Errorf("the field %s of %s has the help %q, which is no sentence", f.Name, d.Key(), f.Help)
			}
			if f.Kind != Hidden && !f.NoForm && f.Label == "" {
				t.Errorf("the field %s of %s has no label", f.Name, d.Key())
			}
		}
	}
}
