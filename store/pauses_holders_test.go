package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/waits"
)

// A run that keeps its slot while it sleeps, or was parked, is not in its key's line. A pause of its key or group stops
// it, too.
func TestPausedKeyOfAHolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of    func(*NewRun)
		pause Pause
	}{
		"Key":   {ofKey("a"), Pause{Queue: "queue", Key: Key{Name: "a"}, Parks: true}},
		"Group": {inGroup("a"), Pause{Key: Key{Name: "a", Group: true}, Parks: true}},
	} {
		for _, limit := range []int{0, 1} { // of the queue
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := open(t)
				exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, key_max_running, held, max_running)
					VALUES ('queue', $1, 1, true, NULLIF($2::int, 0))`, s.namespace, limit)
				ids := start(t, s, newRun(c.of), newRun(c.of))
				r := claim(t, s, keyedRequest(10)).Runs[0]
				pause(t, s, c.pause)
				pause(t, s, Pause{Queue: "queue", Key: Key{Name: "b"}})
				pause(t, s, Pause{Key: Key{Name: "b", Group: true}})
				p := &Suspension{
					RunID: r.RunID, Lease: r.Lease, Status: Pending,
					WaitingOn: waits.List{{Kind: waits.Pause}},
				}
				flush(t, s, &Flush{Suspensions: []*Suspension{p}})
				if got := claim(t, s, keyedRequest(10)); p.Outcome != Done || len(got.Runs) > 0 || !got.Next.IsZero() ||
					!got.Keys.Next.IsZero() {
					t.Errorf("claimed %v, next %v and %v", runIDs(got.Runs), got.Next, got.Keys.Next)
				}
				req := keyedRequest(10)
				req.Since = map[Pair]time.Time{{"type", 3}: time.Now().Add(time.Hour)}
				if missed, err := s.Claims.Missed(t.Context(), req); err != nil || len(missed) != 0 {
					t.Errorf("missed %v, %v", missed, err)
				}
				unpause(t, s, c.pause)
				if got := claim(t, s, keyedRequest(10)); !slices.Equal(runIDs(got.Runs), ids[:1]) {
					t.Errorf("then claimed %v of %v", runIDs(got.Runs), ids)
				}
			})
		}
	}
}

// The first pause of a key stops none of the others.
func TestPausedKeysOfManyHolders(t *testing.T) {
	t.Parallel()
	s := open(t)
	exec(t, s.pool, `INSERT INTO kagzi.queues (task_queue, namespace_id, held) VALUES ('queue', $1, true)`, s.namespace)
	ids := start(t, s, newRun(ofKey("a")), newRun(ofKey("b")), newRun(inGroup("a")), newRun(inGroup("b")), newRun())
	for _, r := range claim(t, s, keyedRequest(10)).Runs {
		flush(t, s, &Flush{Suspensions: []*Suspension{{RunID: r.RunID, Lease: r.Lease, Status: Pending}}})
	}
	pause(t, s, Pause{Queue: "queue", Key: Key{Name: "a"}})
	pause(t, s, Pause{Key: Key{Name: "b", Group: true}})
	got := runIDs(claim(t, s, keyedRequest(10)).Runs)
	if want := []uuid.UUID{ids[1], ids[2], ids[4]}; !slices.Equal(sorted(got), want) {
		t.Errorf("claimed %v of %v", got, ids)
	}
}
