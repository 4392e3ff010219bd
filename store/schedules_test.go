package store

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// saveTemplate saves a schedule that fires daily. Its runs have a Timeout of a minute.
func saveTemplate(t *testing.T, s *Store, name string) *Template {
	t.Helper()
	template := &Template{
		ID: uuid.Must(uuid.NewV7()), Name: name, CatchUp: 1,
		Spec:   Spec{Queue: "queue", Type: "type", Priority: 3, Timeout: time.Minute},
		Timing: []byte("{}"),
		Cron:   "@daily", Input: []byte("input"), Next: time.Now().Add(time.Hour), Cursor: time.Now(),
	}
	edit(t, s, nil, template.ID, &Edit{Save: template})
	return template
}

// edit applies e to the schedule.
func edit(t *testing.T, s *Store, tx pgx.Tx, id uuid.UUID, e *Edit) {
	t.Helper()
	if _, err := s.Schedules.Edit(t.Context(), tx, id, func(time.Time, *Template) (*Edit, error) {
		return e, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Schedule returns the template as it was saved, and the cursor never moves back.
func TestTemplate(t *testing.T) {
	t.Parallel()
	s := open(t)
	want := saveTemplate(t, s, "s")
	want.Queue, want.Type, want.Version, want.Priority, want.Paused, want.Next = "q", "w", 7, 1, true, time.Time{}
	want.RetryPolicy, want.Metadata, want.Input, want.Cron, want.TimeZone = []byte(`{"a": 1}`), []byte(`{"k": "v"}`),
		[]byte{0, 0xff}, "", "UTC"
	want.CatchUp, want.Overlap, want.Timing = 9, "skip", []byte(`{"x": 2}`)
	cursor := want.Cursor.UTC().Truncate(time.Microsecond)
	want.Cursor = cursor.Add(-time.Hour)
	edit(t, s, nil, want.ID, &Edit{Save: want})
	got, err := s.Schedules.Get(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Cursor.Equal(cursor) || got.Now.IsZero() || got.CreatedAt.IsZero() || got.Size != 2 {
		t.Errorf("read %+v", got)
	}
	listed, err := s.Schedules.List(t.Context(), "w", "", 10)
	if err != nil || len(listed) != 1 {
		t.Fatalf("listed %v, error %v", listed, err)
	}
	for _, got := range []*Template{got, listed[0]} {
		a, b := *got, *want
		a.Now, a.CreatedAt, a.Cursor, a.Size, b.Cursor = time.Time{}, time.Time{}, time.Time{}, 0, time.Time{}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("read %+v, saved %+v", a, b)
		}
	}
	for after, n := range map[string]int{"r": 1, "s": 0} {
		if listed, err := s.Schedules.List(t.Context(), "", after, 10); err != nil || len(listed) != n {
			t.Errorf("after %s: %v, error %v", after, listed, err)
		}
	}
}
