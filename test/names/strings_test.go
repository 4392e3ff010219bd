package names_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
)

// allowed are names that are odd and work everywhere. Those of steps may have no '/' and '#', and those of namespaces
// no ':'.
var allowed = map[string]string{
	"quote":         `it's "quoted" and ''twice''`,
	"SQL":           `'; DROP TABLE kagzi.workflow_runs; --`,
	"dollar quotes": `$$ $1 $body$ $2::text`,
	"format":        `%s%d%v%n%!(EXTRA)`,
	"template":      `{{.}} ${HOME} {0}`,
	"backslashes":   `\x00 \n \' \\ \`,
	"LIKE":          `100%_\%`,
	"regexp":        `^(a+)+$.*[`,
	"array":         `{a,"b",NULL}`,
	"JSON":          `{"a": [1, null]}`,
	"JSON path":     `$.a ? (@ == "b")`,
	"composite":     `(1,"2",,)`,
	"comment":       `/* a -- b`,
	"script":        `<script>alert('x')<\script>&amp;`,
	"right to left": "a\u202Egnp.exe\u2066",
	"combining":     "e\u0301 \u00e9 \ufeff\u200b",
	"emoji":         "👩‍👩‍👧 注文",
	"spaces":        "  before, behind  ",
	"null":          "NULL",
	"number":        "-0",
	"longest":       strings.Repeat("尺", 85),
	"separators":    "a:b;c|d,e=f@g",
	"URL":           `?a=b&c=%2F..\..`,
	"private use":   "\ue000\U0010ffff\ufffd",
}

// refused are names that nothing has.
var refused = map[string]string{
	"NUL":           "a\x00b",
	"newline":       "a\nb",
	"return":        "a\rb",
	"escape":        "\x1b[2J",
	"C1":            "a\u0085b",
	"not UTF-8":     "a\xffb",
	"half":          "a\xe5\xb0",
	"surrogate":     "\xed\xa0\x80",
	"too long":      strings.Repeat("x", 256),
	"10 kB":         strings.Repeat("x", 10<<10),
	"10 kB of junk": strings.Repeat("\xff", 10<<10),
}

// wantRefusal fails the test unless err is the refusal of a bad name: of a kind that says that the caller is wrong, on
// one short line that a log can have.
func wantRefusal(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	if _, sent := errors.AsType[*pgconn.PgError](err); sent {
		t.Errorf("%s: the database refuses it: %v", what, err)
	}
	if k := kagzi.KindOf(err); k != kind.BadRequest && k != kind.NotFound {
		t.Errorf("%s: %v, of kind %q", what, err, k)
	}
	if message := err.Error(); len(message) > 700 || !text.IsSane(message) || strings.Contains(message, "\n") ||
		!strings.HasPrefix(message, "kagzi: ") {
		t.Errorf("%s: not a short clean line: %.800q", what, message)
	}
}

// wantHarmless fails the test if the database refused what it was sent.
func wantHarmless(t *testing.T, what string, err error) {
	t.Helper()
	if pe, is := errors.AsType[*pgconn.PgError](err); is {
		t.Errorf("%s: the database refuses it: %v", what, pe)
	}
	if k := kagzi.KindOf(err); k == kind.Database || k == kind.Timeout {
		t.Errorf("%s: %v, of kind %s", what, err, k)
	}
}
