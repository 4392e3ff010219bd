package deeds

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/explain"
)

// ofTargets returns what can be done to the runs of a queue, a workflow, a key or a group, and to all.
func ofTargets() []Deed { return []Deed{pause(), unpause()} }

// target are the fields that say what a pause stops.
var target = []Field{
	{Name: "queue", Label: "Queue", Letter: "q", Arg: "NAME", About: true, Help: "The runs of the queue with this " +
		"name."},
	{
		Name: "workflow", Label: "Workflow", Letter: "w", Arg: "NAME", About: true,
		Help: "The runs of the workflow with this name. With a queue: those in that queue.",
	},
	{Name: "key", Label: "Key", Arg: "KEY", About: true, Help: "The runs of this key of the queue."},
	{Name: "group", Label: "Group", Arg: "GROUP", About: true, Help: "The runs of this group."},
	{Name: "all", Label: "All runs of the namespace", Kind: Check, About: true, Help: "All runs of the namespace."},
}

// TargetOf returns what the values name.
func TargetOf(v Values) admin.Target {
	return admin.Target{
		All: v.Has("all"), Queue: v.Get("queue"), Workflow: v.Get("workflow"), Key: v.Get("key"), Group: v.Get("group"),
	}
}

func checkTarget(a Asked) error {
	t := TargetOf(a.Values)
	switch {
	case t == admin.Target{}:
		return mistake("nothing is named: give {queue}, {workflow}, {key} with {queue}, {group}, or {all}")
	case t.All && (t != admin.Target{All: true}):
		return mistake("{all} and another field exclude each other: give one of them")
	case t.Group != "" && (t != admin.Target{Group: t.Group}):
		return mistake("{group} stands alone: a group spans queues and workflows")
	case t.Key != "" && t.Queue == "":
		return mistake("{key} needs {queue}: a key belongs to a queue")
	case t.Key != "" && t.Workflow != "":
		return mistake("{key} and {workflow} exclude each other: a key is paused with all of its runs")
	}
	return nil
}

// pauseOf returns the pause of exactly t, if there is one.
func pauseOf(ctx context.Context, a Asked, t admin.Target) (p admin.Pause, found bool, err error) {
	all, err := a.admin().Pauses.List(ctx)
	if i := slices.IndexFunc(all, func(p admin.Pause) bool { return p.Target == t }); i >= 0 {
		return all[i], true, err
	}
	return p, false, err
}

// A targetChange is what pause and unpause return for programs.
type targetChange struct {
	Verb    string       `json:"verb"`
	Target  admin.Target `json:"target"`
	Already bool         `json:"already,omitempty"` // it was paused before
}

func pause() Deed {
	return Deed{
		Verb: "pause", Object: Target, Past: "paused", Button: "Pause",
		Short: "Keep the runs of a queue, workflow, key or group from being executed",
		Says: []string{
			"Pause keeps workers from claiming runs. Starts, messages, cancels and timeouts go on, and so do runs " +
				"that are being executed, until they end or wait.",
			"What is paused already stays so, and keeps its reason and actor unless others are given.",
		},
		Fields: append(slices.Clip(target), Field{
			Name: "park", Label: "Stop what is under way, too", Kind: Check,
			Help: "Stop runs that are being executed, too, at their next step. They keep the result of the step " +
				"under way.",
		}),
		Valid: checkTarget,
		Look: func(ctx context.Context, a Asked, v *View) error {
			if t := TargetOf(a.Values); t != (admin.Target{}) {
				v.Name, v.Danger = explain.Target(t), t.All
				v.Says = append(v.Says, touched(ctx, a, t)...)
			}
			return nil
		},
		Do: doPause,
	}
}

func doPause(ctx context.Context, a Asked) (done Done, err error) {
	t := TargetOf(a.Values)
	before, already, err := pauseOf(ctx, a, t)
	if err != nil {
		return done, err
	}
	var opts []kagzi.ChangeOption
	if !already || a.Explained {
		opts = onlyWhy(a)
	}
	if a.Values.Has("park") {
		opts = append(opts, admin.Park())
	}
	done.Said, done.Result = "paused "+explain.Target(t), targetChange{Verb: "pause", Target: t, Already: already}
	if already {
		done.Said = fmt.Sprintf("%s was paused already, since %s%s", explain.Target(t), a.Moment(before.Since),
			explain.By(before.Actor, before.Reason))
		switch {
		case a.Explained && a.Reason != "":
			done.Said += ": reason and actor were replaced"
		case a.Explained:
			done.Said += ": the actor was replaced"
		}
	}
	return done, a.admin().Pauses.Set(ctx, t, opts...)
}

// touched says how many runs of the target are active now; nothing if that cannot be counted in time.
func touched(ctx context.Context, a Asked, t admin.Target) []string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	counts, err := a.admin().Runs.Count(ctx, kagzi.RunFilter{
		Queue: t.Queue, Workflow: t.Workflow, Key: kagzi.Key(t.Key), Group: kagzi.Group(t.Group), Status: active,
	}, admin.ByStatus)
	if err != nil {
		return nil
	}
	all, running := 0, 0
	for _, c := range counts {
		if all += c.Runs; c.Status == kagzi.StatusRunning {
			running += c.Runs
		}
	}
	return []string{fmt.Sprintf("%s active now, %d of them with a worker.", plural(all, "run is", "runs are"), running)}
}

func unpause() Deed {
	return Deed{
		Verb: "unpause", Object: Target, Past: "unpaused", Button: "Unpause",
		Short: "End a pause",
		Says: []string{"Unpause ends the pause of exactly what is named, so that workers claim these runs again. " +
			"Other pauses that hold them stay."},
		Fields: slices.Clip(target),
		Valid:  checkTarget,
		Look: func(ctx context.Context, a Asked, v *View) error {
			t := TargetOf(a.Values)
			if t == (admin.Target{}) {
				return nil
			}
			v.Name = explain.Target(t)
			p, found, err := pauseOf(ctx, a, t)
			if found {
				v.Says = append(v.Says, "It was paused"+explain.By(p.Actor, p.Reason)+".")
			}
			return err
		},
		Do: func(ctx context.Context, a Asked) (Done, error) {
			t := TargetOf(a.Values)
			return Done{Said: "unpaused " + explain.Target(t), Result: targetChange{Verb: "unpause", Target: t}},
				a.admin().Pauses.End(ctx, t, onlyWhy(a)...)
		},
	}
}
