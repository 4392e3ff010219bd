package ui

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	durations "github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// runForms change one run.
type runForms struct {
	client   *kagzi.Client
	admin    *admin.Client
	payloads payloads
}

// all are the forms.
func (p *runForms) all() []web.ChangeForm {
	return slices.Concat(p.endForms(), p.goOnForms(), p.newRunForms(), p.talkForms())
}

// runForm is a form about one run. title begins with the verb.
func (p *runForms) runForm(verb Verb, title string, show func(context.Context, web.Query, *web.Dialog) error,
	do func(context.Context, web.Form, kagzi.RunID) (web.Answer, error),
) web.ChangeForm {
	return web.ChangeForm{
		Path: "/runs/{id}/" + string(verb), Action: asks(verb, OnRun), Slow: verb == Delete,
		Show: func(ctx context.Context, q web.Query) (*web.Dialog, error) {
			run, err := p.client.Get(ctx, kagzi.RunID(q.Path("id")))
			if err != nil {
				return nil, err
			}
			v := &web.Dialog{Title: title + " " + nameOf(run), Run: &run, Back: "/runs/" + string(run.ID)}
			if err := show(ctx, q, v); err != nil {
				return nil, err
			}
			return v, nil
		},
		Do: func(ctx context.Context, f web.Form) (web.Answer, error) {
			id := kagzi.RunID(f.Path("id"))
			done, err := do(ctx, f, id)
			done.To = cmp.Or(done.To, "/runs/"+string(id))
			return done, err
		},
	}
}

// nameOf returns what people call a run.
func nameOf(r kagzi.RunInfo) string {
	if r.ExternalID != "" {
		return first(60, string(r.ExternalID))
	}
	return short(r.ID)
}

// everyStatus lets a filter find a run whatever it does.
var everyStatus = slices.Concat(statuses["active"], statuses["ended"])

// try asks the database what a verb would do to one run. wrong is why it would refuse it.
func try(r kagzi.RunInfo, dry func(kagzi.RunFilter) (admin.BulkResult, error)) (wrong, err error) {
	would, err := dry(kagzi.RunFilter{IDs: []kagzi.RunID{r.ID}, Status: everyStatus})
	if err != nil && applies(err) { // UnpauseRuns returns what the others skip
		return err, nil
	}
	if err != nil || slices.Contains(would.Changed, r.ID) {
		return nil, err
	}
	if wrong = would.Skipped[r.ID]; wrong == nil {
		wrong = kagzi.ErrNotFound
	}
	return wrong, nil
}

// stopping refuses to stop a run that is cancelled already: the library would do nothing.
func stopping(v *web.Dialog, dry func(kagzi.RunFilter) (admin.BulkResult, error)) error {
	if v.Run.Status == kagzi.StatusCancelled {
		v.Refused = web.WhyNot(errCancelled, v.Run.ID)
		return nil
	}
	return tryOn(v, dry)
}

// tryOn puts what the database says of a change into its dialog.
func tryOn(v *web.Dialog, dry func(kagzi.RunFilter) (admin.BulkResult, error)) error {
	wrong, err := try(*v.Run, dry)
	if wrong != nil {
		v.Refused = web.WhyNot(wrong, v.Run.ID)
	}
	return err
}

// endForms end runs for good.
func (p *runForms) endForms() []web.ChangeForm {
	return []web.ChangeForm{
		p.runForm(Cancel, "Cancel", func(ctx context.Context, _ web.Query, v *web.Dialog) error {
			v.Do, v.Says = "Cancel the run", cancelSays(*v.Run)
			if v.Run.Status == kagzi.StatusRunning {
				v.Fields = []web.Field{{
					Name: "grace", Label: "Grace", Sort: "text", Hint: "30s",
					Help: "How long its steps under way may go on before they are told to stop. Empty: they are told " +
						"at once.",
				}}
			}
			return stopping(v, func(f kagzi.RunFilter) (admin.BulkResult, error) {
				return p.admin.CancelAll(ctx, f, admin.DryRun())
			})
		}, p.cancel),
		p.runForm(Terminate, "Terminate", func(ctx context.Context, _ web.Query, v *web.Dialog) error {
			v.Do, v.Danger = "Terminate the run", true
			v.Says = []string{
				"The run and its children end at once, as cancelled. Detached children go on.",
				"No compensation runs, and those under way are stopped: what the run did stays done. Cancel " +
					"compensates.",
			}
			return tryOn(v, func(f kagzi.RunFilter) (admin.BulkResult, error) {
				return p.admin.TerminateAll(ctx, f, admin.DryRun())
			})
		}, p.terminate),
		p.runForm(Delete, "Delete", p.showDelete, func(ctx context.Context, f web.Form,
			id kagzi.RunID,
		) (web.Answer, error) {
			return web.Answer{Leads: true, To: "/runs", Said: "Deleted. Its log still says who did it, and why."},
				p.admin.Delete(ctx, id, f.Options()...)
		}),
	}
}

