package inspect

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

func TestWorkersPages(t *testing.T) {
	t.Parallel()
	s := open(t)
	var want []uuid.UUID
	for range 7 {
		want = append(want, register(t, s).ID)
	}
	exec(t, s.pool, `UPDATE kagzi.workers SET started_at = now()`) // all at once: the ID decides
	slices.SortFunc(want, func(a, b uuid.UUID) int { return -slices.Compare(a[:], b[:]) })
	var got []uuid.UUID
	f := WorkerFilter{Limit: 2}
	for i := range 10 {
		page, total, err := s.View.Workers(t.Context(), f)
		if err != nil || total != 7+i {
			t.Fatalf("%d in all, error %v", total, err)
		}
		if len(page) == 0 {
			break
		}
		for _, w := range page {
			got = append(got, w.ID)
		}
		f.After = page[len(page)-1].ID
		register(t, s) // started later: before the first page
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %v, want %v", got, want)
	}
	_, _, err := s.View.Workers(t.Context(), WorkerFilter{After: uuid.New(), Limit: 1})
	wantError(t, err, store.ErrWorkerNotFound)
}

func TestDrain(t *testing.T) {
	t.Parallel()
	s := open(t)
	w, other := register(t, s), register(t, s)
	for range 2 {
		if err := s.Workers.Drain(t.Context(), nil, w.ID, store.Why{}); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := s.Workers.Heartbeat(t.Context(), s.pool, store.Heartbeat{
		Number: 3, Worker: w.ID,
		Queues: w.Queues,
	}); err != nil ||
		!p.Drain {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := s.Workers.Heartbeat(t.Context(), s.pool, store.Heartbeat{
		Number: 4, Worker: other.ID,
		Queues: other.Queues,
	}); err !=
		nil || p.Drain {
		t.Errorf("%+v, %v", p, err)
	}
	row, err := s.Worker(t.Context(), w.ID)
	if err != nil || row.Status != store.Draining {
		t.Errorf("%+v, %v", row, err)
	}
	for status, want := range map[string]uuid.UUID{store.Draining: w.ID, store.Online: other.ID} {
		if page, total, err := s.View.Workers(t.Context(),
			WorkerFilter{Status: []string{status}, Limit: 9}); err != nil ||
			total != 1 || len(page) != 1 || page[0].ID != want {
			t.Errorf("%s: %+v, %d, %v", status, page, total, err)
		}
	}
	asked, err := s.Workers.DrainQueue(t.Context(), nil, "queue", store.Why{})
	if err != nil || len(asked) != 1 || asked[0] != other.ID {
		t.Errorf("asked %v, %v", asked, err)
	}
	if asked, err := s.Workers.DrainQueue(t.Context(), nil, "queue", store.Why{}); err != nil || len(asked) != 0 {
		t.Errorf("asked %v, %v", asked, err)
	}
	if asked, err := newBoth(s.pool, "other").Workers.DrainQueue(t.Context(), nil, "queue", store.Why{}); err != nil ||
		len(asked) != 0 {
		t.Errorf("asked %v, %v", asked, err)
	}
	wantError(t, newBoth(s.pool, "other").Workers.Drain(t.Context(), nil, w.ID, store.Why{}), store.ErrWorkerNotFound)
	if err := s.Workers.Draining(t.Context(), s.pool, w.ID); err != nil {
		t.Error(err)
	}
	if got := events(t, s, w.ID); got != "STARTED DRAINING" {
		t.Errorf("events %s", got)
	}
}

func TestForceOffline(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := register(t, s)
	start(t, s, many(3)...)
	rs := claim(t, s, request(3, func(r *store.ClaimRequest) { r.Worker = w.ID })).Runs
	holder := begin(t, s)
	lockRow(t, holder, rs[0].RunID)
	tx := begin(t, s)
	lost, err := s.Workers.ForceOffline(t.Context(), tx, w.ID, "why", store.Why{})
	if err != nil || lost.Released != 2 || lost.Left != 1 || !slices.Equal(lost.Queues, []string{"queue"}) {
		t.Fatalf("lost %+v, error %v", lost, err)
	}
	rollback(t, tx)
	if got := events(t, s, w.ID); got != "STARTED" || readRow(t, s.pool, rs[1].RunID).Due {
		t.Errorf("a rolled back transaction changed something: %s", got)
	}
	for i, want := range []int{2, 0} {
		if lost, err = s.Workers.ForceOffline(t.Context(), nil, w.ID, "why", store.Why{}); err != nil ||
			lost.Released != want {
			t.Errorf("call %d: lost %+v, error %v", i, lost, err)
		}
	}
	commit(t, holder)
	if lost, err = s.Workers.ForceOffline(t.Context(), nil, w.ID, "why", store.Why{}); err != nil ||
		lost.Released != 1 {
		t.Errorf("lost %+v, error %v", lost, err)
	}
	if err := s.Workers.Drain(t.Context(), nil, w.ID, store.Why{}); err != nil {
		t.Errorf("drain of one that is offline: %v", err)
	}
	if got := events(t, s, w.ID); got != "STARTED LOST" {
		t.Errorf("events %s", got)
	}
	log, err := s.WorkerEvents(t.Context(), w.ID)
	if err != nil || len(log) != 2 || log[1].Detail != "why" || log[1].At.IsZero() {
		t.Errorf("log %+v, %v", log, err)
	}
	_, err = s.Workers.Heartbeat(t.Context(), s.pool, store.Heartbeat{Number: 5, Worker: w.ID, Queues: w.Queues})
	wantError(t, err, store.ErrWorkerOffline)
	_, err = s.Workers.ForceOffline(t.Context(), nil, uuid.New(), "", store.Why{})
	wantError(t, err, store.ErrWorkerNotFound)
}

// A worker is silent once its heartbeat is older than its StaleAfter, until a coordinator notices.
func TestSilentWorker(t *testing.T) {
	t.Parallel()
	s := open(t)
	w := register(t, s)
	want := func(says string, silent bool) {
		t.Helper()
		if row, err := s.Worker(t.Context(), w.ID); err != nil || row.Silent != silent {
			t.Errorf("%s: silent %v, %v", says, row.Silent, err)
		}
	}
	want("just registered", false)
	silence(t, s, w.ID, w.StaleAfter+time.Second)
	want("without a heartbeat", true)
	if err := s.Workers.Stopped(t.Context(), s.pool, w.ID, store.Counts{}); err != nil {
		t.Fatal(err)
	}
	want("stopped", false)
}
