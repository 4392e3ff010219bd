package changes

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/internal/deeds"
)

// ofRuns are the deeds about runs.
var ofRuns = []Spec{
	{
		Deed: "signal run", Args: []string{"SIGNAL"}, Fills: "name",
		More: `kagzi runs get shows for which signal a run waits, kagzi runs messages which messages it has got. If the
workers of the namespace have a Sealer, signal refuses: use a command line that the application makes with cli.Main.`,
		Example: `  kagzi runs signal order-42 approved --payload '{"by": "ada"}'
  kagzi runs signal order-42 approved --for call-7 --message-id approval-1`,
	},
	{
		Deed: "redeliver-message run", Args: []string{"MESSAGE-ID"}, Fills: "message",
		More:    "kagzi runs messages shows the messages and why they were set aside.",
		Example: `  kagzi runs redeliver-message order-42 click-7 --reason "release 7 reads it"`,
	},
	{
		Deed: "drop-message run", Args: []string{"MESSAGE-ID"}, Fills: "message",
		Example: `  kagzi runs drop-message order-42 click-7 --reason "sent by mistake"`,
	},
	{
		Deed: "resolve run", Args: []string{"STEP"}, Fills: "step",
		More: `kagzi runs doubts lists the steps that are in doubt. The result of a step is its JSON.`,
		Example: `  kagzi runs resolve order-42 refund --outcome happened --result '"re_77"' --reason "in the list"
  kagzi runs resolve order-42 refund --outcome did-not-happen`,
	},
	{
		Deed:    "pause run",
		More:    "To pause many runs, use kagzi pause, which takes a queue, a workflow, a key or a group.",
		Example: `  kagzi runs pause order-42 --reason "the address is wrong"`,
	},
	{
		Deed: "cancel run", More: "A repeated cancel changes nothing, and says since when the run is cancelled.",
		Example: `  kagzi runs cancel order-42 --reason "the customer called"
  kagzi runs cancel --workflow checkout --status pending --dry-run`,
	},
	{Deed: "terminate run", Example: `  kagzi runs terminate order-42 --reason "a test order"
  kagzi runs terminate --queue load-test --yes`},
	{Deed: "resume run", Example: `  kagzi runs resume order-42
  kagzi runs resume --kind unavailable --ended-since 1h --dry-run`},
	{Deed: "restart run", More: "The command prints the ID of the new run.", Example: `  kagzi runs restart order-42
  kagzi runs restart order-42 --input '{"order": 42, "retry": true}'
  kagzi runs restart --workflow report --status failed --since 1d --dry-run`},
	{
		Deed: "fork run", More: "The command prints the ID of the new run. kagzi runs steps lists the steps of a run.",
		Example: `  kagzi runs fork order-42 --step charge
  kagzi runs fork --workflow checkout --status failed --since 1h --step charge --dry-run`,
	},
	{
		Deed: "unpause run", More: "kagzi unpause ends the pauses of queues and workflows for all of their runs.",
		Example: `  kagzi runs unpause order-42
  kagzi runs unpause --metadata tenant=acme --dry-run`,
	},
	{Deed: "update run", Example: `  kagzi runs update order-42 --set-queue slow --reason "too large"
  kagzi runs update --workflow import --status pending --set-delay 2h --dry-run
  kagzi runs update order-42 --set-version 3`},
	{
		Deed: "delete run", More: "kagzi runs log still says who deleted a run, and why.",
		Example: `  kagzi runs delete order-42 --reason "the customer asked for it"
  kagzi runs delete --workflow load-test --status ended --dry-run`,
	},
}

// Runs returns the commands below kagzi runs that change runs.
func Runs(p *command.Program) (all []*cobra.Command) {
	for _, s := range ofRuns {
		all = append(all, runCommand(p, s))
	}
	return all
}

// A change is a deed to a run, or to those that flags select, as a command.
type change struct {
	p        *command.Program
	in       *input
	fills    string // the field that the argument behind RUN fills
	run      selection.RunArg
	filter   selection.Filter
	dry, yes bool
}

// runCommand returns the command of a deed about runs.
func runCommand(p *command.Program, s Spec) *cobra.Command {
	d := deeds.Find(s.Deed)
	if s.Use = strings.Join(append([]string{d.Verb, "RUN"}, s.Args...), " "); d.Many != nil {
		s.Use = d.Verb + " [RUN | flags that select runs]"
		s.More = strings.TrimSpace(s.More + `

With RUN the command changes that run at once. With flags that select runs it shows them, and asks before it changes
them; --yes does not ask. Runs that cannot be changed are skipped. --dry-run only shows what would be changed.`)
	}
	c := base(d, s)
	to := &change{p: p, in: newInput(d, c.Flags()), fills: s.Fills}
	to.run.Flags(c)
	if c.Args = to.run.Args(len(s.Args), s.Args...); d.Many != nil {
		c.Args = command.Between(0, "RUN")
		to.filter.Flags(c, 0, "change at most `N` runs, the newest; 0 means all")
		c.Flags().BoolVar(&to.dry, "dry-run", false, "show what the command would change, and change nothing")
		c.Flags().BoolVarP(&to.yes, "yes", "y", false, "do not ask")
	}
	c.RunE = to.make
	return c
}

