package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

// A HeldError reports that an open transaction holds an external ID: it has inserted a run with it, or is about to end
// the run that has it. Or it holds the key of a window: it has started in it, or has locked its run. Or it has started
// a run of the key with a WhenFull, or has locked one that is to be cancelled. Or it has published an event ID.
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
		return fmt.Sprintf("key %q", runs[0].Key.Name)
	case runs[0].WhenFull != "":
		return fmt.Sprintf("ID %q or key %q", runs[0].ExternalID, runs[0].Key.Name)
	}
	return fmt.Sprintf("ID %q", runs[0].ExternalID)
}

// whileHeld calls try, a transaction of its own, until it succeeds. It repeats it for as long as another transaction
// holds what it needs and ctx leaves time, and then returns held. It repeats a few times if the database is away: lost
// says that the answer to an earlier try may have been lost.
func whileHeld(ctx context.Context, held HeldError, try func(ctx context.Context, lost bool) error) error {
	var waited, lost bool
	for tries := 0; ; {
		err := try(ctx, lost)
		switch {
		case err == nil:
			return nil
		case pg.Locked(err):
			if waited = true; endsNow(ctx) {
				return held.because(ctx, err)
			}
			continue // it was rolled back
		case waited && pg.Unavailable(err) && endsNow(ctx):
			held.Unknown = true
			return held.because(ctx, err)
		case ctx.Err() != nil || !pg.Unavailable(err) && !pg.Repeatable(err):
			return err
		}
		lost, ctx = lost || pg.Unavailable(err), pg.Suspecting(ctx, err)
		if tries++; tries == pg.MaxTries {
			return err
		}
	}
}

// because adds that ctx has ended, or is about to.
func (e HeldError) because(ctx context.Context, err error) error {
	e.Err = errors.Join(cmp.Or(ctx.Err(), context.DeadlineExceeded), err)
	return &e
}

// endsNow reports whether ctx has ended, or leaves no time for another slice of waiting.
func endsNow(ctx context.Context) bool {
	t, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(t) < 50*time.Millisecond
}

// lockSlice is how long a start waits for a lock before it checks the caller's context: longer for a start of many
// runs, which is expensive to repeat, and short enough for an answer before the deadline of ctx.
func lockSlice(ctx context.Context, n int) time.Duration {
	slice := min(500*time.Millisecond+time.Duration(n)*100*time.Microsecond, pg.CallTimeout/2)
	if t, ok := ctx.Deadline(); ok {
		slice = min(slice, time.Until(t)/2)
	}
	return max(time.Millisecond, slice)
}
