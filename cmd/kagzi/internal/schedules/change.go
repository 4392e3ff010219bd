package schedules

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/changes"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/internal/deeds"
)

// deedCommands are the commands that change a schedule.
func deedCommands(p *command.Program) (all []*cobra.Command) {
	for _, s := range []changes.Spec{
		{
			Deed: "backfill schedule", Use: "backfill NAME --from TIME", More: "The command prints the number of runs.",
			Example: "  kagzi schedules backfill nightly-report --from 2026-09-01 --until 2026-10-01",
		},
		{
			Deed: "trigger schedule", Prints: true, More: "The command prints the run's ID.",
			Example: "  kagzi runs wait $(kagzi schedules trigger nightly-report)",
		},
		{
			Deed: "pause schedule", Example: "  kagzi schedules pause nightly-report",
			More: "What is paused already keeps its reason and actor unless --reason or --actor is given.",
		},
		{Deed: "resume schedule", Example: "  kagzi schedules resume nightly-report"},
		{
			Deed: "delete schedule", More: "It asks before, unless --yes is given.",
			Example: "  kagzi schedules delete nightly-report", Sure: func(ctx context.Context, c *kagzi.Client,
				a deeds.Asked,
			) (string, error) {
				_, err := admin.New(c).Schedules.Get(ctx, a.Name)
				if err != nil {
					return "", err
				}
				return fmt.Sprintf("Delete the schedule %s?", a.Name), nil
			},
		},
	} {
		s.Args, s.Complete = []string{"NAME"}, completeNames(p)
		all = append(all, changes.Command(p, s))
	}
	return all
}