// cancelSays says what a cancel does to a run.
func cancelSays(r kagzi.RunInfo) []string {
	says := []string{"The run ends as cancelled, and its children with it, except detached ones."}
	if r.Status == kagzi.StatusRunning {
		says = append(says, "Its worker tells the steps under way to stop.")
	}
	return append(says, "Compensations that it has registered run first, and it stays active until they have ended. "+
		"Resume continues a cancelled run that has none.")
}

func (p *runForms) cancel(ctx context.Context, f web.Form, id kagzi.RunID) (web.Answer, error) {
	opts := f.Options()
	if s := f.Get("grace"); s != "" {
		grace, err := durations.Parse(s)
		if err != nil {
			return web.Answer{}, web.BadRequest("The grace %q is no duration: write 30s or 5m.", s)
		}
		opts = append(opts, kagzi.Grace(grace))
	}
	before, err := p.client.Get(ctx, id)
	if err == nil {
		err = p.client.Cancel(ctx, id, opts...)
	}
	if err != nil {
		return web.Answer{}, err
	}
	return web.Answer{Said: p.stopped(ctx, before, "Cancelled.")}, nil
}

func (p *runForms) terminate(ctx context.Context, f web.Form, id kagzi.RunID) (web.Answer, error) {
	before, err := p.client.Get(ctx, id)
	if err == nil {
		err = p.admin.Terminate(ctx, id, f.Options()...)
	}
	if err != nil {
		return web.Answer{}, err
	}
	return web.Answer{Said: p.stopped(ctx, before, "Terminated.")}, nil
}

// stopped says how far the end of a run is that was cancelled or terminated.
func (p *runForms) stopped(ctx context.Context, before kagzi.RunInfo, past string) string {
	if before.Status.Ended() {
		return "It was cancelled before. Nothing was changed."
	}
	after, err := p.client.Get(ctx, before.ID)
	if err != nil || after.Status.Ended() {
		return past
	}
	if !before.CancelRequestedAt.IsZero() {
		past = "It was being cancelled already."
	}
	if steps, ok := strings.CutPrefix(after.WaitingOn, "cancel ("); ok {
		return past + " It ends once " + strings.TrimSuffix(strings.TrimSuffix(steps, ")"), " under way") +
			" has returned."
	}
	if strings.HasPrefix(after.WaitingOn, "compensation") || after.WaitingOn == "children" {
		return past + " It ends once its compensations have run."
	}
	return past + " It ends once its steps under way have returned."
}

// mostChildren is how many children of a run a dialog counts.
const mostChildren = 100

func (p *runForms) showDelete(ctx context.Context, _ web.Query, v *web.Dialog) error {
	v.Do, v.Danger = "Delete for good", true
	children, err := p.client.List(ctx, kagzi.RunFilter{Parent: v.Run.ID, Limit: mostChildren + 1})
	if err != nil {
		return err
	}
	what := "Its input, result, steps and messages are deleted"
	if n := len(children); n > 0 {
		number := plural(min(n, mostChildren), "child", "children")
		if n > mostChildren {
			number = "more than " + number
		}
		what += fmt.Sprintf(", and with it %s, except detached ones", number)
	}
	v.Says = []string{
		what + ". Nothing brings them back.",
		"Whoever waits for its result learns that it is gone. Who deleted it, and why, stays on record. Retention " +
			"deletes old runs by itself.",
	}
	return tryOn(v, func(f kagzi.RunFilter) (admin.BulkResult, error) {
		return p.admin.DeleteAll(ctx, f, admin.DryRun())
	})
}

