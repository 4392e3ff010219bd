package flow

import (
	"context"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/changes"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/internal/deeds"
)

// Keys returns kagzi keys.
func Keys(p *command.Program) *cobra.Command {
	c := &cobra.Command{
		Use:     "keys",
		Aliases: []string{"key"},
		Short:   "List the keys of a queue, and set their limits",
		Long:    `A key says for whom a run works, such as a tenant. The limits of a queue may count by key.`,
		Example: `  kagzi keys list --queue shop --order longest-waiting
  kagzi keys set tenant-7 --queue shop --max-running 5`,
	}
	c.AddCommand(keysList(p), keysSet(p))
	return c
}

// keyOrders are the names of the orders in --order.
var keyOrders = map[string]admin.KeyOrder{
	"name": admin.ByKey, "fullest": admin.Fullest,
	"longest-waiting": admin.LongestWaiting,
}

func keysList(p *command.Program) *cobra.Command {
	var f admin.KeyFilter
	var order string
	var all bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List keys of a queue, or groups, with the use of their limits",
		Long: `List shows the keys of a queue that have limits of their own, or runs that a worker has looked for;
--groups shows the groups of the namespace instead. WAITING is how many due runs wait for a slot.`,
		Example: `  kagzi keys list --queue shop
  kagzi keys list --queue shop --order longest-waiting --limit 10
  kagzi keys list --groups`,
		Args: command.Exactly(),
	}
	fs := c.Flags()
	fs.StringVarP(&f.Queue, "queue", "q", "", "the queue `NAME`")
	fs.BoolVar(&f.Groups, "groups", false, "groups in place of the keys of a queue")
	fs.StringVar(&f.Prefix, "prefix", "", "only keys that begin with `TEXT`")
	fs.StringVar(&order, "order", "name", "`ORDER`: name, fullest, longest-waiting")
	fs.IntVar(&f.Limit, "limit", 100, "at most `N` keys, up to 1000")
	fs.BoolVar(&all, "all", false, "all keys, without the --limit; by name only")
	_ = c.RegisterFlagCompletionFunc("order", cobra.FixedCompletions([]string{"name", "fullest", "longest-waiting"},
		cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		var known bool
		f.Order, known = keyOrders[strings.ReplaceAll(order, "_", "-")]
		switch {
		case !known:
			return command.Usagef("--order is %q: give name, fullest or longest-waiting", order)
		case f.Queue == "" && !f.Groups:
			return command.Usagef("--queue is missing: give the queue of the keys, or --groups for the groups of the " +
				"namespace")
		case f.Queue != "" && f.Groups:
			return command.Usagef("--queue and --groups exclude each other: a group belongs to no queue")
		case all && f.Order != admin.ByKey:
			return command.Usagef("--all is for --order name: only that order has pages")
		case f.Limit < 1 || f.Limit > 1000:
			return command.Usagef("--limit is %d: give 1 to 1000, or --all", f.Limit)
		}
		client, err := p.Client(cmd.Context())
		if err != nil {
			return err
		}
		title, none := "KEY", "No key matches."
		if f.Groups {
			title, none = "GROUP", "No group matches."
		}
		l := command.Listing[admin.KeyInfo]{
			Columns: []screen.Column{
				{Title: title},
				{Title: "SLOTS HELD", Right: true},
				{Title: "WAITING", Right: true},
				{Title: "WAITS SINCE"},
				{Title: "OWN LIMITS", Min: 10},
				{Title: "NEXT LOOK", Drop: 1},
			},
			Row: func(k admin.KeyInfo) []any {
				return []any{
					k.Key, k.Running, k.Waiting, p.Screen.Time(k.WaitingSince), deeds.KeyText(k.Limits, screen.Short),
					p.Screen.Time(k.NextLook),
				}
			},
			None: none,
		}
		n, err := l.Print(p, listKeys(cmd.Context(), client, f, all))
		if err == nil && n == 0 {
			selection.WarnOfNames(cmd.Context(), p, client, kagzi.RunFilter{Queue: f.Queue})
		}
		return err
	}
	return c
}

// listKeys returns the keys that f selects: one page, or all.
func listKeys(ctx context.Context, c *kagzi.Client, f admin.KeyFilter, all bool) iter.Seq2[admin.KeyInfo, error] {
	if !all {
		return func(yield func(admin.KeyInfo, error) bool) {
			page, err := admin.New(c).Keys.List(ctx, f)
			if err != nil {
				yield(admin.KeyInfo{}, err)
				return
			}
			command.Each(page)(yield)
		}
	}
	return command.Pages(0, func(n int, last *admin.KeyInfo) ([]admin.KeyInfo, error) {
		f.Limit = n
		if last != nil {
			f.After = last.Key
		}
		return admin.New(c).Keys.List(ctx, f)
	})
}

func keysSet(p *command.Program) *cobra.Command {
	return changes.Command(p, changes.Spec{
		Deed: "set key", Use: "set KEY --queue NAME", Args: []string{"KEY"}, Fills: "key",
		Example: `  kagzi keys set tenant-7 --queue shop --max-running 5 --rate 2/s
  kagzi keys set tenant-7 --queue shop --weight 3
  kagzi keys set tenant-7 --queue shop --clear`,
	})
}
