package kit

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// OutOfLine is an SQL expression for a JSON string of 32,000 bytes. The server stores it out of line, so that
// SetReadable can damage it.
const OutOfLine = `(SELECT to_json(string_agg(md5(random()::text), '')) FROM generate_series(1, 1000))::text`

// SetReadable damages or repairs the values that a table stores out of line.
func SetReadable(t *testing.T, pool *pgxpool.Pool, table string, readable bool) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), dbtest.Owner(t, pool), func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SET LOCAL allow_system_table_mods = on`); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `UPDATE pg_index SET indisvalid = $1
			WHERE indrelid = (SELECT reltoastrelid FROM pg_class
				WHERE oid = ('kagzi.' || $2::text)::regclass)`, readable, table)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
