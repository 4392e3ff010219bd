package schedules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// A run that a tick has already, by a backfill, is locked by a caller's transaction: the schedule is put off, and all
// others fire.
func TestLockedRunHoldsUpItsScheduleAlone(t *testing.T) {
	k := kit.New(t)
	co := k.Coordinator()
	start := k.Now().Add(-1000*time.Hour - 30*time.Minute)
	k.Schedule(kagzi.Schedule{Name: "a", Every: time.Hour, Start: start})
	k.Schedule(kagzi.Schedule{Name: "b", Every: time.Hour, Start: start})
	k.Missed("a", 3*time.Hour)
	k.Missed("b", 3*time.Hour)
	if n, err := admin.New(k.Client).Schedules.Backfill(k.Ctx, "a", k.Now().Add(-3*time.Hour), k.Now()); n != 3 ||
		err != nil {
		t.Fatal(n, err)
	}
	tx := k.CallersTx()
	k.Cancel(k.Fired("a")[2].ID, kagzi.InTx(tx))
	k.Pass(co)
	if n := len(k.Fired("b")); n != 3 {
		t.Errorf("b has %d runs while a caller's transaction holds one of a's, want 3", n)
	}
	if info := k.Info("a"); info.Paused || info.Error != "" {
		t.Errorf("a is not put off but %+v", info)
	}
	kit.RollbackTx(t, tx)
	k.Exec(`UPDATE kagzi.schedules SET next_at = now() WHERE NOT paused AND name = 'a'`)
	k.Pass(co)
	if info := k.Info("a"); info.Next.Sub(k.Now()) < time.Minute || len(k.Fired("a")) != 3 {
		t.Errorf("a goes on with %d runs: %+v", len(k.Fired("a")), info)
	}
}

// Replacing a run waits only briefly for what a caller's transaction holds, be it the run or the schedule, and changes
// nothing then: the caller may be busy for a minute, and the other schedules are fired by the same loop.
func TestReplaceWaitsForNoCaller(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*kit.Kit, pgx.Tx) error{
		"Run": func(k *kit.Kit, tx pgx.Tx) error { return k.Client.Cancel(k.Ctx, k.Fired("s")[0].ID, kagzi.InTx(tx)) },
		"Schedule": func(k *kit.Kit, tx pgx.Tx) error {
			return kit.Second(admin.New(k.Client).Schedules.Trigger(k.Ctx, "s", kagzi.InTx(tx)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			co := k.Coordinator()
			replacing(k, kagzi.Schedule{Name: "s"})
			seen := template(k, "s")
			tx := k.CallersTx()
			if err := hold(k, tx); err != nil {
				t.Fatal(err)
			}
			if err := replace(k, seen, 100*time.Millisecond); err != nil { // it returns while the transaction is open
				t.Errorf("replace: %v", err)
			}
			if got := states(k, "s"); got != "PENDING" {
				t.Errorf("runs: %s", got)
			}
			k.Schedule(kagzi.Schedule{Name: "other", Every: time.Hour})
			k.Missed("other", time.Hour)
			k.Pass(co)
			if n := len(k.Fired("other")); n != 1 {
				t.Errorf("the other schedule has %d runs, want 1", n)
			}
			kit.RollbackTx(t, tx)
			k.Exec(`UPDATE kagzi.schedules SET next_at = now() WHERE NOT paused AND name = 's'`)
			k.Pass(co)
			if got := states(k, "s"); got != "CANCELLED PENDING" {
				t.Errorf("runs: %s after the caller's transaction", got)
			}
		})
	}
}

// An edit that waited for a transaction which deleted the schedule and created it again decides with the new row's
// lock.
func TestEditOfARecreatedScheduleHasItsLock(t *testing.T) {
	k := kit.New(t)
	s := kagzi.Schedule{Name: "s", Every: time.Hour, Run: kit.Report.With("")}
	k.Schedule(s)
	tx := k.CallersTx()
	if err := k.Client.DeleteSchedule(k.Ctx, "s", kagzi.InTx(tx)); err != nil {
		t.Fatal(err)
	}
	if err := k.Client.Schedule(k.Ctx, s, kagzi.InTx(tx)); err != nil {
		t.Fatal(err)
	}
	type look struct{ exists, locked bool }
	id := template(k, "s").ID
	looks, done := make(chan look, 10), make(chan error, 1)
	go func() {
		_, err := store.New(k.Pool, "default").Schedules.Edit(k.Ctx, nil, id,
			func(_ time.Time, t *store.Template) (*store.Edit, error) {
				_, err := k.Pool.Exec(k.Ctx, `SELECT FROM kagzi.schedules
					WHERE name = 's' AND namespace_id = 'default' FOR UPDATE NOWAIT`)
				looks <- look{t != nil, pg.Locked(err)}
				return nil, nil
			})
		done <- err
	}()
	await.True(t, "the edit waits for the transaction", func() bool {
		return dbtest.LockWaiters(t, k.Pool) == 1
	})
	kit.CommitTx(t, tx)
	if got := await.Receive(t, looks); got != (look{true, true}) {
		t.Errorf("the edit decides with %+v", got)
	}
	if err := await.Receive(t, done); err != nil || len(looks) > 0 {
		t.Errorf("edited again %d times, %v", len(looks), err)
	}
}

