package runs

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

func doubtsCommand(p *command.Program) *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "doubts",
		Short: "List the steps of which it is not known what their calls have done",
		Long: `Doubts shows steps that are called at most once, and whose worker died during the call, or whose function
returned an error that may hide a success. Ask the service that they called, and say what has happened with kagzi runs
resolve. A run that is OVER waits for nothing; its doubt stays until it is resolved.`,
		Example: `  kagzi runs doubts`,
		Args:    command.Exactly(),
	}
	c.Flags().IntVar(&limit, "limit", 100, "at most `N` steps")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		l := command.Listing[admin.Doubt]{
			Columns: []screen.Column{
				{Title: "RUN"},
				{Title: "WORKFLOW"},
				{Title: "STEP", Min: 8},
				{Title: "CALLED"},
				{Title: "OVER", Drop: 1},
				{Title: "WHY", Min: 12},
			},
			Row: func(d admin.Doubt) []any {
				run := string(d.ID)
				if run == "" {
					run = string(d.Run)
				}
				over := ""
				if d.Over {
					over = "over"
				}
				return []any{run, d.Workflow, d.Step, p.Screen.Time(d.CalledAt), over, firstLine(d.Error)}
			},
			None: "No step is in doubt.",
		}
		_, err = l.Print(p, func(yield func(admin.Doubt, error) bool) {
			doubts, err := admin.New(client).Runs.Doubts(cmd.Context(), limit)
			for _, d := range doubts {
				if !yield(d, nil) {
					return
				}
			}
			if err != nil {
				yield(admin.Doubt{}, err)
			}
		})
		return err
	}
	return c
}

// firstLine returns the first line of a text: that of a panic has a stack behind it.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return screen.Line(line)
}
