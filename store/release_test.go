package store

import (
	"context"
	"errors"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
)

// Each dead worker has transactions of its own: one that cannot be declared dead does not delay the others.
func TestReleaseLostOneByOne(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool,
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$`)
	exec(t, s.pool, `CREATE TRIGGER refuse BEFORE UPDATE ON kagzi.workers FOR EACH ROW
		WHEN (new.status = 'OFFLINE' AND new.pid = 666) EXECUTE FUNCTION refuse()`)
	dead := make([]Worker, 3)
	for i := range dead {
		dead[i] = register(t, s)
		start(t, s, newRun())
		claim(t, s, request(1, func(r *ClaimRequest) { r.Worker = dead[i].ID }))
		silence(t, s, dead[i].ID, time.Hour)
	}
	exec(t, s.pool, `UPDATE kagzi.workers SET pid = 666 WHERE worker_id = (SELECT worker_id FROM kagzi.workers
		ORDER BY 1 LIMIT 1)`)
	lost, err := s.Workers.ReleaseLost(t.Context())
	if !pg.Refused(err) || len(lost) != 2 || lost[0].Released != 1 || lost[1].Released != 1 {
		t.Errorf("lost %+v, error %v", lost, err)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE available_at <= now()`); n != 2 {
		t.Errorf("%d runs are due, want 2", n)
	}
}

// More runs than one transaction takes are released in order, each batch in a transaction of its own.
func TestReleaseInBatches(t *testing.T) {
	t.Parallel()
	s := open(t)
	const n = 2*releaseBatch + 7
	fellSilent(t, s, n)
	lost, err := s.Workers.ReleaseLost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].Released != n || lost[0].Left != 0 {
		t.Fatalf("lost %+v, error %v", lost, err)
	}
	if got := one[string](t, s.pool, `SELECT string_agg(c::text, ' ' ORDER BY at)
		FROM (SELECT available_at AS at, count(*) AS c FROM kagzi.workflow_runs GROUP BY 1) b`); got != "500 500 7" {
		t.Errorf("batches of %s", got)
	}
	if !one[bool](t, s.pool, `SELECT bool_and(r.run_id > q.run_id) FROM kagzi.workflow_runs r JOIN kagzi.workflow_runs q
		ON q.available_at < r.available_at AND q.namespace_id = r.namespace_id`) {
		t.Error("the batches are not in order of run_id")
	}
}

// A run that cannot be changed does not keep others from being released, not even those of later batches.
func TestReleaseGoesOnAfterWhatIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	const n = releaseBatch + 10
	w, rs := fellSilent(t, s, n)
	refuseUpdate(t, s, rs[3].RunID)
	refused := func(w LostWorker) bool {
		return pg.Code(w.Refused) == "XX001" && strings.Contains(w.Refused.Error(), rs[3].RunID.String())
	}
	lost, err := s.Workers.ReleaseLost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].Released != n-1 || lost[0].Left != 1 || !refused(lost[0]) {
		t.Fatalf("lost %+v, error %v", lost, err)
	}
	exec(t, s.pool, `UPDATE kagzi.workers SET release_at = now()`)
	lost, err = s.Workers.ReleaseRemaining(t.Context())
	if err != nil || len(lost) != 1 || lost[0].Released != 0 || lost[0].Left != 1 || !refused(lost[0]) {
		t.Errorf("left %+v, error %v", lost, err)
	}
	exec(t, s.pool, `DROP TRIGGER damaged ON kagzi.workflow_runs`)
	exec(t, s.pool, `UPDATE kagzi.workers SET release_at = now()`)
	lost, err = s.Workers.ReleaseRemaining(t.Context())
	if err != nil || len(lost) != 1 || lost[0].ID != w.ID || lost[0].Released != 1 || lost[0].Left != 0 ||
		lost[0].Refused != nil {
		t.Errorf("left %+v, error %v", lost, err)
	}
}

