package runs

import (
	"github.com/spf13/cobra"

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
				case m.Expired:
					read = screen.Cell{Text: "expired"}
				case m.ReadBy == "":
					read = screen.Cell{Text: "unread", Tone: screen.Warning}
				}
				name := m.Signal
				if m.Request {
					name = "request " + name
				}
				switch {
				case !m.Request || m.ReadBy == "":
				case m.AnsweredAt.IsZero():
					read.Text, read.Tone = read.Text+", open", screen.Warning
				default:
					read.Text += ", answered"
				}
				return []any{
					name, m.ID, p.Screen.Time(m.ReceivedAt), read, m.SentBy, tables.Brief(p.Screen, m.Payload),
				}
			},
			None: "The run has no such message.",
		}
		_, err = l.Print(p, command.Pages(limit, func(n int, last *admin.MessageInfo) ([]admin.MessageInfo, error) {
			f.Limit = n
			if last != nil {
				f.After = last.ID
			}
			return admin.New(client).Messages.List(cmd.Context(), ref, f)
		}))
		return err
	}
	return c
}
