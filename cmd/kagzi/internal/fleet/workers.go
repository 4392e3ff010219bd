// Package fleet has the commands about workers.
package fleet

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
)

// Workers returns kagzi workers.
func Workers(p *command.Program) *cobra.Command {
	c := &cobra.Command{
		Use:     "workers",
		Aliases: []string{"worker"},
		Short:   "List workers, drain them, declare them dead",
		Long:    `A worker is a process that executes runs. The registry keeps workers that are offline for a week.`,
		Example: `  kagzi workers list
  kagzi workers list --all --label region=eu
  kagzi workers drain 0199e5a0-4d7a-7c3e-9b1f-0c2d3e4f5a6b`,
	}
	c.AddCommand(listCommand(p), getCommand(p), logCommand(p))
	c.AddCommand(deedCommands(p)...)
	return c
}

// All returns the workers that f selects, those started last first; f.Limit zero means all.
func All(ctx context.Context, c *kagzi.Client, f admin.WorkerFilter) iter.Seq2[admin.WorkerInfo, error] {
	return command.Pages(f.Limit, func(n int, last *admin.WorkerInfo) ([]admin.WorkerInfo, error) {
		f.Limit = n
		if last != nil {
			f.After = last.ID
		}
		page, _, err := admin.New(c).Workers.List(ctx, f)
		return page, err
	})
}

func listCommand(p *command.Program) *cobra.Command {
	var f admin.WorkerFilter
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
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		n, err := workerListing(p.Screen).Print(p, All(cmd.Context(), client, f))
		if err == nil && n == 0 {
			selection.WarnOfNames(cmd.Context(), p, client, kagzi.RunFilter{Queue: f.Queue, Workflow: f.Workflow})
		}
		return err
	}
	return c
}

func workerListing(on *screen.Screen) command.Listing[admin.WorkerInfo] {
	return command.Listing[admin.WorkerInfo]{
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
		Row: func(w admin.WorkerInfo) []any {
			return []any{
				w.ID, workerStatus(w), fmt.Sprintf("%d/%d", w.Active, w.MaxConcurrent), strings.Join(w.Queues, ","),
				w.Hostname, w.PID, w.Completed, w.Failed,
				on.Time(w.HeartbeatAt), on.Time(w.StartedAt), w.Build,
			}
		},
		None: "No worker matches.",
	}
}

func workerStatus(w admin.WorkerInfo) screen.Cell {
	if w.Silent {
		return screen.Cell{Text: w.Status + ", SILENT", Tone: screen.Warning}
	}
	tone := map[string]screen.Tone{"ONLINE": screen.Good, "DRAINING": screen.Warning, "OFFLINE": screen.Faint}
	return screen.Cell{Text: w.Status, Tone: tone[w.Status]}
}

func getCommand(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:               "get WORKER-ID",
		Short:             "Show one worker, and its log",
		Long:              `Get shows what a worker is, what code it has, and what has happened to it.`,
		Example:           `  kagzi workers get 0199e5a0-4d7a-7c3e-9b1f-0c2d3e4f5a6b`,
		Args:              command.Exactly("WORKER-ID"),
		ValidArgsFunction: completeIDs(p),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			w, err := admin.New(client).Workers.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if p.JSON {
				return p.PrintJSON(w)
			}
			log, err := admin.New(client).Workers.Log(ctx, w.ID)
			if err != nil {
				return err
			}
			status, stopped := workerStatus(w), ""
			if !w.StoppedAt.IsZero() {
				stopped = p.Screen.Moment(w.StoppedAt)
			}
			err = p.PrintFields([][2]string{
				{"Worker", w.ID},
				{"Status", p.Screen.Paint(status.Tone, status.Text)},
				{"Process", fmt.Sprintf("%d on %s", w.PID, w.Hostname)},
				{"Build", w.Build},
				{"Labels", tables.Pairs(w.Labels)},
				{"Queues", strings.Join(w.Queues, " ")},
				{"Left queues", strings.Join(w.LeftQueues, " ")},
				{"Handlers", strings.Join(w.Handlers, " ")},
				{"Slots", fmt.Sprintf("%d of %d in use", w.Active, w.MaxConcurrent)},
				{"Ended runs", fmt.Sprintf("%d completed, %d failed", w.Completed, w.Failed)},
				{"Started", p.Screen.Moment(w.StartedAt)},
				{"Heartbeat", p.Screen.Moment(w.HeartbeatAt)},
				{"Stopped", stopped},
			})
			if err == nil {
				err = p.Screen.Printf("")
			}
			if err == nil {
				_, err = tables.Log(p.Screen, "Its log is empty.").Print(p, command.Each(log))
			}
			return err
		}),
	}
}

func logCommand(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "log WORKER-ID",
		Short: "List when a worker started, drained and stopped, and why",
		Long: `Log shows when a worker started, when it drained and for what reason, and when it stopped or was
declared dead.`,
		Example:           `  kagzi workers log 0199e5a0-4d7a-7c3e-9b1f-0c2d3e4f5a6b`,
		Args:              command.Exactly("WORKER-ID"),
		ValidArgsFunction: completeIDs(p),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
			log, err := admin.New(client).Workers.Log(ctx, args[0])
			if err != nil {
				return err
			}
			_, err = tables.Log(p.Screen, "Its log is empty.").Print(p, command.Each(log))
			return err
		}),
	}
}

// completeIDs completes the ID of a worker that is not offline.
func completeIDs(p *command.Program) cobra.CompletionFunc {
	return p.Complete(func(ctx context.Context, c *kagzi.Client) (ids []string, err error) {
		all, _, err := admin.New(c).Workers.List(ctx, admin.WorkerFilter{Status: []string{"ONLINE", "DRAINING"}})
		for _, w := range all {
			ids = append(ids, cobra.CompletionWithDesc(w.ID, w.Hostname))
		}
		return ids, err
	})
}
