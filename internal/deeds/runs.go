package deeds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/explain"
)

// ofRuns returns what can be done to runs, in the order of a list of deeds.
func ofRuns() []Deed {
	return []Deed{
		pauseRun(), cancel(), terminate(), resume(), restart(), fork(), unpauseRun(), update(), deleteRun(), signal(),
		redeliver(), drop(), resolve(),
	}
}

// many lets a deed be done to many runs, by calls that take the options of opts.
func many[O any](d Deed, m Many, opts func(Asked) []O,
	one func(admin.Runs, context.Context, kagzi.Ref, ...O) (kagzi.RunID, error),
	all func(admin.Runs, context.Context, kagzi.RunFilter, ...O) (admin.BulkResult, error),
) Deed {
	m.One = func(ctx context.Context, a Asked, run kagzi.Ref) (kagzi.RunID, error) {
		return one(a.admin().Runs, ctx, run, opts(a)...)
	}
	m.Dry = func(ctx context.Context, a Asked, f kagzi.RunFilter) (admin.BulkResult, error) {
		return all(a.admin().Runs, ctx, f, append(opts(a), any(admin.DryRun()).(O))...)
	}
	d.Many = &m
	if d.Do == nil {
		d.Do = func(ctx context.Context, a Asked) (done Done, err error) {
			done.New, err = m.One(ctx, a, a.Ref)
			return done, err
		}
	}
	return d
}

// makesNone is a call that makes no run.
func makesNone[O any](call func(admin.Runs, context.Context, kagzi.Ref, ...O) error) func(admin.Runs,
	context.Context, kagzi.Ref, ...O) (kagzi.RunID, error) {
	return func(r admin.Runs, ctx context.Context, run kagzi.Ref, opts ...O) (kagzi.RunID, error) {
		return "", call(r, ctx, run, opts...)
	}
}

func cancel() (d Deed) {
	d = Deed{
		Verb: "cancel", Object: Run, Past: "cancelled",
		Short: "Cancel runs, and compensate what they did",
		Says: []string{
			"Cancel ends a run and its children, except detached ones. Steps under way are told to stop.",
			"Compensations that the run has registered are executed first, and it stays active until they have " +
				"ended. Resume continues a cancelled run that has none.",
		},
		Fields: []Field{{
			Name: "grace", Label: "Grace", Kind: Duration, Hint: "30s",
			Help: "How long steps under way may go on before they are told to stop.",
		}},
	}
	opts := func(a Asked) []kagzi.ChangeOption {
		if !a.Values.Has("grace") {
			return onlyWhy(a)
		}
		grace, _ := duration.Parse(a.Values.Get("grace"))
		return why[kagzi.ChangeOption](a, kagzi.Grace(grace))
	}
	d = many(d, Many{Now: "cancelling", To: active, Stops: true}, opts, nil, admin.Runs.CancelAll)
	d.Many.One = func(ctx context.Context, a Asked, run kagzi.Ref) (kagzi.RunID, error) {
		return "", a.Client.Cancel(ctx, run, opts(a)...)
	}
	d.Do = stop(d)
	return d
}

func terminate() (d Deed) {
	d = many(Deed{
		Verb: "terminate", Object: Run, Past: "terminated", Danger: true,
		Short: "End runs at once, without compensations",
		Says: []string{
			"Terminate ends a run and its children at once, as cancelled. Detached children go on.",
			"It executes no compensations, and stops those under way: what the run did stays done. Cancel compensates.",
		},
	}, Many{Now: "terminating", To: active, Stops: true}, onlyWhy, makesNone(admin.Runs.Terminate),
		admin.Runs.TerminateAll)
	d.Do = stop(d)
	return d
}

func resume() Deed {
	opts := func(a Asked) []kagzi.ChangeOption {
		if steps := a.Values.all("forget"); len(steps) > 0 {
			return why[kagzi.ChangeOption](a, admin.Forget(steps...))
		}
		return onlyWhy(a)
	}
	return many(Deed{
		Verb: "resume", Object: Run, Past: "resumed",
		Short: "Continue runs that failed or were cancelled",
		Says: []string{
			"Resume continues a failed or cancelled run under its own ID: what made it fail is tried again, and all " +
				"recorded results stay.",
			"It removes the run's timeout. A parent that has recorded the failure keeps that. If the code continued " +
				"after a failure, that failure stays recorded, unless its step is named.",
		},
		Fields: []Field{{
			Name: "forget", Label: "Try again, too", Kind: Several, Arg: "STEP",
			Help: "Try this failed step again, although the code continued after it.",
		}},
		Look: lookResume,
	}, Many{Now: "resuming", To: []kagzi.Status{kagzi.StatusFailed, kagzi.StatusCancelled}}, opts,
		makesNone(admin.Runs.Resume), admin.Runs.ResumeAll)
}

