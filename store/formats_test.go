package store

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// Records are written as they are, whatever the session's settings say about texts and NULL.
func TestRecordsUnderOddSettings(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	for name, change := range map[string]func(*pgxpool.Config){
		"GBK":        func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["client_encoding"] = "GBK" },
		"ArrayNulls": func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["array_nulls"] = "off" },
		"NullsAsText": func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["array_nulls"] = "off"
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(poolWith(t, db.DSN, change), "test")
			for _, text := range []string{"世", `世\`, `世",x,世\`, `世","a\`} {
				runs := running(t, s, 2)
				bad, good := record(runs[0], "s", "bad"), record(runs[1], "s", "good")
				bad.Status, bad.Error, bad.ErrorKind, bad.Output = Failed, text, "k", nil
				if err := s.Records.Flush(t.Context(), &Flush{Records: []*Record{bad, good}}); err != nil ||
					bad.Outcome != Done || good.Outcome != Done {
					t.Fatalf("%q: %v, outcomes %d and %d", text, err, bad.Outcome, good.Outcome)
				}
				rows, _ := db.Pool.Query(t.Context(), `SELECT coalesce(error,
					'-') || ' ' || coalesce(convert_from(output, 'UTF8'), '-') FROM kagzi.step_runs
					WHERE run_id = ANY($1::uuid[])
						ORDER BY status DESC`, []string{bad.RunID.String(), good.RunID.String()})
				got, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil || len(got) != 2 || got[0] != text+" -" || got[1] != "- good" {
					t.Errorf("%q, %v, want the text %q without output, and %q", got, err, text, "- good")
				}
			}
		})
	}
}

// A transaction of the caller has its settings again after a call in it.
func TestFormatsOfACallersTransaction(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	s := New(db.Pool, "test")
	tx := dbtest.Begin(t, db.Pool)
	read := func() (settings string) {
		if err := tx.QueryRow(t.Context(),
			`SELECT current_setting('client_encoding') || current_setting('array_nulls') ||
				current_setting('DateStyle')`).Scan(&settings); err != nil {
			t.Fatal(err)
		}
		return settings
	}
	if _, err := tx.Exec(t.Context(),
		`SET LOCAL client_encoding = 'LATIN1'; SET LOCAL array_nulls = off; SET LOCAL DateStyle = 'German'`); err !=
		nil {
		t.Fatal(err)
	}
	before := read()
	if _, err := s.Starts.Start(t.Context(), tx, []NewRun{newRun()}); err != nil {
		t.Fatal(err)
	}
	if after := read(); after != before {
		t.Errorf("the settings are %s after a start, and were %s", after, before)
	}
}

// A claim reads its runs also if the application has another codec for uuids.
func TestClaimWithAnotherCodec(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	s := New(poolWith(t, db.DSN, func(c *pgxpool.Config) {
		c.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			conn.TypeMap().RegisterType(&pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: pgtype.TextCodec{}})
			return nil
		}
	}), "test")
	started := start(t, s, newRun())
	claim, err := s.Claims.Claim(t.Context(), request(1))
	if err != nil || len(claim.Runs) != 1 || claim.Runs[0].RunID != started[0] {
		t.Errorf("claimed %+v, %v", claim.Runs, err)
	}
}
