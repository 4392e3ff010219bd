package driver

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/check"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A Verdict is what a round proves.
type Verdict string

// The verdicts.
const (
	Pass    Verdict = "PASS"
	Fail    Verdict = "FAIL"
	Invalid Verdict = "INVALID"
)

// shown is how many violations get a history.
const shown = 3

// slow is how long after the last fault a run may end without its history being printed.
const slow = 30 * time.Second

// judge checks the evidence and prints what it finds: the figures, each violation, the histories of the first runs
// concerned, and the verdict.
func judge(w io.Writer, plan Plan, r *Result) Record {
	var found []check.Violation
	var reasons []string
	var figures check.Figures
	if !plan.Options.Soak {
		expected := plan.expectations()
		expected.Lossy = r.Lossy
		figures = check.Measure(r.Evidence)
		found, reasons = check.All(r.Evidence, expected), check.Exercised(r.Evidence, figures)
		measured(w, r.Evidence, figures)
	}
	for _, v := range append(r.Tables, r.Stuck...) {
		fmt.Fprintln(w, "FAIL:", v)
	}
	told := map[string]bool{}
	for _, v := range found {
		fmt.Fprintln(w, "FAIL:", v)
	}
	for _, v := range found {
		if v.Run != "" && !told[v.Run] && len(told) < shown {
			told[v.Run] = true
			fmt.Fprintf(w, "\n%s\n%s\n", v, check.Timeline(r.Evidence, v.Run, found...))
		}
	}
	for _, reason := range reasons {
		fmt.Fprintln(w, "INVALID:", reason)
	}
	verdict := Pass
	switch {
	case len(found)+len(r.Tables)+len(r.Stuck) > 0:
		verdict = Fail
	case len(reasons) > 0:
		verdict = Invalid
	}
	fmt.Fprintf(w, "%s: seed %d on %s, %v, %d faults", verdict, plan.Options.Seed, cmp.Or(plan.Options.Server, "plain"),
		plan.Options.Duration, len(r.Evidence.Injected))
	if !plan.Options.Soak {
		fmt.Fprintf(w, ", liveness judged for %v", figures.Judged.Round(time.Second))
	}
	fmt.Fprintln(w)
	k := record(plan, r, verdict, found, reasons)
	if !plan.Options.Soak {
		k.Figures, k.Pairs = figures, check.Pairs(r.Evidence)
	}
	return k
}

// measured prints the figures, the faults that proved nothing, and why the last run ended late, if it did.
func measured(w io.Writer, e *evidence.Evidence, figures check.Figures) {
	fmt.Fprint(w, figures)
	idle, _ := check.Idle(e)
	for _, text := range idle {
		fmt.Fprintln(w, text)
	}
	if figures.HealedToEnd > slow {
		fmt.Fprintf(w, "\nthe last run ended late\n%s\n", check.Timeline(e, figures.Last))
	}
}

// record keeps the part of a round that is worth keeping.
func record(plan Plan, r *Result, verdict Verdict, found []check.Violation, reasons []string) Record {
	k := Record{
		Seed: plan.Options.Seed, Flags: plan.Options.flags(), Server: plan.Options.Server, Verdict: verdict,
		Seconds: r.Took.Seconds(), Faults: map[string]int{}, Reasons: reasons, Duration: plan.Options.Duration,
		Calls: len(r.Evidence.Calls),
	}
	for _, v := range found {
		if !slices.Contains(k.Broken, v.Invariant) {
			k.Broken = append(k.Broken, v.Invariant)
		}
	}
	k.Broken = append(append(k.Broken, r.Tables...), r.Stuck...)
	for _, f := range r.Evidence.Injected {
		if f.Effect > 0 {
			k.Faults[f.Fault]++
		} else {
			k.Idle = append(k.Idle, f.Fault)
		}
	}
	for _, call := range r.Evidence.Calls {
		if call.Outcome == evidence.Unknown {
			k.Unknown++
		}
	}
	return k
}
