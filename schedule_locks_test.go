package kagzi

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store"
)

// A run that a tick has already, by a backfill, is locked by a caller's transaction: the schedule is put off, and all
// others fire.
func TestLockedRunHoldsUpItsScheduleAlone(t *testing.T) {
	k := newKit(t)
	co := k.coordinator()
	start := k.now().Add(-1000*time.Hour - 30*time.Minute)
	k.schedule(Schedule{Name: "a", Every: time.Hour, Start: start})
	k.schedule(Schedule{Name: "b", Every: time.Hour, Start: start})
	k.missed("a", 3*time.Hour)
	k.missed("b", 3*time.Hour)
	if n, err := k.c.BackfillSchedule(k.ctx, "a", k.now().Add(-3*time.Hour), k.now()); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	tx := k.callersTx()
	k.cancel(k.fired("a")[2].ID, InTx(tx))
	k.pass(co)
	if n := len(k.fired("b")); n != 3 {
		t.Errorf("b has %d runs while a caller's transaction holds one of a's, want 3", n)
	}
	if info := k.info("a"); info.Paused || info.Error != "" {
		t.Errorf("a is not put off but %+v", info)
	}
	rollbackTx(t, tx)
	k.exec(`UPDATE kagzi.schedules SET next_at = now() WHERE NOT paused AND name = 'a'`)
	k.pass(co)
	if info := k.info("a"); info.Next.Sub(k.now()) < time.Minute || len(k.fired("a")) != 3 {
		t.Errorf("a goes on with %d runs: %+v", len(k.fired("a")), info)
	}
}

// Replacing a run waits only briefly for what a caller's transaction holds, be it the run or the schedule, and changes
// nothing then: the caller may be busy for a minute, and the other schedules are fired by the same loop.
func TestReplaceWaitsForNoCaller(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*kit, pgx.Tx) error{
		"Run": func(k *kit, tx pgx.Tx) error { return k.c.Cancel(k.ctx, k.fired("s")[0].ID, InTx(tx)) },
		"Schedule": func(k *kit, tx pgx.Tx) error {
			return second(k.c.TriggerSchedule(k.ctx, "s", InTx(tx)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			co := k.coordinator()
			k.replacing(Schedule{Name: "s"})
			seen := k.template("s")
			tx := k.callersTx()
			if err := hold(k, tx); err != nil {
				t.Fatal(err)
			}
			if err := co.house.Replace(k.ctx, seen, 100*time.Millisecond); err != nil { // it returns while the transaction is open
				t.Errorf("replace: %v", err)
			}
			if got := k.states("s"); got != "PENDING" {
				t.Errorf("runs: %s", got)
			}
			k.schedule(Schedule{Name: "other", Every: time.Hour})
			k.missed("other", time.Hour)
			k.pass(co)
			if n := len(k.fired("other")); n != 1 {
				t.Errorf("the other schedule has %d runs, want 1", n)
			}
			rollbackTx(t, tx)
			k.exec(`UPDATE kagzi.schedules SET next_at = now() WHERE NOT paused AND name = 's'`)
			k.pass(co)
			if got := k.states("s"); got != "CANCELLED PENDING" {
				t.Errorf("runs: %s after the caller's transaction", got)
			}
		})
	}
}

