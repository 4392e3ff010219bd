package driver

import (
	"fmt"
	"io"
	"strings"
)

// A Verdict is what a round proves.
type Verdict string

// The verdicts.
const (
	Pass    Verdict = "PASS"
	Fail    Verdict = "FAIL"
	Invalid Verdict = "INVALID"
)

// Judge checks the evidence and prints what it finds.
func Judge(w io.Writer, plan Plan, r *Result) Verdict {
	e := r.Evidence
	byStatus := map[string]int{}
	for _, run := range e.Runs {
		byStatus[run.Status]++
	}
	refused, begun := 0, 0
	for _, l := range e.Ledger {
		switch l.Event {
		case "REFUSED":
			refused++
		case "BEGIN":
			begun++
		}
	}
	fmt.Fprintf(w, "%d calls, %d runs %v, %d steps, %d executions of steps, %d refused writes, %d changes\n", len(e.Calls), len(e.Runs), byStatus, len(e.Steps), begun, refused, len(e.Changes))
	found := append(r.Tables, r.Stuck...)
	if len(found) > 0 {
		fmt.Fprintln(w, "FAIL:", strings.Join(found, "\nFAIL: "))
		return Fail
	}
	fmt.Fprintf(w, "%s: seed %d\n", Pass, plan.Options.Seed)
	return Pass
}
