package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
)

// Complete asks the database for the values of a first argument. A shell sees no errors: it completes nothing then.
func (p *Program) Complete(cmd *cobra.Command, args []string, ask func(context.Context, *kagzi.Client) ([]string,
	error),
) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), p.Patience())
	defer cancel()
	c, err := p.Client(ctx)
	if err != nil {
		return nil, none
	}
	values, err := ask(ctx, c)
	if err != nil {
		return nil, none
	}
	return values, none
}
