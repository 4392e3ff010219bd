package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/dashboard"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/database"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/fleet"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/flow"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/runs"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/schedules"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/sight"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/top"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/topics"
)

// The groups of the commands in the help of kagzi.
const (
	groupRuns     = "runs"
	groupFleet    = "fleet"
	groupHealth   = "health"
	groupDatabase = "database"
)

const rootHelp = `Kagzi shows and changes the runs, schedules and workers of a Kagzi database.

It finds the database by --database-url, by KAGZI_DATABASE_URL, or by Postgres's own variables (PGHOST, PGUSER,
PGDATABASE, PGSERVICE and so on). A password belongs into a variable, into ~/.pgpass or a service file: others can
read the arguments of a program.

A command prints tables. With --json it prints JSON, with times in RFC 3339: a list is an array with one element in
each line. Messages and errors go to stderr. Colours and relative times ("3m ago") appear at a terminal only.

Exit codes:
  0  the command did what it says, also if it skipped all runs that flags selected
  1  it failed, or the run that it waited for did, or the database user lacks a right
  2  wrong flags or arguments
  3  there is no such run, schedule, worker or limit
  4  health, stuck, doctor or migrate status found something to act on; or, of any command,
     the database is away, lets nobody in, or takes no writes
  5  --timeout has passed
  130  interrupted by Ctrl-C`

func root(p *command.Program) *cobra.Command {
	root := &cobra.Command{
		Use:   "kagzi",
		Short: "Show and change the workflows that a Postgres database holds",
		Long:  rootHelp,
		Example: `  export KAGZI_DATABASE_URL=postgres://app:secret@localhost:5432/shop
  kagzi migrate up
  kagzi runs count --status failed --ended-since 1h --by kind,step
  kagzi runs get order-42
  kagzi top`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		bad, ok := errors.AsType[*pflag.InvalidValueError](err)
		if !ok {
			return command.Usagef("%s: %s --help lists the flags", strings.TrimSpace(err.Error()), cmd.CommandPath())
		}
		switch f := bad.GetFlag(); f.Value.Type() {
		case "duration":
			return command.Usagef("--%s is %q: give a duration, such as 30s, 2h or 7d", f.Name, bad.GetValue())
		case "int", "int64":
			return command.Usagef("--%s is %q: give a number", f.Name, bad.GetValue())
		default:
			return command.Usagef("%s", strings.TrimSpace(err.Error()))
		}
	})
	p.Flags(root)
	root.AddGroup(
		&cobra.Group{ID: groupRuns, Title: "Runs:"},
		&cobra.Group{ID: groupHealth, Title: "Is all well?"},
		&cobra.Group{ID: groupFleet, Title: "Workers and flow control:"},
		&cobra.Group{ID: groupDatabase, Title: "The database and this program:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	tenants := sight.Namespaces(p)
	tenants.AddCommand(database.Move(p))
	add(groupRuns, runs.Command(p), schedules.Command(p), topics.Topics(p), topics.Consumers(p), runs.Replay(p))
	add(groupHealth, sight.Health(p), sight.Stuck(p), sight.Stats(p), top.Command(p), sight.Audit(p),
		tenants, dashboard.Command(p), sight.Doctor(p))
	add(groupFleet, fleet.Workers(p), fleet.Drain(p), flow.Queues(p), flow.Keys(p), flow.Limits(p), flow.Pauses(p),
		flow.Pause(p), flow.Unpause(p))
	add(groupDatabase, database.Migrate(p), version(p))
	root.SetHelpCommandGroupID(groupDatabase)
	root.SetCompletionCommandGroupID(groupDatabase)
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	finish(root)
	return root
}

// helpWidth is how wide the help is.
const helpWidth = 88

// usageTemplate changes cobra's: flags have narrow lines, and commands that only have others below them are not shown
// as runnable.
func usageTemplate(t string) string {
	return strings.NewReplacer(
		".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth),
		"{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}",
	).Replace(t)
}

// fill breaks the paragraphs of a text into lines of the help's width. Lines that begin with a space stay as they are.
func fill(text string) string {
	var out []string
	var open bool // the last line of out goes on
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' {
			out, open = append(out, line), false
			continue
		}
		for word := range strings.FieldsSeq(line) {
			if last := len(out) - 1; open && len(out[last])+1+len(word) <= helpWidth {
				out[last] += " " + word
				continue
			}
			out, open = append(out, word), true
		}
	}
	return strings.Join(out, "\n")
}

// finish breaks the help of the commands below c into lines, and makes them refuse arguments that mean nothing.
func finish(c *cobra.Command) {
	c.Long = fill(c.Long)
	for _, sub := range c.Commands() {
		finish(sub)
	}
	if !c.HasSubCommands() || c.Runnable() {
		return
	}
	command.OnlyCommands(c)
}

// refuseUnknown makes cobra's own commands refuse arguments that name no command: they show a help, and succeed.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			command.OnlyCommands(c)
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				at := root
				for _, name := range args {
					i := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool {
						return c.Name() == name || c.HasAlias(name)
					})
					if i < 0 {
						return command.Unknown(at, name)
					}
					at = at.Commands()[i]
				}
				return nil
			}
		}
	}
}
