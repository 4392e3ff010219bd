package engine

import (
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A SleepSpec is a sleep as the workflow function asks for it.
type SleepSpec struct {
	Name    string
	BadName error                             // what is wrong with the name, nil if nothing is
	Invalid error                             // what is wrong with the rest of the call
	Length  func(now time.Time) time.Duration // given the database's time when the sleep begins
}

// Sleep returns when the time has passed, in whatever process.
func (b *Branch) Sleep(spec SleepSpec) error {
	id, err := b.enter(spec.Name, spec.BadName)
	if err != nil {
		return err
	}
	if spec.Invalid != nil {
		return b.Misuse(failure.Wrap(spec.Invalid, "sleep %q", id))
	}
	row := b.lookup(id, store.KindSleep)
	if row == nil {
		if row, err = b.beginSleep(id, spec.Length(b.e.env.now())); err != nil {
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
func (b *Branch) beginSleep(id string, d time.Duration) (*store.StepRow, error) {
	e := b.e
	if err := b.begins(); err != nil {
		return nil, err
	}
	if d <= memoryWait {
		begun := time.Now()
		if err := b.wait(e.env.now().Add(d), "timer "+id, nil, 0); err != nil {
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
