package check

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A moment in a timeline.
type entry struct {
	at   time.Duration
	text string
}

// Timeline returns all that is known of a run in one order, for people: calls, changes, what workers did, and the
// faults that overlapped with its life, and the violations that are about it, marked by ">>>". Changes are ordered
// among each other as they happened; their places among the rest are as good as the clocks.
func Timeline(e *evidence.Evidence, run string, found ...Violation) string {
	h := newHistory(e)
	var all []entry
	add := func(at time.Duration, format string, args ...any) {
		all = append(all, entry{at, fmt.Sprintf(format, args...)})
	}
	for _, call := range e.Calls {
		if call.Run != run && call.New != run && !h.waitsFor(run, call) {
			continue
		}
		add(call.Began, "client %d    calls %s", call.Client, describe(call))
		add(call.Ended, "client %d    %s %s %s", call.Client, call.Verb, call.Outcome, call.Error)
	}
	for _, line := range e.Ledger {
		if line.Run == run {
			add(line.At, "worker %-5s %s", line.Worker, describeLine(line))
		}
	}
	all = append(all, h.changesOf(run)...)
	for _, v := range found {
		if v.Run == run && v.At > 0 {
			add(v.At, ">>>         %s: %s", v.Invariant, v.What)
		}
	}
	if len(all) == 0 {
		return "nothing is known of run " + run + "\n"
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	begin, end := all[0].at, all[len(all)-1].at
	for _, f := range e.Injected {
		if f.Ended >= begin && f.Began <= end {
			add(f.Began, "fault       %s begins", f.Fault)
			add(f.Ended, "fault       %s is over: %s %s", f.Fault, f.Note, f.Err)
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	fmt.Fprintf(&b, "run %s\n", run)
	for _, x := range all {
		fmt.Fprintf(&b, "%10.3fs  %s\n", (x.at - begin).Seconds(), strings.TrimRight(x.text, " "))
	}
	return b.String()
}

// waitsFor reports whether a call has published an event for which the run has slept.
func (h *history) waitsFor(run string, call evidence.Call) bool {
	return call.Verb == "publish" && slices.ContainsFunc(h.ofRun[run], func(c *change) bool {
		return strings.Contains(string(c.New), fmt.Sprintf("%q", call.Name+"/"+call.Message))
	})
}

func describe(call evidence.Call) string {
	words := []string{call.Verb}
	for _, p := range [][2]string{
		{"ID", call.ExternalID},
		{"message", call.Message},
		{"of", call.Name},
		{"makes", call.New},
	} {
		if p[1] != "" {
			words = append(words, p[0], p[1])
		}
	}
	if call.RolledBack {
		words = append(words, "and rolls back")
	}
	return strings.Join(words, " ")
}

func describeLine(l evidence.Line) string {
	words := []string{l.Event}
	if l.Step != "" {
		words = append(words, fmt.Sprintf("%s attempt %d", l.Step, l.Attempt))
	}
	if l.Lease != "" {
		words = append(words, "under "+l.Lease)
	}
	if l.Detail != "" {
		words = append(words, fmt.Sprintf("%.200s", l.Detail))
	}
	return strings.Join(words, " ")
}

// changesOf returns the changes of a run and its steps, each with the columns that it changed. None is earlier than the
// one before.
func (h *history) changesOf(run string) (all []entry) {
	last := map[attemptKey]map[string]json.RawMessage{}
	latest := time.Duration(0)
	for _, c := range h.changes {
		if c.Run != run {
			continue
		}
		key := attemptKey{stepKey{c.Run, c.Step}, c.Attempt}
		var now map[string]json.RawMessage
		if err := json.Unmarshal(c.New, &now); err != nil && c.new != nil {
			now = map[string]json.RawMessage{"error": json.RawMessage(err.Error())}
		}
		what := "run"
		if !c.ofRun() {
			what = fmt.Sprintf("step %s attempt %d", c.Step, c.Attempt)
		}
		latest = max(latest, h.clock.machine(c.At))
		all = append(all, entry{latest, fmt.Sprintf("change %-6d by %q %s %s: %s", c.ChangeID, c.By, c.Operation, what,
			difference(last[key], now))})
		last[key] = now
	}
	return all
}

// constant are columns that tell people nothing, because they are the same in all rows or are said elsewhere.
var constant = []string{"run_id", "namespace_id", "step_id", "attempt_number"}

// difference returns the columns whose values differ.
func difference(old, now map[string]json.RawMessage) string {
	var columns []string
	for _, name := range sorted(now) {
		if value := string(now[name]); value != string(old[name]) && !slices.Contains(constant, name) &&
			(old != nil || interesting(value)) {
			columns = append(columns, fmt.Sprintf("%s %.120s", name, value))
		}
	}
	for _, name := range sorted(old) {
		if _, there := now[name]; !there && now != nil {
			columns = append(columns, name+" null")
		}
	}
	return strings.Join(columns, ", ")
}

// interesting reports whether a value of a new row says something.
func interesting(value string) bool { return value != "0" && value != "false" && value != `""` }
