package kagzi

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// TestCompensationFails: the others run, the run says what is left, and Resume goes on with that.
func TestCompensationFails(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	var closed atomic.Bool
	closed.Store(true)
	serve(k, wf, trip(j, func(Context) error { return errors.New("broken") }))
	serveCancellations(k, j, func(what string) error {
		if what == "hotel7" && closed.Load() {
			return errors.New("the hotel is closed")
		}
		return nil
	})
	run := begin(k, wf, 7)
	re := failureOf(k, run, StatusFailed)
	if re.Kind != KindCompensation {
		t.Errorf("the run ended with %v", re)
	}
	mustContain(t, re, "hotel#compensation", "the hotel is closed", "broken")
	if got := j.String(); got != "flight hotel car cancel:car7 cancel:flight7" {
		t.Errorf("happened: %s", got)
	}
	if _, err := k.c.Fork(k.ctx, run.ID(), "hotel"); !errors.Is(err, ErrCompensated) {
		t.Errorf("Fork: %v", err)
	}
	k.resume(run.ID())
	failureOf(k, run, StatusFailed)
	closed.Store(false)
	k.resume(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindUnknown || re.Message != "broken" {
		t.Errorf("the run ended with %v", re)
	}
	if got := j.String(); got != "flight hotel car cancel:car7 cancel:flight7 cancel:hotel7" {
		t.Errorf("happened: %s", got)
	}
	if err := k.c.Resume(k.ctx, run.ID()); !errors.Is(err, ErrCompensated) {
		t.Errorf("Resume: %v", err)
	}
}

// TestCompensationResumed: people resume the compensation itself, and then the run, which runs nothing twice.
func TestCompensationResumed(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("trip", noRetry)
	j := &journal{}
	var closed atomic.Bool
	closed.Store(true)
	serve(k, wf, trip(j, func(Context) error { return errors.New("broken") }))
	serveCancellations(k, j, func(what string) error {
		if what == "car7" && closed.Load() {
			return Permanent(errors.New("closed"))
		}
		return nil
	})
	run := begin(k, wf, 7)
	failureOf(k, run, StatusFailed)
	closed.Store(false)
	of := k.steps(run.ID())["car#compensation"][0].Child
	k.resume(of)
	k.waitStatus(of, StatusCompleted)
	k.resume(run.ID())
	if re := failureOf(k, run, StatusFailed); re.Kind != KindUnknown {
		t.Errorf("the run ended with %v", re)
	}
	if got := j.String(); got != "flight hotel car cancel:hotel7 cancel:flight7 cancel:car7" {
		t.Errorf("happened: %s", got)
	}
}

// TestManyFailedCompensations: of the errors of compensations a run keeps as much as of any error.
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
	Handle(w, undo, func(Context, int) (int, error) { return 0, errors.New(strings.Repeat("long ", maxErrorText)) })
	startWorker(t, w)
	re := failureOf(k, begin(k, wf, 1), StatusFailed)
	mustContain(t, re, "not compensated: c4#compensation: long long", "the run ended because: broken (unknown)")
	if len(re.Message) > maxErrorText {
		t.Errorf("the error has %d bytes", len(re.Message))
	}
}
