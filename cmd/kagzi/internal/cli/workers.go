package cli

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
)

func (a *app) workers() *cobra.Command {
	c := &cobra.Command{
		Use:     "workers",
		Aliases: []string{"worker"},
		Short:   "List workers, drain them, declare them dead",
		Long:    `A worker is a process that executes runs. The registry keeps workers that are offline for a week.`,
		Example: `  kagzi workers list
  kagzi workers list --all --label region=eu
  kagzi workers drain 0199e5a0-4d7a-7c3e-9b1f-0c2d3e4f5a6b`,
	}
	c.AddCommand(a.workersList(), a.workersGet(), a.workersLog(), a.workersDrain(), a.workersForceOffline())
	return c
}

// allWorkers returns the workers that f selects, those started last first; f.Limit zero means all.
func allWorkers(ctx context.Context, c *kagzi.Client, f kagzi.WorkerFilter) iter.Seq2[kagzi.WorkerInfo, error] {
	return command.Pages(f.Limit, func(n int, last *kagzi.WorkerInfo) ([]kagzi.WorkerInfo, error) {
		f.Limit = n
		if last != nil {
			f.After = last.ID
		}
		page, _, err := c.Workers(ctx, f)
		return page, err
	})
}

func (a *app) workersList() *cobra.Command {
	var f kagzi.WorkerFilter
	var status, labels []string
	var all bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the workers that are not offline",
		Long: `List shows the workers that are online or drain, those started last first. SLOTS is how many runs a
worker executes, of how many that it may. The figures are those of the last heartbeat.`,
		Example: `  kagzi workers list
  kagzi workers list --queue shop
  kagzi workers list --status offline --json`,
		Args: command.Exactly(),
	}
	fs := c.Flags()
	fs.StringSliceVarP(&status, "status", "s", nil, "only `STATUSES`: online, draining, offline")
	fs.StringVarP(&f.Queue, "queue", "q", "", "only workers of the queue `NAME`")
	fs.StringVarP(&f.Workflow, "workflow", "w", "", "only workers that have code for the workflow `NAME`")
	fs.StringArrayVarP(&labels, "label", "l", nil, "only workers with the label, as `NAME=VALUE`; may be repeated")
	fs.BoolVar(&all, "all", false, "offline workers, too")
	_ = c.RegisterFlagCompletionFunc("status", cobra.FixedCompletions([]string{"online", "draining", "offline"},
		cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, given := range status {
			s := strings.ToUpper(strings.TrimSpace(given))
			if s != "ONLINE" && s != "DRAINING" && s != "OFFLINE" {
				return command.Usagef("--status is %q: give one or more of online, draining, offline", given)
			}
			f.Status = append(f.Status, s)
		}
		if len(status) == 0 && !all {
			f.Status = []string{"ONLINE", "DRAINING"}
		}
		var err error
		if f.Labels, err = command.ParsePairs("label", labels); err != nil {
			return err
		}
		client, err := a.Client(cmd.Context())
		if err != nil {
			return err
		}
		n, err := a.workerListing().Print(a.Program, allWorkers(cmd.Context(), client, f))
		if err == nil && n == 0 {
			selection.WarnOfNames(cmd.Context(), a.Program, client, kagzi.RunFilter{Queue: f.Queue, Workflow: f.Workflow})
		}
		return err
	}
	return c
}

func (a *app) workerListing() command.Listing[kagzi.WorkerInfo] {
	return command.Listing[kagzi.WorkerInfo]{
		Columns: []screen.Column{
			{Title: "WORKER"},
			{Title: "STATUS"},
			{Title: "SLOTS", Right: true},
			{Title: "QUEUES", Min: 10},
			{Title: "HOST", Min: 8, Drop: 3},
			{Title: "PID", Drop: 5},
			{Title: "DONE", Right: true, Drop: 4},
			{Title: "FAILED", Right: true, Drop: 4},
			{Title: "HEARTBEAT", Drop: 2},
			{Title: "STARTED", Drop: 6},
			{Title: "BUILD", Min: 8, Drop: 7},
		},
		Row: func(w kagzi.WorkerInfo) []any {
			return []any{
				w.ID, workerStatus(w), fmt.Sprintf("%d/%d", w.Active, w.MaxConcurrent), strings.Join(w.Queues, ","),
				w.Hostname, w.PID, w.Completed, w.Failed,
				a.Screen.Time(w.HeartbeatAt), a.Screen.Time(w.StartedAt), w.Build,
			}
		},
		None: "No worker matches.",
	}
}

