// Package command is what all commands of kagzi share: flags, connection, outputs, questions, exit codes. It knows no
// command.
package command

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

// A Program is one execution of kagzi.
type Program struct {
	World  World
	Screen *screen.Screen // the outputs, as the flags want them
	JSON   bool           // --json
	DB     Database

	namespace string
	noColor   bool
	timeout   time.Duration
	cancel    context.CancelFunc // of the --timeout
}

// New returns a program whose flags are not read yet.
func New(w World) *Program {
	return &Program{World: w, Screen: w.newScreen(false), DB: Database{world: w}}
}

// Flags gives the flags that all commands have to the command above them, root.
func (p *Program) Flags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&p.DB.url, "database-url", "", "the database, as `URL` or key=value; default: "+
		"KAGZI_DATABASE_URL, or PGHOST and so on")
	flags.StringVarP(&p.namespace, "namespace", "n", "", "the `NAME` of the namespace; default: KAGZI_NAMESPACE, or "+
		"\"default\"")
	flags.BoolVar(&p.JSON, "json", false, "print JSON")
	flags.BoolVar(&p.noColor, "no-color", false, "print no colours; so does the variable NO_COLOR")
	flags.Var((*Duration)(&p.timeout), "timeout", "end the command after this `DURATION`, such as 30s; 0 means "+
		"no limit")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		p.Screen = p.World.newScreen(p.noColor)
		if p.timeout > 0 {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), p.timeout, errTimeout)
			p.cancel = cancel
			cmd.SetContext(ctx)
		}
		return nil
	}
}

var errTimeout = errors.New("--timeout has passed")

// Namespace returns the namespace that the command is about.
func (p *Program) Namespace() string {
	return cmp.Or(p.namespace, p.World.env("KAGZI_NAMESPACE"), "default")
}

// Patience bounds the look-ups that only help: see [World].
func (p *Program) Patience() time.Duration { return cmp.Or(p.World.Patience, 2*time.Second) }

// Interactive reports whether a person can answer questions.
func (p *Program) Interactive() bool { return p.World.Columns(p.World.In) > 0 && p.Screen.Live > 0 }

// Close closes what the command has opened.
func (p *Program) Close() {
	if p.cancel != nil {
		p.cancel()
	}
	p.DB.Close()
}
