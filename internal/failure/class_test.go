package failure_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kagzi/kagzi/internal/failure"
)

// The text of a failure says that its details are lost, however long it is.
func TestNoteOfLostDetails(t *testing.T) {
	t.Parallel()
	long := errors.New(strings.Repeat("long ", 10_000))
	got, whole := failure.Class{Undetailed: long}.Text(long), failure.Class{}.Text(long)
	if !strings.Contains(got, "(without its details: long") || failure.WithoutNote(got) != whole {
		t.Errorf("the text ends with %q", got[len(got)-100:])
	}
}
