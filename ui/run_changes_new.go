package ui

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
	"github.com/kagzi/kagzi/ui/internal/web"
)

// newRunForms start new runs like ones that are over.
func (p *runForms) newRunForms() []web.ChangeForm {
	return []web.ChangeForm{
		p.runForm(Restart, "Restart", p.showRestart, func(ctx context.Context, f web.Form,
			id kagzi.RunID,
		) (web.Answer, error) {
			opts, err := p.newRunOptions(ctx, f, id, "RESTARTED")
			if err != nil {
				return web.Answer{}, err
			}
			as, err := p.admin.Restart(ctx, id, opts...)
			return web.Answer{Leads: true, To: "/runs/" + string(as), Said: "Restarted: this is the new run."}, err
		}),
		p.runForm(Fork, "Fork", p.showFork, func(ctx context.Context, f web.Form, id kagzi.RunID) (web.Answer, error) {
			step := f.Get("step")
			if step == "" {
				return web.Answer{}, web.BadRequest("Choose the step from which the new run executes.")
			}
			opts, err := p.newRunOptions(ctx, f, id, "FORKED")
			if err != nil {
				return web.Answer{}, err
			}
			if f.Asked("inherit") {
				opts = append(opts, admin.InheritCompensations())
			}
			as, err := p.admin.Fork(ctx, id, step, opts...)
			return web.Answer{Leads: true, To: "/runs/" + string(as), Said: "Forked from step " + step +
				": this is the new run."}, err
		}),
	}
}

func (p *runForms) showRestart(ctx context.Context, _ web.Query, v *web.Dialog) error {
	v.Do = "Start the new run"
	v.Says = []string{
		"A new run starts now, with this run's workflow, queue, priority, tags and ID. It executes every step anew, " +
			"also those that this run has completed.",
		"This run stays as it is. To keep its results, resume it or fork it.",
	}
	if err := p.newRunFields(ctx, v, "RESTARTED"); err != nil {
		return err
	}
	return tryOn(v, func(f kagzi.RunFilter) (admin.BulkResult, error) {
		return p.admin.RestartAll(ctx, f, admin.DryRun())
	})
}

func (p *runForms) showFork(ctx context.Context, q web.Query, v *web.Dialog) error {
	v.Do = "Start the new run"
	v.Says = []string{
		"A new run starts now with copies of all that this run had recorded when the step first began. It executes " +
			"the step and everything after it.",
		"This run stays as it is. The new run's code must reach the step in the same way.",
	}
	if !v.Run.Status.Ended() {
		v.Refused = "The run is not over."
		return nil
	}
	steps, more, err := p.forkSteps(ctx, v.Run.ID)
	if err != nil {
		return err
	}
	step := web.Field{Name: "step", Label: "From step", Sort: "select", Options: steps, Required: true}
	if more {
		step.Sort, step.Hint, step.Help = "text", "charge", "The run has more steps than are suggested: the timeline "+
			"leads here from each."
	}
	if len(steps) == 0 {
		v.Refused = "The run has recorded no step: restart it."
		return nil
	}
	if err := p.newRunFields(ctx, v, "FORKED"); err != nil {
		return err
	}
	v.Fields = slices.Insert(v.Fields, 0, step, web.Field{
		Name: "inherit", Label: "Copy its compensations", Sort: "check",
		Help: "Those that this run registered before the step. If both runs fail, both execute them.",
	})
	if from := q.Get("step"); from != "" {
		wrong, err := try(*v.Run, func(f kagzi.RunFilter) (admin.BulkResult, error) {
			return p.admin.ForkAll(ctx, f, from, admin.DryRun())
		})
		if wrong != nil {
			v.Warning = "From step " + from + ": " + web.WhyNot(wrong, v.Run.ID)
		}
		return err
	}
	return nil
}

// forkSteps returns the steps from which a run can be forked, and reports whether there are more. The one that failed
// last is chosen.
func (p *runForms) forkSteps(ctx context.Context, id kagzi.RunID) (out []web.Option, more bool, err error) {
	steps, err := p.client.Steps(ctx, id, kagzi.StepFilter{NoPayloads: true})
	if err != nil {
		return nil, false, err
	}
	seen, failed := map[string]int{}, -1
	for _, s := range steps {
		if !forkable(s) {
			continue
		}
		at, known := seen[s.Step]
		if !known {
			if len(out) == mostSteps {
				return out, true, nil
			}
			at = len(out)
			seen[s.Step], out = at, append(out, web.Option{Value: s.Step, Label: s.Step})
		}
		out[at].Label = s.Step
		if s.Status == kagzi.StatusFailed {
			out[at].Label, failed = s.Step+" (failed)", at
		}
	}
	if failed >= 0 {
		out[failed].On = true
	}
	return out, false, nil
}

// mostEdited is the largest input that a form lets people edit.
const mostEdited = 64 << 10