// A whole batch that another transaction has locked does not keep others from being released.
func TestReleasePassesOverABatchOfLocks(t *testing.T) {
	t.Parallel()
	s := open(t)
	fellSilent(t, s, releaseBatch+10)
	tx := begin(t, s)
	exec(t, tx, `SELECT FROM kagzi.workflow_runs WHERE run_id IN (SELECT run_id FROM kagzi.workflow_runs ORDER BY 1
		LIMIT $1) FOR UPDATE`, releaseBatch)
	lost, err := s.Workers.ReleaseLost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].Released != 10 || lost[0].Left != releaseBatch {
		t.Errorf("lost %+v, error %v", lost, err)
	}
	commit(t, tx)
}

// A run that another transaction has locked is released once it is unlocked, not when its lease ends. A claim that was
// under way when its worker was declared dead is found.
func TestReleaseComesAgain(t *testing.T) {
	t.Parallel()
	s := open(t)
	w, rs := fellSilent(t, s, 2)
	tx := begin(t, s)
	lockRow(t, tx, rs[0].RunID)
	passes := func(d time.Duration) {
		t.Helper()
		exec(t, s.pool, `UPDATE kagzi.workers SET release_at = release_at - $1::interval,
			stopped_at = stopped_at - $1::interval`, d)
	}
	next := func(after string) float64 {
		t.Helper()
		return one[float64](t, s.pool, `SELECT coalesce(extract(epoch FROM release_at - `+after+`), -1)::float8
			FROM kagzi.workers`)
	}
	lost, err := s.Workers.ReleaseLost(t.Context())
	if err != nil || len(lost) != 1 || lost[0].Released != 1 || lost[0].Left != 1 {
		t.Fatalf("lost %+v, error %v", lost, err)
	}
	if got := next("now()"); got > 1 || got == -1 {
		t.Errorf("looked at again in %v s, want 1 at the most", got)
	}
	passes(2 * time.Second)
	if lost, err = s.Workers.ReleaseLost(t.Context()); err != nil || len(lost) != 0 {
		t.Errorf("lost %+v, error %v", lost, err)
	}
	commit(t, tx)
	passes(2 * time.Second)
	if lost, err = s.Workers.ReleaseLost(t.Context()); err != nil || len(lost) != 1 || lost[0].Released != 1 ||
		!readRow(t, s.pool, rs[0].RunID).Due {
		t.Errorf("lost %+v, error %v", lost, err)
	}
	if got := next("stopped_at"); math.Abs(got-LateClaims.Seconds()) > 0.001 {
		t.Errorf("looked at again %v s after its end, want %v", got, LateClaims)
	}
	if lost, err = s.Workers.ReleaseLost(t.Context()); err != nil || len(lost) != 0 {
		t.Errorf("looked at too soon: %+v, error %v", lost, err)
	}
	late := start(t, s, newRun(withPriority(1)))[0]
	claim(t, s, request(1, func(r *ClaimRequest) { r.Worker = w.ID }))
	passes(LateClaims)
	if lost, err = s.Workers.ReleaseLost(t.Context()); err != nil || len(lost) != 1 || !readRow(t, s.pool, late).Due {
		t.Errorf("lost %+v, error %v", lost, err)
	}
	if got := next("now()"); got != -1 {
		t.Errorf("looked at again in %v s, want never", got)
	}
	if got := events(t, s, w.ID); got != "STARTED LOST" {
		t.Errorf("events %s", got)
	}
}

