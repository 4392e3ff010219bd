package sight

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/doctor"
	"github.com/kagzi/kagzi/internal/deeds"
)

// Doctor returns kagzi doctor.
func Doctor(p *command.Program) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the database, and advise how to mend what is wrong",
		Long: `Doctor examines the server's settings, its tables, connections and clock, and prints the statement or
setting that helps. It changes nothing. It is more thorough than kagzi health, and looks at the database rather than
at the work.

It exits with 4 if it finds a problem: Kagzi does not work, or does not keep a promise. Warnings do not change the
exit code.`,
		Example: `  kagzi doctor
  kagzi doctor --json | jq -r '.[] | select(.severity == "problem") | .do'`,
		Args: command.Exactly(),
	}
	c.Flags().BoolVar(&all, "all", false, "topics that are fine, too")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		pool, err := p.DB.Open(cmd.Context())
		if err != nil {
			return err
		}
		bar := p.Screen.Bar("examining the database", 0)
		found, err := doctor.Examine(cmd.Context(), pool)
		bar.End()
		if err != nil {
			return err
		}
		problems, fine := 0, 0
		for _, f := range found {
			switch f.Severity {
			case doctor.Problem:
				problems++
			case doctor.Fine:
				fine++
			}
		}
		if p.JSON {
			_, err = command.PrintArray(p.Screen.Out, command.Each(found))
		} else {
			err = printAdvice(p.Screen, found, all, fine)
		}
		if err == nil && problems > 0 {
			err = command.ExitUnwell
		}
		return err
	}
	return c
}

func printAdvice(on *screen.Screen, found []doctor.Advice, all bool, fine int) error {
	tones := map[doctor.Severity]screen.Tone{
		doctor.Problem: screen.Bad, doctor.Warning: screen.Warning,
		doctor.Unseen: screen.Faint, doctor.Fine: screen.Good,
	}
	for _, f := range found {
		if f.Severity == doctor.Fine && !all {
			continue
		}
		err := printFinding(on, tones[f.Severity], fmt.Sprintf("%-7s", f.Severity),
			fmt.Sprintf("%-17s", f.Topic), f.Finding)
		if err == nil && f.Do != "" {
			err = on.Printf("%26s→ %s", "", screen.Line(deeds.InCommands(f.Do))) // in one line, to copy
		}
		if err != nil {
			return err
		}
	}
	if all || fine == 0 {
		return nil
	}
	return on.Printf("%s", on.Paint(screen.Faint, fmt.Sprintf("%s fine; --all shows them.",
		map[bool]string{true: "1 topic is", false: fmt.Sprintf("%d topics are", fine)}[fine == 1])))
}
