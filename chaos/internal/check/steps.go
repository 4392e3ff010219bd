package check

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// Kinds of records: of a step that calls a function of the application, of the run's value, and of a wait for an event.
const function, valueKind, eventKind = "FUNCTION", "VALUE", "EVENT"

// steps checks the executions and records of steps.
type steps struct{ *checker }

// results: the recorded result of a step is one, also if rows were deleted and inserted again (S5). A group is decided
// anew if a failure in it is forgotten, a compensation is run again, and a checkpoint and a value are replaced.
func (c steps) results() {
	for _, change := range c.h.changes {
		if change.ofRun() || change.new == nil || change.new.Status != "COMPLETED" || change.new.Kind == "MARKER" ||
			slices.Contains([]string{"COMPENSATION", "CHECKPOINT", valueKind}, change.new.Kind) {
			continue
		}
		first := c.h.result[stepKey{change.Run, change.Step}]
		if first.new.epoch() != change.new.epoch() { // each counts its messages anew
			continue
		}
		if first.Attempt != change.Attempt || first.new.Output != change.new.Output {
			c.violation("S5", change.Run, c.at(change), "step %s has the result of attempt %d (change %d), and had "+
				"that of attempt %d (change %d)",
				change.Step, change.Attempt, change.ChangeID, first.Attempt, first.ChangeID)
		}
	}
}

// values: a run that has completed has the value that its program has set last, in whatever execution and epoch (S7).
func (c steps) values() {
	last := map[string]string{}
	for _, s := range c.e.Steps {
		if s.Kind == valueKind {
			last[s.Run] = s.Output
		}
	}
	for _, r := range c.e.Runs {
		if want, ok := c.ending(r); ok && r.Status == "COMPLETED" && !want.AnyValue && !same(last[r.ID], want.Value) {
			c.violation("S7", r.ID, c.h.clock.machine(r.Finished), "its value is %.200s, and its program has last set "+
				"it to %.200s", last[r.ID], want.Value)
		}
	}
}

// repetitions: no process executes a step under a lease that was claimed after the step's result was recorded, or an
// attempt whose end was recorded before (S6). Nor is a step executed again under a lease under which it has returned a
// result, unless its transaction failed, or the result came too late for its timeout.
func (c steps) repetitions() {
	for _, key := range sortedSteps(c.h.lines) {
		ended := map[string]evidence.Line{} // the last END by lease
		for _, line := range c.h.lines[key] {
			switch line.Event {
			case evidence.End:
				ended[line.Lease] = line
			case evidence.Begin:
				c.repeated(key, line)
				if end, ok := ended[line.Lease]; ok && !c.transactional(key.step) && !c.failed(key, end.Attempt) {
					c.violation("S6", key.run, line.At, "step %s began in worker %s (attempt %d) after it had "+
						"returned a result (attempt %d), both under lease %s",
						key.step, line.Worker, line.Attempt, end.Attempt, line.Lease)
				}
			}
		}
	}
}

// failed reports whether an attempt is recorded as failed.
func (c steps) failed(key stepKey, attempt int) bool {
	change := c.h.over[attemptKey{key, attempt}]
	return change != nil && change.new.Status == "FAILED"
}

// calls: no attempt of a step that is called at most once is executed twice, whatever lease it has (S6). A failover may
// have lost that it was called.
func (c steps) calls() {
	if c.x.Lossy {
		return
	}
	for _, key := range sortedSteps(c.h.lines) {
		begun := map[int]evidence.Line{}
		for _, line := range c.h.lines[key] {
			if line.Event != evidence.Begin || !c.once(key.step) {
				continue
			}
			if first, called := begun[line.Attempt]; called {
				c.violation("S6", key.run, line.At, "attempt %d of step %s was called in worker %s under lease %s, "+
					"and again in worker %s under lease %s", line.Attempt, key.step, first.Worker, first.Lease,
					line.Worker, line.Lease)
			}
			begun[line.Attempt] = line
		}
	}
}

func (c steps) repeated(key stepKey, begin evidence.Line) {
	l := c.h.leases[leaseKey{key.run, begin.Lease}]
	if l == nil {
		return // leases reports it
	}
	if done := c.h.result[key]; done != nil && done.ChangeID < l.claim.ChangeID {
		c.violation("S6", key.run, begin.At, "step %s began in worker %s (attempt %d) under lease %s, claimed by "+
			"change %d, and its result was recorded by change %d",
			key.step, begin.Worker, begin.Attempt, l.id, l.claim.ChangeID, done.ChangeID)
	} else if done := c.h.over[attemptKey{key, begin.Attempt}]; done != nil && done.ChangeID < l.claim.ChangeID {
		c.violation("S6", key.run, begin.At, "attempt %d of step %s began in worker %s under lease %s, claimed by "+
			"change %d, and its end was recorded by change %d",
			begin.Attempt, key.step, begin.Worker, l.id, l.claim.ChangeID, done.ChangeID)
	}
}

