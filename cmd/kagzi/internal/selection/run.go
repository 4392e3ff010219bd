// Package selection reads the argument RUN and the flags that select runs, and warns of names that may be misspelt.
package selection

import (
	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/internal/deeds"
)

// A RunArg is the argument RUN of a command, or its flag --id.
type RunArg struct{ ID string }

// RunHelp says what RUN is.
const RunHelp = `
RUN is a run ID, which is a UUID, or the ID that the run was started with. Of several runs with one ID it is the
active one, or else the newest. --id ID is for an ID that looks like a UUID.`

// Flags adds the flag to a command, and says in its help what RUN is.
func (r *RunArg) Flags(c *cobra.Command) {
	c.Flags().StringVar(&r.ID, "id", "", "the run with this `ID`, in place of the argument RUN")
	c.Long += "\n" + RunHelp
}

// Args returns the check for a command with the arguments RUN and rest.
func (r *RunArg) Args(least int, rest ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if r.ID != "" && len(args) > len(rest) {
			return command.Usagef("a run is named twice, by RUN and by --id %s: give RUN or --id, not both", r.ID)
		}
		if r.ID != "" {
			return command.Between(least, rest...)(cmd, args)
		}
		return command.Between(1+least, append([]string{"RUN"}, rest...)...)(cmd, args)
	}
}

// Take returns the run and the arguments after it.
func (r *RunArg) Take(args []string) (kagzi.Ref, []string) {
	if r.ID != "" {
		return kagzi.ID(r.ID), args
	}
	return deeds.RefOf(args[0]), args[1:]
}
