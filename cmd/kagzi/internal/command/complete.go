package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
)

// Complete asks the database for the values of a first argument. A shell sees no errors: it completes nothing then.
func (p *Program) Complete(ask func(context.Context, *kagzi.Client) ([]string, error)) cobra.CompletionFunc {
	const none = cobra.ShellCompDirectiveNoFileComp
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
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
}
