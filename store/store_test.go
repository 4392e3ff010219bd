package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/waits"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// open returns a store of the namespace "test" in a database of its own.
func open(t *testing.T, opts ...dbtest.Option) *Store {
	t.Helper()
	return New(dbtest.Pool(t, opts...), "test")
}

// newRun returns a run to start, changed by the given functions.
func newRun(change ...func(*NewRun)) NewRun {
	r := NewRun{
		RunID: uuid.Must(uuid.NewV7()), Spec: Spec{Queue: "queue", Type: "type", Priority: 3},
		InputHash: []byte("hash"),
		Input:     []byte("input"),
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func ofType(name string) func(*NewRun) { return func(r *NewRun) { r.Type = name } }

func ofVersion(v int) func(*NewRun) { return func(r *NewRun) { r.Version = v } }

func withPriority(p int) func(*NewRun) { return func(r *NewRun) { r.Priority = p } }

func withID(id string) func(*NewRun) { return func(r *NewRun) { r.ExternalID = id } }

func withHash(hash string) func(*NewRun) { return func(r *NewRun) { r.InputHash = []byte(hash) } }

func withDelay(d time.Duration) func(*NewRun) { return func(r *NewRun) { r.Delay = d } }

func withTimeout(d time.Duration) func(*NewRun) {
	return func(r *NewRun) { r.Timeout = d }
}

func withParent(id uuid.UUID) func(*NewRun) {
	return func(r *NewRun) { r.Parent = id } // without a step, which only a flush writes with it
}

// start starts runs and returns their IDs.
func start(t *testing.T, s *Store, runs ...NewRun) []uuid.UUID {
	t.Helper()
	started, err := s.Starts.Start(t.Context(), nil, runs)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]uuid.UUID, len(started))
	for i, r := range started {
		if r.Existed {
			t.Fatalf("run %d existed", i)
		}
		ids[i] = r.RunID
	}
	return ids
}

// many returns n runs to start.
func many(n int, change ...func(*NewRun)) []NewRun {
	runs := make([]NewRun, n)
	for i := range runs {
		runs[i] = newRun(change...)
	}
	return runs
}

// request asks for up to n runs of the type "type".
func request(n int, change ...func(*ClaimRequest)) ClaimRequest {
	req := ClaimRequest{
		Queue: "queue", Types: []WorkflowVersions{{Type: "type", Versions: []int{1}, Default: 1}}, Limit: n,
		Worker: uuid.New(), Lease: uuid.New(), LeaseTimeout: time.Minute, Ahead: 24 * time.Hour,
	}
	for _, f := range change {
		f(&req)
	}
	return req
}

