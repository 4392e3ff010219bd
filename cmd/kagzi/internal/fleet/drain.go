package fleet

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/changes"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/internal/deeds"
)

// Drain returns kagzi drain.
func Drain(p *command.Program) *cobra.Command {
	return changes.Command(p, changes.Spec{
		Deed: "drain queue", Use: "drain --queue NAME", Warns: true,
		More: "It asks before, unless --yes is given. kagzi workers drain drains one worker.",
		Example: `  kagzi drain --queue shop
  kagzi drain --queue shop --yes`,
		Sure: func(ctx context.Context, c *kagzi.Client, a deeds.Asked) (string, error) {
			queue := a.Values.Get("queue")
			online, err := deeds.Online(ctx, c, queue)
			if err == nil && online == 0 {
				p.Say("No worker of queue %s is online.", queue)
				selection.WarnOfNames(ctx, p, c, kagzi.RunFilter{Queue: queue})
			}
			if err != nil || online == 0 {
				return "", err
			}
			return fmt.Sprintf("Drain the %s of queue %s?", words.Plural(online, "worker"), queue), nil
		},
	})
}

// deedCommands are the commands that change one worker.
func deedCommands(p *command.Program) (all []*cobra.Command) {
	for _, s := range []changes.Spec{
		{
			Deed: "drain worker", Example: "  kagzi workers drain 0199e5a0-4d7a-7c3e-9b1f-0c2d3e4f5a6b",
			More: "kagzi workers get shows how far it is. kagzi drain drains all workers of a queue.",
		},
		{
			Deed:    "force-offline worker",
			Example: "  kagzi workers force-offline 0199e5a0-4d7a-7c3e-9b1f-0c2d3e4f5a6b",
		},
	} {
		s.Args, s.Complete = []string{"WORKER-ID"}, completeIDs(p)
		all = append(all, changes.Command(p, s))
	}
	return all
}
