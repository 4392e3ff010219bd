package sight

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
)

// Stats returns kagzi stats.
func Stats(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Count the work of each queue, and how much is done in a second",
		Long: `Stats counts, for each workflow in each queue, the runs that are due, running, asleep, delayed and
paused, and those that failed within the last hour. It also shows the slots of the live workers of each queue, for
all of its workflows together, and how many runs and steps they do in a second. A + says that there are more than
were counted: kagzi runs count counts all.`,
		Example: `  kagzi stats
  kagzi stats --json | jq '.workflows[] | select(.due > 1000)'`,
		Args: command.Exactly(),
		RunE: p.WithClient(func(ctx context.Context, client *kagzi.Client, _ []string) error {
			st, err := admin.New(client).Stats(ctx)
			if err != nil {
				return err
			}
			if len(st.Workflows)+len(st.Queues) == 0 {
				selection.WarnOfNamespace(ctx, p, client)
			}
			if p.JSON {
				return p.PrintJSON(st)
			}
			return printStats(p.Screen, st)
		}),
	}
}

func printStats(on *screen.Screen, st admin.Stats) error {
	err := on.Printf("%s: %s live, %d of %d slots in use at the last heartbeats; %s started, %s completed, %s "+
		"failed, %s steps",
		st.Namespace, words.Plural(st.Workers.Live, "worker"), st.Workers.Active, st.Workers.Most,
		screen.PerSecond(st.Rates.Starts), screen.PerSecond(st.Rates.Completed), screen.PerSecond(st.Rates.Failed),
		screen.PerSecond(st.Rates.Steps))
	if err != nil || len(st.Workflows) == 0 {
		return err
	}
	slots := map[string]screen.Cell{}
	for _, q := range st.Queues {
		slots[q.Queue] = screen.Cell{Text: fmt.Sprintf("%d/%d", q.Used, q.Slots)}
	}
	t := on.Table(screen.Column{Title: "QUEUE", Min: 8}, screen.Column{Title: "WORKFLOW", Min: 12},
		screen.Column{Title: "DUE", Right: true}, screen.Column{Title: "DUE SINCE"},
		screen.Column{Title: "RUNNING", Right: true}, screen.Column{Title: "SLEEPING", Right: true},
		screen.Column{Title: "DELAYED", Right: true, Drop: 2}, screen.Column{Title: "PAUSED", Right: true, Drop: 3},
		screen.Column{Title: "QUEUE'S SLOTS", Right: true, Drop: 1},
		screen.Column{Title: "FAILED IN THE LAST HOUR", Min: 16})
	for _, w := range st.Workflows {
		live, known := slots[w.Queue]
		if !known {
			live = screen.Cell{Text: "none", Tone: screen.Bad}
		}
		slots[w.Queue] = screen.Cell{} // they are not those of the queue's other workflows
		t.Row(w.Queue, w.Workflow, words.OrMore(w.Due, w.DueMore), on.Time(w.DueSince), w.Running,
			words.OrMore(w.Sleeping, w.More), w.Delayed, w.Paused, live, failedText(w.Failed))
	}
	return on.Printf("\n%s", strings.TrimSuffix(t.String(), "\n"))
}

// failedText lists kinds with their numbers: "3 unavailable, 1 timeout".
func failedText(failed []admin.FailStats) screen.Cell {
	var parts []string
	for _, f := range failed {
		parts = append(parts, words.OrMore(f.Runs, f.More)+" "+f.Kind)
	}
	return screen.Cell{Text: strings.Join(parts, ", "), Tone: screen.Bad}
}