// A worker that sends a heartbeat after it was found unresponsive is alive.
func TestBuryNeedsSilence(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := register(t, s)
	silence(t, s, w.ID, time.Hour)
	silent, err := s.Workers.Silent(t.Context())
	if err != nil || len(silent) != 1 {
		t.Fatalf("silent %+v, error %v", silent, err)
	}
	if _, err := s.Workers.Heartbeat(t.Context(), s.pool,
		Heartbeat{Number: 1, Worker: w.ID, Queues: w.Queues}); err != nil {
		t.Fatal(err)
	}
	if lost, err := s.Workers.DeclareDead(t.Context(), silent[0], ""); err != nil || lost != nil {
		t.Errorf("declared dead: %+v, error %v", lost, err)
	}
	silence(t, s, w.ID, time.Hour)
	if silent, err = s.Workers.Silent(t.Context()); err != nil || len(silent) != 1 {
		t.Fatalf("silent %+v, error %v", silent, err)
	}
	tx := begin(t, s)
	exec(t, tx, `UPDATE kagzi.workers SET heartbeat_at = now()`)
	if lost, err := s.Workers.DeclareDead(t.Context(), silent[0], ""); err != nil || lost != nil {
		t.Errorf("a worker whose heartbeat is under way is declared dead: %+v, error %v", lost, err)
	}
	commit(t, tx)
	if got := events(t, s, w.ID); got != "STARTED" {
		t.Errorf("events %s", got)
	}
}

// connected registers a worker on a connection of its own.
func connected(t *testing.T, s *Store, dsn string) (Worker, *pgx.Conn) {
	t.Helper()
	conn := dbtest.Connect(t, dsn)
	w := worker()
	var err error
	if w.Backend, err = s.Workers.PrepareHeartbeats(t.Context(), conn); err != nil || w.Backend.PID == 0 {
		t.Fatalf("backend %+v, error %v", w.Backend, err)
	}
	if err := s.Workers.Register(t.Context(), conn, w); err != nil {
		t.Fatal(err)
	}
	return w, conn
}

func terminate(t *testing.T, db pg.DB, pid int32) {
	t.Helper()
	exec(t, db, `SELECT pg_terminate_backend($1::int, 10000)`, pid) // returns once the backend has ended
}

func gone(t *testing.T, s *Store) (ids []uuid.UUID) {
	t.Helper()
	fleet, err := s.Workers.CheckFleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range fleet.Disconnected {
		ids = append(ids, w.ID)
	}
	return ids
}

func TestGoneWorkers(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.AsOwner())
	s := New(db.Pool, "test")
	w, _ := connected(t, s, db.DSN)
	unknown := register(t, s) // without a known backend
	if got := gone(t, s); len(got) != 0 {
		t.Fatalf("gone %v", got)
	}
	only := func(what string) {
		t.Helper()
		if got := gone(t, s); len(got) != 1 || got[0] != w.ID {
			t.Errorf("%s: gone %v, want %v and not %v", what, got, w.ID, unknown.ID)
		}
	}
	none := func(what string) {
		t.Helper()
		if got := gone(t, s); len(got) != 0 {
			t.Errorf("%s: gone %v", what, got)
		}
	}
	terminate(t, db.Pool, w.Backend.PID)
	only("its connection is terminated")
	if got, err := New(db.Pool, "other").Workers.CheckFleet(t.Context()); err != nil || len(got.Disconnected) != 0 {
		t.Errorf("in another namespace: %v, %v", got, err)
	}

	conn := dbtest.Connect(t, db.DSN)
	again, err := s.Workers.PrepareHeartbeats(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := s.Workers.Heartbeat(t.Context(), conn, Heartbeat{
		Number: 2, Worker: w.ID, Queues: w.Queues,
		Backend: again,
	}); err != nil || !p.Own {
		t.Errorf("%+v, %v", p, err)
	}
	none("it sent a heartbeat over another")
	exec(t, db.Pool, `UPDATE kagzi.workers SET backend_start = backend_start - interval '1 second'
		WHERE backend_pid IS NOT NULL`)
	only("the process ID is another's by now")
	exec(t, db.Pool, `UPDATE kagzi.workers SET server_start = server_start - interval '1 second'
		WHERE backend_pid IS NOT NULL`)
	none("its server is not this one")
	if p, err := s.Workers.Heartbeat(t.Context(), db.Pool, Heartbeat{
		Number: 3, Worker: w.ID, Queues: w.Queues,
		Backend: again,
	}); err != nil || p.Own {
		t.Errorf("a heartbeat over another connection than it says: %+v, %v", p, err)
	}
	if _, err := s.Workers.Heartbeat(t.Context(), conn,
		Heartbeat{Number: 4, Worker: w.ID, Queues: w.Queues}); err != nil {
		t.Error(err)
	}
	terminate(t, db.Pool, again.PID)
	none("there is no evidence")
}

