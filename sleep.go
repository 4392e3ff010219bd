package kagzi

import (
	"errors"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// Sleep returns when d has passed, in whatever process: meanwhile the run holds no goroutine, slot or
// connection, unless d is short or another branch is at work. It returns an error only if the call is wrong or
// the branch was cancelled. A d of zero or less does not wait.
func Sleep(ctx Context, name string, d time.Duration) error {
	d = max(d, 0)
	return sleep(ctx, name, validateDuration("duration", d), func(time.Time) time.Duration { return d })
}

// SleepUntil returns once t is past, by the database's clock. The zero time is refused. It is [Sleep] otherwise.
func SleepUntil(ctx Context, name string, t time.Time) error {
	var invalid error
	if t.IsZero() {
		invalid = errors.New("kagzi: the time is zero: give the time to sleep until")
	}
	return sleep(ctx, name, invalid, func(now time.Time) time.Duration { return max(t.Sub(now), 0) })
}

// sleep waits for what length says, given the database's time when the sleep begins. invalid says what is wrong with that.
func sleep(ctx Context, name string, invalid error, length func(now time.Time) time.Duration) error {
	b, err := branchOf(ctx)
	if err != nil {
		return err
	}
	id, err := b.enter("sleep", name)
	if err != nil {
		return err
	}
	if invalid != nil {
		return b.misuse(failure.Wrap(invalid, "sleep %q", id))
	}
	row := b.lookup(id, store.KindSleep)
	if row == nil {
		if row, err = b.beginSleep(id, length(b.e.s.now())); err != nil {
			return err
		}
	}
	if row.Status == store.Running {
		if err := b.wait(row.WakeAt, "timer "+id, nil, 0); err != nil {
			return err
		}
		// Nobody waits for this record: that the time has passed can be told from the row that is there.
		r := b.e.newRecord(id, store.KindSleep, store.Completed, row.Attempt, row.FirstAttempt)
		r.EndedAt = row.WakeAt
		b.deferRecord(r)
	}
	if row.WakeAt.IsZero() {
		b.passed(row)
	} else { // when that record was written differs from replay to replay
		b.passed(&store.StepRow{FinishedAt: row.WakeAt})
	}
	return nil
}

// beginSleep sleeps through a short sleep and returns its record, or returns the record that a long one has
// begun. A long sleep is recorded when it begins, so that no restart begins it again.
func (b *branch) beginSleep(id string, d time.Duration) (*store.StepRow, error) {
	e := b.e
	if err := b.begins(); err != nil {
		return nil, err
	}
	if d <= memoryWait {
		begun := time.Now()
		if err := b.wait(e.s.now().Add(d), "timer "+id, nil, 0); err != nil {
			return nil, err
		}
		r := e.newRecord(id, store.KindSleep, store.Completed, 1, 1)
		r.Elapsed = time.Since(begun)
		return b.record(r), nil
	}
	r := e.newRecord(id, store.KindSleep, store.Running, 1, 1)
	r.Wake = d
	b.suspendWith(r, &wait{why: "timer " + id}, nil, 0)
	return b.record(r), nil
}