// An edit that waited for a transaction which deleted the schedule and created it again decides with the new row's lock.
func TestEditOfARecreatedScheduleHasItsLock(t *testing.T) {
	k := newKit(t)
	s := Schedule{Name: "s", Every: time.Hour, Run: report.With("")}
	k.schedule(s)
	tx := k.callersTx()
	if err := k.c.DeleteSchedule(k.ctx, "s", InTx(tx)); err != nil {
		t.Fatal(err)
	}
	if err := k.c.Schedule(k.ctx, s, InTx(tx)); err != nil {
		t.Fatal(err)
	}
	type look struct{ exists, locked bool }
	looks, done := make(chan look, 10), make(chan error, 1)
	go func() {
		_, err := k.c.store.EditSchedule(k.ctx, nil, k.c.scheduleID("s"), func(_ time.Time, t *store.Template) (*store.Edit, error) {
			_, err := k.pool.Exec(k.ctx, `SELECT FROM kagzi.schedules WHERE name = 's' FOR UPDATE NOWAIT`)
			looks <- look{t != nil, store.Locked(err)}
			return nil, nil
		})
		done <- err
	}()
	await.True(t, "the edit waits for the transaction", func() bool {
		return k.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	commitTx(t, tx)
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
	k := newKit(t)
	k.schedule(Schedule{Name: "s", Every: time.Hour})
	k.exec(`CREATE TABLE seen (timeout text)`)
	k.exec(`CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO seen SELECT current_setting('idle_in_transaction_session_timeout'); RETURN NEW; END $$`)
	k.exec(`CREATE TRIGGER see BEFORE UPDATE ON kagzi.schedules FOR EACH ROW EXECUTE FUNCTION see()`)
	if err := k.c.PauseSchedule(k.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if got := dbtest.QueryOne[string](t, k.pool, `SELECT string_agg(timeout, ' ') FROM seen`); got != "5s" {
		t.Errorf("the edit's own transaction may be idle for %s, want 5s", got)
	}
	tx := k.callersTx()
	if _, err := tx.Exec(k.ctx, `SET LOCAL idle_in_transaction_session_timeout = '7min'`); err != nil {
		t.Fatal(err)
	}
	if err := k.c.ResumeSchedule(k.ctx, "s", InTx(tx)); err != nil {
		t.Fatal(err)
	}
	var after string
	if err := tx.QueryRow(k.ctx, `SELECT current_setting('idle_in_transaction_session_timeout')`).Scan(&after); err != nil || after != "7min" {
		t.Errorf("the caller's transaction may be idle for %s, %v", after, err)
	}
}

// An error with a code of somebody's own, by a trigger, keeps no other schedule from firing. Whose fault it is is not
// known, so the schedule is not paused: it fires once it is let.
func TestUnknownCodeBlocksNothing(t *testing.T) {
	k := newKit(t)
	co := k.coordinator()
	k.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.workflow_type = 'odds' AND NEW.schedule_id IS NOT NULL THEN RAISE 'no odds here' USING ERRCODE = 'KZ001'; END IF; RETURN NEW; END $$`)
	k.exec(`CREATE TRIGGER refuse BEFORE INSERT ON kagzi.workflow_runs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	k.schedule(Schedule{Name: "a", Every: time.Hour, Run: odds.With(1)})
	for _, name := range []string{"b", "c"} {
		k.schedule(Schedule{Name: name, Every: time.Hour})
	}
	for _, name := range []string{"a", "b", "c"} {
		k.missed(name, time.Hour)
	}
	_, err := co.house.FireSchedules(k.ctx)
	mustContain(t, err, `"a"`, "no odds here")
	for name, want := range map[string]int{"a": 0, "b": 1, "c": 1} {
		if n := len(k.fired(name)); n != want || k.info(name).Paused {
			t.Errorf("%s has %d runs, want %d; %+v", name, n, want, k.info(name))
		}
	}
	k.exec(`DROP TRIGGER refuse ON kagzi.workflow_runs`)
	k.pass(co)
	if n := len(k.fired("a")); n != 1 {
		t.Errorf("a has %d runs, want 1", n)
	}
}

// One transaction copies at most 64 MiB of input, and what is left comes in the next; an input larger than that is
// alone in its own.
func TestFiringIsBoundedInBytes(t *testing.T) {
	k := newKit(t)
	start := k.now().Add(-1000*time.Hour - 30*time.Minute)
	for name, size := range map[string]int{"a": 20 << 20, "b": 20 << 20, "c": 70 << 20} {
		k.schedule(Schedule{Name: name, Every: time.Hour, Start: start})
		k.missed(name, 2*time.Hour)
		// It is stored compressed, and copied so.
		k.exec(`UPDATE kagzi.schedules SET input = convert_to(repeat('x', $2), 'UTF8') WHERE name = $1`, name, size)
	}
	k.pass(k.coordinator())
	got := dbtest.QueryOne[string](t, k.pool, `
		SELECT sum(n) || ' runs, at most ' || max(mib) FILTER (WHERE n > 1) || ' MiB together, ' || max(n) FILTER (WHERE mib >= 70) || ' of 70'
		FROM (
			SELECT count(*) AS n, sum(octet_length(p.input)) >> 20 AS mib
			FROM kagzi.workflow_runs r JOIN kagzi.workflow_payloads p USING (run_id)
			WHERE r.schedule_id IS NOT NULL GROUP BY p.xmin::text
		) x`)
	if got != "6 runs, at most 60 MiB together, 1 of 70" {
		t.Errorf("transactions: %s", got)
	}
}
