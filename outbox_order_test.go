//go:build unix

package kagzi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/store"
)

// TestBusyWritesStayInFront settles what a flush has taken: what was busy stays, in order and before all that was
// enqueued since. Who waits for everything before it is not told while something is left.
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

// TestBeginningGivesWayToItsEnd has the row that shows a step and the step's record meet in one flush, in either order: a
// statement cannot write a row twice.
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

// TestFlushIsBounded has one run start more children than a flush may write, another record more bytes, and a third record a
// step behind them: each comes to its turn.
func TestFlushIsBounded(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	db := dbtest.Database(t)
	c := newTestClient(t, db.Pool)
	child := Define[int, int]("child", Queue("kids"))
	many, large, small := Define[int, int]("many"), Define[int, int]("large"), Define[int, int]("small")
	w := newTestWorker(t, c, WorkerConfig{})
	const children = 2*mostWrites + 500
	Handle(w, many, func(ctx Context, _ int) (int, error) {
		for i := range children {
			if _, err := StartChild(ctx, fmt.Sprint("c", i), child, i); err != nil {
				return 0, err
			}
		}
		return WaitSignal(ctx, DefineSignal[int]("never"))
	})
	Handle(w, large, func(ctx Context, _ int) (int, error) {
		_, err := Map(ctx, "map", []int{0, 1, 2}, func(ctx Context, _ int) (string, error) {
			return Step(ctx, "s", func(context.Context) (string, error) { return strings.Repeat("x", mostBytes*2/5), nil })
		})
		return 0, err
	})
	Handle(w, small, func(ctx Context, _ int) (int, error) {
		return 0, Do(ctx, "s", func(context.Context) error { return nil })
	})
	runs := map[RunID]string{}
	for name, wf := range map[string]Workflow[int, int]{"many": many, "large": large, "small": small} {
		run, err := Start(ctx, c, wf, 1)
		if err != nil {
			t.Fatal(err)
		}
		runs[run.ID()] = name
	}
	var written []string // after each transaction
	failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "after flush" {
			written = append(written, queryOne[string](t, db.Pool, `SELECT concat_ws(' ', count(*) FILTER (WHERE step_id LIKE 'c%'), count(*) FILTER (WHERE length(output) > 1000), count(*) FILTER (WHERE step_id = 's' AND status = 'COMPLETED')) FROM kagzi.step_runs`))
		}
	})
	s := newHeldSession(t, db, w)
	s.claim(ctx, 3)
	by := map[string]*execution{}
	for len(by) < 3 {
		e := receive(t, s.come)
		by[runs[RunID(e.runID)]] = e
	}
	for name, n := range map[string]int{"many": children, "large": 3, "small": 1} {
		waitFor(t, name+" has recorded", func() bool {
			writes := s.enqueued(by[name], 1)
			return n == len(slices.DeleteFunc(writes, func(w *write) bool { // a step that takes long is shown, and a run that waits is suspended
				return w.ends() || w.record().Start == nil && w.record().Status == store.Running
			}))
		})
	}
	s.flush([]*execution{by["many"], by["large"], by["small"]})
	if want := []string{"1000 0 0", "1000 2 1"}; !slices.Equal(written, want) {
		t.Errorf("written after each transaction: %q, want %q", written, want)
	}
	written = nil
	for range 2 {
		s.flush([]*execution{receive(t, s.come)})
	}
	if len(written) != 2 || !strings.HasPrefix(written[1], "2000 3 ") {
		t.Errorf("written after the next two: %q", written)
	}
}

// TestChildOfABusyStartIsCancelled has a run start a child and end at once, while somebody's open transaction keeps the start
// from being written: the child is cancelled with the end, as any that nobody waits for.
func TestChildOfABusyStartIsCancelled(t *testing.T) {
	k := newKit(t)
	child, wf := Define[struct{}, string]("child", Queue("kids")), Define[struct{}, string]("wf")
	locked, busy := make(chan bool), make(chan bool, 1)
	w := newTestWorker(t, newTestClient(t, k.pool), WorkerConfig{})
	Handle(w, wf, func(ctx Context, _ struct{}) (string, error) {
		<-locked
		_, err := StartChild(ctx, "child", child, struct{}{})
		return "", err
	})
	failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "after flush" {
			select {
			case busy <- true:
			default:
			}
		}
	})
	startWorker(t, w)
	run := begin(k, wf, struct{}{})
	k.waitStatus(run.ID(), StatusRunning)
	tx := locking(t, k.pool, lockRun, string(run.ID()))
	close(locked)
	receive(t, busy)
	rollbackTx(t, tx)
	resultOf(k, run)
	if got := k.childOf(run.ID(), "child").Status; got != StatusCancelled {
		t.Errorf("the child is %s", got)
	}
}

// TestRegistrationsAreBounded has one run register compensations with more input than a flush may write.
func TestRegistrationsAreBounded(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	db := dbtest.Database(t)
	wf := Define[int, int]("wf")
	w := newTestWorker(t, newTestClient(t, db.Pool), WorkerConfig{})
	Handle(w, wf, func(ctx Context, _ int) (int, error) {
		for i := range 3 {
			Go(ctx, fmt.Sprint("b", i), func(ctx Context) (int, error) {
				Compensate(ctx, "s", cancelBooking.With(strings.Repeat("x", mostBytes*2/5)))
				return 0, nil
			})
		}
		return 0, nil
	})
	startRuns(t, w.client, wf, 1)
	s := newHeldSession(t, db, w)
	s.claim(ctx, 1)
	e := receive(t, s.come)
	waitFor(t, "the registrations are to be written", func() bool { return len(s.enqueued(e, 1)) == 3 })
	for _, want := range []int{2, 3} {
		s.flush([]*execution{e})
		if n := queryOne[int](t, db.Pool, `SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'COMPENSATION'`); n != want {
			t.Errorf("%d are written, want %d", n, want)
		}
		e = receive(t, s.come)
	}
	s.flush([]*execution{e})
}