func workerStatus(w kagzi.WorkerInfo) screen.Cell {
	if w.Silent {
		return screen.Cell{Text: w.Status + ", SILENT", Tone: screen.Warning}
	}
	tone := map[string]screen.Tone{"ONLINE": screen.Good, "DRAINING": screen.Warning, "OFFLINE": screen.Faint}
	return screen.Cell{Text: w.Status, Tone: tone[w.Status]}
}

func (a *app) workersGet() *cobra.Command {
	return &cobra.Command{
		Use:               "get WORKER-ID",
		Short:             "Show one worker, and its log",
		Long:              `Get shows what a worker is, what code it has, and what has happened to it.`,
		Example:           `  kagzi workers get 0199e5a0-4d7a-7c3e-9b1f-0c2d3e4f5a6b`,
		Args:              command.Exactly("WORKER-ID"),
		ValidArgsFunction: a.completeWorkers,
		RunE: a.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			w, err := client.Worker(ctx, args[0])
			if err != nil {
				return err
			}
			if a.JSON {
				return a.PrintJSON(w)
			}
			log, err := client.WorkerLog(ctx, w.ID)
			if err != nil {
				return err
			}
			status, stopped := workerStatus(w), ""
			if !w.StoppedAt.IsZero() {
				stopped = a.Screen.Moment(w.StoppedAt)
			}
			err = a.PrintFields([][2]string{
				{"Worker", w.ID},
				{"Status", a.Screen.Paint(status.Tone, status.Text)},
				{"Process", fmt.Sprintf("%d on %s", w.PID, w.Hostname)},
				{"Build", w.Build},
				{"Labels", tables.Pairs(w.Labels)},
				{"Queues", strings.Join(w.Queues, " ")},
				{"Left queues", strings.Join(w.LeftQueues, " ")},
				{"Handlers", strings.Join(w.Handlers, " ")},
				{"Slots", fmt.Sprintf("%d of %d in use", w.Active, w.MaxConcurrent)},
				{"Ended runs", fmt.Sprintf("%d completed, %d failed", w.Completed, w.Failed)},
				{"Started", a.Screen.Moment(w.StartedAt)},
				{"Heartbeat", a.Screen.Moment(w.HeartbeatAt)},
				{"Stopped", stopped},
			})
			if err == nil {
				err = a.Screen.Printf("")
			}
			if err == nil {
				_, err = tables.Log(a.Screen, "Its log is empty.").Print(a.Program, command.Each(log))
			}
			return err
		}),
	}
}

func (a *app) workersLog() *cobra.Command {
	return &cobra.Command{
		Use:   "log WORKER-ID",
		Short: "List when a worker started, drained and stopped, and why",
		Long: `Log shows when a worker started, when it drained and for what reason, and when it stopped or was
declared dead.`,
		Example:           `  kagzi workers log 0199e5a0-4d7a-7c3e-9b1f-0c2d3e4f5a6b`,
		Args:              command.Exactly("WORKER-ID"),
		ValidArgsFunction: a.completeWorkers,
		RunE: a.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			log, err := client.WorkerLog(ctx, args[0])
			if err != nil {
				return err
			}
			_, err = tables.Log(a.Screen, "Its log is empty.").Print(a.Program, command.Each(log))
			return err
		}),
	}
}

