package valid

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
)

func TestValidateNames(t *testing.T) {
	t.Parallel()
	ten := strings.Repeat("x", 10<<10)
	type names struct{ name, namespace, step, id bool } // whether each accepts it
	all, none := names{true, true, true, true}, names{}
	for _, test := range []struct {
		name  string
		given string
		want  names
	}{
		{"Plain", "checkout", all},
		{"Spaces", "send the mail", all},
		{"OtherScripts", "注文-größe-😀", all},
		{"SQL", "'; DROP TABLE kagzi.workflow_runs; --", all},
		{"Markup", `<img src=x onerror="alert(1)">`, all},
		{"RightToLeftOverride", "a\u202Egnp.exe", all},
		{"Percent", "%s%n%d{{.}}$1", all},
		{"Backslash", `a\x00`, all},
		{"LongestASCII", strings.Repeat("x", 255), all},
		{"LongestOther", strings.Repeat("尺", 85), all},
		{"Colon", "a:b", names{name: true, step: true, id: true}},
		{"Slash", "a/b", names{name: true, namespace: true, id: true}},
		{"Hash", "a#2", names{name: true, namespace: true, id: true}},
		{"ClosingTag", "<script>alert(1)</script>", names{name: true, namespace: true, id: true}},
		{"Empty", "", none},
		{"TooLong", strings.Repeat("x", 256), none},
		{"TooLongInBytes", strings.Repeat("尺", 86), none},
		{"TenKilobytes", ten, none},
		{"TenKilobytesOfGarbage", strings.Repeat("\xff", 10<<10), none},
		{"NUL", "a\x00b", none},
		{"Newline", "a\nb", none},
		{"Tab", "a\tb", none},
		{"Escape", "\x1b[2J", none},
		{"Delete", "a\x7f", none},
		{"C1", "a\u0085b", none},
		{"BadUTF8", "a\xffb", none},
		{"HalfACharacter", "a\xe5\xb0", none},
		{"Surrogate", "\xed\xa0\x80", none},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, check := range []struct {
				field string
				err   error
				ok    bool
			}{
				{"queue", Name("queue", test.given), test.want.name},
				{"namespace", Namespace(test.given), test.want.namespace},
				{"branch name", StepName("branch name", test.given), test.want.step},
				{"ID", ExternalID(test.given), test.want.id},
			} {
				if (check.err == nil) != check.ok {
					t.Errorf("%s: got %v", check.field, check.err)
				}
				if check.err != nil {
					checkRefusal(t, check.field, check.err)
				}
			}
		})
	}
}

// checkRefusal says what a user may expect of every refusal: the field, in a short line safe for a log.
func checkRefusal(t *testing.T, field string, err error) {
	t.Helper()
	got := err.Error()
	possessive := "kagzi: the " + strings.TrimSuffix(field, " name") + "'s name is empty"
	if !strings.HasPrefix(got, "kagzi: "+field+" ") && got != possessive {
		t.Errorf("%s is not named by %q", field, got)
	}
	if len(got) > 350 || !text.IsSane(got) || strings.ContainsAny(got, "\n\t") {
		t.Errorf("not a short clean line: %d bytes of %.300q", len(got), got)
	}
}

func TestValidateNameSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		`kagzi: queue is empty`: Name("queue", ""),
		`kagzi: queue "` + strings.Repeat("x", 40) +
			`"… has 300 bytes: at most 255 are allowed`: Name("queue", strings.Repeat("x", 300)),
		// cut between characters
		`kagzi: queue "` + strings.Repeat("尺", 13) +
			`"… has 258 bytes: at most 255 are allowed`: Name("queue", strings.Repeat("尺", 86)),
		`kagzi: queue "a\xff" is not valid UTF-8`:                              Name("queue", "a\xff"),
		`kagzi: queue "a\nb" contains the control character U+000A: remove it`: Name("queue", "a\nb"),
		`kagzi: namespace "a:b" contains ':': use another character, ` +
			`such as '-' or '.'`: Namespace("a:b"),
		`kagzi: step name "a/b" contains '/': Kagzi uses it in names of its own; use another character, ` +
			`such as '-' or ':'`: StepName("step name", "a/b"),
		`kagzi: the step's name is empty`:                                StepName("step", ""),
		`kagzi: the queue's name is empty: the default one is "default"`: Queue(""),
		`kagzi: ID is empty: give what identifies the run, such as an order number, ` +
			`or leave the option out`: ExternalID(""),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func FuzzValidateNames(f *testing.F) {
	for _, s := range []string{"checkout", "a:b", "a/b#2", "a\x00", "\xff", strings.Repeat("尺", 86), ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for field, err := range map[string]error{
			"queue":     Name("queue", s),
			"namespace": Namespace(s),
			"step":      StepName("step", s),
			"ID":        ExternalID(s),
		} {
			if err != nil {
				checkRefusal(t, field, err)
				continue
			}
			if s == "" || len(s) > 255 || strings.Contains(s, "\x00") || !utf8.ValidString(s) || !text.IsSane(s) {
				t.Errorf("%s %q accepted", field, s)
			}
			if field == "namespace" && strings.Contains(s, ":") || field == "step" && strings.ContainsAny(s, "/#") {
				t.Errorf("%s %q accepted", field, s)
			}
		}
	})
}

