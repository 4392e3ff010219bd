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
	wantEnded(t, s, id, "FAILED compensation: not compensated: a#compensation: broken; the run ended because: broken (kind)")

	next := start(t, s, newRun(inGroup("g")))[0]
	second := claim(t, s, keyedRequest(9)).Runs
	if !slices.Equal(runIDs(second), []uuid.UUID{next}) {
		t.Fatalf("claimed %v", runIDs(second))
	}
	_, err := s.Resume(t.Context(), nil, id, Why{})
	if held, ok := errors.AsType[*GroupHeld](err); !ok || *held != (GroupHeld{"g", next}) {
		t.Errorf("resumed beside another run of its group: error %v", err)
	}
	flushEnds(t, s, finish(second[0]))

	mustResume(t, s, id)
	last := start(t, s, newRun(inGroup("g")))[0]
	req := keyedRequest(9)
	req.Keys.Handed = []Key{{"g", true}}
	if got := runIDs(claim(t, s, req).Runs); len(got) > 0 {
		t.Errorf("claimed %v while the first run of the group compensates", got)
	}
	runCompensations(t, s)
	wantEnded(t, s, id, "FAILED kind: broken")
	if got := runIDs(claim(t, s, keyedRequest(9)).Runs); !slices.Equal(got, []uuid.UUID{last}) {
		t.Errorf("claimed %v, want %v", got, last)
	}
}
