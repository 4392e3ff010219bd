package store

import (
	"context"
	"fmt"
	"time"
)

// A HeldError reports that an open transaction holds an external ID: it has inserted a run with it, or is about to end the
// run that has it. Or it holds the key of a window: it has started in it, or has locked its run. Or it has started a run of the key
// with a WhenFull, or has locked one that is to be cancelled. Or it has published an event ID.
type HeldError struct {
	What    string // for people: `ID "x"`
	Events  bool   // events were to be published, else runs to be started
	Unknown bool   // that may have happened; else it has not
	Err     error
}

func (e *HeldError) Error() string {
	text := e.What + " is held by another transaction, which has neither been committed nor rolled back: "
	switch {
	case e.Events && e.Unknown:
		return text + "whether the events were published is not known; publish them again with the same IDs"
	case e.Events:
		return text + "nothing was published"
	case e.Unknown:
		return text + "whether something was started is not known; another start with the same ID finds it"
	}
	return text + "nothing was started"
}

func (e *HeldError) Unwrap() error { return e.Err }

// waitsFor says what a start of these runs waits for.
func waitsFor(runs []NewRun) string {
	switch w := runs[0].Window; {
	case len(runs) > 1:
		return "one of the IDs and keys"
	case w != nil && w.Policy != OncePer:
		return fmt.Sprintf("key %q", w.Key)
	case runs[0].WhenFull != "" && runs[0].ExternalID == "":
		return fmt.Sprintf("key %q", runs[0].Key)
	case runs[0].WhenFull != "":
		return fmt.Sprintf("ID %q or key %q", runs[0].ExternalID, runs[0].Key)
	}
	return fmt.Sprintf("ID %q", runs[0].ExternalID)
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
