package database

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/namespaces"
)

// otherVariable is the environment variable with the database to move to.
const otherVariable = "KAGZI_TO_DATABASE_URL"

// Move returns kagzi namespaces move.
func Move(p *command.Program) *cobra.Command {
	var m moving
	c := &cobra.Command{
		Use:   "move",
		Short: "Move a namespace to another database",
		Long: `Move takes the namespace that --namespace names, with all its runs and settings, to the database of
--to. Both need the same schema version, and the rights of the tables' owner.

It pauses the namespace, waits for executions under way, and copies. Until it has ended, starts are
refused. Afterwards the first database refuses whatever programs write in the namespace: let them use the
other one. If the command is killed, call it again, which ends the move, or give --cancel.

It asks before, unless --yes is given. A password belongs into ` + otherVariable + `, because others can
read the arguments of a program.`,
		Example: `  kagzi --namespace acme namespaces move --to postgres://eu-2/app
  kagzi -n acme namespaces move --wait 1m --yes`,
		Args: command.Exactly(),
	}
	c.Flags().StringVar(&m.to, "to", "", "the other database, as `URL` or key=value; default: "+otherVariable)
	c.Flags().Var((*command.Duration)(&m.wait), "wait", "how long executions under way may take to their next step, "+
		"such as 30s; 0 means 10s")
	c.Flags().BoolVar(&m.cancel, "cancel", false, "end a move that was interrupted before the rows had arrived")
	c.Flags().BoolVarP(&m.yes, "yes", "y", false, "do not ask")
	c.RunE = func(cmd *cobra.Command, _ []string) error { return m.run(cmd, p) }
	return c
}

// moving has the flags of kagzi namespaces move.
type moving struct {
	to          string
	wait        time.Duration
	cancel, yes bool
}

func (m *moving) run(cmd *cobra.Command, p *command.Program) error {
	ctx := cmd.Context()
	other, err := p.Other(m.to, "--to", otherVariable)
	if err != nil {
		return err
	}
	defer other.Close()
	pool, err := other.Open(ctx)
	if err != nil {
		return err
	}
	to, err := p.ClientOf(pool)
	if err != nil {
		return err
	}
	from, err := p.Client(ctx)
	if err != nil {
		return err
	}
	question := fmt.Sprintf("Move namespace %s from %s to %s? Starts are refused meanwhile.", p.Namespace(),
		p.DB.Server(), other.Server())
	if m.cancel {
		question = fmt.Sprintf("Let namespace %s go on at %s?", p.Namespace(), p.DB.Server())
	}
	if sure, err := p.Sure(ctx, m.yes, question); err != nil || !sure {
		return err
	}
	if m.cancel {
		if err := namespaces.CancelMove(ctx, from, to); err != nil {
			return err
		}
		return p.Done(map[string]any{"namespace": p.Namespace()}, "Namespace %s goes on.", p.Namespace())
	}
	moved, err := namespaces.Move(ctx, from, to, namespaces.MoveConfig{Wait: m.wait})
	if err != nil {
		return err
	}
	return p.Done(aMove{p.Namespace(), moved}, "Moved namespace %s: %d rows; it was away for %s.", p.Namespace(),
		moved.Rows, moved.Away.Round(time.Millisecond))
}

// aMove is the JSON of a move.
type aMove struct {
	Namespace string `json:"namespace"`
	namespaces.Moved
}