// mostSteps is how many steps a form offers.
const mostSteps = 200

// lookResume offers the steps of the run whose last attempt failed, and whose failures a resume can forget.
func lookResume(ctx context.Context, a Asked, v *View) error {
	if v.Run.Status != kagzi.StatusFailed && v.Run.Status != kagzi.StatusCancelled {
		return nil
	}
	steps, err := a.Client.Steps(ctx, v.Run.ID, kagzi.StepFilter{NoPayloads: true})
	if err != nil {
		return err
	}
	last := map[string]int{} // the newest attempt of each step
	for i, s := range steps {
		if j, ok := last[s.Step]; !ok || s.Attempt >= steps[j].Attempt {
			last[s.Step] = i
		}
	}
	offered := v.field("forget")
	for i, s := range steps {
		if last[s.Step] == i && s.Status == kagzi.StatusFailed && len(offered.Choices) < mostSteps &&
			slices.Contains([]string{"FUNCTION", "CHILD_WORKFLOW", "BRANCH"}, s.Type) {
			label := s.Step + ": " + cut(120, explain.OneLine(s.Error))
			offered.Choices = append(offered.Choices, Option{Value: s.Step, Label: label})
		}
	}
	if len(offered.Choices) == 0 {
		v.Fields = nil
	}
	return nil
}

func deleteRun() Deed {
	return many(Deed{
		Verb: "delete", Object: Run, Past: "deleted", Danger: true, Slow: true, Button: "Delete for good",
		Short: "Delete runs that are over, with their steps and results",
		Says: []string{
			"Delete deletes a run that is over with all that is its own: input, result, steps, messages, and its " +
				"children, except detached ones. Nothing brings them back.",
			"A program that waits for its result learns that it is gone. Its log still says who deleted it, and why. " +
				"Retention deletes old runs by itself.",
		},
		Look: lookDelete,
	}, Many{Now: "deleting", To: over, Ends: true}, onlyWhy, makesNone(admin.Runs.Delete), admin.Runs.DeleteAll)
}

// mostChildren is how many children of a run are counted.
const mostChildren = 100

func lookDelete(ctx context.Context, a Asked, v *View) error {
	if steps, err := a.Client.Steps(ctx, v.Run.ID, kagzi.StepFilter{NoPayloads: true}); err != nil {
		return err
	} else if slices.ContainsFunc(steps, func(s kagzi.StepAttempt) bool { return s.Status == kagzi.StatusInDoubt }) {
		v.Says = append(v.Says, "A step of it is in doubt: what its call has done will be forgotten.")
	}
	children, err := a.Client.List(ctx, kagzi.RunFilter{Parent: v.Run.ID, Limit: mostChildren + 1})
	switch n := len(children); {
	case n > mostChildren:
		v.Says = append(v.Says, fmt.Sprintf("It deletes with it more than %d children.", mostChildren))
	case n > 0:
		v.Says = append(v.Says, "It deletes with it "+plural(n, "child", "children")+".")
	}
	return err
}

func pauseRun() Deed {
	return Deed{
		Verb: "pause", Object: Run, Past: "paused", Short: "Pause one run",
		Says: []string{
			"Pause keeps workers from executing an active run until it is unpaused. One that is being executed stops " +
				"at its next step, sleep, wait or child, and keeps the result of the step under way.",
			"Its children go on, and so does its timeout. A cancel ends the pause.",
		},
		Look: func(_ context.Context, _ Asked, v *View) error {
			switch {
			case v.Run.Status.Ended():
				v.Refused = errors.New("the run is over")
			case !v.Run.PausedAt.IsZero():
				v.Refused = errors.New("the run is paused already")
			}
			return nil
		},
		Do: func(ctx context.Context, a Asked) (done Done, err error) {
			before, err := a.Client.Get(ctx, a.Ref)
			if err == nil {
				err = a.admin().Runs.Pause(ctx, a.Ref, onlyWhy(a)...)
			}
			if err == nil && !before.PausedAt.IsZero() {
				done.Already = true
				done.Said = fmt.Sprintf("%s was paused already, since %s", a.Called(), a.Moment(before.PausedAt))
			}
			return done, err
		},
	}
}

