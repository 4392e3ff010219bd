// Package changes makes commands of the table of deeds: what a deed is, asks for and says stands there.
package changes

import (
	"cmp"
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/internal/deeds"
)

// A Spec is how a deed is a command, as far as it does not follow from the deed.
type Spec struct {
	Deed     string   // its key: "pause schedule"
	Use      string   // empty: the verb and Args
	Args     []string // the names of the arguments
	Fills    string   // the field that the first argument fills; empty: it is the name of the thing
	More     string   // what the help says besides
	Example  string
	Complete cobra.CompletionFunc
	Warns    bool // it warns of a queue and a workflow that nothing knows
	Prints   bool // it prints the ID of the new run, and nothing else
	// Sure returns the question that a person answers with yes, unless --yes is given; none if there is nothing to do.
	Sure func(ctx context.Context, c *kagzi.Client, a deeds.Asked) (question string, err error)
}

// base returns the command of a deed without what it does.
func base(d deeds.Deed, s Spec) *cobra.Command {
	return &cobra.Command{
		Use:   cmp.Or(s.Use, strings.Join(append([]string{d.Verb}, s.Args...), " ")),
		Short: d.Short, Long: strings.TrimSpace(strings.Join(d.Says, " ") + "\n\n" + s.More), Example: s.Example,
		Args: command.Exactly(s.Args...), ValidArgsFunction: s.Complete,
	}
}

// Command returns the command of a deed that is about one thing.
func Command(p *command.Program, s Spec) *cobra.Command {
	d := deeds.Find(s.Deed)
	if d.Keeps {
		s.More += "Limits that no flag names stay as they are; 0 removes one, and --clear removes all first."
	}
	c := base(d, s)
	one := &one{p: p, spec: s, in: newInput(d, c.Flags())}
	if d.Keeps {
		c.Flags().BoolVar(&one.clear, "clear", false, "remove all that is set")
	}
	if s.Sure != nil {
		c.Flags().BoolVarP(&one.yes, "yes", "y", false, "do not ask")
	}
	c.RunE = func(cmd *cobra.Command, args []string) error { return one.run(cmd.Context(), args) }
	return c
}

// A one is a deed that is about one thing, as a command.
type one struct {
	p          *command.Program
	spec       Spec
	in         *input
	clear, yes bool
}

func (o *one) run(ctx context.Context, args []string) error {
	a, err := o.asked(args)
	if err != nil {
		return err
	}
	if a.Client, err = o.p.Client(ctx); err != nil {
		return err
	}
	if sure, err := o.sure(ctx, a); !sure {
		return err
	}
	d := o.in.deed
	if d.Keeps && !o.clear {
		v, err := d.View(ctx, a)
		if err != nil {
			return err
		}
		o.in.keep(v.Fields)
	}
	done, err := d.Run(ctx, a)
	if err != nil {
		return o.in.wrong(err)
	}
	if o.spec.Warns {
		selection.WarnOfNames(ctx, o.p, a.Client, kagzi.RunFilter{
			Queue: a.Values.Get("queue"), Workflow: a.Values.Get("workflow"),
		})
	}
	if done.Result == nil {
		done.Result = command.NamedChange{Verb: d.Verb, Name: a.Name, Already: done.Already}
	}
	if o.spec.Prints {
		done.Said = string(done.New)
	}
	return o.p.Done(done.Result, "%s", done.Said)
}

// asked returns what the arguments and the flags ask for.
func (o *one) asked(args []string) (a deeds.Asked, err error) {
	if o.in.deed.Keeps && o.in.empty() && !o.clear {
		return a, command.Usagef("there is nothing to set: give a limit such as --max-running 10, or --clear")
	}
	if o.spec.Fills != "" {
		o.in.values[o.spec.Fills] = args[:1]
	}
	if a, err = o.in.asked(o.p); len(args) > 0 {
		a.Name = args[0]
	}
	if err == nil && o.spec.Sure != nil && !o.yes && !o.p.Interactive() {
		err = command.Usagef("nobody can be asked, as this is no terminal: give --yes")
	}
	return a, err
}

// sure asks the question of the command, if it has one.
func (o *one) sure(ctx context.Context, a deeds.Asked) (bool, error) {
	if o.spec.Sure == nil || o.yes {
		return true, nil
	}
	question, err := o.spec.Sure(ctx, a.Client, a)
	if question == "" {
		return false, err
	}
	return o.p.Sure(ctx, false, question)
}
