package runs

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
)

func messagesCommand(p *command.Program) *cobra.Command {
	var run selection.RunArg
	var f admin.MessageFilter
	var limit int
	c := &cobra.Command{
		Use:   "messages RUN",
		Short: "List the messages that a run has got, read and unread",
		Long: `Messages shows the messages of a run by the names of their signals, and those of one signal in the order
in which the run reads them. READ BY is the wait that read a message. A message that stays unread may have a
misspelt name. One that was set aside does not decode in the run's program: once other code is deployed, kagzi runs
redeliver-message gives it to the run again, and kagzi runs drop-message removes it.`,
		Example: `  kagzi runs messages order-42
  kagzi runs messages order-42 --unread`,
		Args: run.Args(0),
	}
	run.Flags(c)
	c.Flags().StringVar(&f.Signal, "signal", "", "only messages of the signal `NAME`, with its key: approved/call-7")
	c.Flags().BoolVar(&f.Unread, "unread", false, "only messages that the run has not read")
	c.Flags().IntVar(&limit, "limit", 1000, "at most `N` messages; 0 means all")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ref, _ := run.Take(args)
		if limit < 0 {
			return command.Usagef("--limit is %d: give a positive number, or 0 for all", limit)
		}
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		l := command.Listing[admin.MessageInfo]{
			Columns: []screen.Column{
				{Title: "SIGNAL"},
				{Title: "MESSAGE ID", Min: 12},
				{Title: "RECEIVED"},
				{Title: "READ BY", Min: 8},
				{Title: "SENT BY", Min: 12, Drop: 1},
				{Title: "PAYLOAD", Min: 12},
			},
			Row: func(m admin.MessageInfo) []any {
				read := screen.Cell{Text: m.ReadBy}
				switch {
				case m.SetAside != "":
					read = screen.Cell{Text: "set aside: " + screen.Line(m.SetAside), Tone: screen.Warning}
				case m.ReadBy == "":
					read = screen.Cell{Text: "unread", Tone: screen.Warning}
				}
				return []any{
					m.Signal, m.ID, p.Screen.Time(m.ReceivedAt), read, m.SentBy, tables.Brief(p.Screen, m.Payload),
				}
			},
			None: "The run has no such message.",
		}
		_, err = l.Print(p, command.Pages(limit, func(n int, last *admin.MessageInfo) ([]admin.MessageInfo, error) {
			f.Limit = n
			if last != nil {
				f.After = last.ID
			}
			return admin.New(client).Messages(cmd.Context(), ref, f)
		}))
		return err
	}
	return c
}

func redeliverCommand(p *command.Program) *cobra.Command {
	c, by := messageCommand(p, "redelivered", func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref, id kagzi.ID,
		opts ...kagzi.ChangeOption,
	) error {
		return admin.New(c).RedeliverMessage(ctx, ref, id, opts...)
	})
	c.Use, c.Short = "redeliver-message RUN MESSAGE-ID", "Give a message that did not decode to its run again"
	c.Long =
		`Redeliver-message gives a message that was set aside, because it did not decode, to its run again, as if it
came now. Deploy code that decodes it before. kagzi runs messages shows the messages and why they were set aside.` +
			"\n" + selection.RunHelp
	c.Example = `  kagzi runs redeliver-message order-42 click-7 --reason "release 7 reads it"`
	by.Flags(c.Flags())
	return c
}

func dropCommand(p *command.Program) *cobra.Command {
	c, by := messageCommand(p, "dropped", func(ctx context.Context, c *kagzi.Client, ref kagzi.Ref, id kagzi.ID,
		opts ...kagzi.ChangeOption,
	) error {
		return admin.New(c).DropMessage(ctx, ref, id, opts...)
	})
	c.Use, c.Short = "drop-message RUN MESSAGE-ID", "Remove a message that a run has not read"
	c.Long =
		`Drop-message removes a message that was set aside, because it did not decode, or, while no worker executes the
run, any that it has not read. A message with the same ID may be sent again.` + "\n" + selection.RunHelp
	c.Example = `  kagzi runs drop-message order-42 click-7 --reason "sent by mistake"`
	by.Flags(c.Flags())
	return c
}

// messageCommand returns a command that changes a message of a run, without its texts, and the flags that it reads.
// past is what it says.
func messageCommand(p *command.Program, past string, do func(context.Context, *kagzi.Client, kagzi.Ref, kagzi.ID,
	...kagzi.ChangeOption) error,
) (*cobra.Command, *command.Cause) {
	var run selection.RunArg
	by := &command.Cause{}
	c := &cobra.Command{Args: run.Args(1, "MESSAGE-ID")}
	c.Flags().StringVar(&run.ID, "id", "", "the run with this `ID`, in place of the argument RUN")
	c.RunE = p.WithClient(func(ctx context.Context, client *kagzi.Client, args []string) error {
		ref, rest := run.Take(args)
		if err := do(ctx, client, ref, kagzi.ID(rest[0]), by.Options()...); err != nil {
			return err
		}
		return p.Done(map[string]any{"run": ref, "message": rest[0]}, "%s message %s of %s", past, rest[0], ref)
	})
	return c, by
}
