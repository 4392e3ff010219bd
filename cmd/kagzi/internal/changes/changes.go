// Package changes has the commands that change runs: one run, or all that flags select.
package changes

import (
	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
)

// Commands returns the commands below kagzi runs that change runs.
func Commands(p *command.Program) []*cobra.Command {
	all := []*cobra.Command{pauseCommand(p)}
	for _, v := range []*verb{
		cancelVerb(), terminateVerb(), resumeVerb(), restartVerb(p), forkVerb(p), unpauseVerb(), updateVerb(),
		deleteVerb(),
	} {
		all = append(all, commandOf(p, v))
	}
	return all
}
