package ui

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/ui/internal/web"
)

// pauseForms pause and unpause queues, workflows, keys, groups and everything.
type pauseForms struct {
	admin *admin.Client
}

// all are the forms.
func (p *pauseForms) all() []web.ChangeForm {
	about := func(verb Verb) func(web.Query) []web.Action {
		return func(q web.Query) []web.Action { return onTarget(verb, targetOf(q)) }
	}
	return []web.ChangeForm{
		{
			Path: "/limits/pause", Action: asks(Pause, OnLimit), About: about(Pause), Show: p.showPause,
			Do: p.pause,
		},
		{
			Path: "/limits/unpause", Action: asks(Unpause, OnLimit), About: about(Unpause),
			Show: p.showUnpause, Do: p.unpause,
		},
	}
}

// onTarget returns the actions on what a pause stops: nothing for all runs. Who may pause a queue may pause its keys
// and workflows.
func onTarget(verb Verb, t admin.Target) (all []web.Action) {
	if t.All {
		return nil
	}
	all = onNamed(verb, OnQueue, t.Queue)
	if t.Queue == "" {
		all = onNamed(verb, OnWorkflow, t.Workflow)
	}
	if name, ok := strings.CutPrefix(t.Group, consumerGroup); ok {
		return append(all, asks(verb, OnConsumer, name))
	}
	return append(all, onNamed(verb, OnGroup, t.Group)...)
}

// targetOf is what the fields name.
func targetOf(q web.Query) admin.Target {
	return admin.Target{
		All: q.Asked("all"), Queue: q.Get("queue"), Workflow: q.Get("workflow"), Key: q.Get("key"),
		Group: q.Get("group"),
	}
}

// targetName names a target within a sentence.
func targetName(t admin.Target) string {
	name := targetText(t)
	return strings.ToLower(name[:1]) + name[1:]
}

// pausePath returns the path of a form about a target.
func pausePath(verb Verb, t admin.Target) string {
	q := web.Query{URL: "/limits/" + string(verb)}
	all := ""
	if t.All {
		all = "1"
	}
	return q.With("all", all, "queue", t.Queue, "workflow", t.Workflow, "key", t.Key, "group", t.Group)
}

// targetFields are the fields of a target: hidden if a link names one.
func targetFields(v *web.Dialog, q web.Query) (t admin.Target, given bool) {
	t = targetOf(q)
	given = t != admin.Target{} && !q.Asked("choose")
	if !given {
		v.Fields = append(v.Fields,
			web.Field{Name: "queue", Label: "Queue", Sort: "text"}, web.Field{
				Name: "workflow", Label: "Workflow", Sort: "text",
				Help: "With a queue: its runs in that queue.",
			},
			web.Field{Name: "key", Label: "Key", Sort: "text", Help: "Of the queue."},
			web.Field{Name: "group", Label: "Group", Sort: "text"},
			web.Field{Name: "all", Label: "All runs of the namespace", Sort: "check"},
			web.Field{Name: "choose", Sort: "hidden", Value: "1"})
		return t, false
	}
	for _, f := range [][2]string{{"queue", t.Queue}, {"workflow", t.Workflow}, {"key", t.Key}, {"group", t.Group}} {
		if f[1] != "" {
			v.Fields = append(v.Fields, web.Field{Name: f[0], Sort: "hidden", Value: f[1]})
		}
	}
	if t.All {
		v.Fields = append(v.Fields, web.Field{Name: "all", Sort: "hidden", Value: "1"})
	}
	return t, true
}

func (p *pauseForms) showPause(ctx context.Context, q web.Query) (*web.Dialog, error) {
	v := &web.Dialog{Title: "Pause", Back: "/limits", Do: "Pause"}
	t, given := targetFields(v, q)
	if given {
		v.Title, v.Danger = "Pause "+targetName(t), t.All
	}
	v.Says = []string{"Workers claim none of these runs until the pause ends. Starts, messages, cancels and " +
		"timeouts go on."}
	if n := p.touched(ctx, t, given); n != "" {
		v.Says = append(v.Says, n)
	}
	v.Fields = append(v.Fields, web.Field{
		Name: "park", Label: "Stop what is under way, too", Sort: "check",
		Help: "Each execution stops at its next step, and keeps the result of the step under way. Otherwise " +
			"executions go on until they end or wait.",
	})
	return v, nil
}

// touched says how many runs of the target are active now; nothing if that cannot be counted in time.
func (p *pauseForms) touched(ctx context.Context, t admin.Target, given bool) string {
	if !given {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	f := kagzi.RunFilter{
		Queue: t.Queue, Workflow: t.Workflow, Key: kagzi.Key(t.Key), Group: kagzi.Group(t.Group),
		Status: statuses["active"],
	}
	counts, err := p.admin.Counts(ctx, f, admin.ByStatus)
	if err != nil {
		return ""
	}
	all, running := 0, 0
	for _, c := range counts {
		all += c.Runs
		if c.Status == kagzi.StatusRunning {
			running += c.Runs
		}
	}
	return fmt.Sprintf("%s active now, %s of them with a worker.", plural(all, "run is", "runs are"), count(running))
}

func (p *pauseForms) pause(ctx context.Context, f web.Form) (web.Answer, error) {
	opts := f.Options()
	if f.Asked("park") {
		opts = append(opts, admin.Park())
	}
	t := targetOf(f.Query)
	if (t == admin.Target{}) {
		return web.Answer{}, web.BadRequest("Say what to pause: a queue, a workflow, a key of a queue, a group, " +
			"or all runs.")
	}
	return web.Answer{To: "/limits", Said: "Paused " + targetName(t) + "."}, p.admin.Pause(ctx, t, opts...)
}

func (p *pauseForms) showUnpause(ctx context.Context, q web.Query) (*web.Dialog, error) {
	v := &web.Dialog{Title: "Unpause", Back: "/limits", Do: "Unpause"}
	t, given := targetFields(v, q)
	if given {
		v.Title = "Unpause " + targetName(t)
	}
	v.Says = []string{"Workers claim these runs again. Other pauses that hold them stay."}
	all, err := p.admin.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if given && p.Target == t {
			v.Says = append(v.Says, pausedText(p))
		}
	}
	if t.Key == "" && t.Group == "" {
		v.Fields = append(v.Fields, web.Field{
			Name: "percent", Label: "Percent", Sort: "number", Hint: "100",
			Help: "Let only 1 to 99 percent of the runs go on, and keep the pause for the others. The same runs go " +
				"on at 20 as at 10.",
		})
	}
	return v, nil
}

// pausedText says who paused something, and why.
func pausedText(p admin.Pause) string {
	text := "It was paused" + by(p.Actor)
	if p.Reason != "" {
		text += ": " + strings.TrimSuffix(p.Reason, ".")
	}
	if p.Percent > 0 {
		text += fmt.Sprintf(". %d %% of its runs go on", p.Percent)
	}
	return text + "."
}

func (p *pauseForms) unpause(ctx context.Context, f web.Form) (web.Answer, error) {
	t, opts, said := targetOf(f.Query), f.Options(), "Unpaused "
	if s := f.Get("percent"); s != "" && s != "100" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 99 {
			return web.Answer{}, web.BadRequest("The percentage is %q: give 1 to 99, or leave it empty to end the "+
				"pause.", s)
		}
		opts, said = append(opts, admin.Percent(n)), fmt.Sprintf("%d %% go on of ", n)
	}
	return web.Answer{To: "/limits", Said: said + targetName(t) + "."}, p.admin.Unpause(ctx, t, opts...)
}
