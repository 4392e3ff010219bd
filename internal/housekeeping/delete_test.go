package housekeeping

import (
	"context"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/store"
)

// A Delete of a long run fails halfway, as if its process had died. The coordinator does the rest, although it keeps
// all other runs for ever.
func TestFinishDeletions(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	logged := &testlog.Buffer{}
	k := newCoordinator(t, pool, func(cfg *Config) { cfg.Keep.Forever, cfg.Log = true, logged.Logger() })
	addOld(t, pool, "long", "FAILED", 0, 2)
	addOld(t, pool, "other", "FAILED", 1000, 1)
	addSteps(t, pool, "long", deleteRows)
	dbtest.Exec(t, pool,
		`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'the process dies'; END $$`)
	dbtest.Exec(t, pool, `CREATE TRIGGER fail BEFORE DELETE ON kagzi.step_runs FOR EACH ROW EXECUTE FUNCTION fail()`)
	t.Cleanup(func() { dbtest.Exec(t, pool, `DROP FUNCTION IF EXISTS fail() CASCADE`) })
	var bad uuid.UUID
	for range 2 {
		bad = dbtest.QueryOne[uuid.UUID](t, pool, `SELECT run_id FROM kagzi.workflow_runs WHERE workflow_type = 'long'
			AND waiting_on IS NULL LIMIT 1`)
		if _, err := k.cfg.Store.Deletions.Delete(t.Context(), nil, bad, store.Why{Actor: "ada"}, false); err == nil {
			t.Fatal("the deletion does not fail")
		}
	}
	if pause, err := k.FinishDeletions(t.Context()); err != nil || pause != deletionsRest {
		t.Errorf("pause %v, error %v, although nothing but the runs is to blame", pause, err)
	}
	logged.WantLine(t, "some runs that are to be deleted cannot be", "the process dies")
	wantLeft(t, pool, "long 2, other 1")

	dbtest.Exec(t, pool, `CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF OLD.run_id = '`+bad.String()+`' THEN RAISE 'a foreign key'; END IF; RETURN OLD; END $$`)
	if _, err := k.FinishDeletions(t.Context()); err != nil {
		t.Error(err)
	}
	wantLeft(t, pool, "long 1, other 1") // one that cannot be deleted does not hold up the others

	dbtest.Exec(t, pool, `DROP FUNCTION fail() CASCADE`)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	await.True(t, "the coordinator finishes the deletion", func() bool { return left(t, pool) == "other 1" })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := dbtest.QueryOne[int](t, pool, `SELECT count(*) FROM kagzi.step_runs`); n != 0 {
		t.Errorf("%d steps are left", n)
	}
	if events := dbtest.QueryOne[string](t, pool, `SELECT string_agg(event || ' ' || actor, ', ')
		FROM kagzi.run_events`); events != "DELETED ada, DELETED ada" {
		t.Errorf("events: %s", events)
	}
}

// Another process is deleting a long run that is past its retention: that is no reason to warn. If the other one dies,
// the next scan deletes it.
func TestRetentionMeetsADelete(t *testing.T) {
	logged := &testlog.Buffer{}
	pool, k := retaining(t, func(cfg *Config) { cfg.Log = logged.Logger() })
	addOld(t, pool, "long", "FAILED", 40, 1)
	addOld(t, pool, "other", "FAILED", 41, 1)
	addSteps(t, pool, "long", deleteRows+10)
	tx := dbtest.BeginWith(t, pool, `DELETE FROM kagzi.step_runs WHERE step_id = 'step-7'`)
	scanOnce(t, k)
	wantLeft(t, pool, "long 1")
	if logged.Has("cannot be deleted") {
		t.Errorf("it says\n%s", logged)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	scanOnce(t, k)
	wantLeft(t, pool, "none")
}
