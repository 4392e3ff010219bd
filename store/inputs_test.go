package store

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// Only the statements that send an input read it: a run whose input is damaged is claimed without it, sleeps, fails, is
// resumed and completes.
func TestDamagedInput(t *testing.T) {
	t.Parallel()
	dbtest.NotOnCitus(t, "the test damages an index of one server")
	s := open(t, dbtest.AsOwner())
	id := start(t, s, newRun())[0]
	exec(t, s.pool, `UPDATE kagzi.workflow_runs
		SET input = (SELECT convert_to(string_agg(md5(random()::text), ''), 'UTF8') FROM generate_series(1, 1000))`)
	readable := func(is bool) {
		tx := begin(t, s)
		exec(t, tx, `SET LOCAL allow_system_table_mods = on`)
		exec(t, tx, `UPDATE pg_index SET indisvalid = $1 WHERE indrelid = (SELECT reltoastrelid FROM pg_class
			WHERE oid = 'kagzi.workflow_runs'::regclass)`, is)
		commit(t, tx)
	}
	readable(false)
	if c, err := s.Claims.Claim(t.Context(), request(1)); err == nil {
		t.Fatalf("claimed %+v: the test shows nothing", c)
	}
	without := request(1, func(r *ClaimRequest) { r.NoInputs = true })
	take := func(req ClaimRequest) *ClaimedRun {
		t.Helper()
		c := claim(t, s, req)
		if len(c.Runs) != 1 || c.Runs[0].Input != nil {
			t.Fatalf("claimed %+v", c)
		}
		return c.Runs[0]
	}
	suspension := sleep(take(without), 0)
	flush(t, s, &Flush{Suspensions: []*Suspension{suspension}})
	wantOutcome(t, "suspend", suspension.Outcome, Done)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET load_failures = 1`)
	r := take(request(1)) // it leaves out the input of a run that could not be read
	flush(t, s, &Flush{Records: []*Record{record(r, "step", "x")}, Finishes: []*Finish{failing(r)}})
	mustResume(t, s, id)
	end := finish(take(without))
	flush(t, s, &Flush{Finishes: []*Finish{end}})
	wantOutcome(t, "finish", end.Outcome, Done)
	if ended, _, err := s.Runs.Ended(t.Context(), []uuid.UUID{id}, time.Minute); err != nil || len(ended) != 1 ||
		string(ended[0].Output) != "output" {
		t.Errorf("ended %+v, error %v", ended, err)
	}
	if _, err := s.Runs.Get(t.Context(), id); err == nil {
		t.Error("the damaged input was read")
	}
	readable(true)
	if run, err := s.Runs.Get(t.Context(), id); err != nil || len(run.Input) != 32_000 {
		t.Errorf("%d bytes, error %v", len(run.Input), err)
	}
}