// newRunFields adds the fields of a new run: its input, ID and version.
func (p *runForms) newRunFields(ctx context.Context, v *web.Dialog, event string) error {
	made, _, err := p.made(ctx, *v.Run, event)
	if err != nil {
		return err
	}
	input := web.Field{Name: "input", Label: "Input", Sort: "json", Help: "Leave it as it is, or empty, to keep the " +
		"input of this run."}
	switch {
	case p.payloads.hidden():
		input.Help = fmt.Sprintf("The run's input (%s) is hidden. Leave this empty to keep it.", size(len(v.Run.Input)))
	case len(v.Run.Input) > mostEdited:
		input.Help = fmt.Sprintf("The run's input (%s) is too large to be edited here. Leave this empty to keep it.",
			size(len(v.Run.Input)))
	case !json.Valid(v.Run.Input):
		input.Help = fmt.Sprintf("The run's input (%s) is unreadable here: sealed, or no JSON. Leave this empty to "+
			"keep it.", size(len(v.Run.Input)))
	default:
		input.Value = indented(v.Run.Input)
	}
	hint := string(v.Run.ExternalID)
	v.Fields = append(v.Fields, input,
		web.Field{
			Name: "new-id", Label: "ID", Sort: "text", Hint: hint,
			Help: "Of the new run. Empty: that of this run, if it has one.", Rare: true,
		},
		web.Field{
			Name: "version", Label: "Version", Sort: "number", Hint: versionText(v.Run.Version),
			Help: "Of the workflow's code. Empty: that of this run.", Rare: true,
		},
		web.Field{Name: "made", Sort: "hidden", Value: strconv.Itoa(made)},
	)
	return nil
}

func versionText(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// made returns how many runs were made from one by such events, and the newest of them.
func (p *runForms) made(ctx context.Context, r kagzi.RunInfo, event string) (n int, last admin.LogEntry, err error) {
	log, err := p.admin.RunLog(ctx, r.ID)
	for _, e := range log {
		if e.Event == event && e.Other != r.Origin {
			n, last = n+1, e
		}
	}
	return n, last, err
}

// newRunOptions reads the fields of a new run. It refuses a form that was made before the last run was made from this
// one: that form was sent twice, or another operator was faster.
func (p *runForms) newRunOptions(ctx context.Context, f web.Form, id kagzi.RunID,
	event string,
) (opts []admin.RestartOption, err error) {
	run, err := p.client.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	n, last, err := p.made(ctx, run, event)
	if err != nil {
		return nil, err
	}
	if s := f.Get("made"); s != "" && s != strconv.Itoa(n) {
		return nil, web.BadRequest("This run was %s since this form was opened%s: run %s is the new one. Send the "+
			"form again to start another.",
			strings.ToLower(event), by(last.Actor), last.Other)
	}
	if f.Actor != "" {
		opts = append(opts, kagzi.Actor(f.Actor))
	}
	if f.Reason() != "" {
		opts = append(opts, kagzi.Reason(f.Reason()))
	}
	if s := f.Get("new-id"); s != "" {
		opts = append(opts, kagzi.ID(s))
	}
	if s := f.Get("version"); s != "" {
		v, err := strconv.Atoi(s)
		if err != nil || v < 1 {
			return nil, web.BadRequest("The version is %q: give a number from 1.", s)
		}
		opts = append(opts, kagzi.Version(v))
	}
	if s := f.Get("input"); s != "" {
		input, err := validJSON("input", s)
		if err != nil {
			return nil, err
		}
		if !sameJSON(input, run.Input) {
			if err := p.client.CheckSealer(ctx); err != nil {
				return nil, err
			}
			opts = append(opts, admin.NewInput(input))
		}
	}
	return opts, nil
}

// validJSON returns the JSON that was typed, or says where it is wrong.
func validJSON(what, s string) (json.RawMessage, error) {
	var v json.RawMessage
	err := json.Unmarshal([]byte(s), &v)
	if err == nil {
		return v, nil
	}
	at := len(s)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = min(max(int(e.Offset)-1, 0), len(s))
	}
	line := strings.Count(s[:at], "\n") + 1
	column := at - strings.LastIndex(s[:at], "\n")
	return nil, web.BadRequest("The %s is no JSON: %s (line %d, column %d). A text is written in quotes, as in "+
		"\"ada\".",
		what, strings.TrimPrefix(err.Error(), "json: "), line, column)
}

// sameJSON reports whether two payloads differ in spaces only.
func sameJSON(a, b json.RawMessage) bool {
	var one, other bytes.Buffer
	return json.Compact(&one, a) == nil && json.Compact(&other, b) == nil && bytes.Equal(one.Bytes(), other.Bytes())
}

// indented returns JSON for an editor.
func indented(data json.RawMessage) string {
	var out bytes.Buffer
	if json.Indent(&out, data, "", "  ") != nil {
		return ""
	}
	return out.String()
}
