package inspect

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// The page of keys with a prefix reads the texts from the prefix up to afterPrefix, and no others. Texts are compared
// byte by byte, as by the collation "C".
func FuzzAfterPrefix(f *testing.F) {
	for _, prefix := range []string{"a", "customer-", "é", "尺", "\u007f", "\u07ff", "\ud7ff", "\uffff", "a\U0010fffe"} {
		f.Add(prefix, "x")
	}
	f.Add("\ud7ff", "\ue000") // no characters are between them
	f.Fuzz(func(t *testing.T, prefix, other string) {
		last, _ := utf8.DecodeLastRuneInString(prefix)
		if prefix == "" || !utf8.ValidString(prefix) || !utf8.ValidString(other) || last == utf8.MaxRune {
			return
		}
		after := afterPrefix(prefix)
		if !utf8.ValidString(after) {
			t.Fatalf("%q after %q is no text", after, prefix)
		}
		for _, text := range []string{prefix, prefix + other, other, after + other, prefix + "\U0010ffff"} {
			if read := text >= prefix && text < after; read != strings.HasPrefix(text, prefix) {
				t.Fatalf("keys from %q to %q: %q is read: %v", prefix, after, text, read)
			}
		}
	})
}