func unpauseRun() (d Deed) {
	d = many(Deed{
		Verb: "unpause", Object: Run, Past: "unpaused", Short: "Let paused runs go on",
		Says: []string{
			"Unpause ends the pause of a run.", "Those of its queue, its workflow, its key and its group stay.",
		},
	}, Many{Now: "unpausing", To: active}, onlyWhy, makesNone(admin.Runs.Unpause), admin.Runs.UnpauseAll)
	d.Do = unlessSo(d, func(_ context.Context, _ Asked, before kagzi.RunInfo, _ int) (string, error) {
		if before.PausedAt.IsZero() {
			return "was not paused itself", nil
		}
		return "", nil
	})
	return d
}

// unlessSo returns the Do of a deed that may have nothing to change. same says so of a run which was as before, and
// which had been updated so many times: "was not paused itself". It says nothing if there was something to change.
func unlessSo(d Deed, same func(ctx context.Context, a Asked, before kagzi.RunInfo, updates int) (string,
	error),
) func(context.Context, Asked) (Done, error) {
	return func(ctx context.Context, a Asked) (done Done, err error) {
		updates := 0
		before, err := a.Client.Get(ctx, a.Ref)
		if err == nil {
			updates, err = updated(ctx, a, before.ID)
		}
		if err == nil {
			_, err = d.Many.One(ctx, a, before.ID) // an ID may be that of another run by now
		}
		if err != nil {
			return done, err
		}
		so, err := same(ctx, a, before, updates)
		if so != "" {
			done.Said, done.Already = a.Called()+" "+so, true
		}
		return done, err
	}
}

// stop returns the Do of cancel and terminate. Both succeed for a run that is cancelled already, so it looks at the run
// before and after, and names the changes.
func stop(d Deed) func(context.Context, Asked) (Done, error) {
	return func(ctx context.Context, a Asked) (done Done, err error) {
		before, err := a.Client.Get(ctx, a.Ref)
		if err != nil {
			return done, err
		}
		var asked admin.LogEntry
		if before.Status.Ended() || !before.CancelRequestedAt.IsZero() {
			if asked, err = stopAsked(ctx, a, before.ID); err != nil {
				return done, err
			}
		}
		_, err = d.Many.One(ctx, a, before.ID) // an ID may be that of another run by now
		if err != nil && !errors.Is(err, kagzi.ErrRunFinished) {
			return done, err
		}
		after, look := a.Client.Get(ctx, before.ID)
		if errors.Is(look, kagzi.ErrNotFound) { // retention has deleted it
			after, look = before, nil
		}
		switch {
		case look != nil:
			return done, look
		case err != nil:
			return done, &Ended{Err: err, Text: fmt.Sprintf("cannot %s %s: the run has ended: %s, %s", d.Verb,
				a.Called(), after.Status, a.Moment(after.EndedAt))}
		}
		done.Status = after.Status
		done.Said, done.Already = stopText(a, before, after, asked)
		return done, nil
	}
}

// An Ended says that a run has ended before it was to be stopped. Its text needs no advice.
type Ended struct {
	Text string
	Err  error
}

func (e *Ended) Error() string { return e.Text }

// Unwrap returns the error that the text is about.
func (e *Ended) Unwrap() error { return e.Err }

// stopText says how far the end of a run is, unless it was not to end before and has ended now. asked is the request
// that stopped it before.
func stopText(a Asked, before, after kagzi.RunInfo, asked admin.LogEntry) (text string, already bool) {
	by := explain.By(asked.Actor, asked.Reason)
	since := asked.At
	if since.IsZero() {
		since = before.CancelRequestedAt
	}
	switch {
	case before.Status.Ended():
		return fmt.Sprintf("%s was cancelled already, %s%s: nothing was changed", a.Called(), a.Moment(before.EndedAt),
			by), true
	case after.Status.Ended():
		return "", false
	case since.IsZero():
		text = a.Called() + " is being cancelled"
	default:
		text = fmt.Sprintf("%s was being cancelled already, since a request %s%s", a.Called(), a.Moment(since), by)
	}
	if after.WaitingOn != nil {
		text += ", and waits on " + after.WaitingOn.String()
	}
	return text, !since.IsZero()
}

// stopAsked returns the request that has stopped a run; nothing if there is none in the run's log, as for a child of a
// cancelled run, or if the run was resumed after it.
func stopAsked(ctx context.Context, a Asked, run kagzi.RunID) (none admin.LogEntry, err error) {
	log, err := a.admin().Runs.Log(ctx, run)
	for _, e := range slices.Backward(log) {
		switch e.Event {
		case "CANCELLED", "TERMINATED":
			return e, err
		case "RESUMED":
			return none, err
		}
	}
	return none, err
}
