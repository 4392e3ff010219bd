package driver

import (
	"fmt"
	"io"

	"github.com/kagzi/kagzi/chaos/internal/check"
)

// A Verdict is what a round proves.
type Verdict string

// The verdicts.
const (
	Pass    Verdict = "PASS"
	Fail    Verdict = "FAIL"
	Invalid Verdict = "INVALID"
)

// The most violations, and timelines, that are printed.
const (
	mostViolations = 40
	mostTimelines  = 3
)

// Judge checks the evidence and prints what it finds.
func Judge(w io.Writer, plan Plan, r *Result) Verdict {
	found := append(r.Tables, r.Stuck...)
	var runs []string
	var why []string
	if !plan.Options.Soak {
		fmt.Fprint(w, check.Measure(r.Evidence))
		for _, v := range check.All(r.Evidence, plan.expectations(r.Recovers)) {
			found = append(found, v.String())
			if v.Run != "" {
				runs = append(runs, v.Run)
			}
		}
		why = check.Exercised(r.Evidence)
	}
	for i, v := range found {
		if i == mostViolations {
			fmt.Fprintf(w, "FAIL: and %d more\n", len(found)-i)
			break
		}
		fmt.Fprintln(w, "FAIL:", v)
	}
	told := map[string]bool{}
	for _, run := range runs {
		if !told[run] && len(told) < mostTimelines {
			told[run] = true
			fmt.Fprint(w, "\n", check.Timeline(r.Evidence, run))
		}
	}
	switch {
	case len(found) > 0:
		return Fail
	case len(why) > 0:
		for _, reason := range why {
			fmt.Fprintln(w, "INVALID:", reason)
		}
		return Invalid
	}
	fmt.Fprintf(w, "%s: seed %d\n", Pass, plan.Options.Seed)
	return Pass
}
