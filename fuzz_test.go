package kagzi

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/uuid"

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

// A cursor is the ID of the last thing of a page. Another text is refused in a short line, and an ID means what it
// says.
func FuzzCursors(f *testing.F) {
	for _, cursor := range []string{
		"", "0199f0c5-7a5e-7000-8000-000000000001",
		"{0199f0c5-7a5e-7000-8000-000000000001}", "urn:uuid:0199f0c5-7a5e-7000-8000-000000000001",
		"0199f0c57a5e70008000000000000001", "x\x00y", strings.Repeat("9", 100_000),
	} {
		f.Add(cursor)
	}
	c := &Client{cfg: ClientConfig{Namespace: "test"}}
	f.Fuzz(func(t *testing.T, cursor string) {
		want, wrong := uuid.Parse(cursor)
		runs, err := c.choice(RunFilter{After: RunID(cursor)})
		workers, workersErr := WorkerFilter{After: cursor}.choice()
		for _, got := range []struct {
			id  uuid.UUID
			err error
		}{{runs.After, err}, {workers.After, workersErr}} {
			switch {
			case cursor == "" && got.id == uuid.Nil && got.err == nil:
			case (got.err == nil) != (wrong == nil), got.err == nil && got.id != want:
				t.Fatalf("cursor %.60q: %v, %v; want %v, %v", cursor, got.id, got.err, want, wrong)
			case got.err != nil && (len(got.err.Error()) > 500 || !text.IsSane(got.err.Error())):
				t.Fatalf("no short clean line: %q", got.err)
			}
		}
	})
}
