package store

import (
	"context"
	"fmt"
	"time"
)

// A HeldError reports that an open transaction holds an external ID: it has inserted a run with it, or is about to end the
// run that has it.
type HeldError struct {
	ExternalID string // empty if it is one of several
	Unknown    bool   // the runs may have been started; else they were not
	Err        error
}

func (e *HeldError) Error() string {
	text := "one of the IDs"
	if e.ExternalID != "" {
		text = fmt.Sprintf("ID %q", e.ExternalID)
	}
	text += " is held by another transaction, which has neither been committed nor rolled back: "
	if e.Unknown {
		return text + "start again with the same ID to learn what became of this start"
	}
	return text + "nothing was started"
}

func (e *HeldError) Unwrap() error { return e.Err }

// onlyID returns the external ID that a start of a single run waits for, empty for a start of several.
func onlyID(runs []NewRun) string {
	if len(runs) == 1 {
		return runs[0].ExternalID
	}
	return ""
}

// endsNow reports whether ctx has ended, or leaves no time for another slice of waiting.
func endsNow(ctx context.Context) bool {
	t, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(t) < 50*time.Millisecond
}

// lockSlice is how long a start waits for a lock before it checks the caller's context: longer for a start of many runs,
// which is expensive to repeat, and short enough for an answer before the deadline of ctx.
func lockSlice(ctx context.Context, n int) time.Duration {
	slice := min(500*time.Millisecond+time.Duration(n)*100*time.Microsecond, callTimeout/2)
	if t, ok := ctx.Deadline(); ok {
		slice = min(slice, time.Until(t)/2)
	}
	return max(time.Millisecond, slice)
}
