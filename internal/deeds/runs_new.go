package deeds

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// newRun are the fields of restart and fork.
var newRun = []Field{
	{
		Name: "input", Label: "Input", Kind: JSON, Letter: "i", One: true,
		Help: "Another input. Empty, or as it is: the new run has that of the old one.",
	},
	{
		Name: "new-id", Label: "ID", Arg: "ID", Rare: true, One: true,
		Help: "The ID of the new run. Empty: that of the old one, if it has one.",
	},
	{
		Name: "version", Label: "Version", Kind: Number, Arg: "VERSION", Rare: true,
		Help: "The version of the workflow. Empty: that of the old run.",
	},
	{Name: "made", Flag: "-", Kind: Hidden}, // how many runs were made when the form was shown
}

// newOpts are those of a new run that are of many, too.
func newOpts(a Asked) []admin.RestartOption {
	opts := why[admin.RestartOption](a)
	if v := a.Values.number("version"); v > 0 {
		opts = append(opts, kagzi.Version(v))
	}
	if a.Values.Has("inherit") {
		opts = append(opts, admin.InheritCompensations())
	}
	return opts
}

func restart() (d Deed) {
	d = many(Deed{
		Verb: "restart", Object: Run, Past: "restarted", Button: "Start the new run",
		Short: "Start new runs like ones that are over",
		Says: []string{
			"Restart starts a new run with the workflow, input, ID and options of one that is over. It executes " +
				"every step anew, also those that the old run has completed.",
			"The old run stays as it is. To keep its results, resume it or fork it.",
		},
		Fields: newRun,
		Look:   func(ctx context.Context, a Asked, v *View) error { return lookNew(ctx, a, v, "RESTARTED") },
	}, Many{Now: "restarting", To: over}, newOpts, admin.Runs.Restart, admin.Runs.RestartAll)
	d.Do = startNew("RESTARTED", func(r admin.Runs, ctx context.Context, _ Asked, run kagzi.Ref,
		opts []admin.RestartOption,
	) (kagzi.RunID, error) {
		return r.Restart(ctx, run, opts...)
	})
	return d
}

func fork() Deed {
	d := Deed{
		Verb: "fork", Object: Run, Past: "forked", Button: "Start the new run",
		Short: "Start new runs from a step of ones that are over",
		Says: []string{
			"Fork starts a new run with copies of all that an old one had recorded when a step first began. It " +
				"executes the step and all that comes after it.",
			"The old run stays as it is. The new run's code must reach the step in the same way.",
		},
		Fields: slices.Concat([]Field{
			{
				Name: "step", Label: "From step", Kind: Choice, Arg: "STEP",
				Help:     "The step from which the new run executes.",
				Required: "give the step from which the new run executes, as the list of the run's steps shows it",
			},
			{
				Name: "inherit", Flag: "inherit-compensations", Label: "Copy its compensations", Kind: Check,
				Help: "Copy the compensations that the old run registered before the step. If both runs fail, both " +
					"execute them.",
			},
		}, newRun),
		Look: lookFork,
	}
	from := func(r admin.Runs, ctx context.Context, a Asked, run kagzi.Ref, opts []admin.RestartOption) (kagzi.RunID,
		error,
	) {
		return r.Fork(ctx, run, a.Values.Get("step"), opts...)
	}
	d.Many = &Many{
		Now: "forking",
		To:  over,
		One: func(ctx context.Context, a Asked, run kagzi.Ref) (kagzi.RunID, error) {
			return from(a.admin().Runs, ctx, a, run, newOpts(a))
		},
		Dry: func(ctx context.Context, a Asked, f kagzi.RunFilter) (admin.BulkResult, error) {
			return a.admin().Runs.ForkAll(ctx, f, a.Values.Get("step"), append(newOpts(a), admin.DryRun())...)
		},
	}
	d.Do = startNew("FORKED", from)
	return d
}

// lookNew proposes the input of the old run, and keeps how many runs were made from it.
func lookNew(ctx context.Context, a Asked, v *View, event string) error {
	made, _, err := madeFrom(ctx, a, *v.Run, event)
	if err != nil {
		return err
	}
	*v.field("made") = Field{Name: "made", Kind: Hidden, Value: strconv.Itoa(made)}
	v.field("new-id").Hint = string(v.Run.ExternalID)
	if v.Run.Version > 0 {
		v.field("version").Hint = strconv.Itoa(v.Run.Version)
	}
	input := v.field("input")
	why := ""
	var text bytes.Buffer
	switch {
	case a.Hide:
		why = "is hidden"
	case len(v.Run.Input) > mostEdited:
		why = "is too large to be edited here"
	case json.Indent(&text, v.Run.Input, "", "  ") != nil:
		why = "is unreadable here: sealed, or no JSON"
	default:
		input.Value = text.String()
		return nil
	}
	input.Help = fmt.Sprintf("The run's input (%s) %s. Leave this empty to keep it.", plural(len(v.Run.Input), "byte"),
		why)
	return nil
}

