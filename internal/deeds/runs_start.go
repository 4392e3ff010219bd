package deeds

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/duration"
)

// ofWorkflows returns what can be done with workflows.
func ofWorkflows() []Deed {
	return []Deed{{
		Verb: "start", Object: Workflow, Past: "started", Title: "Start a run of", Button: "Start the run",
		Short: "Start a run, with JSON as its input",
		Says: []string{
			"Start starts a run of a workflow by its name. The run waits for a worker that has code for it.",
			"It does not check that the input fits, and knows no defaults of kagzi.Define, such as a queue.",
		},
		Fields: []Field{
			{
				Name: "workflow", Flag: "-", Label: "Workflow", About: true, Hint: "checkout",
				Required: "give the name of the workflow",
			},
			{
				Name: "input", Label: "Input", Kind: JSON, Letter: "i", Hint: `{"order": 42}`,
				Help: "The input as JSON. Empty: null.",
			},
			{
				Name: "id", Label: "ID", Arg: "ID", Hint: "order-42",
				Help: "The ID of the run, unique among the active ones. While a run has it, starting again " +
					"returns that run.",
			},
			{
				Name: "queue", Label: "Queue", Letter: "q", Arg: "NAME", Hint: "default",
				Help: `The queue. Empty: "default".`,
			},
			{
				Name: "version", Label: "Version", Kind: Number, Arg: "VERSION", Rare: true,
				Help: "The version of the workflow. Empty: the worker's.",
			},
			{
				Name: "priority", Label: "Priority", Kind: Number, Rare: true,
				Help: "The priority, from 1, which goes first, to 4. Empty: 3.",
			},
			{
				Name: "delay", Label: "Delay", Kind: Duration, Rare: true,
				Help: "Start no sooner than after this time, such as 30s, 2h or 7d.",
			},
			{
				Name: "at", Label: "At", Kind: Future, Rare: true,
				Help: "Start no sooner than at this time.",
			},
			{
				Name: "run-timeout", Label: "Timeout", Kind: Duration, Rare: true,
				Help: "End the run after this time.",
			},
			{
				Name: "metadata", Label: "Tags", Kind: Pairs, Letter: "m", Rare: true,
				Help: "A tag, as name=value.",
			},
			{
				Name: "header", Label: "Headers", Kind: Pairs, Rare: true,
				Help: "A header, as name=value.",
			},
			{
				Name: "key", Label: "Key", Arg: "KEY", Rare: true,
				Help: "The key by which limits count the run.",
			},
			{
				Name: "group", Label: "Group", Arg: "GROUP", Rare: true,
				Help: "The group of which one run at a time is executed.",
			},
		},
		Look: lookStart, Do: startRun,
	}}
}

// lookStart proposes the workflows of live workers.
func lookStart(ctx context.Context, a Asked, v *View) error {
	v.Name = a.Values.Get("workflow")
	workers, _, err := a.admin().Workers.List(ctx, admin.WorkerFilter{Status: []string{"ONLINE"}, Limit: 100})
	if err != nil {
		return err
	}
	known, queues := map[string]bool{}, map[string]bool{}
	for _, w := range workers {
		for _, name := range w.Workflows {
			if known[name] = true; name == v.Name && len(w.Queues) > 0 {
				queues[w.Queues[0]] = true
			}
		}
	}
	switch {
	case v.Name != "" && !known[v.Name]:
		v.Warning = fmt.Errorf("no live worker has code for workflow %q", v.Name)
	case len(queues) == 1 && !queues["default"]: // the only one in which it would be executed
		v.field("queue").Value = slices.Collect(maps.Keys(queues))[0]
	case v.Name == "" && len(known) > 0:
		names := slices.Sorted(maps.Keys(known))
		v.Says = append(v.Says, "Live workers have code for "+strings.Join(names[:min(len(names), 20)], ", ")+".")
	}
	return nil
}

// startRun starts the run.
func startRun(ctx context.Context, a Asked) (done Done, err error) {
	wf := kagzi.Define[json.RawMessage, json.RawMessage](a.Values.Get("workflow"))
	run, err := kagzi.Start(ctx, a.Client, wf, a.Values.json("input"), a.startOptions()...)
	if err != nil {
		return done, err
	}
	done.New, done.Already = run.ID(), run.Existed()
	done.Result = kagzi.Started{ID: run.ID(), Existed: run.Existed()}
	if done.Said = "started " + string(run.ID()); done.Already {
		done.Said = string(run.ID()) + " is active already"
	}
	return done, nil
}

// startOptions returns the options that the fields give.
func (a Asked) startOptions() (opts []kagzi.StartOption) {
	v := a.Values
	for name, option := range map[string]func(string) kagzi.StartOption{
		"id":    func(s string) kagzi.StartOption { return kagzi.ID(s) },
		"queue": func(s string) kagzi.StartOption { return kagzi.Queue(s) },
		"key":   func(s string) kagzi.StartOption { return kagzi.Key(s) },
		"group": func(s string) kagzi.StartOption { return kagzi.Group(s) },
		"delay": func(s string) kagzi.StartOption {
			d, _ := duration.Parse(s) // Check has read it
			return kagzi.Delay(d)
		},
		"run-timeout": func(s string) kagzi.StartOption {
			d, _ := duration.Parse(s)
			return kagzi.Timeout(d)
		},
	} {
		if s := v.Get(name); s != "" {
			opts = append(opts, option(s))
		}
	}
	if n := v.number("version"); n > 0 {
		opts = append(opts, kagzi.Version(n))
	}
	if n := v.number("priority"); n > 0 {
		opts = append(opts, kagzi.Priority(n))
	}
	if v.Has("at") {
		t, _ := ParseTime(v.Get("at"), time.Now(), 1, a.Zone)
		opts = append(opts, kagzi.At(t))
	}
	if tags := v.pairs("metadata"); len(tags) > 0 {
		opts = append(opts, tags)
	}
	if headers := v.pairs("header"); len(headers) > 0 {
		opts = append(opts, kagzi.Headers(headers))
	}
	return opts
}
