package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Exactly returns the check that a command gets the arguments with these names, and no others.
func Exactly(names ...string) cobra.PositionalArgs { return Between(len(names), names...) }

// Between is Exactly, but the arguments after the first least may be missing.
func Between(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > len(names) && len(names) == 0 && cmd.HasSubCommands():
			return Unknown(cmd, args[0])
		case len(args) > len(names):
			return Usagef("unexpected argument %q: write %s", args[len(names)], cmd.UseLine())
		case len(args) < least:
			return Usagef("%s is missing: write %s", strings.Join(names[len(args):least], " and "), cmd.UseLine())
		}
		if i := slices.Index(args, ""); i >= 0 {
			return Usagef("%s is empty: write %s", names[i], cmd.UseLine())
		}
		return nil
	}
}

// Unknown is the error of a command that cmd does not have.
func Unknown(cmd *cobra.Command, name string) error {
	hint := cmd.CommandPath() + " --help lists its commands"
	if cmd.SuggestionsMinimumDistance == 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if s := cmd.SuggestionsFor(name); len(s) > 0 {
		hint = "do you mean " + strings.Join(s, " or ") + "?"
	}
	return Usagef("%s has no command %q: %s", cmd.CommandPath(), name, hint)
}

// OnlyCommands makes c show its help, and refuse arguments.
func OnlyCommands(c *cobra.Command) {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Unknown(cmd, args[0])
		}
		return cmd.Help()
	}
}

// Lists gives a noun that is only listed the command list, which every noun has: kagzi topics is kagzi topics list.
func Lists(noun *cobra.Command) *cobra.Command {
	noun.AddCommand(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: noun.Short, Long: noun.Long,
		Example: strings.Replace(noun.Example, noun.Name(), noun.Name()+" list", 1),
		Args:    noun.Args, RunE: noun.RunE,
	})
	return noun
}
