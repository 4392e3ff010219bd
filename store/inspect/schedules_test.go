package inspect

import (
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A schedule is not a run: no statement about runs returns it, and deleting it leaves no run behind.
func TestScheduleIsNoRun(t *testing.T) {
	t.Parallel()
	s := open(t)
	template := saveTemplate(t, s, "s")
	if list, err := s.List(t.Context(), nil, Filter{Page: Page{Limit: 10}}); err != nil || len(list) != 0 {
		t.Errorf("runs %v, error %v", list, err)
	}
	if c := claim(t, s, request(5)); len(c.Runs) != 0 {
		t.Errorf("claimed %v", c.Runs)
	}
	_, err := s.Runs.Get(t.Context(), template.ID)
	wantError(t, err, store.ErrRunNotFound)
	_, err = newBoth(s.pool, "other").Schedules.Get(t.Context(), template.ID)
	wantError(t, err, store.ErrScheduleNotFound)

	edit(t, s, nil, template.ID, &store.Edit{Fire: &store.Firing{
		Template: template.ID, Runs: []store.TickRun{{RunID: uuid.Must(uuid.NewV7())}},
		Cursor: template.Cursor, Next: template.Next,
	}, Delete: true})
	_, err = s.Schedules.Get(t.Context(), template.ID)
	wantError(t, err, store.ErrScheduleNotFound)
	list, err := s.List(t.Context(), nil, Filter{Schedule: template.ID, Page: Page{Limit: 10, Payloads: true}})
	if err != nil || len(list) != 1 || string(list[0].Input) != "input" || list[0].Schedule != "s" ||
		list[0].DeadlineAt.IsZero() {
		t.Errorf("runs %+v, error %v", list, err)
	}
}
