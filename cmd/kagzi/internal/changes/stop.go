package changes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/internal/explain"
)

// A stopState is how far the end of a run is.
type stopState struct {
	run   kagzi.RunInfo
	since time.Time      // when a cancel was requested; zero if none was, or the run was resumed after it
	by    admin.LogEntry // the request; empty if there is none in the run's log, as for a child of a cancelled run
}

// stopOne is changeOne for cancel and terminate. Both succeed for a run that is cancelled already, so it looks at the
// run before and after, and says what has changed.
func stopOne(ctx context.Context, p *command.Program, c *kagzi.Client, v *verb, ref kagzi.Ref) error {
	before, err := stopStateOf(ctx, c, ref)
	if err != nil {
		return err
	}
	id := before.run.ID // an ID may be that of another run by the next call
	_, err = v.one(ctx, c, id)
	if err != nil && !errors.Is(err, kagzi.ErrRunFinished) {
		return err
	}
	after, look := c.Get(ctx, id)
	if errors.Is(look, kagzi.ErrNotFound) { // retention has deleted it
		after, look = before.run, nil
	}
	if look != nil {
		return look
	}
	if err != nil {
		return &words.Plain{Err: err, Text: fmt.Sprintf("cannot %s %s: the run has ended: %s, %s", v.name, ref,
			after.Status, p.Screen.Time(after.EndedAt))}
	}
	change := oneChange{Verb: v.name, Run: ref, Status: after.Status}
	change.Already = before.run.Status.Ended() || !after.Status.Ended() && !before.since.IsZero()
	return p.Done(change, "%s", stopText(p.Screen, v, ref, before, after))
}

// stopText says what a verb did to a run.
func stopText(on *screen.Screen, v *verb, ref kagzi.Ref, before stopState, after kagzi.RunInfo) string {
	if before.run.Status.Ended() {
		return fmt.Sprintf("%s was cancelled already, %s%s: nothing was changed", ref,
			on.Time(before.run.EndedAt), explain.By(before.by.Actor, before.by.Reason))
	}
	if after.Status.Ended() {
		return fmt.Sprintf("%s %s", v.past, ref)
	}
	text := fmt.Sprintf("%s is being cancelled", ref)
	if !before.since.IsZero() {
		text = fmt.Sprintf("%s was being cancelled already, since a request %s%s", ref, on.Time(before.since),
			explain.By(before.by.Actor, before.by.Reason))
	}
	if after.WaitingOn != "" {
		text += ", and waits on " + after.WaitingOn
	}
	return fmt.Sprintf("%s: kagzi runs get %s shows how far it is, kagzi runs terminate %s ends it at once",
		text, ref, ref)
}

func stopStateOf(ctx context.Context, c *kagzi.Client, ref kagzi.Ref) (s stopState, err error) {
	if s.run, err = c.Get(ctx, ref); err != nil {
		return s, err
	}
	s.since = s.run.CancelRequestedAt
	log, err := admin.New(c).RunLog(ctx, s.run.ID)
	if err != nil {
		return s, err
	}
	for _, e := range slices.Backward(log) {
		switch e.Event {
		case "CANCELLED", "TERMINATED":
			s.since, s.by = e.At, e
			return s, nil
		case "RESUMED":
			return s, nil
		}
	}
	return s, nil
}