func (a *app) workersDrain() *cobra.Command {
	var by command.Cause
	c := &cobra.Command{
		Use:   "drain WORKER-ID",
		Short: "Ask a worker to finish its runs and stop",
		Long: `Drain asks a worker to claim no more runs, to let those under way finish, and to stop. The command does
not wait for that: kagzi workers get shows how far it is. A process manager may start the worker again. kagzi drain
drains all workers of a queue.`,
		Example:           `  kagzi workers drain 0199e5a0-4d7a-7c3e-9b1f-0c2d3e4f5a6b`,
		Args:              command.Exactly("WORKER-ID"),
		ValidArgsFunction: a.completeWorkers,
		RunE: a.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			if err := client.Drain(ctx, args[0], by.Options()...); err != nil {
				return err
			}
			return a.Done(command.NamedChange{Verb: "drain", Name: args[0]}, "asked %s to drain", args[0])
		}),
	}
	by.Flags(c.Flags())
	return c
}

func (a *app) workersForceOffline() *cobra.Command {
	var by command.Cause
	c := &cobra.Command{
		Use:   "force-offline WORKER-ID",
		Short: "Declare a worker dead, so that others take its runs at once",
		Long: `Force-offline declares a worker dead. Its runs are available to other workers at once, and a step that
it still executes may be executed twice. It is for workers that you know to be dead: a coordinator finds the others
by itself.`,
		Example:           `  kagzi workers force-offline 0199e5a0-4d7a-7c3e-9b1f-0c2d3e4f5a6b`,
		Args:              command.Exactly("WORKER-ID"),
		ValidArgsFunction: a.completeWorkers,
		RunE: a.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			if err := client.ForceOffline(ctx, args[0], by.Options()...); err != nil {
				return err
			}
			return a.Done(command.NamedChange{Verb: "force-offline", Name: args[0]}, "%s is offline", args[0])
		}),
	}
	by.Flags(c.Flags())
	return c
}

func (a *app) drain() *cobra.Command {
	var queue string
	var by command.Cause
	var yes bool
	c := &cobra.Command{
		Use:   "drain --queue NAME",
		Short: "Ask all workers of a queue to finish their runs and stop",
		Long: `Drain asks all workers of a queue to drain, with their other queues: they claim no more runs, finish
those under way, and stop. It asks before, unless --yes is given. Workers that start later are not affected. kagzi
workers drain drains one worker; kagzi pause stops a queue and leaves its workers up.`,
		Example: `  kagzi drain --queue shop
  kagzi drain --queue shop --yes`,
		Args: command.Exactly(),
	}
	c.Flags().StringVarP(&queue, "queue", "q", "", "the queue `NAME`")
	by.Flags(c.Flags())
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if queue == "" {
			return command.Usagef("--queue is missing: give the queue whose workers are to drain; kagzi workers list shows " +
				"the queues")
		}
		if !yes && !a.Interactive() {
			return command.Usagef("nobody can be asked, as this is no terminal: give --yes")
		}
		client, err := a.Client(ctx)
		if err != nil {
			return err
		}
		if !yes {
			_, online, err := client.Workers(ctx,
				kagzi.WorkerFilter{Queue: queue, Status: []string{"ONLINE"}, Limit: 1})
			if err != nil {
				return err
			}
			if online == 0 {
				a.Say("No worker of queue %s is online.", queue)
				selection.WarnOfNames(ctx, a.Program, client, kagzi.RunFilter{Queue: queue})
				return nil
			}
			if sure, err := a.Sure(ctx, yes, fmt.Sprintf("Drain the %s of queue %s?", words.Plural(online, "worker"),
				queue)); !sure {
				return err
			}
		}
		n, err := client.DrainQueue(ctx, queue, by.Options()...)
		if err != nil {
			return err
		}
		if n == 0 {
			selection.WarnOfNames(ctx, a.Program, client, kagzi.RunFilter{Queue: queue})
		}
		return a.Done(map[string]any{"queue": queue, "drained": n}, "asked %s of queue %s to drain",
			words.Plural(n, "worker"), queue)
	}
	return c
}

// completeWorkers completes the ID of a worker that is not offline.
func (a *app) completeWorkers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.Complete(cmd, args, func(ctx context.Context, c *kagzi.Client) (ids []string, err error) {
		all, _, err := c.Workers(ctx, kagzi.WorkerFilter{Status: []string{"ONLINE", "DRAINING"}})
		for _, w := range all {
			ids = append(ids, cobra.CompletionWithDesc(w.ID, w.Hostname))
		}
		return ids, err
	})
}
