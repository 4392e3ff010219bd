package model

import (
	"flag"
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// given are the flags of the command line.
var given = map[string]bool{}

// TestMain gives rapid a minute to shrink a sequence that fails: each of its attempts sends the verbs to the database.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	preset("rapid.shrinktime", "1m")
	dbtest.Main(m)
}

// preset sets a flag, unless the command line does.
func preset(name, value string) {
	if !given[name] {
		_ = flag.Set(name, value) // of the flag's type
	}
}
