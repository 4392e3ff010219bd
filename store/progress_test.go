package store

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Only the holder of a run changes its progress.
func TestProgressUnderItsLease(t *testing.T) {
	t.Parallel()
	s := open(t)
	runs := running(t, s, 4)
	says := func(r *ClaimedRun, text string) *Progress {
		return &Progress{RunID: r.RunID, Lease: r.Lease, Text: text}
	}
	stored := func(r *ClaimedRun) (p StoredProgress) {
		t.Helper()
		row, err := s.Runs.Get(t.Context(), r.RunID)
		if err != nil {
			t.Fatal(err)
		}
		if row.Progress != nil {
			if err := json.Unmarshal(row.Progress, &p); err != nil {
				t.Fatal(err)
			}
			if p.At.IsZero() {
				t.Errorf("%s: no time", row.Progress)
			}
		}
		return p
	}
	zombie, sleeps, ends, other := runs[0], runs[1], runs[2], runs[3]
	holder := supersede(t, s, zombie)
	lost, f := says(zombie, "lost"), &Flush{
		Progress: []*Progress{
			says(other, "4 of 9"), says(ends, "ends"), says(sleeps, "sleeps"),
			says(holder, "held"),
		},
		Suspensions: []*Suspension{sleep(sleeps, time.Hour)}, Finishes: []*Finish{finish(ends)},
	}
	flush(t, s, f)
	flush(t, s, &Flush{Progress: []*Progress{lost}})
	late := &Flush{Progress: []*Progress{says(sleeps, "late"), says(ends, "late")}}
	flush(t, s, late)
	for _, p := range append(append(f.Progress, lost), late.Progress...) {
		wantOutcome(t, p.Text, p.Outcome, Done)
	}
	for want, r := range map[string]*ClaimedRun{"held": holder, "sleeps": sleeps, "ends": ends, "4 of 9": other} {
		if got := stored(r).Text; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	tx := begin(t, s)
	lockRow(t, tx, other.RunID)
	busy, gone := says(other, "busy"), says(holder, "gone")
	gone.Lease = uuid.New()
	flush(t, s, &Flush{Progress: []*Progress{busy, gone}})
	wantOutcome(t, "a locked run", busy.Outcome, Busy)
	wantOutcome(t, "a lost one beside it", gone.Outcome, Done)
	commit(t, tx)
	busy.Text, busy.Fraction = "", new(0.25)
	flush(t, s, &Flush{Progress: []*Progress{busy}})
	if p := stored(other); p.Text != "" || p.Fraction == nil || *p.Fraction != 0.25 {
		t.Errorf("after the lock: %+v", p)
	}
	busy.Fraction = nil
	flush(t, s, &Flush{Progress: []*Progress{busy}})
	if row, err := s.Runs.Get(t.Context(), other.RunID); err != nil || row.Progress != nil {
		t.Errorf("taken back: %s, %v", row.Progress, err)
	}
}
