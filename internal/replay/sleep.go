package replay

import (
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// A SleepSpec describes a sleep.
type SleepSpec struct {
	Name    string
	BadName error                             // why the name is invalid; nil if it is valid
	Invalid error                             // why the rest of the call is invalid; nil if it is valid
	Length  func(now time.Time) time.Duration // called with the database's time when the sleep begins
}

// A sleep is a sleep under way.
type sleep struct {
	e  *Run
	b  *Branch
	id string
}

// Sleep returns when the time has passed. A long sleep suspends the run, and returns in the execution that resumes it.
// See doc_waits.go.
func (b *Branch) Sleep(spec SleepSpec) error {
	defer b.operate().done()
	id, err := b.enter(spec.Name, spec.BadName)
	if err != nil {
		return err
	}
	if spec.Invalid != nil {
		return b.Misuse(failure.Wrap(spec.Invalid, "sleep %q", id))
	}
	e := b.execution()
	s := sleep{e, b, id}
	row := b.lookup(id, store.KindSleep)
	if row == nil {
		if row, err = s.begin(spec.Length(e.Now())); err != nil {
			return err
		}
	}
	if row.Status == store.Running {
		if err := b.wait(row.WakeAt, s.what(), next{}); err != nil {
			return err
		}
		// The record is deferred: the row in the table already says when the sleep ends.
		r := e.newRecord(id, store.KindSleep, store.Completed, row.Attempt, row.FirstAttempt)
		r.EndedAt = row.WakeAt
		b.deferRecord(r)
	}
	if row.WakeAt.IsZero() {
		b.passed(row)
	} else { // the time of the deferred record's write differs between replays
		b.passed(&store.StepRow{FinishedAt: row.WakeAt})
	}
	return nil
}

func (s *sleep) what() waits.Wait { return waits.Wait{Kind: waits.Timer, Name: s.id} }

// begin begins the sleep. It waits for the end of a short one in memory, and records that. It records a long one when
// it begins, so that no restart begins it again.
func (s *sleep) begin(d time.Duration) (*store.StepRow, error) {
	if err := s.b.begins(); err != nil {
		return nil, err
	}
	if d <= memoryWait {
		// The estimate of the database's clock lags, and may be corrected meanwhile. That must not shorten the sleep.
		begun := time.Now()
		for left := d; ; {
			if err := s.b.wait(s.e.Now().Add(left), s.what(), next{}); err != nil {
				return nil, err
			}
			if left = d - time.Since(begun); left <= 0 {
				break
			}
		}
		r := s.e.newRecord(s.id, store.KindSleep, store.Completed, 1, 1)
		r.Elapsed = time.Since(begun)
		return s.b.record(r), nil
	}
	r := s.e.newRecord(s.id, store.KindSleep, store.Running, 1, 1)
	r.Wake = d
	s.b.suspendWith(r, &wait{what: s.what()}, next{})
	return s.b.record(r), nil
}
