package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kagzi/kagzi/store"
)

// TestBusyWritesStayInFront settles the writes that a flush has taken: the busy ones stay, in order and before the writes that
// were enqueued since. An empty write is not settled while a write is left before it.
func TestBusyWritesStayInFront(t *testing.T) {
	t.Parallel()
	const everything = store.Undecided // an empty write
	for name, tc := range map[string]struct {
		taken []store.Outcome
		left  []int
	}{
		"Written":          {[]store.Outcome{store.Done, everything, store.Done}, nil},
		"Lost":             {[]store.Outcome{store.Lost, everything, store.Lost}, nil},
		"Busy":             {[]store.Outcome{store.Busy, store.Busy}, []int{0, 1}},
		"BusyBehind":       {[]store.Outcome{store.Done, everything, store.Busy, everything}, []int{2, 3}},
		"BusyAfterAnother": {[]store.Outcome{store.Busy, everything, store.Taken, store.Busy}, []int{0, 1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			var o outbox
			for _, outcome := range tc.taken {
				w := &write{}
				if outcome != everything {
					w.records = []*store.Record{{Outcome: outcome}}
				}
				o.writes = append(o.writes, w)
			}
			o.taken = len(o.writes)
			o.writes = append(o.writes, &write{}) // enqueued since
			all := slices.Clone(o.writes)
			settled := o.settleLocked(nil)
			var left []int
			for i, w := range all[:len(tc.taken)] {
				if !slices.Contains(settled, w) {
					left = append(left, i)
				}
			}
			if !slices.Equal(left, tc.left) || len(settled)+len(left) != len(tc.taken) {
				t.Errorf("%v stay, want %v; %d are settled", left, tc.left, len(settled))
			}
			var want []*write
			for _, i := range tc.left {
				want = append(want, all[i])
			}
			if want = append(want, all[len(all)-1]); !slices.Equal(o.writes, want) || o.apart != (left != nil) {
				t.Errorf("the outbox has %d writes, apart: %v; want %d", len(o.writes), o.apart, len(want))
			}
		})
	}
}

// TestBeginningGivesWayToItsEnd has a step's RUNNING row and its final record meet in one flush, in either order: a statement
// cannot write a row twice.
func TestBeginningGivesWayToItsEnd(t *testing.T) {
	t.Parallel()
	record := func(step string, attempt int, status string) *write {
		return &write{records: []*store.Record{{StepRow: store.StepRow{StepID: step, Attempt: attempt, Status: status}}}}
	}
	e := &execution{}
	e.outbox.writes = []*write{
		record("a", 1, store.Failed), record("a", 2, store.Running), record("b", 1, store.Completed),
		record("b", 1, store.Running), record("c", 1, store.Running), record("a", 2, store.Completed), record("c", 1, store.Failed),
	}
	e.outbox.taken = 6
	f := &store.Flush{Records: []*store.Record{{StepRow: store.StepRow{StepID: "b", Attempt: 1, Status: store.Running}}}} // another run's
	e.addTo(f)
	var got []string
	for _, r := range f.Records {
		got = append(got, fmt.Sprintf("%s%d %s", r.StepID, r.Attempt, r.Status))
	}
	if want := []string{"b1 RUNNING", "a1 FAILED", "b1 COMPLETED", "c1 RUNNING", "a2 COMPLETED"}; !slices.Equal(got, want) {
		t.Errorf("written are %q, want %q", got, want)
	}
}
