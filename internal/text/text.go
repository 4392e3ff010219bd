// Package text prepares texts to be stored and shown: valid for Postgres, of bounded length, on one line.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxError is the most bytes of an error's text that are stored.
const MaxError = 16 << 10

// Sanitize returns s in a form that Postgres can store as TEXT and JSONB, of at most maxBytes. Bytes that are not
// UTF-8, and control characters other than newline and tab, become U+FFFD. Carriage returns are removed. A longer text
// is cut between two characters, and ends with a mark that states its full length. Sanitize does not change a sanitized
// text.
func Sanitize(s string, maxBytes int) string {
	if len(s) <= maxBytes && IsSane(s) {
		return s
	}
	mark := fmt.Sprintf("… (truncated, %d bytes)", len(s))
	if len(mark) > maxBytes {
		mark = ""
	}
	var b strings.Builder
	cut := 0 // the end of the longest part that leaves room for the mark
	for _, r := range s {
		switch {
		case r == '\r':
			continue
		case r != '\n' && r != '\t' && unicode.IsControl(r):
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > maxBytes {
			return b.String()[:cut] + mark
		}
		b.WriteRune(r)
		if b.Len()+len(mark) <= maxBytes {
			cut = b.Len()
		}
	}
	return b.String()
}

// IsSane reports whether Sanitize would not change s, apart from its length.
func IsSane(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && r != '\t' && unicode.IsControl(r)
	})
}

// Quote quotes s for an error message, shortened.
func Quote(s string) string {
	const shown = 40
	if len(s) <= shown {
		return fmt.Sprintf("%q", s)
	}
	cut := shown
	for cut > shown-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%q…", s[:cut])
}

// OfError returns err.Error(), or a description of err if that method panics.
func OfError(err error) (text string) {
	if err == nil {
		return ""
	}
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprintf("%T, whose Error method panics: %s", err, OfValue(v))
		}
	}()
	if text = err.Error(); text == "" {
		text = fmt.Sprintf("%T without a text", err)
	}
	return text
}

// OfValue formats v. fmt survives a String method that panics, but not one whose panic value panics, too.
func OfValue(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%T that cannot be printed", v)
		}
	}()
	return fmt.Sprint(v)
}

// OneLine returns a stored message on one line. It omits the text after an empty line, such as a stack; the full
// message has that.
func OneLine(s string) string {
	s = strings.TrimSpace(strings.TrimPrefix(s, "kagzi: "))
	s, _, cut := strings.Cut(s, "\n\n")
	s = strings.ReplaceAll(s, "\n", "; ")
	if cut {
		s += " …"
	}
	if s == "" {
		return "no message"
	}
	return s
}

// Sentence returns the message as a sentence without its full stop: on one line, with a capital first letter.
func Sentence(s string) string {
	s = OneLine(s)
	if 'a' <= s[0] && s[0] <= 'z' {
		return strings.ToUpper(s[:1]) + s[1:]
	}
	return s
}

// List joins the first items, at most most, with commas, and says if there are more.
func List(items []string, most int) string {
	if len(items) <= most {
		return strings.Join(items, ", ")
	}
	return strings.Join(items[:most], ", ") + ", and more"
}