// goOnForms let runs go on, or not for a while.
func (p *runForms) goOnForms() []web.ChangeForm {
	return []web.ChangeForm{
		p.runForm(Resume, "Resume", p.showResume, func(ctx context.Context, f web.Form,
			id kagzi.RunID,
		) (web.Answer, error) {
			opts := f.Options()
			if steps := slices.DeleteFunc(slices.Clone(f.Values["forget"]), func(s string) bool {
				return s == ""
			}); len(steps) > 0 {
				opts = append(opts, admin.Forget(steps...))
			}
			return web.Answer{Said: "Resumed. It goes on when a worker has a slot for it."},
				p.admin.Resume(ctx, id, opts...)
		}),
		p.runForm(Pause, "Pause", func(_ context.Context, _ web.Query, v *web.Dialog) error {
			v.Do = "Pause the run"
			v.Says = []string{"No worker executes the run until it is unpaused."}
			if v.Run.Status == kagzi.StatusRunning {
				v.Says[0] = "The run stops at its next step, sleep, wait or child, and keeps the result of the step " +
					"under way. No worker executes it until it is unpaused."
			}
			v.Says = append(v.Says, "Its children go on, and so does its timeout. A cancel ends the pause.")
			switch {
			case v.Run.Status.Ended():
				v.Refused = "The run is over."
			case !v.Run.PausedAt.IsZero():
				v.Refused = "The run is paused already."
			}
			return nil
		}, func(ctx context.Context, f web.Form, id kagzi.RunID) (web.Answer, error) {
			return web.Answer{Said: "Paused."}, p.admin.PauseRun(ctx, id, f.Options()...)
		}),
		p.runForm(Unpause, "Unpause", func(ctx context.Context, _ web.Query, v *web.Dialog) error {
			v.Do = "Let it go on"
			v.Says = []string{"The run's own pause ends.", "It is also exempt from the pauses that there are now of " +
				"its queue, its workflow and all runs, but not from one of its key or group."}
			return tryOn(v, func(f kagzi.RunFilter) (admin.BulkResult, error) {
				return p.admin.UnpauseRuns(ctx, f, admin.DryRun())
			})
		}, func(ctx context.Context, f web.Form, id kagzi.RunID) (web.Answer, error) {
			return web.Answer{Said: "Unpaused."}, p.admin.UnpauseRun(ctx, id, f.Options()...)
		}),
	}
}

func (p *runForms) showResume(ctx context.Context, _ web.Query, v *web.Dialog) error {
	v.Do = "Resume the run"
	v.Says = []string{
		"The run continues under its own ID. What made it fail is tried again, and all recorded results stay.",
		"Its timeout is removed. A parent that has recorded its failure keeps that.",
	}
	if v.Run.Status == kagzi.StatusFailed || v.Run.Status == kagzi.StatusCancelled {
		failed, err := p.failedSteps(ctx, v.Run.ID)
		if err != nil {
			return err
		}
		if len(failed) > 0 {
			v.Fields = []web.Field{{
				Name: "forget", Label: "Try again, too", Sort: "several", Options: failed,
				Help: "A failure after which the code continued stays recorded unless it is ticked here.",
			}}
		}
	}
	return tryOn(v, func(f kagzi.RunFilter) (admin.BulkResult, error) {
		return p.admin.ResumeAll(ctx, f, admin.DryRun())
	})
}

// mostSteps is how many steps a form offers.
const mostSteps = 200

// forgettable are the types of steps whose failures a resume can forget.
var forgettable = []string{"FUNCTION", "CHILD_WORKFLOW", "BRANCH"}

// failedSteps returns the steps of a run whose last attempt failed.
func (p *runForms) failedSteps(ctx context.Context, id kagzi.RunID) (out []web.Option, err error) {
	steps, err := p.client.Steps(ctx, id, kagzi.StepFilter{NoPayloads: true})
	if err != nil {
		return nil, err
	}
	last := map[string]int{} // the newest attempt of each step
	for i, s := range steps {
		if j, ok := last[s.Step]; !ok || s.Attempt >= steps[j].Attempt {
			last[s.Step] = i
		}
	}
	for i, s := range steps {
		if last[s.Step] == i && s.Status == kagzi.StatusFailed && slices.Contains(forgettable, s.Type) &&
			len(out) < mostSteps {
			out = append(out, web.Option{Value: s.Step, Label: s.Step + ": " + first(120, oneLine(s.Error))})
		}
	}
	return out, nil
}
