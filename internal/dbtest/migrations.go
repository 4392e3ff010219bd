package dbtest

import (
	"fmt"
	"io/fs"
	"strings"
	"testing/fstest"

	"github.com/kagzi/kagzi/migrations"
)

// NextMigrations returns the migrations of a later program: those of this program, and a further one for each text. In
// a text, {oldest} stands for the number of the oldest program that works with our schema, and {next} for that of the
// program after this one.
func NextMigrations(texts ...string) fs.FS {
	this := migrations.Version()
	numbers := strings.NewReplacer("{oldest}", fmt.Sprint(migrations.OldestProgram()), "{next}", fmt.Sprint(this+1))
	all := fstest.MapFS{}
	names, err := fs.Glob(migrations.Files(), "*.sql")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for _, name := range names {
		text, err := fs.ReadFile(migrations.Files(), name)
		if err != nil {
			panic(err) // it is embedded
		}
		all[name] = &fstest.MapFile{Data: text}
	}
	for i, text := range texts {
		all[fmt.Sprintf("%05d_next.sql", int(this)+i+1)] = &fstest.MapFile{Data: []byte(numbers.Replace(text))}
	}
	return all
}
