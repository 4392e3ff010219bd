package kagzi

import (
	"maps"
	"strings"
	"testing"

	"github.com/kagzi/kagzi/internal/text"
)

// Headers that are accepted are stored and read back as they are. Headers are inherited without a change of the
// parent's.
func FuzzHeaders(f *testing.F) {
	f.Add("tenant=acme\ntraceparent=00-1", "tenant=other")
	f.Add("a=\x00", "=b")
	f.Add("\xff=\xff", strings.Repeat("x", 256)+"=y")
	f.Add("a=\U0010ffff\na=\u2028", "")
	f.Fuzz(func(t *testing.T, own, inherited string) {
		h, base := headersOf(own), headersOf(inherited)
		for _, some := range []Headers{h, base} {
			if err := some.validate(); err != nil {
				if line := err.Error(); !strings.HasPrefix(line, "kagzi: ") || len(line) > 700 || !text.IsSane(line) ||
					strings.ContainsAny(line, "\n\t") {
					t.Fatalf("no short clean line: %q", line)
				}
				return
			}
			if back := storedHeaders(some.stored()); !maps.Equal(back, some) {
				t.Fatalf("%q becomes %q", some, back)
			}
		}
		before := maps.Clone(base)
		all := h.over(base)
		if !maps.Equal(before, base) {
			t.Fatalf("%q became %q", before, base)
		}
		for name, value := range all {
			want, ok := h[name]
			if !ok {
				want = base[name]
			}
			if value != want {
				t.Fatalf("%q over %q has %q for %q", h, base, value, name)
			}
		}
		union := maps.Clone(base)
		maps.Copy(union, h)
		if len(all) != len(union) {
			t.Fatalf("%q over %q is %q", h, base, all)
		}
	})
}

func headersOf(lines string) Headers {
	h := Headers{}
	for line := range strings.SplitSeq(lines, "\n") {
		name, value, _ := strings.Cut(line, "=")
		h[name] = value
	}
	return h
}
