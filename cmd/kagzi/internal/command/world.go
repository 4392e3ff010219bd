package command

import (
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
)

// A World is the program's surroundings.
type World struct {
	In       io.Reader
	Out, Err io.Writer
	Env      func(string) (string, bool)

	Codec  kagzi.Codec  // nil: JSON
	Sealer kagzi.Sealer // nil: none

	// Columns returns the width of the terminal that In, Out or Err is, zero if it is none.
	Columns func(stream any) int

	// Patience bounds the look-ups of names that only help: for a completion or a warning. Zero means 2 seconds. Tests
	// have more, as their machine may be slow.
	Patience time.Duration
}

// env returns a variable of the environment, empty if it is not set.
func (w World) env(name string) string {
	v, _ := w.Env(name)
	return v
}

// newScreen returns the screen that the world's outputs are.
func (w World) newScreen(noColor bool) *screen.Screen {
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
