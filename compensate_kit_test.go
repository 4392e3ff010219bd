package kagzi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A journal records what happened, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, " ")
}

// want fails the test unless exactly these lines were written, in this order.
func (j *journal) want(t testing.TB, want string) {
	t.Helper()
	if got := j.String(); got != want {
		t.Errorf("happened: %q\nwant:     %q", got, want)
	}
}

func (j *journal) has(line string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.lines, line)
}

// travel is the workflow of most tests of compensations.
var travel = Define[int, int]("trip", noRetry)

// cancelBooking is their compensation, on a queue of its own.
var cancelBooking = Define[string, struct{}]("cancel-booking", Queue("compensations"), RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})

// serveCancellations starts a worker for cancelBooking alone, which writes to j. An attempt to undo something fails with
// the error that fail returns for it, if fail is not nil.
func serveCancellations(k *kit, j *journal, fail func(what string) error) (stop func() error) {
	k.t.Helper()
	w := newTestWorker(k.t, newTestClient(k.t, k.pool), WorkerConfig{Queue: "compensations", NoCoordinator: true})
	Handle(w, cancelBooking, func(ctx Context, what string) (struct{}, error) {
		if fail != nil {
			if err := fail(what); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, Do(ctx, "cancel", func(context.Context) error {
			j.add("cancel:" + what)
			return nil
		})
	})
	return startWorker(k.t, w)
}

// trip returns a workflow function that books three things, each after it has registered its compensation, and ends with
// then.
func trip(j *journal, then func(Context) error) func(Context, int) (int, error) {
	return func(ctx Context, n int) (int, error) {
		for _, name := range []string{"flight", "hotel", "car"} {
			Compensate(ctx, name, cancelBooking.With(fmt.Sprint(name, n)))
			if err := doLine(ctx, j, name); err != nil {
				return 0, err
			}
		}
		return n, then(ctx)
	}
}

// undone is the journal of a trip(7) that was compensated.
const undone = "flight hotel car cancel:car7 cancel:hotel7 cancel:flight7"

// cancelAsleep cancels a run once it sleeps.
func cancelAsleep(k *kit, run *Run[int]) {
	k.waitStatus(run.ID(), StatusSleeping)
	k.cancel(run.ID())
}

// breaks fails an attempt of a run.
func breaks(Context) error { return errors.New("broken") }

// sleepLong sleeps for longer than any test.
func sleepLong(ctx Context) error { return Sleep(ctx, "long", 10*time.Hour) }

// twice retries a run once.
var twice = RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}

// doLine runs a step that writes its name to j.
func doLine(ctx Context, j *journal, name string) error {
	return Do(ctx, name, func(context.Context) error {
		j.add(name)
		return nil
	})
}

// endsAs waits until the run is over, and fails the test unless it ended with status.
func endsAs[Out any](k *kit, run *Run[Out], status Status) RunInfo {
	k.t.Helper()
	_, err := run.Result(k.ctx)
	info := k.infoOf(run.ID())
	if info.Status != status {
		k.t.Errorf("ended %s with %v, want %s", info.Status, err, status)
	}
	return info
}

// beginStuck starts a trip on w and returns once its only step runs, which ignores its context until the test is over. told is
// closed when that context ends.
func beginStuck(k *kit, w *Worker) (run *Run[int], told <-chan struct{}) {
	k.t.Helper()
	begun, ended := make(chan struct{}), make(chan struct{})
	Handle(w, travel, func(ctx Context, _ int) (int, error) {
		Compensate(ctx, "flight", cancelBooking.With("LH1"))
		return 0, Do(ctx, "flight", func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			close(ended)
			<-k.t.Context().Done()
			return nil
		})
	})
	startWorker(k.t, w)
	run = begin(k, travel, 1)
	<-begun
	return run, ended
}
