package database

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/migrations"
)

func rolesCommand(p *command.Program) *cobra.Command {
	var prefix string
	c := &cobra.Command{
		Use:   "roles",
		Short: "Print a script that grants workers, clients and viewers their rights",
		Long: `Roles prints a script for psql that creates the roles kagzi_worker, kagzi_client and kagzi_viewer, and
grants each what it needs and no more. It needs no database. Send it after each migration, as the owner of the
tables.`,
		Example: `  kagzi migrate roles | psql -v ON_ERROR_STOP=1 "$KAGZI_DATABASE_URL"
  kagzi migrate roles --prefix shop`,
		Args: command.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			script, err := migrations.Roles(prefix)
			if err != nil {
				return command.Usagef("%s", words.OneLine(err.Error()))
			}
			if p.JSON {
				return p.PrintJSON(map[string]any{"prefix": prefix, "sql": script})
			}
			_, err = fmt.Fprint(p.Screen.Out, script)
			return err
		},
	}
	c.Flags().StringVar(&prefix, "prefix", migrations.DefaultPrefix, "the `PREFIX` of the roles' names, because the "+
		"databases of a server share their roles")
	return c
}
