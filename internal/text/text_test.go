package text

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSanitize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		in       string
		maxBytes int
		want     string
	}{
		{"Empty", "", 100, ""},
		{"Plain", "order 42: Größe, 尺寸, 😀", 100, "order 42: Größe, 尺寸, 😀"},
		{"LinesAndTabsStay", "a\n\tb", 100, "a\n\tb"},
		{"CarriageReturnsGo", "a\r\nb\r", 100, "a\nb"},
		{"NUL", "a\x00b", 100, "a\uFFFDb"},
		{"TerminalEscapes", "\x1b[31mred\u009b0m\x7f", 100, "\uFFFD[31mred\uFFFD0m\uFFFD"},
		{"BadBytes", "a\xffb\xc3", 100, "a\uFFFDb\uFFFD"},
		{"SurrogateInUTF8", "\xed\xa0\x80", 100, "\uFFFD\uFFFD\uFFFD"},
		{"MarkupStays", "<script>alert(1)</script>", 100, "<script>alert(1)</script>"},
		{"JustFits", "0123456789", 10, "0123456789"},
		{"Cut", strings.Repeat("x", 50), 40, strings.Repeat("x", 15) + "… (truncated, 50 bytes)"},
		{"CutBetweenCharacters", strings.Repeat("尺", 20), 40, "尺尺尺尺尺" + "… (truncated, 60 bytes)"},
		{"GrowsOverTheLimit", strings.Repeat("\x00", 30), 40, "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD" +
			"… (truncated, 30 bytes)"},
		{"ShrinksUnderTheLimit", strings.Repeat("\r", 50) + "x", 40, "x"},
		{"NoRoomForTheMark", "0123456789", 4, "0123"},
		{"NoRoomAtAll", "😀", 3, ""},
		{"Nothing", "x", 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := Sanitize(test.in, test.maxBytes); got != test.want {
				t.Errorf("got %q (%d bytes); want %q", got, len(got), test.want)
			}
		})
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"kagzi: schema missing: call kagzi.Migrate": "Schema missing: call kagzi.Migrate",
		"EOF":                 "EOF",
		"ä":                   "ä",
		" first\nsecond\n\nx": "First; second …",
		"":                    "No message",
	} {
		if got := Sentence(in); got != want {
			t.Errorf("Sentence(%q) = %q; want %q", in, got, want)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		items []string
		want  string
	}{
		{nil, ""},
		{[]string{"a"}, "a"},
		{[]string{"a", "b"}, "a, b"},
		{[]string{"a", "b", "c"}, "a, b, and more"},
	} {
		if got := List(test.items, 2); got != test.want {
			t.Errorf("List(%q) = %q; want %q", test.items, got, test.want)
		}
	}
}

func FuzzSanitize(f *testing.F) {
	f.Add("plain", 10)
	f.Add("a\x00b\xff\r\n\x1b[0m", 100)
	f.Add(strings.Repeat("尺寸\xff", 100), 64)
	f.Fuzz(func(t *testing.T, s string, maxBytes int) {
		maxBytes = max(0, maxBytes%MaxError)
		got := Sanitize(s, maxBytes)
		if len(got) > maxBytes || !storable(got) {
			t.Fatalf("%q", got)
		}
		if again := Sanitize(got, maxBytes); again != got {
			t.Fatalf("%q becomes %q", got, again)
		}
		if len(s) <= maxBytes && storable(s) &&
			!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) && got != s {
			t.Fatalf("%q became %q", s, got)
		}
		if data, err := json.Marshal(got); err != nil || strings.Contains(string(data), `\u0000`) &&
			!strings.Contains(got, `\u0000`) {
			t.Fatalf("%s, %v", data, err)
		}
	})
}

// storable reports whether Postgres accepts s as TEXT and, encoded, as JSONB.
func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
