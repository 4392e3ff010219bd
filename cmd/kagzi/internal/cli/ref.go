package cli

import (
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
)

// A runArg is the argument RUN of a command, or its flag --id.
type runArg struct{ id string }

const runHelp = `
RUN is a run ID, which is a UUID, or the ID that the run was started with. Of several runs with one ID it is the
active one, or else the newest. --id ID is for an ID that looks like a UUID.`

func (r *runArg) flags(c *cobra.Command) {
	c.Flags().StringVar(&r.id, "id", "", "the run with this `ID`, in place of the argument RUN")
	c.Long += "\n" + runHelp
}

// args returns the check for a command with the arguments RUN and rest.
func (r *runArg) args(least int, rest ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if r.id != "" && len(args) > len(rest) {
			return usagef("a run is named twice, by RUN and by --id %s: give RUN or --id, not both", r.id)
		}
		if r.id != "" {
			return between(least, rest...)(cmd, args)
		}
		return between(1+least, append([]string{"RUN"}, rest...)...)(cmd, args)
	}
}

// take returns the run and the arguments after it.
func (r *runArg) take(args []string) (kagzi.Ref, []string) {
	if r.id != "" {
		return kagzi.ID(r.id), args
	}
	return refOf(args[0]), args[1:]
}

func refOf(s string) kagzi.Ref {
	if _, err := uuid.Parse(s); err == nil && len(s) == len(uuid.Nil.String()) {
		return kagzi.RunID(s)
	}
	return kagzi.ID(s)
}
