package cli

import "github.com/spf13/cobra"

// Root returns the command kagzi with all of its commands.
func Root() *cobra.Command { return (&app{}).root() }
