package cli

import (
	"time"

	"github.com/spf13/cobra"
)

func init() { nameTimeout, completeTimeout = time.Minute, time.Minute }

// Root returns the command kagzi with all of its commands.
func Root() *cobra.Command { return (&app{}).root() }
