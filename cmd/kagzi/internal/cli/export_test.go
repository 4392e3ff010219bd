package cli

import (
	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
)

// Root returns the command kagzi with all of its commands.
func Root() *cobra.Command { return root(&command.Program{}) }
