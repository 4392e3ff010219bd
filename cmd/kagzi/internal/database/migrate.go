// Package database has the commands about the schema and the roles of the database.
package database

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/migrations"
)

// Migrate returns kagzi migrate.
func Migrate(p *command.Program) *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Create Kagzi's tables, bring them up to date, print their DDL",
		Long: `Migrate manages the tables in the schema kagzi. Applications that call kagzi.Migrate at their start need
none of this: it is for those whose programs may not create tables.`,
		Example: `  kagzi migrate status
  kagzi migrate up
  kagzi migrate sql > kagzi.sql`,
	}
	c.AddCommand(upCommand(p), statusCommand(p), sqlCommand(p), rolesCommand(p))
	return c
}

// A schemaState is what migrate status and up print as JSON.
type schemaState struct {
	// the version in the database; zero if there is none, or if this program cannot tell
	Schema  int64  `json:"schema"`
	Program int64  `json:"program"` // the version that this program brings a database to
	Fits    bool   `json:"fits"`    // the program works with the schema
	Current bool   `json:"current"` // there is nothing to migrate
	Detail  string `json:"detail"`
}

func upCommand(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Create the tables, or bring them up to date",
		Long: `Up applies the migrations that the database lacks. It is safe while workers run, and when several
processes do it at once. The user needs the right to create the schema kagzi, or must own it.`,
		Example: `  kagzi migrate up`,
		Args:    command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := p.DB.Open(cmd.Context())
			if err != nil {
				return err
			}
			bar := p.Screen.Bar("migrating", 0)
			err = kagzi.Migrate(cmd.Context(), pool)
			bar.End()
			if err != nil {
				return err
			}
			version, err := migrations.Check(cmd.Context(), pool)
			if err != nil {
				return err
			}
			state := schemaState{
				version, migrations.Version(), true, version >= migrations.Version(),
				migrations.Describe(version),
			}
			return p.Done(state, "The schema is at version %d.", version)
		},
	}
}

func statusCommand(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say whether the tables fit this program",
		Long: `Status compares the schema in the database with the one that this program needs.

It exits with 0 if there is nothing to migrate, and with 4 if there is, or if the schema does not fit.`,
		Example: `  kagzi migrate status`,
		Args:    command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			pool, err := p.DB.Open(cmd.Context())
			if err != nil {
				return err
			}
			version, err := migrations.Check(cmd.Context(), pool)
			state := schemaState{Schema: version, Program: migrations.Version(), Fits: err == nil}
			state.Current = state.Fits && version >= state.Program
			switch {
			case state.Fits:
				state.Detail = migrations.Describe(version)
			case errors.Is(err, migrations.ErrMissing), errors.Is(err, migrations.ErrOlder),
				errors.Is(err, migrations.ErrNewer), errors.Is(err, migrations.ErrEncoding):
				state.Detail = words.OneLine(words.Explain(err))
			default:
				return err
			}
			err = p.Done(state, "%s", strings.ToUpper(state.Detail[:1])+state.Detail[1:])
			if err == nil && !state.Current {
				err = command.ExitUnwell
			}
			return err
		},
	}
}

func sqlCommand(p *command.Program) *cobra.Command {
	var from, to int64
	c := &cobra.Command{
		Use:   "sql",
		Short: "Print the migrations as a script for psql",
		Long: `Sql prints a script that does the work of kagzi migrate up, to review, and to apply with psql -v
ON_ERROR_STOP=1. It needs no database. The version of a database is what kagzi migrate status says.`,
		Example: `  kagzi migrate sql | psql -v ON_ERROR_STOP=1 "$KAGZI_DATABASE_URL"
  kagzi migrate sql --from 1`,
		Args: command.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			script, err := migrations.SQL(from, to)
			if err != nil {
				return command.Usagef("%s", words.OneLine(err.Error()))
			}
			if p.JSON {
				return p.PrintJSON(map[string]any{"from": from, "to": to, "sql": script})
			}
			_, err = fmt.Fprint(p.Screen.Out, script)
			return err
		},
	}
	c.Flags().Int64Var(&from, "from", 0, "the `VERSION` that the database has; 0 is one without tables")
	c.Flags().Int64Var(&to, "to", 0, "the `VERSION` to migrate to; 0 is the one that this program needs")
	return c
}
