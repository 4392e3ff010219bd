package inspect

import (
	"fmt"
	"testing"

	"github.com/kagzi/kagzi/store"
)

func TestDeleteLimit(t *testing.T) {
	t.Parallel()
	s := open(t)
	setLimit(t, s, store.StepLimit{Name: "api", MaxRunning: 1})
	runs := running(t, s, 2)
	askLimit(t, s, "api", runs...)
	if found, used, err := s.Limits.Delete(t.Context(), "api", store.Why{}); !found || !used || err != nil {
		t.Errorf("a limit in use: %v %v %v", found, used, err)
	}
	list, err := s.View.Limits(t.Context(), "", 10)
	if err != nil || len(list) != 1 || list[0].Running != 1 || list[0].Waiting != 1 || list[0].MaxRunning != 1 {
		t.Errorf("limits: %+v, %v", list, err)
	}
	names, err := s.Limits.Waiting(t.Context())
	if err != nil || fmt.Sprint(names) != "[api]" {
		t.Errorf("limits that steps wait for: %v, %v", names, err)
	}
	serve(t, s, "api", store.LimitRequest{Leaves: placesOf(runs[1])})
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET status = 'CANCELLED', available_at = NULL,
		finished_at = now() - interval '11 s', error_kind = 'cancelled' WHERE run_id = $1`, runs[0].RunID)
	mustDelete(t, s, runs[0].RunID) // its worker has died, and its slot stays until the limit is served
	if found, used, err := s.Limits.Delete(t.Context(), "api", store.Why{}); !found || used || err != nil {
		t.Errorf("an unused limit: %v %v %v", found, used, err)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.limit_places`); n != 0 {
		t.Errorf("%d places are left of a limit that is gone", n)
	}
	if found, _, err := s.Limits.Delete(t.Context(), "api", store.Why{}); found || err != nil {
		t.Errorf("a limit that is gone: %v %v", found, err)
	}
}
