package deeds

import (
	"context"
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/explain"
)

// The values of the field outcome.
const (
	happened     = "happened"
	didNotHappen = "did-not-happen"
	givenUp      = "give-up"
)

func resolve() Deed {
	return Deed{
		Verb: "resolve", Object: Run, Past: "resolved", Title: "Resolve a step of", Button: "Resolve the step",
		Short: "Say what the call of a step in doubt has done", Danger: true,
		Says: []string{
			"Resolve says what the call of a step in doubt has done. Ask the service that it called before.",
			"If the call did not happen, the step calls its function again.",
		},
		Fields: []Field{
			{
				Name: "step", Flag: "-", Label: "Step", Kind: Choice,
				Required: "give the step that is in doubt, as the list of the run's steps shows it",
			},
			{
				Name: "outcome", Label: "Outcome", Kind: Choice, Arg: "OUTCOME",
				Help:     "happened, did-not-happen, or give-up, which lets the step fail.",
				Required: "say what the call has done: happened, did-not-happen or give-up",
				Choices: []Option{
					{Label: "choose"},
					{Value: happened, Label: "It happened"},
					{Value: didNotHappen, Label: "It did not happen: call again"},
					{Value: givenUp, Label: "Give up: the step fails"},
				},
			},
			{
				Name: "result", Label: "Result", Kind: JSON, Hint: `{"id": "re_42"}`,
				Help: "If it happened: the step's result as JSON; null for a step without one.",
			},
			{
				Name: "error", Label: "Error", Arg: "TEXT", Hint: "written off",
				Help: "If it is given up: why the step fails.",
			},
		},
		Look: lookResolve,
		Valid: func(a Asked) error {
			switch outcome := a.Values.Get("outcome"); {
			case outcome != happened && outcome != didNotHappen && outcome != givenUp:
				return mistake("{outcome} is %q: it is happened, did-not-happen or give-up", outcome)
			case outcome == happened && !a.Values.Has("result"):
				return mistake("{result} is missing: give the result of the step as JSON, null for a step without one")
			case outcome == givenUp && !a.Values.Has("error"):
				return mistake("{error} is missing: say why the step fails")
			case outcome != givenUp && a.Values.Has("error"):
				return mistake("{error} is for give-up: leave it out")
			case outcome != happened && a.Values.Has("result"):
				return mistake("{result} is for what happened: leave it out")
			}
			return nil
		},
		Do: func(ctx context.Context, a Asked) (done Done, err error) {
			if err := a.Client.CheckSealer(ctx); err != nil && a.Values.Get("outcome") == happened {
				return done, err
			}
			step := a.Values.Get("step")
			outcome := a.Values.Get("outcome")
			done.Said = fmt.Sprintf("resolved %s of %s: %s", step, a.Called(), outcome)
			done.Result = map[string]any{"run": a.Ref, "step": step, "outcome": outcome}
			return done, a.admin().Runs.Resolve(ctx, a.Ref, step, resolutionOf(a.Values), onlyWhy(a)...)
		},
	}
}

func resolutionOf(v Values) admin.Resolution {
	switch v.Get("outcome") {
	case happened:
		return admin.Happened(v.json("result"))
	case didNotHappen:
		return admin.DidNotHappen()
	}
	return admin.GiveUp(errors.New(v.Get("error")))
}

// lookResolve offers the steps of the run that are in doubt.
func lookResolve(ctx context.Context, a Asked, v *View) error {
	steps, err := a.Client.Steps(ctx, v.Run.ID, kagzi.StepFilter{NoPayloads: true})
	if err != nil {
		return err
	}
	offered := v.field("step")
	for _, s := range steps {
		if s.Status == kagzi.StatusInDoubt && len(offered.Choices) < mostSteps {
			offered.Choices = append(offered.Choices, Option{
				Value: s.Step, Label: s.Step + ": " + cut(120, explain.OneLine(s.Error)),
				On: s.Step == a.Values.Get("step"),
			})
		}
	}
	if len(offered.Choices) == 0 {
		v.Refused = errors.New("no step of the run is in doubt")
	}
	return nil
}
