package migrations_test

import (
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// All columns of payloads are compressed by lz4, those of partitions too, if the server has it.
func TestPayloadsAreCompressedByLZ4(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t, dbtest.Unchecked())
	var has bool
	var fast, all int
	if err := pool.QueryRow(t.Context(), `SELECT (
			SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'
		), count(*) FILTER (WHERE a.attcompression = 'l'), count(*)
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relnamespace = 'kagzi'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0
			AND a.atttypid IN ('bytea'::regtype, 'jsonb'::regtype)`).Scan(&has, &fast, &all); err != nil {
		t.Fatal(err)
	}
	if want := map[bool]int{true: all}[has]; fast != want || all < 20 {
		t.Errorf("%d of %d columns have lz4, want %d", fast, all, want)
	}
}