// happened: each recorded result is that of an execution under the lease that the run had when it was recorded (S7). So
// the result of an execution whose lease was replaced is not what is recorded. A fork's copies were executed in another
// run.
func (c steps) happened() {
	for _, key := range sortedSteps(c.h.result) {
		record := c.h.result[key]
		if record.new.Kind != function || record.new.RunAttempt == 0 || c.once(key.step) {
			continue
		}
		l := c.h.holder[record.ChangeID]
		var found, other *evidence.Line
		for _, line := range c.h.lines[key] {
			if line.Event != evidence.End || line.Attempt != record.Attempt {
				continue
			}
			other = &line
			if l != nil && line.Lease == l.id {
				found = &line
			}
		}
		switch {
		case other == nil:
			c.violation("S7", key.run, c.at(record), "step %s is recorded as done (attempt %d, change %d), and no "+
				"execution has returned", key.step, record.Attempt, record.ChangeID)
		case l == nil:
			c.violation("S4", key.run, c.at(record), "step %s was recorded (change %d) while nobody held the run",
				key.step, record.ChangeID)
		case found == nil:
			c.violation("S4", key.run, c.at(record), "step %s was recorded under lease %s (change %d), and only the "+
				"execution under lease %s has returned",
				key.step, l.id, record.ChangeID, other.Lease)
		default:
			c.content(key, record, *found)
		}
	}
}

// content: the recorded result is the one that the function returned. The audit knows a hash of it, the final table its
// text.
func (c steps) content(key stepKey, record *change, end evidence.Line) {
	for _, s := range c.h.steps[key] {
		if s.Attempt != record.Attempt || s.Status != "COMPLETED" {
			continue
		}
		if s.Hash != record.new.Output {
			c.violation("S15", key.run, c.at(record), "the result of step %s is not the one that change %d recorded",
				key.step, record.ChangeID)
		} else if end.Detail != "" && !same(s.Output, end.Detail) {
			c.violation("S7", key.run, c.at(record), "step %s returned %.200s, and its result is %.200s", key.step,
				end.Detail, s.Output)
		}
	}
}

// same reports whether a stored text is that of a value: the value itself, or the JSON of a text.
func same(stored, value string) bool {
	if stored == value || stored == evidence.Digest(value) {
		return true
	}
	text, err := json.Marshal(value)
	return err == nil && stored == evidence.Digest(string(text))
}

// unrecorded: a run that completed has the record of each step that returned under its last lease (S7), also if a
// failover has lost the newest commits: a worker that kept such a run in memory would complete it over the hole. Steps
// of branches are left out, because a branch may have lost.
func (c steps) unrecorded() {
	for _, key := range sortedSteps(c.h.lines) {
		r := c.h.final[key.run]
		if r.Status != "COMPLETED" || strings.Contains(key.step, "/") || c.h.result[key] != nil {
			continue
		}
		for _, line := range c.h.lines[key] {
			if line.Event == evidence.End && line.Lease == r.Lease && c.h.over[attemptKey{key, line.Attempt}] == nil {
				c.violation("S7", key.run, line.At, "it completed under lease %s, and step %s, which had returned "+
					"under it (attempt %d), is not recorded", r.Lease, key.step, line.Attempt)
				break
			}
		}
	}
}

// executions: each attempt is executed once under one lease, and a step at most once for each of its attempts and each
// interruption, which is a later claim (S11). A transaction that failed is executed again under the same number. If a
// failover has lost claims, the number of interruptions is unknown.
func (c steps) executions() {
	for _, key := range sortedSteps(c.h.lines) {
		if c.transactional(key.step) {
			continue
		}
		type execution struct {
			attempt int
			lease   string
		}
		begun, ended, attempts := map[execution]bool{}, map[execution]bool{}, 0
		for _, line := range c.h.lines[key] {
			if c.h.leases[leaseKey{key.run, line.Lease}] == nil { // see leases
				continue
			}
			this := execution{line.Attempt, line.Lease}
			switch line.Event {
			case evidence.End:
				ended[this] = true
			case evidence.Begin:
				if begun[this] && !ended[this] { // repetitions reports the other case
					c.violation("S11", key.run, line.At, "attempt %d of step %s began twice under lease %s",
						line.Attempt, key.step, line.Lease)
				}
				begun[this] = true
				attempts = max(attempts, line.Attempt)
			}
		}
		count := len(begun)
		if interruptions := max(0, len(c.h.claims[key.run])-1); !c.x.Lossy && count > attempts+interruptions {
			c.violation("S11", key.run, 0, "step %s was executed %d times, with %d attempts and %d interruptions",
				key.step, count, attempts, interruptions)
		}
	}
}
