package ui

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kagzi/kagzi"
)

// pauseForms pause and unpause queues, workflows, keys, groups and everything.
func (d *dashboard) pauseForms() []changeForm {
	about := func(verb Verb) func(query) []Action {
		return func(q query) []Action { return onTarget(verb, q.target()) }
	}
	return []changeForm{
		{
			path: "/limits/pause", action: Action{Verb: Pause, Object: OnLimit}, about: about(Pause), show: d.showPause,
			do: d.pause,
		},
		{
			path: "/limits/unpause", action: Action{Verb: Unpause, Object: OnLimit}, about: about(Unpause),
			show: d.showUnpause, do: d.unpause,
		},
	}
}

// onTarget returns the actions on what a pause stops: nothing for all runs. Who may pause a queue may pause its keys
// and workflows.
func onTarget(verb Verb, t kagzi.Target) (all []Action) {
	if t.All {
		return nil
	}
	all = onNamed(verb, OnQueue, t.Queue)
	if t.Queue == "" {
		all = onNamed(verb, OnWorkflow, t.Workflow)
	}
	if name, ok := strings.CutPrefix(t.Group, consumerGroup); ok {
		return append(all, Action{verb, OnConsumer, name})
	}
	return append(all, onNamed(verb, OnGroup, t.Group)...)
}

// target is what the fields name.
func (q query) target() kagzi.Target {
	return kagzi.Target{
		All: q.asked("all"), Queue: q.get("queue"), Workflow: q.get("workflow"), Key: q.get("key"),
		Group: q.get("group"),
	}
}

// targetName names a target within a sentence.
func targetName(t kagzi.Target) string {
	name := targetText(t)
	return strings.ToLower(name[:1]) + name[1:]
}

// pausePath returns the path of a form about a target.
func pausePath(verb Verb, t kagzi.Target) string {
	q := query{url: "/limits/" + string(verb)}
	all := ""
	if t.All {
		all = "1"
	}
	return q.With("all", all, "queue", t.Queue, "workflow", t.Workflow, "key", t.Key, "group", t.Group)
}

// targetFields are the fields of a target: hidden if a link names one.
func (v *dialog) targetFields(q query) (t kagzi.Target, given bool) {
	t = q.target()
	given = t != kagzi.Target{} && !q.asked("choose")
	if !given {
		v.Fields = append(v.Fields,
			field{Name: "queue", Label: "Queue", Sort: "text"}, field{
				Name: "workflow", Label: "Workflow", Sort: "text",
				Help: "With a queue: its runs in that queue.",
			},
			field{Name: "key", Label: "Key", Sort: "text", Help: "Of the queue."},
			field{Name: "group", Label: "Group", Sort: "text"},
			field{Name: "all", Label: "All runs of the namespace", Sort: "check"},
			field{Name: "choose", Sort: "hidden", Value: "1"})
		return t, false
	}
	for _, f := range [][2]string{{"queue", t.Queue}, {"workflow", t.Workflow}, {"key", t.Key}, {"group", t.Group}} {
		if f[1] != "" {
			v.Fields = append(v.Fields, field{Name: f[0], Sort: "hidden", Value: f[1]})
		}
	}
	if t.All {
		v.Fields = append(v.Fields, field{Name: "all", Sort: "hidden", Value: "1"})
	}
	return t, true
}

func (d *dashboard) showPause(ctx context.Context, q query) (*dialog, error) {
	v := &dialog{Title: "Pause", Back: "/limits", Do: "Pause"}
	t, given := v.targetFields(q)
	if given {
		v.Title, v.Danger = "Pause "+targetName(t), t.All
	}
	v.Says = []string{"Workers claim none of these runs until the pause ends. Starts, messages, cancels and " +
		"timeouts go on."}
	if n := d.touched(ctx, t, given); n != "" {
		v.Says = append(v.Says, n)
	}
	v.Fields = append(v.Fields, field{
		Name: "park", Label: "Stop what is under way, too", Sort: "check",
		Help: "Each execution stops at its next step, and keeps the result of the step under way. Otherwise " +
			"executions go on until they end or wait.",
	})
	return v, nil
}

// touched says how many runs of the target are active now; nothing if that cannot be counted in time.
func (d *dashboard) touched(ctx context.Context, t kagzi.Target, given bool) string {
	if !given {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	f := kagzi.RunFilter{
		Queue: t.Queue, Workflow: t.Workflow, Key: kagzi.Key(t.Key), Group: kagzi.Group(t.Group),
		Status: statuses["active"],
	}
	counts, err := d.client.Counts(ctx, f, kagzi.ByStatus)
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

func (d *dashboard) pause(ctx context.Context, f form) (answer, error) {
	opts := f.options()
	if f.asked("park") {
		opts = append(opts, kagzi.Park())
	}
	t := f.target()
	if (t == kagzi.Target{}) {
		return answer{}, badRequest("Say what to pause: a queue, a workflow, a key of a queue, a group, or all runs.")
	}
	return answer{to: "/limits", said: "Paused " + targetName(t) + "."}, d.client.Pause(ctx, t, opts...)
}

func (d *dashboard) showUnpause(ctx context.Context, q query) (*dialog, error) {
	v := &dialog{Title: "Unpause", Back: "/limits", Do: "Unpause"}
	t, given := v.targetFields(q)
	if given {
		v.Title = "Unpause " + targetName(t)
	}
	v.Says = []string{"Workers claim these runs again. Other pauses that hold them stay."}
	all, err := d.client.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if given && p.Target == t {
			v.Says = append(v.Says, pausedText(p))
		}
	}
	if t.Key == "" && t.Group == "" {
		v.Fields = append(v.Fields, field{
			Name: "percent", Label: "Percent", Sort: "number", Hint: "100",
			Help: "Let only 1 to 99 percent of the runs go on, and keep the pause for the others. The same runs go " +
				"on at 20 as at 10.",
		})
	}
	return v, nil
}

// pausedText says who paused something, and why.
func pausedText(p kagzi.Pause) string {
	text := "It was paused" + by(p.Actor)
	if p.Reason != "" {
		text += ": " + strings.TrimSuffix(p.Reason, ".")
	}
	if p.Percent > 0 {
		text += fmt.Sprintf(". %d %% of its runs go on", p.Percent)
	}
	return text + "."
}

func (d *dashboard) unpause(ctx context.Context, f form) (answer, error) {
	t, opts, said := f.target(), f.options(), "Unpaused "
	if s := f.get("percent"); s != "" && s != "100" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 99 {
			return answer{}, badRequest("The percentage is %q: give 1 to 99, or leave it empty to end the pause.", s)
		}
		opts, said = append(opts, kagzi.Percent(n)), fmt.Sprintf("%d %% go on of ", n)
	}
	return answer{to: "/limits", said: said + targetName(t) + "."}, d.client.Unpause(ctx, t, opts...)
}
