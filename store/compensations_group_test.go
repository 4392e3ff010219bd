package store

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
)

// A group has one run at a time, also while one that has failed goes on with its compensations.
func TestResumeCompensationsOfAGroup(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := start(t, s, newRun(inGroup("g")))[0]
	r := claim(t, s, keyedRequest(1)).Runs[0]
	flush(t, s, &Flush{Records: []*Record{registering(r, "a", 1)}})
	flushEnds(t, s, failing(r))
	compensate(t, s, id)
	flushEnds(t, s, failing(claimCompensation(t, s, "a")))
	compensate(t, s, id)
	wantEnded(t, s, id, "FAILED compensation: not compensated: a#compensation: broken; the run ended because: "+
		"broken (kind)")

	next := start(t, s, newRun(inGroup("g")))[0]
	second := claim(t, s, keyedRequest(9)).Runs
	if !slices.Equal(runIDs(second), []uuid.UUID{next}) {
		t.Fatalf("claimed %v", runIDs(second))
	}
	_, err := s.Runs.Resume(t.Context(), nil, id, Why{})
	if held, ok := errors.AsType[*GroupHeld](err); !ok || *held != (GroupHeld{"g", next}) {
		t.Errorf("resumed beside another run of its group: error %v", err)
	}
	flushEnds(t, s, finish(second[0]))

	mustResume(t, s, id)
	last := start(t, s, newRun(inGroup("g")))[0]
	req := keyedRequest(9)
	req.Keys.Freed = []FreedKey{{Key: Key{"g", true}}}
	if got := runIDs(claim(t, s, req).Runs); len(got) > 0 {
		t.Errorf("claimed %v while the first run of the group compensates", got)
	}
	runCompensations(t, s)
	wantEnded(t, s, id, "FAILED kind: broken")
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, []uuid.UUID{last}) {
		t.Errorf("claimed %v, want %v", got, last)
	}
}

// A run that holds a slot of its queue holds it while it compensates, too. So its compensations need none: they would
// wait for it.
func TestCompensationsInAFullQueue(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]QueueLimits{
		"Queue": {MaxRunning: 1, Held: true},
		"Keys":  {EachKey: KeyLimits{MaxRunning: 1}, Held: true},
		"Group": {MaxRunning: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			mustSetQueue(t, s, limits)
			change := func(*NewRun) {}
			switch name {
			case "Keys":
				change = ofKey("a")
			case "Group":
				change = inGroup("g")
			}
			id := start(t, s, newRun(change))[0]
			r := claim(t, s, keyedRequest(9)).Runs[0]
			flush(t, s, &Flush{Records: []*Record{registering(r, "a", 1), registering(r, "b", 2)}})
			next := start(t, s, newRun(change))[0]
			none := func(when string) {
				t.Helper()
				if got := runIDs(claim(t, s, keyedRequest(9)).Runs); len(got) > 0 {
					t.Errorf("claimed %v %s", got, when)
				}
			}
			flushEnds(t, s, failing(r))
			compensate(t, s, id)
			none("while the run compensates")
			undo := claimUndo(t, s)
			none("beside a compensation")
			flushEnds(t, s, failing(undo))
			compensate(t, s, id)
			flushEnds(t, s, finish(claimUndo(t, s)))
			compensate(t, s, id)
			wantEnded(t, s, id, "FAILED compensation: not compensated: b#compensation: broken; the run ended "+
				"because: broken (kind)")

			second := claim(t, s, keyedRequest(9)).Runs
			if !slices.Equal(runIDs(second), []uuid.UUID{next}) {
				t.Fatalf("claimed %v", runIDs(second))
			}
			_, err := s.Runs.Resume(t.Context(), nil, id, Why{})
			full, isFull := errors.AsType[*QueueFull](err)
			if _, held := errors.AsType[*GroupHeld](err); !held &&
				(!isFull || full.Queue != "queue" || full.MaxRunning != 1) {
				t.Errorf("resumed although the slot is taken: error %v", err)
			}
			flushEnds(t, s, finish(second[0]))
			mustResume(t, s, id)
			start(t, s, newRun(change))
			none("while a resumed run compensates")
			flushEnds(t, s, finish(claimUndo(t, s)))
			compensate(t, s, id)
			wantEnded(t, s, id, "FAILED kind: broken")
			if got := claim(t, s, keyedRequest(9)).Runs; len(got) != 1 {
				t.Errorf("claimed %v once the run has ended", runIDs(got))
			}
		})
	}
}

// claimUndo claims the only compensation that is due, as a worker of a queue with limits does.
func claimUndo(t *testing.T, s *Store) *ClaimedRun {
	t.Helper()
	req := keyedRequest(9)
	req.Types = []WorkflowVersions{{"undo", []int{1}, 1}}
	all := claim(t, s, req).Runs
	if len(all) != 1 {
		t.Fatalf("claimed %d compensations", len(all))
	}
	return all[0]
}
