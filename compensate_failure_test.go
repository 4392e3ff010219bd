package kagzi

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi/internal/text"
)

// beginClosed starts a trip that fails, and undoing what fails with err until open is called.
func beginClosed(k *kit, j *journal, what string, err error) (run *Run[int], open func()) {
	k.t.Helper()
	var opened atomic.Bool
	serve(k, travel, trip(j, breaks))
	serveCancellations(k, j, func(other string) error {
		if other == what && !opened.Load() {
			return err
		}
		return nil
	})
	return begin(k, travel, 7), func() { opened.Store(true) }
}

// TestCompensationFails: the other compensations run, the run's error names the one that failed, and Resume runs it again.
func TestCompensationFails(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	run, open := beginClosed(k, j, "hotel7", errors.New("the hotel is closed"))
	re := failureOf(k, run, StatusFailed)
	if re.Kind != KindCompensation {
		t.Errorf("the run ended with %v", re)
	}
	mustContain(t, re, "hotel#compensation", "the hotel is closed", "broken")
	j.want(t, "flight hotel car cancel:car7 cancel:flight7")
	if _, err := k.c.Fork(k.ctx, run.ID(), "hotel"); !errors.Is(err, ErrCompensated) {
		t.Errorf("Fork: %v", err)
	}
	k.resume(run.ID())
	failureOf(k, run, StatusFailed)
	open()
	k.resume(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindUnknown || re.Message != "broken" {
		t.Errorf("the run ended with %v", re)
	}
	j.want(t, "flight hotel car cancel:car7 cancel:flight7 cancel:hotel7")
	if err := k.c.Resume(k.ctx, run.ID()); !errors.Is(err, ErrCompensated) {
		t.Errorf("Resume: %v", err)
	}
}

// TestCompensationResumed resumes the failed compensation itself and then the run, which runs nothing twice.
func TestCompensationResumed(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	run, open := beginClosed(k, j, "car7", Permanent(errors.New("closed")))
	failureOf(k, run, StatusFailed)
	open()
	of := k.steps(run.ID())["car#compensation"][0].Child
	k.resume(of)
	k.waitStatus(of, StatusCompleted)
	k.resume(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindUnknown {
		t.Errorf("the run ended with %v", re)
	}
	j.want(t, "flight hotel car cancel:hotel7 cancel:flight7 cancel:car7")
}

// TestManyFailedCompensations: the error of a run that lists failed compensations is cut to the length of any error.
func TestManyFailedCompensations(t *testing.T) {
	k := newKit(t)
	wf, undo := Define[int, int]("wf", noRetry), Define[int, int]("undo", noRetry)
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, wf, func(ctx Context, _ int) (int, error) {
		for i := range 5 {
			Compensate(ctx, fmt.Sprint("c", i), undo.With(i))
		}
		return 0, errors.New("broken")
	})
	Handle(w, undo, func(Context, int) (int, error) { return 0, errors.New(strings.Repeat("long ", text.MaxError)) })
	startWorker(t, w)
	re := failureOf(k, begin(k, wf, 1), StatusFailed)
	mustContain(t, re, "not compensated: c4#compensation: long long", "the run ended because: broken (unknown)")
	if len(re.Message) > text.MaxError {
		t.Errorf("the error has %d bytes", len(re.Message))
	}
}