// mostEdited is the largest input that a form lets people edit.
const mostEdited = 64 << 10

// lookFork offers the steps from which the run can be forked. The one that failed last is proposed.
func lookFork(ctx context.Context, a Asked, v *View) error {
	if !v.Run.Status.Ended() {
		v.Refused = errors.New("the run is not over")
		return nil
	}
	steps, err := a.Client.Steps(ctx, v.Run.ID, kagzi.StepFilter{NoPayloads: true})
	if err != nil {
		return err
	}
	from, failed, seen := v.field("step"), -1, map[string]int{}
	for _, s := range steps {
		at, known := seen[s.Step]
		switch {
		case !Forkable(s):
			continue
		case !known && len(from.Choices) == mostSteps:
			from.Kind, from.Choices, from.Hint = Text, nil, "charge"
			from.Help = "The run has more steps than are suggested: the timeline leads here from each."
			return lookNew(ctx, a, v, "FORKED")
		case !known:
			at = len(from.Choices)
			from.Choices = append(from.Choices, Option{Value: s.Step})
			seen[s.Step] = at
		}
		if from.Choices[at].Label = s.Step; s.Status == kagzi.StatusFailed {
			from.Choices[at].Label, failed = s.Step+" (failed)", at
		}
	}
	switch {
	case len(steps) == 0 || len(from.Choices) == 0:
		v.Refused = errors.New("the run has recorded no step: restart it")
		return nil
	case failed >= 0:
		from.Choices[failed].On = true
	}
	return lookNew(ctx, a, v, "FORKED")
}

// Forkable reports whether a run can be forked from the step: Kagzi's own records cannot be named.
func Forkable(s kagzi.StepAttempt) bool {
	own := strings.HasPrefix(s.Step, "#") || strings.Contains(s.Step, "/#")
	return !own && s.Type != "COMPENSATION" && s.Type != "MARKER" && s.Type != "BRANCH"
}

// madeFrom returns how many runs were made from one by such events, and the newest of them.
func madeFrom(ctx context.Context, a Asked, r kagzi.RunInfo, event string) (n int, last admin.LogEntry, err error) {
	log, err := a.admin().Runs.Log(ctx, r.ID)
	for _, e := range log {
		if e.Event == event && e.Other != r.Origin {
			n, last = n+1, e
		}
	}
	return n, last, err
}

// startNew returns the Do of restart and fork. It refuses a form that was made before the last run was made from the
// old one: that form was sent twice, or another operator was faster.
func startNew(event string, call func(admin.Runs, context.Context, Asked, kagzi.Ref,
	[]admin.RestartOption) (kagzi.RunID, error),
) func(context.Context, Asked) (Done, error) {
	return func(ctx context.Context, a Asked) (done Done, err error) {
		run, err := a.Client.Get(ctx, a.Ref)
		if err != nil {
			return done, err
		}
		if was := a.Values.Get("made"); was != "" {
			n, last, err := madeFrom(ctx, a, run, event)
			if err != nil {
				return done, err
			}
			if was != strconv.Itoa(n) {
				return done, mistake("this run was %s since this form was opened%s: run %s is the new one. Send the "+
					"form again to start another", strings.ToLower(event), by(last.Actor), last.Other)
			}
		}
		opts := newOpts(a)
		if id := a.Values.Get("new-id"); id != "" {
			opts = append(opts, kagzi.ID(id))
		}
		if input := a.Values.json("input"); a.Values.Has("input") && !sameJSON(input, run.Input) {
			if err := a.Client.CheckSealer(ctx); err != nil {
				return done, err
			}
			opts = append(opts, admin.NewInput(input))
		}
		done.New, err = call(a.admin().Runs, ctx, a, a.Ref, opts)
		return done, err
	}
}

// sameJSON reports whether two payloads differ in spaces only.
func sameJSON(a, b json.RawMessage) bool {
	var one, other bytes.Buffer
	return json.Compact(&one, a) == nil && json.Compact(&other, b) == nil && bytes.Equal(one.Bytes(), other.Bytes())
}
