package changes

import (
	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
)

// A change is the flags of a verb's command.
type change struct {
	verb     *verb
	run      selection.RunArg
	filter   selection.Filter
	dry, yes bool
}

// commandOf returns the command of a verb.
func commandOf(p *command.Program, v *verb) *cobra.Command {
	to := change{verb: v}
	c := &cobra.Command{
		Use:   v.name + " [RUN | flags that select runs]",
		Short: v.short,
		Long: v.long + `

With RUN the command changes that run at once. With flags that select runs it shows them, and asks before it changes
them; --yes does not ask. Runs that cannot be changed are skipped. --dry-run only shows what would be changed.`,
		Example: v.example,
		Args:    command.Between(0, "RUN"),
	}
	to.run.Flags(c)
	to.filter.Flags(c, 0, "change at most `N` runs, the newest; 0 means all")
	v.flags(c.Flags())
	c.Flags().BoolVar(&to.dry, "dry-run", false, "show what the command would change, and change nothing")
	c.Flags().BoolVarP(&to.yes, "yes", "y", false, "do not ask")
	c.RunE = func(cmd *cobra.Command, args []string) error { return to.make(cmd, p, args) }
	return c
}

// make changes the run that is named, or the runs that flags select.
func (to *change) make(cmd *cobra.Command, p *command.Program, args []string) error {
	if err := to.check(cmd, args, p.Interactive()); err != nil {
		return err
	}
	if to.verb.check != nil {
		if err := to.verb.check(cmd.Flags()); err != nil {
			return err
		}
	}
	filter, err := to.filter.Runs(p.Screen.Now())
	if err != nil {
		return err
	}
	client, err := p.Client(cmd.Context())
	if err != nil {
		return err
	}
	if !to.names(args) {
		b := bulk{Program: p, client: client, verb: to.verb, filter: filter, dry: to.dry, yes: to.yes}
		return b.run(cmd.Context())
	}
	ref, _ := to.run.Take(args)
	if to.dry {
		return tryOne(cmd.Context(), p, client, to.verb, ref)
	}
	return changeOne(cmd.Context(), p, client, to.verb, ref)
}

// names reports whether a run is named.
func (to *change) names(args []string) bool { return len(args) > 0 || to.run.ID != "" }

// check refuses a command that does not say what to change, or for which a person must be asked where none is.
func (to *change) check(cmd *cobra.Command, args []string, interactive bool) error {
	one, many := to.names(args), to.filter.Given(cmd.Flags())
	switch {
	case len(args) > 0 && to.run.ID != "":
		return command.Usagef("a run is named twice, by RUN and by --id %s: give RUN or --id, not both", to.run.ID)
	case one && many:
		return command.Usagef("a run is given, and flags that select runs: give one of them")
	case !one && !many:
		return command.Usagef("no run is given: write %s RUN, or select runs with flags such as --workflow",
			cmd.CommandPath())
	case many && (flagChanged(cmd, "input") || flagChanged(cmd, "new-id")):
		return command.Usagef("--input and --new-id are for one run: leave them out, and each new run has those of " +
			"its old one")
	case many && !to.dry && !to.yes && !interactive:
		return command.Usagef("nobody can be asked, as this is no terminal: give --dry-run to see the runs, or "+
			"--yes to %s them", to.verb.name)
	}
	return nil
}

func flagChanged(cmd *cobra.Command, name string) bool {
	f := cmd.Flags().Lookup(name)
	return f != nil && f.Changed
}
