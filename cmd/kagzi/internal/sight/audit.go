package sight

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
)

// auditKinds are the values of --kind.
var auditKinds = []string{"run", "schedule", "queue", "key", "group", "workflow", "all", "limit", "worker", "consumer"}

// allAudited returns the entries of the audit log that f selects, the newest first; f.Limit zero means all.
func allAudited(ctx context.Context, c *kagzi.Client, f admin.AuditFilter) iter.Seq2[admin.AuditEntry, error] {
	return command.Pages(f.Limit, func(n int, last *admin.AuditEntry) ([]admin.AuditEntry, error) {
		f.Limit = n
		if last != nil {
			f.After = last.ID
		}
		return admin.New(c).Audit(ctx, f)
	})
}

// Audit returns kagzi audit.
func Audit(p *command.Program) *cobra.Command {
	var f admin.AuditFilter
	var kind, since, until string
	c := &cobra.Command{
		Use:   "audit",
		Short: "List who changed what, when and why",
		Long: `Audit lists the changes that people and programs made, the newest first: of runs, schedules, limits,
pauses, workers and consumers, and messages whose senders gave a name. The log keeps them for 90 days, or for
CoordinatorConfig.KeepAudit. kagzi runs log shows the changes of one run.`,
		Example: `  kagzi audit --since 24h
  kagzi audit --name order-42
  kagzi audit --kind schedule --actor ada`,
		Args: command.Exactly(),
	}
	fs := c.Flags()
	fs.StringVar(&kind, "kind", "", "only changes of this `KIND`: "+strings.Join(auditKinds, ", "))
	fs.StringVar(&f.Name, "name", "", "only changes of what has this `NAME`; of a run, its ID or run ID")
	fs.StringVarP(&f.Queue, "queue", "q", "", "only changes of keys of the queue `NAME`")
	fs.StringVar(&f.Action, "action", "", "only this `ACTION`, such as cancelled or triggered")
	fs.StringVar(&f.Actor, "actor", "", "only changes that `NAME` has made")
	fs.StringVar(&since, "since", "", "only changes since this `TIME`: 7d ago, or 2026-09-01T00:00:00Z")
	fs.StringVar(&until, "until", "", "only changes before this `TIME`")
	fs.IntVar(&f.Limit, "limit", 100, "at most `N` changes; 0 means all")
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(auditKinds, cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := command.NotNegative(fs, "limit"); err != nil {
			return err
		}
		if kind != "" && !slices.Contains(auditKinds, kind) {
			return command.Usagef("--kind is %q: give one of %s", kind, strings.Join(auditKinds, ", "))
		}
		f.Kind = admin.AuditKind(kind)
		var err error
		if f.Since, err = command.ParsePast("since", since, p.Screen.Now()); err != nil {
			return err
		}
		if f.Until, err = command.ParsePast("until", until, p.Screen.Now()); err != nil {
			return err
		}
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		l := command.Listing[admin.AuditEntry]{
			Columns: []screen.Column{
				{Title: "TIME"},
				{Title: "ACTION"},
				{Title: "OF", Min: 16},
				{Title: "ACTOR", Min: 8},
				{Title: "CHANGES", Min: 16},
				{Title: "REASON", Min: 16},
			},
			Row: func(e admin.AuditEntry) []any {
				return []any{p.Screen.Time(e.At), e.Action, audited(e), e.Actor, tables.Changes(e.Changes), e.Reason}
			},
			None: "Nobody has changed anything that matches.",
		}
		_, err = l.Print(p, allAudited(cmd.Context(), client, f))
		return err
	}
	return c
}

// audited says in words what an entry is about.
func audited(e admin.AuditEntry) string {
	name := e.Name
	if e.ExternalID != "" {
		name = string(e.ExternalID)
	}
	text := strings.TrimSpace(string(e.Kind) + " " + name)
	if e.Kind == admin.AuditAll {
		text = "all runs"
	}
	if e.Queue != "" {
		text += " of queue " + e.Queue
	}
	return text
}
