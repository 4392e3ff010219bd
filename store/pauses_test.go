package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
)

func pause(t *testing.T, s *Store, p Pause) {
	t.Helper()
	if _, err := s.Pauses.Pause(t.Context(), nil, p); err != nil {
		t.Fatal(err)
	}
}

func unpause(t *testing.T, s *Store, p Pause) {
	t.Helper()
	if _, err := s.Pauses.Unpause(t.Context(), nil, p); err != nil {
		t.Fatal(err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestPausedKeys(t *testing.T) {
	t.Parallel()
	key, group := Pause{Queue: "queue", Key: Key{Name: "a"}}, Pause{Key: Key{Name: "g", Group: true}}
	for _, p := range []Pause{key, group, {Queue: "queue"}, {Type: "type"}, {}} {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			t.Parallel()
			s := open(t)
			of := ofKey("a")
			if p.Key.Group {
				of = inGroup("g")
			}
			ids := start(t, s, newRun(of), newRun(of, ofType("other")), newRun(ofKey("b")))
			pause(t, s, p)
			req := keyedRequest(10)
			req.Types = []WorkflowVersions{{"type", []int{1}, 1}, {"other", []int{1}, 1}}
			want := map[bool][]uuid.UUID{true: ids[2:], false: nil}[p.Key.Name != ""]
			if p.Type != "" {
				want = ids[1:2]
			}
			got := claim(t, s, req)
			if !slices.Equal(sorted(runIDs(got.Runs)), want) {
				t.Errorf("claimed %v of %v, want %v", runIDs(got.Runs), ids, want)
			}
			got = claim(t, s, req)
			if got.Keys.Looked > 0 || !got.Keys.Next.IsZero() || got.Keys.Change != 0 {
				t.Errorf("the claim would go on: %+v", got)
			}
			unpause(t, s, p)
			n := len(want)
			got = claim(t, s, req)
			if n += len(got.Runs); p.Key.Group { // at most one at a time
				n++
			}
			if n != 3 {
				t.Errorf("then claimed %v of %v", runIDs(got.Runs), ids)
			}
		})
	}
}

// A key's pause holds in its own queue only, and a group's only for the group.
func TestPausesOfOtherKeys(t *testing.T) {
	t.Parallel()
	s := open(t)
	ids := start(t, s, newRun(ofKey("a")), newRun(inGroup("g")), newRun(ofKey("g")))
	for _, p := range []Pause{
		{Queue: "elsewhere", Key: Key{Name: "a"}},
		{Key: Key{Name: "a", Group: true}},
		{Queue: "elsewhere"},
	} {
		pause(t, s, p)
	}
	if got := runIDs(claim(t, s, keyedRequest(10)).Runs); !slices.Equal(sorted(got), ids) {
		t.Errorf("claimed %v of %v", got, ids)
	}
}

// A held run that wakes up in a paused queue waits, even if the queue is full.
func TestPausedHolder(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, max_running, held)
		VALUES ('queue', $1, 1, true)`, s.namespace)
	id := start(t, s, newRun())[0]
	claim(t, s, keyedRequest(1))
	expire(t, s, id)
	for _, p := range []Pause{{Queue: "queue"}, {Type: "type"}} {
		pause(t, s, p)
		if got := claim(t, s, keyedRequest(1)); len(got.Runs) > 0 {
			t.Errorf("with %+v claimed %v", p, runIDs(got.Runs))
		}
		unpause(t, s, p)
	}
	if got := claim(t, s, keyedRequest(1)); len(got.Runs) != 1 {
		t.Errorf("then claimed %v", runIDs(got.Runs))
	}
}

// A run that is paused during its last step ends, and is not paused any more.
func TestEndOfAPausedRun(t *testing.T) {
	t.Parallel()
	s := open(t)
	start(t, s, newRun(), newRun())
	runs := claim(t, s, request(2)).Runs
	for i, status := range []string{Completed, Failed} {
		if err := s.Pauses.PauseRun(t.Context(), nil, runs[i].RunID, Why{}); err != nil {
			t.Fatal(err)
		}
		f := finish(runs[i])
		if status == Failed {
			f.Status, f.Output, f.ErrorKind = status, nil, "kind"
		}
		flush(t, s, &Flush{Finishes: []*Finish{f}})
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs WHERE run_id = $1 AND status = $2
			AND paused_at IS NULL`, runs[i].RunID, status); n != 1 {
			t.Errorf("the run that ends as %s is paused", status)
		}
	}
}
