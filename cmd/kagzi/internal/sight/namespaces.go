package sight

import (
	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/namespaces"
)

// aNamespace is a line of kagzi namespaces.
type aNamespace struct {
	Namespace string `json:"namespace"`
}

// Namespaces returns kagzi namespaces.
func Namespaces(p *command.Program) *cobra.Command {
	c := &cobra.Command{
		Use:   "namespaces",
		Short: "List the namespaces of the database",
		Long: `Namespaces lists the namespaces that have runs, live workers, or schedules that are not paused. All other
commands are about one of them: --namespace, or KAGZI_NAMESPACE, chooses it.`,
		Example: `  kagzi namespaces
  kagzi --namespace acme health`,
		Args: command.Exactly(),
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		all, err := namespaces.List(cmd.Context(), client.Core().Store.Pool())
		if err != nil {
			return err
		}
		l := command.Listing[aNamespace]{
			Columns: []screen.Column{{Title: "NAMESPACE"}},
			Row:     func(n aNamespace) []any { return []any{n.Namespace} },
			None:    "No namespace has runs, schedules or live workers.",
		}
		_, err = l.Print(p, func(yield func(aNamespace, error) bool) {
			for _, name := range all {
				if !yield(aNamespace{name}, nil) {
					return
				}
			}
		})
		return err
	}
	return c
}
