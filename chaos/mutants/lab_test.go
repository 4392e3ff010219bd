package main

import (
	"strings"
	"testing"
)

// A control plays the killing seed alone, and every violation counts.
func TestControlOfARound(t *testing.T) {
	t.Parallel()
	killer := calm("S9", 2)
	if c := killer.control(); len(c.Edits) > 0 || c.Shown.By != "" || len(c.Shown.Seeds) != 1 ||
		!strings.Contains(c.Name, "none: seeds [2]") {
		t.Errorf("%+v", c)
	}
}
