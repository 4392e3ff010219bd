package changes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/screen"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/selection"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/tables"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/words"
	"github.com/kagzi/kagzi/internal/deeds"
)

// A bulkChange is what a verb for a filter prints as JSON.
type bulkChange struct {
	Verb    string                      `json:"verb"`
	DryRun  bool                        `json:"dry_run"`
	Matched int                         `json:"matched"`
	Changed []kagzi.RunID               `json:"changed"` // with dry_run, those that would be changed
	New     map[kagzi.RunID]kagzi.RunID `json:"new,omitempty"`
	Skipped map[kagzi.RunID]string      `json:"skipped,omitempty"` // with the reason
}

// shown is how many runs of a bulk people see before they decide.
const shown = 20

// A bulk is a deed to the runs that a filter selects.
type bulk struct {
	*command.Program
	deed     deeds.Deed
	asked    deeds.Asked
	filter   kagzi.RunFilter
	dry, yes bool

	again  []kagzi.RunID // children that could not be deleted before their parents
	second bool          // this is the pass for them
}

// run asks the database what the verb would change, shows it, and changes exactly these runs: none that has come since.
func (b *bulk) run(ctx context.Context) error {
	if len(b.filter.Status) == 0 {
		b.filter.Status = b.deed.Many.To
	}
	bar := b.Screen.Bar("looking for runs to "+b.deed.Verb, 0)
	would, err := b.deed.Many.Dry(ctx, b.asked, b.filter)
	bar.End()
	if err != nil {
		return err
	}
	if would.Matched == 0 {
		selection.WarnOfNames(ctx, b.Program, b.asked.Client, b.filter)
	}
	out := bulkChange{
		Verb: b.deed.Verb, DryRun: true, Matched: would.Matched,
		Changed: append([]kagzi.RunID{}, would.Changed...), Skipped: map[kagzi.RunID]string{},
	}
	for id, reason := range would.Skipped {
		out.Skipped[id] = words.OneLine(reason.Error())
	}
	if !b.JSON && (b.dry || !b.yes) {
		if err := b.show(ctx, out); err != nil {
			return err
		}
	}
	switch {
	case b.dry && b.JSON:
		return b.PrintJSON(out)
	case b.dry:
		return nil
	case len(would.Changed) > 0 && !b.yes:
		sure, err := b.Confirm(ctx, fmt.Sprintf("%s %s?", capital(b.deed.Verb), countRuns(len(would.Changed))))
		if err != nil {
			return err
		}
		if !sure {
			b.Say("Nothing was changed.")
			return nil
		}
	}
	out.DryRun, out.Changed = false, []kagzi.RunID{}
	err = b.apply(ctx, would.Changed, &out)
	slices.Sort(out.Changed)
	slices.Reverse(out.Changed) // newest first, as in the plan
	return errors.Join(b.conclude(out, len(would.Changed)), err)
}

// show prints the first runs with what would happen to them.
func (b *bulk) show(ctx context.Context, out bulkChange) error {
	if out.Matched == 0 {
		return nil
	}
	columns := append([]screen.Column{{Title: "WOULD"}}, tables.RunColumns...)
	t := b.Screen.Table(columns...)
	f := b.filter
	f.Limit = shown
	rows := 0
	for r, err := range tables.ListRuns(ctx, b.asked.Client, f) {
		if err != nil {
			return err
		}
		would := screen.Cell{Text: b.deed.Verb}
		if _, skip := out.Skipped[r.ID]; skip {
			would = screen.Cell{Text: "skip", Tone: screen.Faint}
		} else if !slices.Contains(out.Changed, r.ID) {
			continue // it has come since
		}
		t.Row(append([]any{would}, tables.RunRow(b.Screen, r)...)...)
		rows++
	}
	if err := t.Print(); err != nil {
		return err
	}
	if more := out.Matched - rows; more > 0 {
		if err := b.Screen.Printf("… and %d more", more); err != nil {
			return err
		}
	}
	return b.sum("%s would be %s%s.", countRuns(len(out.Changed)), b.deed.Past, skippedText(out.Skipped))
}

