package kagzi

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxErrorText is how many bytes of an error's text are stored.
const maxErrorText = 16 << 10

// sanitizeText returns s as Postgres can store it in TEXT and JSONB, in at most maxBytes: bytes that are no
// UTF-8 and control characters other than newline and tab become U+FFFD, carriage returns go, and a longer
// text is cut between two characters with a mark that tells its full length. Sanitised text stays as it is.
func sanitizeText(s string, maxBytes int) string {
	if len(s) <= maxBytes && isSane(s) {
		return s
	}
	mark := fmt.Sprintf("… (truncated, %d bytes)", len(s))
	if len(mark) > maxBytes {
		mark = ""
	}
	var b strings.Builder
	cut := 0 // the longest sane text that leaves room for the mark
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

func isSane(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && r != '\t' && unicode.IsControl(r)
	})
}
