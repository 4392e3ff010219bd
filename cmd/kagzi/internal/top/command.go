package top

import (
	"context"
	"errors"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/fleet"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/deeds"
)

// newestFailures is how many failed runs top shows.
const newestFailures = 50

// Command returns kagzi top.
func Command(p *command.Program) *cobra.Command {
	every := time.Second
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch queues, workers and failures live",
		Long: `Top shows the health of the namespace, the queues, the workers and the newest failures, and refreshes
them each second. It needs a terminal. While the database is away it says since when, and shows the old figures,
with their age.

Keys: 1 to 4 or tab choose the table, s sorts it by the next column, r reverses it, the arrows scroll, p freezes the
view, ? explains it, q quits.`,
		Example: `  kagzi top
  kagzi top --interval 5s`,
		Args: command.Exactly(),
	}
	c.Flags().Var((*command.Duration)(&every), "interval", "the `DURATION` between two refreshes")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if every < 100*time.Millisecond {
			return command.Usagef("--interval is %s: give at least 100ms", every)
		}
		if p.Screen.Width == 0 || p.World.Columns(p.World.In) == 0 {
			return command.Usagef("kagzi top needs a terminal: kagzi health and kagzi stats print the state once")
		}
		pool, err := p.DB.Dial(cmd.Context()) // the database may be away
		if err != nil {
			return p.DB.ConnectionError(err)
		}
		client, err := p.ClientOf(pool)
		if err != nil {
			return err
		}
		model := New(cmd.Context(), Config{
			Source: snapshot(p, client), Namespace: p.Namespace(),
			Every: every, Color: p.Screen.Color, Now: time.Now,
		})
		_, err = tea.NewProgram(model, tea.WithContext(cmd.Context()), tea.WithInput(p.World.In),
			tea.WithOutput(p.World.Out), tea.WithWindowSize(p.Screen.Width, 24)).Run()
		if errors.Is(err, tea.ErrInterrupted) || cmd.Context().Err() != nil {
			return nil // Ctrl-C is a way to quit
		}
		return err
	}
	return c
}

// snapshot returns the source of top.
func snapshot(p *command.Program, c *kagzi.Client) Source {
	return func(ctx context.Context) (s Snapshot, err error) {
		if s.Health, err = admin.New(c).Health(ctx); err != nil {
			return s, err
		}
		if db := s.Health.Check("database"); db.Status == health.Unhealthy {
			return s, errors.New(p.DB.Redact(db.Detail))
		}
		for i := range s.Health.Checks {
			s.Health.Checks[i].Detail = deeds.InCommands(s.Health.Checks[i].Detail)
		}
		for w, err := range fleet.All(ctx, c, admin.WorkerFilter{Status: []string{"ONLINE", "DRAINING"}}) {
			if err != nil {
				return s, p.DB.ConnectionError(err)
			}
			s.Workers = append(s.Workers, w)
		}
		if s.Stats, err = admin.New(c).Stats(ctx); err == nil {
			s.Failures, err = c.List(ctx, kagzi.RunFilter{
				Status: []kagzi.Status{kagzi.StatusFailed},
				Limit:  newestFailures,
			})
		}
		return s, p.DB.ConnectionError(err)
	}
}