// atOnce is how many runs a bulk changes at once: the calls wait for the network and for commits.
const atOnce = command.FewConns

// apply changes the runs, the newest first. It stops at the first error that is not about one run.
func (b *bulk) apply(ctx context.Context, runs []kagzi.RunID, out *bulkChange) error {
	bar := b.Screen.Bar(b.deed.Many.Now, max(len(runs), 1))
	defer bar.End()
	if err := b.pass(ctx, runs, out, bar); err != nil || len(b.again) == 0 {
		return err
	}
	b.second = true
	return b.pass(ctx, b.again, out, bar) // children that have gone with their parents
}

func (b *bulk) pass(ctx context.Context, runs []kagzi.RunID, out *bulkChange, bar *screen.Bar) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var mu sync.Mutex // guards out
	var working sync.WaitGroup
	queue := make(chan kagzi.RunID)
	for range min(atOnce, len(runs)) {
		working.Go(func() {
			for id := range queue {
				as, err := b.deed.Many.One(ctx, b.asked, id)
				mu.Lock()
				noted := b.note(out, id, as, err)
				mu.Unlock()
				if err != nil && !deeds.Inapplicable(err) {
					stop(err)
				}
				if noted {
					bar.Add(1)
				}
			}
		})
	}
	for _, id := range runs {
		select {
		case queue <- id:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	working.Wait()
	return context.Cause(ctx)
}

// note adds the result of a run's change, and reports whether that is final. A run whose change failed is neither
// changed nor skipped.
func (b *bulk) note(out *bulkChange, id, as kagzi.RunID, err error) bool {
	gone, later := b.deed.Many.Final(err)
	switch {
	case err == nil, gone:
		out.Changed = append(out.Changed, id)
	case later && !b.second:
		b.again = append(b.again, id)
		return false
	case deeds.Inapplicable(err): // another process has changed it since
		out.Skipped[id] = words.OneLine(err.Error())
	}
	if as != "" {
		if out.New == nil {
			out.New = map[kagzi.RunID]kagzi.RunID{}
		}
		out.New[id] = as
	}
	return true
}

// conclude prints the changes. planned is how many runs were to be.
func (b *bulk) conclude(out bulkChange, planned int) error {
	if b.JSON {
		return b.PrintJSON(out)
	}
	if out.Matched == 0 {
		b.Say("No run matches.")
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(out.New)) {
		if err := b.Screen.Printf("%s as run %s", id, out.New[id]); err != nil {
			return err
		}
	}
	if len(out.Changed)+len(out.Skipped) < out.Matched {
		return b.sum("%d of %s %s%s. The others are as they were: run the command again for them.", len(out.Changed),
			countRuns(planned), b.deed.Past, skippedText(out.Skipped))
	}
	return b.sum("%s %s%s.", countRuns(len(out.Changed)), b.deed.Past, skippedText(out.Skipped))
}

// sum prints the last line, which has the reasons of runs that are skipped: a terminal breaks it between words.
func (b *bulk) sum(format string, args ...any) error {
	return b.Screen.Printf("%s", b.Screen.Fill(fmt.Sprintf(format, args...), 0))
}

// skippedText counts the skipped runs by the reason.
func skippedText(skipped map[kagzi.RunID]string) string {
	if len(skipped) == 0 {
		return ""
	}
	count := map[string]int{}
	for id, reason := range skipped {
		if _, after, ok := strings.Cut(reason, string(id)+": "); ok {
			reason = after
		}
		count[reason]++
	}
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d (%s)", count[reason], reason))
	}
	return ", skipped " + strings.Join(parts, ", ")
}

func countRuns(n int) string { return words.Plural(n, "run") }

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