func claim(t *testing.T, s *Store, req ClaimRequest) Claim {
	t.Helper()
	c, err := s.Claims.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// claimIDs claims and returns which runs, in the order of the answer.
func claimIDs(t *testing.T, s *Store, req ClaimRequest) []uuid.UUID {
	t.Helper()
	var ids []uuid.UUID
	for _, r := range claim(t, s, req).Runs {
		ids = append(ids, r.RunID)
	}
	return ids
}

// running starts n runs and claims them.
func running(t *testing.T, s *Store, n int, change ...func(*NewRun)) []*ClaimedRun {
	t.Helper()
	start(t, s, many(n, change...)...)
	c := claim(t, s, request(n))
	if len(c.Runs) != n {
		t.Fatalf("claimed %d runs, want %d", len(c.Runs), n)
	}
	return c.Runs
}

func held(r *ClaimedRun) HeldRun { return HeldRun{RunID: r.RunID, Lease: r.Lease} }

// record is the record of a step's first attempt, which succeeded.
func record(r *ClaimedRun, step, output string) *Record {
	return &Record{
		StepRow: StepRow{
			RunID: r.RunID, StepID: step, Attempt: 1, FirstAttempt: 1, RunAttempt: 1, Status: Completed,
			Kind: KindFunction, Output: []byte(output),
		},
		Lease: r.Lease, Wake: -1, Worker: uuid.New(),
	}
}

func finish(r *ClaimedRun) *Finish {
	return &Finish{RunID: r.RunID, Lease: r.Lease, Parent: r.ParentRunID, Status: Completed, Output: []byte("output")}
}

// sleep is a suspension for d, as an execution writes it that has seen all wake-ups up to its claim.
func sleep(r *ClaimedRun, d time.Duration) *Suspension {
	return &Suspension{
		RunID: r.RunID, Lease: r.Lease, Status: Sleeping, Wake: d, Seen: r.Wakeups, Need: 1,
		WaitingOn: waits.List{{Kind: waits.Timer}},
	}
}

func flush(t *testing.T, s *Store, f *Flush) {
	t.Helper()
	if err := s.Records.Flush(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func wantOutcome(t *testing.T, what string, got, want Outcome) {
	t.Helper()
	if got != want {
		t.Errorf("%s: outcome %d, want %d (1 done, 2 busy, 3 lost)", what, got, want)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

// A tableRow holds the columns of a run's row that tests check.
type tableRow struct {
	Status     string
	Lease      *uuid.UUID
	LockedBy   *uuid.UUID
	Due        bool    // available_at has come
	In         float64 // seconds until available_at; infinity as it is; 0 if it is NULL
	Wakeups    int64
	Attempts   int
	Recoveries int
	Version    *int
	WaitingOn  *string
	ErrorKind  *string
	Ended      bool
}

// readRow reads a run's row.
func readRow(t *testing.T, db pg.DB, id uuid.UUID) tableRow {
	t.Helper()
	rows, err := db.Query(t.Context(), `
		SELECT status, lease, locked_by, coalesce(available_at <= clock_timestamp(), false),
			coalesce(CASE WHEN available_at = 'infinity' THEN 'infinity'
				ELSE extract(epoch FROM available_at - clock_timestamp())::float8 END, 0),
			wakeups, attempts, recoveries, version, waiting_on -> 0 ->> 'kind', error_kind, finished_at IS NOT NULL
		FROM kagzi.workflow_runs WHERE run_id = $1`, id)
	if err != nil {
		t.Fatal(err)
	}
	row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[tableRow])
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// exec runs a statement of the test's own.
func exec(t *testing.T, db pg.DB, sql string, args ...any) {
	t.Helper()
	for _, sql := range dbtest.Instead(t, ofOwner(t, db), sql) {
		_, err := ofOwner(t, db).Exec(t.Context(), sql, args...)
		if pool, ok := db.(*pgxpool.Pool); ok && err != nil {
			err = dbtest.ExecOnShards(t.Context(), dbtest.Owner(t, pool), err, sql, args...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ofOwner returns the owner's pool for a pool, because these statements are the test's own. Transactions stay as they
// are.
func ofOwner(t *testing.T, db pg.DB) pg.DB {
	if pool, ok := db.(*pgxpool.Pool); ok {
		return dbtest.Owner(t, pool)
	}
	return db
}

// one reads a single value.
func one[T any](t *testing.T, db pg.DB, sql string, args ...any) (v T) {
	t.Helper()
	if err := ofOwner(t, db).QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// column reads a column of values.
func column[T any](t *testing.T, db pg.DB, sql string, args ...any) []T {
	t.Helper()
	rows, _ := ofOwner(t, db).Query(t.Context(), sql, args...) // the error comes with the rows
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// expire makes the leases of running runs end now.
func expire(t *testing.T, s *Store, ids ...uuid.UUID) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 ms'
		WHERE run_id = ANY ($1)`, ids)
}

// supersede lets the run's lease expire and another worker claim the run, and returns that claim.
func supersede(t *testing.T, s *Store, r *ClaimedRun) *ClaimedRun {
	t.Helper()
	expire(t, s, r.RunID)
	c := claim(t, s, request(1))
	if len(c.Runs) != 1 || c.Runs[0].RunID != r.RunID {
		t.Fatalf("claimed %+v, want run %v", c.Runs, r.RunID)
	}
	return c.Runs[0]
}

// begin opens a transaction that is rolled back at the test's end, if it is open still.
func begin(t *testing.T, s *Store) pgx.Tx {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func rollback(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// lockRow locks a run's row in tx, as a user's transaction does.
func lockRow(t *testing.T, tx pgx.Tx, id uuid.UUID) {
	t.Helper()
	exec(t, tx, `SELECT FROM kagzi.workflow_runs WHERE run_id = $1 FOR UPDATE`, id)
}

// limitWaits has a caller's transaction wait for locks only briefly.
func limitWaits(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if dbtest.OnCitus() { // or the nodes, which have the rows, do not get the setting
		exec(t, tx, `SET LOCAL citus.propagate_set_commands = 'local'`)
	}
	exec(t, tx, `SET LOCAL lock_timeout = '10ms'`)
}

// waitForWaiter returns once a backend of the test's database waits for a lock.
func waitForWaiter(t *testing.T, s *Store) {
	t.Helper()
	dbtest.AwaitLockWaiter(t, s.pool)
}

// warm has the pool open two connections: some calls wait only briefly for one.
func warm(t *testing.T, s *Store) {
	t.Helper()
	for range 2 {
		conn, err := s.pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
	}
}

// meetsLock runs act until it waits for a lock, calls free, which releases the lock, and returns once act has returned.
func meetsLock(t *testing.T, s *Store, act func(context.Context), free func()) {
	t.Helper()
	warm(t, s)
	var acting sync.WaitGroup
	acting.Go(func() { act(context.WithoutCancel(t.Context())) })
	waitForWaiter(t, s)
	free()
	acting.Wait()
}

// poolWith returns another pool of the database, with a changed configuration.
func poolWith(t *testing.T, dsn string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	if change == nil {
		return dbtest.OpenPool(t, dsn)
	}
	return dbtest.OpenPool(t, dsn, change)
}

func TestErrorClasses(t *testing.T) {
	t.Parallel()
	s := open(t)
	fails := func(sql string) error {
		_, err := s.pool.Exec(t.Context(), sql)
		if err == nil {
			t.Fatalf("%s: no error", sql)
		}
		return err
	}
	for sql, want := range map[string]struct{ refused, away, repeatable, answered bool }{
		`SELECT 1 / 0`: {refused: true},
		`INSERT INTO kagzi.workflow_runs (run_id, namespace_id) VALUES (gen_random_uuid(), 'x')`: {refused: true},
		`DO $$ BEGIN RAISE 'no'; END $$`:                        {refused: true},
		`DO $$ BEGIN RAISE 'x' USING ERRCODE = '40P01'; END $$`: {repeatable: true},
		`DO $$ BEGIN RAISE 'x' USING ERRCODE = '40001'; END $$`: {repeatable: true},
		`DO $$ BEGIN RAISE 'x' USING ERRCODE = '0A000'; END $$`: {},
		`DO $$ BEGIN RAISE 'x' USING ERRCODE = '53300'; END $$`: {away: true},
		`DO $$ BEGIN RAISE 'x' USING ERRCODE = '53100'; END $$`: {away: true, answered: true},
		`DO $$ BEGIN RAISE 'x' USING ERRCODE = '58030'; END $$`: {away: true, answered: true},
		`DO $$ BEGIN RAISE 'x' USING ERRCODE = '25006'; END $$`: {away: true},
		`DO $$ BEGIN RAISE 'x' USING ERRCODE = '57P01'; END $$`: {away: true},
		`DO $$ BEGIN RAISE 'x' USING ERRCODE = '55P03'; END $$`: {},
		`SELECT nonsense`: {},
		`BEGIN READ ONLY; DELETE FROM kagzi.workers; COMMIT`:            {away: true},
		`SELECT pg_terminate_backend(pg_backend_pid())`:                 {away: true},
		`SET statement_timeout = 1; SELECT pg_sleep(10); COMMIT`:        {away: true},
		`SELECT 'x'::text || U&'\0041' || convert_from('\xff', 'UTF8')`: {refused: true},
	} {
		err := fails(sql)
		if pg.Refused(err) != want.refused || pg.Unavailable(err) != want.away ||
			pg.Repeatable(err) != want.repeatable ||
			want.away && pg.Answered(err) != want.answered {
			t.Errorf("%s: %v: refused %t, away %t, repeatable %t, answered %t; want %+v", sql, err, pg.Refused(err),
				pg.Unavailable(err), pg.Repeatable(err), pg.Answered(err), want)
		}
	}
	if pg.Unavailable(nil) || pg.Refused(nil) || pg.Repeatable(nil) {
		t.Error("nil is in a class")
	}
}

func TestCheckRights(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	if err := New(db.Pool, "test").CheckRights(t.Context()); err != nil {
		t.Fatal(err)
	}
	readOnly := poolWith(t, db.DSN, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	})
	if err := New(readOnly, "test").CheckRights(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "read-only") {
		t.Errorf("error %v for a read-only session", err)
	}
	poor := poolWith(t, db.DSN, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["role"] = "pg_monitor" })
	if err := New(poor, "test").CheckRights(t.Context()); err == nil ||
		err.Error() != `user "pg_monitor" lacks USAGE on schema kagzi and SELECT, INSERT, UPDATE, DELETE, TRUNCATE `+
			`on the tables of schema kagzi and SELECT, USAGE on kagzi.event_positions and SELECT on `+
			`kagzi.schema_migrations: GRANT USAGE ON SCHEMA kagzi TO "pg_monitor"; `+
			`GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA kagzi TO "pg_monitor"; `+
			`GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA kagzi TO "pg_monitor"` {
		t.Errorf("error %v for a user without rights", err)
	}
	odd := &MissingRights{User: `o"dd`, Tables: "INSERT on kagzi.workers", Worker: true}
	if got, want := odd.Grants(), `GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE `+
		`ON ALL TABLES IN SCHEMA kagzi TO "o""dd"; GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA kagzi `+
		`TO "o""dd"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// cancelled returns the error of a Cancel.
func cancelled(_ *CancelledRuns, err error) error { return err }

func mustCancel(t *testing.T, s *Store, id uuid.UUID, reason string) {
	t.Helper()
	if err := cancelled(s.Runs.Cancel(t.Context(), nil, id, Why{Reason: reason}, 0)); err != nil {
		t.Fatal(err)
	}
}

func mustResume(t *testing.T, s *Store, id uuid.UUID) {
	t.Helper()
	if _, err := s.Runs.Resume(t.Context(), nil, id, Why{}); err != nil {
		t.Fatal(err)
	}
}