func TestValidateTimeout(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{time.Microsecond, 30 * time.Second, duration.Longest} {
		if err := Timeout("Timeout", d); err != nil {
			t.Error(err)
		}
	}
	for d, want := range map[time.Duration]string{
		0:             "kagzi: Timeout is 0: leave the option out instead",
		30:            "kagzi: Timeout is 30 ns: a time.Duration counts nanoseconds; did you mean 30*time.Second?",
		999:           "kagzi: Timeout is 999 ns: a time.Duration counts nanoseconds; did you mean 999*time.Second?",
		-time.Minute:  "kagzi: Timeout is -1m0s: it must not be negative",
		math.MinInt64: "kagzi: Timeout is -2562047h47m16.854775808s: it must not be negative",

		duration.Longest + 1: "kagzi: Timeout is 36525 days 1ns: give at most 36525 days, a hundred years",
	} {
		if err := Timeout("Timeout", d); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if err := duration.Check("WorkerConfig.Heartbeat", 0); err != nil {
		t.Errorf("a field left at its default is refused: %v", err)
	}
}

func TestValidateNumbers(t *testing.T) {
	t.Parallel()
	for p := -1; p <= 6; p++ {
		if err := Priority(p); (err == nil) != (p >= 1 && p <= 4) {
			t.Errorf("Priority %d: %v", p, err)
		}
	}
	for v, ok := range map[int]bool{
		math.MinInt: false, -1: false, 0: false, 1: true, math.MaxInt32: true,
		math.MaxInt: false,
	} {
		if err := Version(v); (err == nil) != ok {
			t.Errorf("Version %d: %v", v, err)
		}
	}
}

func TestValidateMetadata(t *testing.T) {
	t.Parallel()
	entries := func(n, size int) map[string]string {
		m := make(map[string]string)
		for i := range n {
			m[fmt.Sprintf("%03d", i)] = strings.Repeat("x", size-3)
		}
		return m
	}
	for name, m := range map[string]map[string]string{
		"Nil":        nil,
		"Empty":      {},
		"Plain":      {"customer": "c-17", "note": ""},
		"Hostile":    {"'; DROP": "<script>", "a/b:c#d": "line\nline\ttab"},
		"Most":       entries(64, 10),
		"Largest":    entries(64, 256),
		"OneLargest": entries(1, 16<<10),
	} {
		if err := Metadata(m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, m := range map[string]map[string]string{
		`kagzi: Metadata has 65 entries: at most 64 are allowed`: entries(65,
			10),
		`kagzi: Metadata has 16385 bytes: at most 16384 are allowed; put the rest in the input`: entries(1,
			16<<10+1),
		`kagzi: Metadata key is empty: give each value a name`: {"": "x"},
		`kagzi: Metadata key "a\x00" contains the control character U+0000: remove it`: {
			"a\x00": "x",
			"b\x00": "x", "c\x00": "x", "d\x00": "x",
		},
		`kagzi: Metadata value of "a" is not valid UTF-8: "\xff"`:                                {"a": "\xff"},
		`kagzi: Metadata value of "a" contains a NUL byte, which Postgres cannot store: "x\x00"`: {"a": "x\x00"},
		`kagzi: Metadata key "` + strings.Repeat("k", 40) +
			`"… has 256 bytes: at most 255 are allowed`: {strings.Repeat("k", 256): "x"},
	} {
		for range 20 { // the order of the keys does not matter
			if err := Metadata(m); err == nil || err.Error() != want {
				t.Fatalf("got  %v\nwant %s", err, want)
			}
		}
	}
}
