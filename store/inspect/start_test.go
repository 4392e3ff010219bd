package inspect

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

func TestRunAndList(t *testing.T) {
	t.Parallel()
	s := open(t)
	tagged := func(tags string) func(*store.NewRun) { return func(r *store.NewRun) { r.Metadata = []byte(tags) } }
	parent := uuid.Must(uuid.NewV7())
	ids := start(t, s,
		newRun(withID("a"), tagged(`{"k": "v", "n": "1"}`)), newRun(ofType("other")),
		newRun(func(r *store.NewRun) { r.Queue = "other" }),
		newRun(withParent(parent), tagged(`{"k": "w"}`)), newRun(), newRun())
	template := saveTemplate(t, s, "s").ID
	mustCancel(t, s, ids[4], "")
	start(t, newBoth(s.pool, "other"), newRun(withID("a")))
	created := time.Now().Add(-3 * time.Hour).Truncate(time.Microsecond) // the clock of the program is ahead
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET created_at = $2 WHERE run_id = $1`, ids[5], created)

	for name, test := range map[string]struct {
		filter Filter
		want   []int
	}{
		"All":       {Filter{}, []int{5, 4, 3, 2, 1, 0}},
		"Status":    {Filter{Status: []string{store.Cancelled, store.Failed}}, []int{4}},
		"Type":      {Filter{Type: "other"}, []int{1}},
		"Queue":     {Filter{Queue: "other"}, []int{2}},
		"ID":        {Filter{ExternalID: "a"}, []int{0}},
		"Parent":    {Filter{Parent: parent}, []int{3}},
		"Metadata":  {Filter{Metadata: []byte(`{"k": "v"}`)}, []int{0}},
		"AllTags":   {Filter{Metadata: []byte(`{"k": "v", "n": "2"}`)}, nil},
		"Since":     {Filter{Created: Span{From: created.Add(time.Microsecond)}}, []int{4, 3, 2, 1, 0}},
		"SinceThen": {Filter{Created: Span{From: created}}, []int{5, 4, 3, 2, 1, 0}},
		"Until":     {Filter{Created: Span{Until: created.Add(time.Hour)}}, []int{5}},
		"UntilThen": {Filter{Created: Span{Until: created}}, nil},
		"After":     {Filter{Page: Page{After: ids[2]}}, []int{1, 0}},
		"Several": {
			Filter{Type: "type", Queue: "queue", Status: []string{store.Pending}, Page: Page{After: ids[5]}},
			[]int{
				3,
				0,
			},
		},
		"None": {Filter{Type: "none"}, nil},
	} {
		test.filter.Limit = 100
		var want, got []uuid.UUID
		for _, i := range test.want {
			want = append(want, ids[i])
		}
		runs, err := s.List(t.Context(), nil, test.filter)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, r := range runs {
			got = append(got, r.RunID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}

	var paged []uuid.UUID
	page := Filter{Page: Page{Limit: 4}}
	for range 5 {
		runs, err := s.List(t.Context(), nil, page)
		if err != nil {
			t.Fatal(err)
		}
		if len(runs) == 0 {
			break
		}
		for _, r := range runs {
			paged, page.After = append(paged, r.RunID), r.RunID
		}
	}
	slices.Reverse(paged)
	if !slices.Equal(paged, ids) {
		t.Errorf("pages %v, want %v", paged, ids)
	}

	for _, id := range []uuid.UUID{uuid.New(), template} {
		_, err := s.Runs.Get(t.Context(), id)
		wantError(t, err, store.ErrRunNotFound)
	}
	_, err := newBoth(s.pool, "other").Runs.Get(t.Context(), ids[0])
	wantError(t, err, store.ErrRunNotFound)
	if ended, missing, err := newBoth(s.pool, "other").Runs.Ended(t.Context(), ids[4:5], 0); err != nil ||
		len(ended) != 0 ||
		len(missing) != 1 {
		t.Errorf("another namespace's: %v, %v, %v", ended, missing, err)
	}
	if ended, missing, err := s.Runs.Ended(t.Context(), ids[3:5], 0); err != nil || len(ended) != 1 ||
		ended[0].Status != store.Cancelled || ended[0].ErrorKind != "cancelled" || len(missing) != 0 {
		t.Errorf("ended %+v, missing %v, error %v", ended, missing, err)
	}
}
