package admin

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/text"
)

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
	c := &core.Client{Namespace: "test"}
	f.Fuzz(func(t *testing.T, cursor string) {
		want, wrong := uuid.Parse(cursor)
		runs, err := kagzi.RunFilter{After: kagzi.RunID(cursor)}.Core(c)
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
