package kagzi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A journal is what happened, in order.
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

func (j *journal) has(line string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Contains(j.lines, line)
}

// cancelBooking undoes what it is given, on a queue of its own.
var cancelBooking = Define[string, struct{}]("cancel-booking", Queue("compensations"), RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})

// serveCancellations starts a worker that has nothing but the code of the compensations, which write to j. fail says
// whether an attempt to undo what is given fails.
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

// trip books three things, each with its compensation registered before it, and then goes on.
func trip(j *journal, then func(Context) error) func(Context, int) (int, error) {
	return func(ctx Context, n int) (int, error) {
		for _, name := range []string{"flight", "hotel", "car"} {
			Compensate(ctx, name, cancelBooking.With(fmt.Sprint(name, n)))
			if err := Do(ctx, name, func(context.Context) error {
				j.add(name)
				return nil
			}); err != nil {
				return 0, err
			}
		}
		return n, then(ctx)
	}
}

const undone = "flight hotel car cancel:car7 cancel:hotel7 cancel:flight7"

func cancelAsleep(k *kit, run *Run[int]) {
	k.waitStatus(run.ID(), StatusSleeping)
	k.cancel(run.ID())
}

// sleepLong sleeps for longer than any test.
func sleepLong(ctx Context) error { return Sleep(ctx, "long", 10*time.Hour) }

// twice is a run that is tried a second time.
var twice = RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}

func doLine(ctx Context, j *journal, name string) error {
	return Do(ctx, name, func(context.Context) error {
		j.add(name)
		return nil
	})
}

// endsAs waits until the run is over, and fails the test unless it ended so.
func endsAs[Out any](k *kit, run *Run[Out], status Status) RunInfo {
	k.t.Helper()
	_, err := run.Result(k.ctx)
	info := k.infoOf(run.ID())
	if info.Status != status {
		k.t.Errorf("ended %s with %v, want %s", info.Status, err, status)
	}
	return info
}