// A user who may see few details of others' connections still sees whether they exist.
func TestGoneWorkersOfAnotherUser(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	role := "kagzi_" + uuid.NewString()[:8]
	exec(t, db.Pool, `CREATE ROLE `+role+` LOGIN PASSWORD 'secret'`)
	t.Cleanup(func() {
		_, _ = db.Pool.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role,
			pgx.QueryExecModeSimpleProtocol)
	})
	exec(t, db.Pool, `GRANT USAGE ON SCHEMA kagzi TO `+role)
	exec(t, db.Pool, `GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA kagzi TO `+role+
		`; GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA kagzi TO `+role)
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.User, cfg.ConnConfig.Password = role, "secret"
	plain, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	admin, other := New(db.Pool, "test"), New(plain, "test")
	w, _ := connected(t, admin, db.DSN)
	if one[bool](t, plain, `SELECT backend_start IS NOT NULL FROM pg_stat_activity WHERE pid = $1`, w.Backend.PID) {
		t.Fatal("INVALID: the user sees all")
	}
	if got := gone(t, other); len(got) != 0 {
		t.Errorf("gone %v, but its connection is there", got)
	}
	exec(t, db.Pool, `UPDATE kagzi.workers SET backend_start = backend_start - interval '1 second'`)
	if got := gone(t, other); len(got) != 0 {
		t.Errorf("gone %v, but whose the connection is cannot be seen", got)
	}
	terminate(t, db.Pool, w.Backend.PID)
	if got := gone(t, other); len(got) != 1 {
		t.Errorf("gone %v, want the one", got)
	}

	mine, _ := connected(t, other, userDSN(t, db.DSN, role))
	if got := gone(t, admin); len(got) != 1 || got[0] == mine.ID {
		t.Errorf("gone %v, but the connection of %v is there", got, mine.ID)
	}
	exec(t, db.Pool, `REVOKE EXECUTE ON FUNCTION pg_stat_get_backend_idset FROM PUBLIC`)
	defer exec(t, db.Pool, `GRANT EXECUTE ON FUNCTION pg_stat_get_backend_idset TO PUBLIC`)
	exec(t, db.Pool, `REVOKE SELECT ON pg_stat_activity FROM PUBLIC`)
	defer exec(t, db.Pool, `GRANT SELECT ON pg_stat_activity TO PUBLIC`)
	if _, err := other.Workers.CheckFleet(t.Context()); !Forbidden(err) {
		t.Errorf("error %v", err)
	}
	conn := dbtest.Connect(t, userDSN(t, db.DSN, role))
	if b, err := other.Workers.PrepareHeartbeats(t.Context(), conn); err != nil || b != (Backend{}) {
		t.Errorf("backend %+v, error %v", b, err)
	}
}

func userDSN(t *testing.T, dsn, user string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, "secret")
	return u.String()
}

// ReleaseLost releases the runs of silent workers, as a coordinator does after it has waited long enough.
func (s Workers) ReleaseLost(ctx context.Context) ([]LostWorker, error) {
	silent, err := s.Silent(ctx)
	if err != nil {
		return nil, err
	}
	silent = slices.DeleteFunc(silent, func(w UnresponsiveWorker) bool { return !w.Silent })
	lost, err := s.ReleaseUnresponsive(ctx, silent, "no heartbeat")
	again, err2 := s.ReleaseRemaining(ctx)
	return append(lost, again...), errors.Join(err, err2)
}