// make changes the run that is named, or the runs that flags select.
func (to *change) make(cmd *cobra.Command, args []string) error {
	one := to.in.deed.Many == nil || len(args) > 0 || to.run.ID != ""
	filter := kagzi.RunFilter{}
	if to.in.deed.Many != nil {
		err := to.check(cmd, args, one)
		if err == nil {
			filter, err = to.filter.Runs(to.p.Screen.Now())
		}
		if err != nil {
			return err
		}
	}
	ref, err := to.named(one, args)
	if err != nil {
		return err
	}
	a, err := to.in.asked(to.p)
	if err != nil {
		return err
	}
	if a.Client, err = to.p.Client(cmd.Context()); err != nil {
		return err
	}
	a.Ref = ref
	switch {
	case !one:
		b := bulk{Program: to.p, asked: a, deed: to.in.deed, filter: filter, dry: to.dry, yes: to.yes}
		return b.run(cmd.Context())
	case to.dry:
		return to.try(cmd.Context(), a)
	}
	return to.one(cmd.Context(), a)
}

// named returns the run that is named, and fills the field with the argument behind it.
func (to *change) named(one bool, args []string) (kagzi.Ref, error) {
	if !one {
		return nil, nil
	}
	ref, rest := to.run.Take(args)
	if to.fills == "" {
		return ref, nil
	}
	if name, key, keyed := strings.Cut(rest[0], "/"); keyed && to.in.deed.Verb == "signal" {
		return nil, command.Usagef("SIGNAL is %q: write the key behind the slash as a flag, %s --for %s", rest[0],
			words.Shell(name), words.Shell(key))
	}
	to.in.values[to.fills] = rest[:1]
	return ref, nil
}

// check refuses a command that does not say what to change, or for which a person must be asked where none is.
func (to *change) check(cmd *cobra.Command, args []string, one bool) error {
	many := to.filter.Given(cmd.Flags())
	switch {
	case len(args) > 0 && to.run.ID != "":
		return command.Usagef("a run is named twice, by RUN and by --id %s: give RUN or --id, not both", to.run.ID)
	case one && many:
		return command.Usagef("a run is given, and flags that select runs: give one of them")
	case !one && !many:
		return command.Usagef("no run is given: write %s RUN, or select runs with flags such as --workflow",
			cmd.CommandPath())
	case many && to.in.values.Has("input", "new-id"):
		return command.Usagef("--input and --new-id are for one run: leave them out, and each new run has those of " +
			"its old one")
	case many && !to.dry && !to.yes && !to.p.Interactive():
		return command.Usagef("nobody can be asked, as this is no terminal: give --dry-run to see the runs, or "+
			"--yes to %s them", to.in.deed.Verb)
	}
	return nil
}

// oneChange is what a deed to one run prints as JSON.
type oneChange struct {
	Verb string      `json:"verb"`
	Run  kagzi.Ref   `json:"run"`
	New  kagzi.RunID `json:"new,omitempty"`

	DryRun bool `json:"dry_run,omitempty"` // nothing was changed, and Status is that of the run

	// of a run that was to be stopped: an active one while it is being cancelled
	Status kagzi.Status `json:"status,omitempty"`
	// it was cancelled, was being cancelled was paused before, or had the values that it was to get
	Already bool `json:"already,omitempty"`
}

// try shows what the deed would do to one run, and changes nothing. Its error is that which the deed would have.
func (to *change) try(ctx context.Context, a deeds.Asked) error {
	run, err := a.Client.Get(ctx, a.Ref)
	if err != nil {
		return err
	}
	d := to.in.deed
	so, wrong, err := d.Applies(ctx, a, run)
	change := oneChange{Verb: d.Verb, Run: a.Ref, DryRun: true, Status: run.Status, Already: so}
	switch {
	case err != nil:
		return err
	case so && d.Many.Stops:
		return to.p.Done(change, "%s was cancelled already, %s: nothing would be changed", a.Ref,
			to.p.Screen.Time(run.EndedAt))
	case so:
		return to.p.Done(change, "%s was so already: nothing would be changed", a.Ref)
	case wrong != nil:
		return wrong
	}
	return to.p.Done(change, "%s would be %s: nothing was changed", a.Ref, d.Past)
}

// one does the deed to one run.
func (to *change) one(ctx context.Context, a deeds.Asked) error {
	d := to.in.deed
	done, err := d.Run(ctx, a)
	if err != nil {
		return to.in.wrong(err)
	}
	if done.Warning != "" {
		to.p.Say("%s", done.Warning)
	}
	if done.New != "" {
		done.Said += " as run " + string(done.New)
	}
	if done.Status != "" && !done.Status.Ended() {
		done.Said += ": kagzi runs get " + a.Called() + " shows how far it is, kagzi runs terminate " + a.Called() +
			" ends it at once"
	}
	if done.Result == nil {
		done.Result = oneChange{Verb: d.Verb, Run: a.Ref, New: done.New, Status: done.Status, Already: done.Already}
	}
	return to.p.Done(done.Result, "%s", done.Said)
}
