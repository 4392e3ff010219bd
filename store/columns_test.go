package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// Columns that are not those of their statement are found when the program starts.
func TestColumnsOf(t *testing.T) {
	t.Parallel()
	id := uuids("run_id", func(int) uuid.UUID { return uuid.Nil })
	name := texts("name", func(i int) string { return fmt.Sprint(i) })
	const statement = `SELECT FROM unnest($2::uuid[],
		$3::text[]) AS u (run_id,
			name) WHERE $4`
	for title, test := range map[string]struct {
		sql   string
		given columns[int]
		panic string
	}{
		"Same":       {statement, columns[int]{id, name}, ""},
		"Ordinality": {`unnest($2::uuid[]) WITH ORDINALITY AS u (run_id, place)`, columns[int]{id}, ""},
		"Fewer":      {statement, columns[int]{id}, "run_id uuid[], name text[]"},
		"More":       {statement, columns[int]{id, name, name}, "name text[], name text[]"},
		"OtherOrder": {statement, columns[int]{name, id}, "name text[], run_id uuid[]"},
		"OtherType":  {statement, columns[int]{id, bigints("name", func(int) int64 { return 0 })}, "name bigint[]"},
		"OtherName":  {statement, columns[int]{id, texts("names", func(int) string { return "" })}, "names text[]"},
		"None":       {`SELECT`, columns[int]{id}, "no unnest"},
		"Gap":        {`unnest($2::uuid[], $4::text[]) AS u (run_id, name)`, columns[int]{id, name}, "array 2 is $4 and not $3"},
		"NoName":     {`unnest($2::uuid[], $3::text[]) AS u (run_id)`, columns[int]{id, name}, "2 arrays have 1 names"},
	} {
		t.Run(title, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); (got == "<nil>") != (test.panic == "") || !strings.Contains(got, test.panic) {
					t.Errorf("panicked with %s, want %q", got, test.panic)
				}
			}()
			columnsOf(test.sql, test.given...)
		})
	}

	args := columnsOf(statement, id, name).args("ns", []int{7, 8}, true)
	if got, want := fmt.Sprintf("%q", args), `["ns" "{00000000000000000000000000000000,00000000000000000000000000000000}" ["7" "8"] %!q(bool=true)]`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
}
