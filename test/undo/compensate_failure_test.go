package undo_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
)

// beginClosed starts a trip that fails. The cancellation of the booking named what fails with err until open is called.
func beginClosed(k *kit.Kit, j *kit.Journal, what string, err error) (run *kagzi.Run[int], open func()) {
	k.T.Helper()
	var opened atomic.Bool
	kit.Serve(k, kit.Travel, kit.Trip(j, kit.Breaks))
	kit.ServeCancellations(k, j, func(other string) error {
		if other == what && !opened.Load() {
			return err
		}
		return nil
	})
	return kit.Begin(k, kit.Travel, 7), func() { opened.Store(true) }
}

// TestCompensationFails: the other compensations run, the run's error names the one that failed, and Resume runs it
// again.
func TestCompensationFails(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	run, open := beginClosed(k, j, "hotel7", errors.New("the hotel is closed"))
	re := kit.FailureOf(k, run, kagzi.StatusFailed)
	if re.Kind != kind.Compensation {
		t.Errorf("the run ended with %v", re)
	}
	kit.MustContain(t, re, "hotel#compensation", "the hotel is closed", "broken")
	j.Want(t, "flight hotel car cancel:car7 cancel:flight7")
	if k.InfoOf(run.ID()).Compensated {
		t.Error("the run is compensated, although a compensation has failed")
	}
	if _, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), "hotel"); !errors.Is(err, admin.ErrCompensated) {
		t.Errorf("Fork: %v", err)
	}
	k.Resume(run.ID())
	kit.FailureOf(k, run, kagzi.StatusFailed)
	open()
	k.Resume(run.ID())
	if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != kind.Unknown || re.Message != "broken" {
		t.Errorf("the run ended with %v", re)
	}
	j.Want(t, "flight hotel car cancel:car7 cancel:flight7 cancel:hotel7")
	if !k.InfoOf(run.ID()).Compensated {
		t.Error("the run is not compensated, although all compensations have run")
	}
	if err := admin.New(k.Client).Runs.Resume(k.Ctx, run.ID()); !errors.Is(err, admin.ErrCompensated) {
		t.Errorf("Resume: %v", err)
	}
}

// TestCompensationResumed resumes the failed compensation itself and then the run, which runs nothing twice.
func TestCompensationResumed(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	run, open := beginClosed(k, j, "car7", kagzi.Permanent(errors.New("closed")))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	open()
	of := k.Steps(run.ID())["car#compensation"][0].Child
	k.Resume(of)
	k.WaitStatus(of, kagzi.StatusCompleted)
	k.Resume(run.ID())
	if re := kit.FailureOf(k, run, kagzi.StatusFailed); re.Kind != kind.Unknown {
		t.Errorf("the run ended with %v", re)
	}
	j.Want(t, "flight hotel car cancel:hotel7 cancel:flight7 cancel:car7")
}

// TestManyFailedCompensations: the error of a run that lists failed compensations is cut to the length of any error.
func TestManyFailedCompensations(t *testing.T) {
	k := kit.New(t)
	wf, undo := kagzi.Define[int, int]("wf", kit.NoRetry), kagzi.Define[int, int]("undo", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		for i := range 5 {
			kagzi.Compensate(ctx, fmt.Sprint("c", i), undo.With(i))
		}
		return 0, errors.New("broken")
	})
	kagzi.Handle(w, undo, func(kagzi.Context, int) (int, error) {
		return 0, errors.New(strings.Repeat("long ", text.MaxError))
	})
	kit.StartWorker(t, w)
	re := kit.FailureOf(k, kit.Begin(k, wf, 1), kagzi.StatusFailed)
	kit.MustContain(t, re, "not compensated: c4#compensation: long long", "the run ended because: broken (unknown)")
	if len(re.Message) > text.MaxError {
		t.Errorf("the error has %d bytes", len(re.Message))
	}
}
