package store

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// Columns that differ from their statement's make the program panic when it starts.
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
		"Gap": {
			`unnest($2::uuid[], $4::text[]) AS u (run_id, name)`,
			columns[int]{id, name},
			"array 2 is $4 and not $3",
		},
		"Shared": {
			`SELECT coalesce(u.name, ($2::text[])[1]) FROM unnest($2::text[]) AS u (name)`,
			columns[int]{shared(texts, "name", func(int) string { return "" })},
			"",
		},
		"NotFilled": {
			`SELECT u.name FROM unnest($2::text[]) AS u (name)`,
			columns[int]{shared(texts, "name", func(int) string { return "" })},
			"must read its column name",
		},
		"NotShared": {
			`SELECT coalesce(u.name, ($2::text[])[1]) FROM unnest($2::text[]) AS u (name)`,
			columns[int]{texts("name", func(int) string { return "" })},
			"must read its column name",
		},
		"NoName": {`unnest($2::uuid[], $3::text[]) AS u (run_id)`, columns[int]{id, name}, "2 arrays have 1 names"},
	} {
		t.Run(title, func(t *testing.T) {
			defer func() {
				if got := fmt.Sprint(recover()); (got == "<nil>") != (test.panic == "") ||
					!strings.Contains(got, test.panic) {
					t.Errorf("panicked with %s, want %q", got, test.panic)
				}
			}()
			columnsOf(test.sql, test.given...)
		})
	}

	same := columns[int]{shared(ints, "n", func(i int) int { return i % 2 })}
	for want, items := range map[string][]int{
		`["ns" "{1}"]`: {1, 3, 5}, `["ns" "{1,0,1}"]`: {1, 2, 3},
		`["ns" "{0}"]`: {2},
	} {
		if got := fmt.Sprintf("%q", same.args("ns", items)); got != want {
			t.Errorf("arguments %s, want %s", got, want)
		}
	}
	args := columnsOf(statement, id, name).args("ns", []int{7, 8}, true)
	if got, want := fmt.Sprintf("%q", args),
		`["ns" "{00000000000000000000000000000000,00000000000000000000000000000000}" "{\"7\",\"8\"}" `+
			`%!q(bool=true)]`; got != want {
		t.Errorf("arguments %s, want %s", got, want)
	}
}

// The server reads what an array says, whatever it contains, in each of pgx's ways to send it.
func TestColumnsReachTheServer(t *testing.T) {
	t.Parallel()
	type item struct {
		text  string
		bool  bool
		big   int64
		small int16
		int   int
		bytes []byte
	}
	items := []item{
		{text: "plain", bytes: []byte("bytes")},
		{text: "", bytes: nil},
		{
			text: `NULL`, bool: true, big: math.MaxInt64, small: math.MaxInt16, int: math.MaxInt32,
			bytes: []byte{0, '"', '\\', 255},
		},
		{text: `"a",\"b\\"{c}, 'd' $1`, big: math.MinInt64, small: math.MinInt16, int: math.MinInt32, bytes: []byte{}},
		{text: " ä\n\t日本\u2028 ", big: -1, small: -1, int: -1},
	}
	const statement = `SELECT u.* FROM unnest($2::text[], $3::bool[], $4::bigint[], $5::smallint[], $6::int[],
		$7::bytea[]) AS u (a, b, c, d, e, f)
		WHERE $1 = 'ns' AND $8`
	columns := columnsOf(statement,
		texts("a", func(i item) string { return i.text }), bools("b", func(i item) bool { return i.bool }),
		bigints("c", func(i item) int64 { return i.big }), smallints("d", func(i item) int16 { return i.small }),
		ints("e", func(i item) int { return i.int }), byteas("f", func(i item) []byte { return i.bytes }))
	pool := dbtest.Pool(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec,
	} {
		rows, _ := pool.Query(t.Context(), statement, append([]any{mode}, columns.args("ns", items, true)...)...)
		got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (i item, err error) {
			return i, row.Scan(&i.text, &i.bool, &i.big, &i.small, &i.int, &i.bytes)
		})
		if err != nil || !reflect.DeepEqual(got, items) {
			t.Errorf("%v: %+v, %v, want %+v", mode, got, err, items)
		}
	}
}
