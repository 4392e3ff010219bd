package inspect

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A worker that lives extends its leases when half of them is left. A run whose lease it does not extend is one that it
// does not know.
func TestUnextendedRuns(t *testing.T) {
	t.Parallel()
	s := open(t)
	ids := start(t, s, newRun(), newRun(), newRun(), newRun(withTimeout(time.Minute)))
	req := request(10)
	claim(t, s, req)
	register := func(change func(*store.Worker)) {
		t.Helper()
		w := store.Worker{
			ID: req.Worker, Queues: []string{"queue"}, Types: []string{"type"}, LeaseTimeout: 5 * time.Minute,
			StaleAfter: 10 * time.Second,
		}
		change(&w)
		exec(t, s.pool, `DELETE FROM kagzi.workers`)
		if err := s.Workers.Register(t.Context(), s.pool, w); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET available_at = now() + CASE
		WHEN run_id = $1 THEN interval '2 minutes' WHEN run_id = $2 THEN interval '145 seconds'
			ELSE interval '4 minutes' END
		WHERE deadline_at IS NULL`, ids[0], ids[1])
	want := func(name string, want ...uuid.UUID) {
		t.Helper()
		found, err := s.UnextendedRuns(t.Context(), s.pool, []string{"queue"}, []string{"type"}, 10)
		var got []uuid.UUID
		for _, r := range found {
			got = append(got, r.RunID)
			if r.Worker != req.Worker || r.Queue != "queue" || r.Type != "type" || time.Until(r.Ends) > 3*time.Minute {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: found %v, error %v, want %v", name, got, err, want)
		}
	}
	register(func(*store.Worker) {})
	want("Live", ids[0])
	register(func(w *store.Worker) { w.FixedLease = true })
	want("FixedLease")
	register(func(w *store.Worker) { w.ID = uuid.New() })
	want("Unknown")
	register(func(*store.Worker) {})
	exec(t, s.pool, `UPDATE kagzi.workers SET heartbeat_at = now() - interval '11 seconds'`)
	want("Silent")
}
