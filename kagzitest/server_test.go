package kagzitest

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/localpg"
)

// A server that other test binaries use, too, keeps the template for them and no other database.
func TestAServerThatIsGiven(t *testing.T) {
	given, err := localpg.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer given.Stop()
	t.Setenv("KAGZI_TEST_DATABASE_URL", given.DSN())
	conn, err := pgx.Connect(t.Context(), given.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	names := func() []string {
		t.Helper()
		rows, _ := conn.Query(t.Context(), `SELECT datname::text FROM pg_database WHERE datname ~ '^kagzitest'
			ORDER BY 1`)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	first, err := startServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kagzitest_20200101_abc_7", "kagzitest_notours"} {
		if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
			t.Fatal(err)
		}
	}
	name, err := first.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := startServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(), []string{name, "kagzitest_notours", first.template}; !slices.Equal(got, want) {
		t.Errorf("while one is in use: %q, want %q", got, want)
	}
	if err := first.drop(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*server{first, second} {
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := names(), []string{"kagzitest_notours", first.template}; !slices.Equal(got, want) {
		t.Errorf("at the end: %q, want %q", got, want)
	}
}
