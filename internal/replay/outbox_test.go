package replay

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/store"
)

// TestBusyWritesStayInFront settles the writes that a flush has taken: the busy ones stay, in order and before the
// writes that were enqueued since. An empty write is not settled while a write is left before it.
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
			settled, busy, _ := o.settleLocked(nil)
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
			if want = append(want, all[len(all)-1]); !slices.Equal(o.writes, want) || busy != (left != nil) {
				t.Errorf("the outbox has %d writes, busy: %v; want %d", len(o.writes), busy, len(want))
			}
		})
	}
}

const roomBytes = 8 << 20 // in a transaction

// TestBeginningGivesWayToItsEnd has a step's RUNNING row and its final record meet in one flush, in either order: a
// statement cannot write a row twice.
func TestBeginningGivesWayToItsEnd(t *testing.T) {
	t.Parallel()
	record := func(step string, attempt int, status string) *write {
		return &write{records: []*store.Record{{StepRow: store.StepRow{
			StepID: step, Attempt: attempt,
			Status: status,
		}}}}
	}
	o := outbox{ending: &ending{crew: &crew{}}}
	o.writes = []*write{
		record("a", 1, store.Failed), record("a", 2, store.Running), record("b", 1, store.Completed),
		record("b", 1, store.Running), record("c", 1, store.Running), record("a", 2, store.Completed),
		record("c", 1, store.Failed),
	}
	o.taken = 6
	// another run's
	f := &store.Flush{Records: []*store.Record{{StepRow: store.StepRow{
		StepID: "b", Attempt: 1,
		Status: store.Running,
	}}}}
	o.addLocked(f)
	var got []string
	for _, r := range f.Records {
		got = append(got, fmt.Sprintf("%s%d %s", r.StepID, r.Attempt, r.Status))
	}
	if want := []string{
		"b1 RUNNING", "a1 FAILED", "b1 COMPLETED", "c1 RUNNING",
		"a2 COMPLETED",
	}; !slices.Equal(got, want) {
		t.Errorf("written are %q, want %q", got, want)
	}
}

// TestLastChangeOfAValue has several changes of two values meet in one flush: a statement cannot write a row twice.
func TestLastChangeOfAValue(t *testing.T) {
	t.Parallel()
	o := outbox{ending: &ending{crew: &crew{}}}
	for i, value := range []string{"a", "b", "a", "a", "b"} {
		o.writes = append(o.writes, &write{records: []*store.Record{{StepRow: store.StepRow{
			StepID: value, Attempt: 1, Kind: store.KindValue, Status: store.Completed, Sequence: int64(i),
		}}}})
	}
	o.taken = len(o.writes)
	f := &store.Flush{}
	o.addLocked(f)
	if len(f.Records) != 2 || f.Records[0].Sequence != 3 || f.Records[1].Sequence != 4 {
		t.Errorf("written are %+v", f.Records)
	}
	for i, w := range o.writes[:3] {
		if w.outcome() != store.Done {
			t.Errorf("change %d is %v", i, w.outcome())
		}
	}
}

// TestSizeCountsAllThatIsWritten has a child's start and a compensation that are large only by their metadata and
// policy.
func TestSizeCountsAllThatIsWritten(t *testing.T) {
	t.Parallel()
	large := json.RawMessage(make([]byte, roomBytes))
	for name, r := range map[string]*store.Record{
		"Metadata":             {Start: &store.NewRun{Spec: store.Spec{Metadata: large}}},
		"Policy":               {Start: &store.NewRun{Spec: store.Spec{RetryPolicy: large}}},
		"CompensationMetadata": {Compensation: &store.Compensation{Spec: store.Spec{Metadata: large}}},
		"CompensationPolicy":   {Compensation: &store.Compensation{Spec: store.Spec{RetryPolicy: large}}},
	} {
		if size := (&write{records: []*store.Record{r}}).size(); size < roomBytes {
			t.Errorf("%s: the size is %d, want at least %d", name, size, roomBytes)
		}
	}
}

// A quietHost does nothing.
type quietHost struct{}

func (quietHost) Enqueued()                    {}
func (quietHost) Released()                    {}
func (quietHost) Ended(bool)                   {}
func (quietHost) Abandoned()                   {}
func (quietHost) MayLinger(time.Duration) bool { return false }
func (quietHost) HasNews()                     {}
func (quietHost) Stepped(int)                  {}

// TestMessagesAreDivided defers reads of messages, then other records. What must be committed with the branch's next
// write is a part of it; the reads before it are writes of their own, in their order.
func TestMessagesAreDivided(t *testing.T) {
	t.Parallel()
	o := outbox{mu: &sync.Mutex{}, listener: quietHost{}}
	root := &node{result: &branchResult{}}
	racer := &node{parent: root, result: &branchResult{done: event{fired: 1}}} // it has won
	read := func(id string, by *node) deferredRecord {
		return deferredRecord{record: &store.Record{StepRow: store.StepRow{
			StepID: id,
			Output: make([]byte, roomBytes*2/3),
		}}, by: by, message: &store.Signal{}}
	}
	o.deferred = []deferredRecord{
		read("a", root), read("b", root), read("racer", racer),
		{record: &store.Record{StepRow: store.StepRow{StepID: "decision"}}, by: root},
		read("c", root),
	}
	o.enqueue(&write{by: root, records: []*store.Record{{StepRow: store.StepRow{StepID: "step"}}}})
	var got []string
	for _, w := range o.writes {
		ids := ""
		for _, r := range w.records {
			ids += r.StepID + " "
		}
		got = append(got, ids)
	}
	if want := []string{"a ", "b ", "racer decision c step "}; !slices.Equal(got, want) {
		t.Errorf("writes: %q, want %q", got, want)
	}
	if writes, _ := o.Take(0, 0, 1000, roomBytes); writes != 1 {
		t.Errorf("the first flush takes %d writes, want 1", writes)
	}
}

// A quietTold does nothing.
type quietTold struct{}

func (quietTold) Replied(*store.Record)       {}
func (quietTold) Left([]store.Answer)         {}
func (quietTold) Finished(*store.Finish)      {}
func (quietTold) Suspended(*store.Suspension) {}
func (quietTold) Started(*store.NewRun)       {}
func (quietTold) Stepped(int)                 {}
func (quietTold) Valued(uuid.UUID)            {}

// TestSettlingAllocatesNothing settles the write of a step again and again. Each step is settled once.
func TestSettlingAllocatesNothing(t *testing.T) { // not parallel: it counts what the process allocates
	w := standing.New(nil, slog.New(slog.DiscardHandler), func() {}, func() {})
	e := &Run{}
	NewEnv(Language{}).With(w, nil).Prepare(e, quietHost{}, &store.ClaimedRun{}, false)
	row := store.StepRow{StepID: "step", Kind: store.KindFunction, Status: store.Completed}
	step := &write{records: []*store.Record{{StepRow: row, Outcome: store.Done}}}
	if n := testing.AllocsPerRun(100, func() {
		e.writes, e.taken = append(e.writes, step), 1
		e.Settle(store.Witness{}, quietTold{})
	}); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
