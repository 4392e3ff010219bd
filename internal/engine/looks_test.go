package engine_test

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/engine"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestFullLookFindsWhatOthersMiss makes a run due long ago, as if its start were committed only now: a claim that is no full look
// misses it and comes again, and the next full look finds it. A clock that is set back is found in the same way.
func TestFullLookFindsWhatOthersMiss(t *testing.T) {
	t.Parallel()
	for name, happens := range map[string]func(*testing.T, *dbtest.DB, *engine.HeldSession){
		"a late commit": func(t *testing.T, db *dbtest.DB, _ *engine.HeldSession) {
			dbtest.Exec(t, db.Pool, `UPDATE kagzi.workflow_runs SET available_at = now() - interval '1 hour'`)
		},
		"a clock set back": func(_ *testing.T, _ *dbtest.DB, s *engine.HeldSession) { s.Reached(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			c := kit.NewClient(t, db.Pool)
			w := kit.NewWorker(t, c, kagzi.WorkerConfig{PollInterval: time.Hour})
			wf := kagzi.Define[int, int]("wf")
			kagzi.Handle(w, wf, func(kagzi.Context, int) (int, error) { return 1, nil })
			s, err := engine.NewHeldSession(t.Context(), configOf(t, w))
			if err != nil {
				t.Fatal(err)
			}
			if pause := s.Claim(t.Context(), 10); pause != time.Hour {
				t.Errorf("pause %v after a full look, want the poll interval", pause)
			}
			runs := kit.StartRuns(t, c, wf, 1)
			happens(t, db, s)
			s.LastFullLook(time.Minute)
			if pause := s.Claim(t.Context(), 10); s.Executes() || pause < 8*time.Minute || pause > 9*time.Minute {
				t.Fatalf("INVALID: executes %t, pause %v; want the next full look in about 9 minutes", s.Executes(), pause)
			}
			s.LastFullLook(0)
			s.Claim(t.Context(), 10)
			s.Flush(await.Receive(t, s.Come))
			kit.CheckResults(t, runs, func(int) int { return 1 })
			s.LastFullLook(time.Minute)
			next := kit.StartRuns(t, c, wf, 1)
			s.Claim(t.Context(), 10) // from where the full look got to
			s.Flush(await.Receive(t, s.Come))
			kit.CheckResults(t, next, func(int) int { return 1 })
		})
	}
}
