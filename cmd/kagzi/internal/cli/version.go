package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/migrations"
)

// A versionReport is what version prints as JSON.
type versionReport struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Schema  int64  `json:"schema"` // that this program brings a database to
	Go      string `json:"go"`
}

func version(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long: `Version prints the version of this program, of the schema that it needs, and of Go. It needs no
database.`,
		Example: `  kagzi version`,
		Args:    command.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := versionReport{Version: "unknown", Schema: migrations.Version(), Go: runtime.Version()}
			if info, ok := debug.ReadBuildInfo(); ok {
				v.Version = info.Main.Version
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Commit = s.Value
					}
				}
			}
			commit := ""
			if v.Commit != "" {
				commit = ", commit " + v.Commit
			}
			return p.Done(v, "kagzi %s%s, schema %d, %s", v.Version, commit, v.Schema, v.Go)
		},
	}
}
