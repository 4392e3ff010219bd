package kit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
)

// A Journal keeps the names of events in the order in which they happened.
type Journal struct {
	mu    sync.Mutex
	lines []string
}

// Add writes a line.
func (j *Journal) Add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// String returns the lines, with spaces between them.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, " ")
}

// Want fails the test unless exactly these lines were written, in this order.
func (j *Journal) Want(t testing.TB, want string) {
	t.Helper()
	if got := j.String(); got != want {
		t.Errorf("happened: %q\nwant:     %q", got, want)
	}
}

// Has reports whether the line was written.
func (j *Journal) Has(line string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.lines, line)
}

// Travel is the workflow that most tests of compensations use.
var Travel = kagzi.Define[int, int]("trip", NoRetry)

// CancelBooking is the compensation of a booking, on a queue of its own.
var CancelBooking = kagzi.Define[string, struct{}]("cancel-booking", kagzi.Queue("compensations"),
	kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})

// ServeCancellations starts a worker for CancelBooking only, which writes to j. If fail is not nil, an attempt to
// cancel a booking fails with the error that fail returns for it.
func ServeCancellations(k *Kit, j *Journal, fail func(what string) error) (stop func() error) {
	k.T.Helper()
	w := NewWorker(k.T, NewClient(k.T, k.Pool), kagzi.WorkerConfig{Queue: "compensations", NoCoordinator: true})
	kagzi.Handle(w, CancelBooking, func(ctx kagzi.Context, what string) (struct{}, error) {
		if fail != nil {
			if err := fail(what); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, kagzi.Do(ctx, "cancel", func(context.Context) error {
			j.Add("cancel:" + what)
			return nil
		})
	})
	return StartWorker(k.T, w)
}

// Trip returns a workflow function that makes three bookings, each after registering its compensation, and then calls
// then.
func Trip(j *Journal, then func(kagzi.Context) error) func(kagzi.Context, int) (int, error) {
	return func(ctx kagzi.Context, n int) (int, error) {
		for _, name := range []string{"flight", "hotel", "car"} {
			kagzi.Compensate(ctx, name, CancelBooking.With(fmt.Sprint(name, n)))
			if err := DoLine(ctx, j, name); err != nil {
				return 0, err
			}
		}
		return n, then(ctx)
	}
}

// Compensated is the journal of a Trip with input 7 that was compensated.
const Compensated = "flight hotel car cancel:car7 cancel:hotel7 cancel:flight7"

// CancelAsleep cancels a run once it sleeps.
func CancelAsleep(k *Kit, run *kagzi.Run[int]) {
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	k.Cancel(run.ID())
}

// Breaks returns an error, which fails the attempt of a run.
func Breaks(kagzi.Context) error { return errors.New("broken") }

// SleepLong sleeps for longer than any test.
func SleepLong(ctx kagzi.Context) error { return kagzi.Sleep(ctx, "long", 10*time.Hour) }

// Twice is a policy of two attempts.
var Twice = kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}

// DoLine runs a step that writes its name to j.
func DoLine(ctx kagzi.Context, j *Journal, name string) error {
	return kagzi.Do(ctx, name, func(context.Context) error {
		j.Add(name)
		return nil
	})
}

// EndsAs waits until the run has ended, and fails the test unless it ended with status.
func EndsAs[Out any](k *Kit, run *kagzi.Run[Out], status kagzi.Status) kagzi.RunInfo {
	k.T.Helper()
	_, err := run.Result(k.Ctx)
	info := k.InfoOf(run.ID())
	if info.Status != status {
		k.T.Errorf("ended %s with %v, want %s", info.Status, err, status)
	}
	return info
}

// BeginStuck starts Travel on w, and returns once its only step runs. The step ignores its context until the test ends.
// ended is closed when that context ends.
func BeginStuck(k *Kit, w *kagzi.Worker) (run *kagzi.Run[int], ended <-chan struct{}) {
	k.T.Helper()
	begun, done := make(chan struct{}), make(chan struct{})
	kagzi.Handle(w, Travel, func(ctx kagzi.Context, _ int) (int, error) {
		kagzi.Compensate(ctx, "flight", CancelBooking.With("LH1"))
		return 0, kagzi.Do(ctx, "flight", func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			close(done)
			<-k.T.Context().Done()
			return nil
		})
	})
	StartWorker(k.T, w)
	run = Begin(k, Travel, 1)
	<-begun
	return run, done
}
