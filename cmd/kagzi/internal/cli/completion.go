package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
)

// completeTimeout is how long a shell waits for names from the database. Tests wait longer.
var completeTimeout = 2 * time.Second

// completeSchedules completes the name of a schedule.
func (a *app) completeSchedules(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, func(ctx context.Context, c *kagzi.Client) (names []string, err error) {
		all, err := c.ListSchedules(ctx, kagzi.ScheduleFilter{})
		for _, s := range all {
			names = append(names, s.Name)
		}
		return names, err
	})
}

// completeWorkers completes the ID of a worker that is not offline.
func (a *app) completeWorkers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, func(ctx context.Context, c *kagzi.Client) (ids []string, err error) {
		all, _, err := c.Workers(ctx, kagzi.WorkerFilter{Status: []string{"ONLINE", "DRAINING"}})
		for _, w := range all {
			ids = append(ids, cobra.CompletionWithDesc(w.ID, w.Hostname))
		}
		return ids, err
	})
}

// complete asks the database for the values of a first argument. A shell sees no errors: it completes nothing then.
func (a *app) complete(cmd *cobra.Command, args []string, ask func(context.Context, *kagzi.Client) ([]string,
	error),
) ([]string, cobra.ShellCompDirective) {
	const none = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, none
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	c, err := a.client(ctx)
	if err != nil {
		return nil, none
	}
	values, err := ask(ctx, c)
	if err != nil {
		return nil, none
	}
	return values, none
}