// A process that freezes in the middle of its edit does not keep the schedule from firing: the server ends the
// transaction. One that is a caller's is the caller's.
func TestEditEndsWhenFrozen(t *testing.T) {
	k := kit.New(t)
	k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour})
	k.Exec(`CREATE TABLE seen (timeout text)`)
	k.Exec(`CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO seen SELECT current_setting('idle_in_transaction_session_timeout'); RETURN NEW; END $$`)
	k.Exec(`CREATE TRIGGER see BEFORE UPDATE ON kagzi.schedules FOR EACH ROW EXECUTE FUNCTION see()`)
	if err := admin.New(k.Client).Schedules.Pause(k.Ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if got := dbtest.QueryOne[string](t, k.Pool, `SELECT string_agg(timeout, ' ') FROM seen`); got != "5s" {
		t.Errorf("the edit's own transaction may be idle for %s, want 5s", got)
	}
	tx := k.CallersTx()
	if _, err := tx.Exec(k.Ctx, `SET LOCAL idle_in_transaction_session_timeout = '7min'`); err != nil {
		t.Fatal(err)
	}
	if err := admin.New(k.Client).Schedules.Resume(k.Ctx, "s", kagzi.InTx(tx)); err != nil {
		t.Fatal(err)
	}
	var after string
	if err := tx.QueryRow(k.Ctx, `SELECT current_setting('idle_in_transaction_session_timeout')`).
		Scan(&after); err != nil || after != "7min" {
		t.Errorf("the caller's transaction may be idle for %s, %v", after, err)
	}
}

// An error of the server that says nothing about the schedule does not keep others from firing. The cause is unknown,
// so the schedule is not paused: it fires once the trigger allows it.
func TestUnknownCodeBlocksNothing(t *testing.T) {
	k := kit.New(t)
	co := k.Coordinator()
	k.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.workflow_type = 'odds' AND NEW.schedule_id IS NOT NULL THEN RAISE 'no odds here'
			USING ERRCODE = 'XX000'; END IF; RETURN NEW; END $$`)
	k.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON kagzi.workflow_runs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	k.Schedule(kagzi.Schedule{Name: "a", Every: time.Hour, Run: odds.With(1)})
	for _, name := range []string{"b", "c"} {
		k.Schedule(kagzi.Schedule{Name: name, Every: time.Hour})
	}
	for _, name := range []string{"a", "b", "c"} {
		k.Missed(name, time.Hour)
	}
	_, err := k.Fire(co)
	kit.MustContain(t, err, `"a"`, "no odds here")
	for name, want := range map[string]int{"a": 0, "b": 1, "c": 1} {
		if n := len(k.Fired(name)); n != want || k.Info(name).Paused {
			t.Errorf("%s has %d runs, want %d; %+v", name, n, want, k.Info(name))
		}
	}
	k.Exec(`DROP TRIGGER refuse ON kagzi.workflow_runs`)
	k.Pass(co)
	if n := len(k.Fired("a")); n != 1 {
		t.Errorf("a has %d runs, want 1", n)
	}
}

// A trigger of the application refuses the start with a code of its own: the schedule is paused with the error, and the
// others fire.
func TestOwnCodePausesItsSchedule(t *testing.T) {
	k := kit.New(t)
	k.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.workflow_type = 'odds' AND NEW.schedule_id IS NOT NULL THEN RAISE 'no odds here'
			USING ERRCODE = 'KZ001'; END IF; RETURN NEW; END $$`)
	k.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON kagzi.workflow_runs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	k.Schedule(kagzi.Schedule{Name: "a", Every: time.Hour, Run: odds.With(1)})
	k.Schedule(kagzi.Schedule{Name: "b", Every: time.Hour})
	k.Missed("a", time.Hour)
	k.Missed("b", time.Hour)
	k.Pass(k.Coordinator())
	if a := k.Info("a"); !a.Paused || !strings.Contains(a.Error, "no odds here") || len(k.Fired("a")) != 0 {
		t.Errorf("%+v", a)
	}
	if b := k.Info("b"); b.Paused || len(k.Fired("b")) != 1 {
		t.Errorf("%+v", b)
	}
	k.Exec(`DROP TRIGGER refuse ON kagzi.workflow_runs`)
}

// One transaction copies at most 64 MiB of input, and what is left comes in the next; an input larger than that is
// alone in its own.
func TestFiringIsBoundedInBytes(t *testing.T) {
	k := kit.New(t)
	start := k.Now().Add(-1000*time.Hour - 30*time.Minute)
	for name, size := range map[string]int{"a": 20 << 20, "b": 20 << 20, "c": 70 << 20} {
		k.Schedule(kagzi.Schedule{Name: name, Every: time.Hour, Start: start})
		k.Missed(name, 2*time.Hour)
		// It is stored compressed, and copied so.
		k.Exec(`UPDATE kagzi.schedules SET input = convert_to(repeat('x', $2), 'UTF8') WHERE name = $1`, name, size)
	}
	k.Pass(k.Coordinator())
	got := dbtest.QueryOne[string](t, k.Pool, `
		SELECT sum(n) || ' runs, at most ' || max(mib) FILTER (WHERE n > 1) || ' MiB together, ' || max(n) FILTER
			(WHERE mib >= 70) || ' of 70'
		FROM (
			SELECT count(*) AS n, sum(octet_length(r.input)) >> 20 AS mib
			FROM kagzi.workflow_runs r
			WHERE r.schedule_id IS NOT NULL GROUP BY r.xmin::text
		) x`)
	if got != "6 runs, at most 60 MiB together, 1 of 70" {
		t.Errorf("transactions: %s", got)
	}
}
