// Package cli has the commands of kagzi, one file for each noun. They use the public API of package kagzi, and send no
// SQL.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

// A World is what surrounds the program.
type World struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) (string, bool)

	Codec  kagzi.Codec  // nil: JSON
	Sealer kagzi.Sealer // nil: none

	// Columns returns the width of the terminal that In, Out or Err is, zero if it is none.
	Columns func(stream any) int
}

// env returns a variable of the environment, empty if it is not set.
func (w World) env(name string) string {
	v, _ := w.Env(name)
	return v
}

// Run executes the command that args are, and returns the exit code of the program. It returns once the command has
// ended, or soon after ctx has.
func Run(ctx context.Context, args []string, w World) int {
	a := &app{world: w}
	defer a.close()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(w.In)
	root.SetOut(w.Out)
	root.SetErr(w.Err)
	refuseUnknown(root)            // once it has its outputs
	a.screen = newScreen(w, false) // until the flags are read
	_, err := root.ExecuteContextC(ctx)
	return a.end(ctx, err)
}

// newScreen returns the screen that the world's outputs are.
func newScreen(w World, noColor bool) *screen.Screen {
	s := &screen.Screen{Out: w.Out, Err: w.Err, Width: w.Columns(w.Out), Live: w.Columns(w.Err), Now: time.Now}
	_, never := w.Env("NO_COLOR") // https://no-color.org
	s.Color = s.Width > 0 && !noColor && (!never || w.env("NO_COLOR") == "") && w.env("TERM") != "dumb"
	return s
}

// Columns is World.Columns of this process's streams.
func Columns(w any) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return 80
	}
	return width
}

// interactive reports whether a person can answer questions.
func (a *app) interactive() bool { return a.world.Columns(a.world.In) > 0 && a.screen.Live > 0 }

var errTimeout = errors.New("--timeout has passed")
