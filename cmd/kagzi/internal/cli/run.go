// Package cli is the command kagzi with all of its commands. They use the public API of package kagzi, and send no SQL.
package cli

import (
	"context"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
)

// Run executes the command that args are, and returns the exit code of the program. It returns once the command has
// ended, or soon after ctx has.
func Run(ctx context.Context, args []string, w command.World) int {
	p := command.New(w)
	defer p.Close()
	root := root(p)
	root.SetArgs(args)
	root.SetIn(w.In)
	root.SetOut(w.Out)
	root.SetErr(w.Err)
	refuseUnknown(root) // once it has its outputs
	_, err := root.ExecuteContextC(ctx)
	return int(p.End(ctx, err))
}
