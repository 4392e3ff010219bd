package check

import (
	"strings"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// acknowledgedStarts: the run of an acknowledged start was inserted, and is there unless a client has deleted it (S1).
func (c *checker) acknowledgedStarts() {
	if c.x.Lossy {
		return
	}
	for _, call := range c.e.Calls {
		for _, run := range acknowledged(call) {
			_, there := c.h.final[run]
			switch {
			case c.h.created(run) == nil:
				c.violation("S1", run, call.Ended, "client %d was told that it was started by %s, and it never existed",
					call.Client, call.Verb)
			case !there && c.h.deleted(run) == nil:
				c.violation("S1", run, call.Ended, "it was started by %s, and has vanished without a DELETE", call.Verb)
			}
		}
	}
}

// acknowledged returns the runs of which a call said that they exist.
func acknowledged(call evidence.Call) []string {
	if call.Outcome != evidence.OK || call.RolledBack {
		return nil
	}
	switch {
	case call.Verb == "start" && call.Run != "":
		return []string{call.Run}
	case (call.Verb == "restart" || call.Verb == "fork") && call.New != "":
		return []string{call.New}
	}
	return nil
}

// activeRuns: an external ID has at most one active run at each moment, and a start with an ID returns a run with that
// ID (S2). The sweep compares no clocks: a run that begins to hold an ID waits for the transaction of the run that
// gives it up.
func (c *checker) activeRuns() {
	active := map[string]string{} // the run of each ID
	for _, change := range c.h.changes {
		if !change.ofRun() {
			continue
		}
		was, is := activeID(change.old), activeID(change.new)
		if was == is {
			continue
		}
		if was != "" && active[was] == change.Run {
			delete(active, was)
		}
		if is == "" {
			continue
		}
		if other := active[is]; other != "" {
			c.violation("S2", change.Run, c.at(change), "it became active with ID %q while run %s was (change %d)", is,
				other, change.ChangeID)
		}
		active[is] = change.Run
	}
	for _, call := range c.e.Calls {
		if call.Verb != "start" || call.Outcome != evidence.OK || call.ExternalID == "" || call.Run == "" {
			continue
		}
		if first := c.h.created(call.Run); first != nil && first.new.ExternalID != call.ExternalID {
			c.violation("S2", call.Run, call.Ended, "a start with ID %q returned it, and its ID is %q", call.ExternalID,
				first.new.ExternalID)
		}
	}
}

// answers: a start with an ID returns a run that was active during the call, or that it began (S2). So all starts with
// an ID that are acknowledged while its run is active name that run.
func (c *checker) answers() {
	if c.x.Ended == nil || !c.h.clock.steady || c.x.Lossy {
		return
	}
	for _, call := range c.e.Calls {
		if call.Verb != "start" || call.Outcome != evidence.OK || call.RolledBack || call.ExternalID == "" ||
			c.x.Ended(call) {
			continue
		}
		var before *change // the last one before the call
		for _, change := range c.h.ofRun[call.Run] {
			switch at := c.at(change); {
			case at < call.Began-drift:
				before = change
			case at < call.Ended+drift && change.new != nil && !over(change.new.Status):
				before = nil
			}
		}
		if before != nil && (before.new == nil || over(before.new.Status)) {
			c.violation("S2", call.Run, call.Began, "client %d's start with ID %q returned it, and it was over %v "+
				"before the call", call.Client, call.ExternalID, call.Began-c.at(before))
		}
	}
}

// activeID returns the external ID that a row holds, with its namespace; empty if it holds none.
func activeID(r *row) string {
	if r == nil || over(r.Status) || r.ExternalID == "" {
		return ""
	}
	return strings.TrimSpace(r.Namespace + " " + r.ExternalID)
}

// unknownStarts: a start whose outcome is unknown has made at most one run (S2). Of the runs of a program, as many as
// there were unknown starts may be runs that no acknowledged start names.
func (c *checker) unknownStarts() {
	if c.x.Program == nil {
		return
	}
	named := map[string]bool{}
	unknown := map[int]int{}
	for _, call := range c.e.Calls {
		switch {
		case call.Verb != "start" || call.RolledBack && call.Outcome == evidence.OK:
		case call.Outcome == evidence.OK:
			named[call.Run] = true
		case call.Outcome == evidence.Unknown:
			unknown[call.Program]++
		}
	}
	for _, r := range c.e.Runs {
		n, ok := c.x.Program(r)
		if !ok || named[r.ID] || r.Origin != "" {
			continue
		}
		if unknown[n]--; unknown[n] < 0 {
			c.violation("S2", r.ID, 0, "it executes program %d, and no start of a client can have made it", n)
		}
	}
}

// rolledBack: a start whose transaction was rolled back has left nothing (S16). If it names a run with an external ID,
// another start, a restart or a fork may have made that one.
func (c *checker) rolledBack() {
	others := map[string]bool{} // runs that other starts name, and IDs for which the outcome of one is unknown
	for _, call := range c.e.Calls {
		if call.Verb == "start" && !(call.RolledBack && call.Outcome == evidence.OK) {
			others[call.Run] = true
			if call.Outcome == evidence.Unknown && call.ExternalID != "" {
				others[call.ExternalID] = true
			}
		}
	}
	for _, call := range c.e.Calls {
		if call.Verb != "start" || !call.RolledBack || call.Outcome != evidence.OK || call.Run == "" {
			continue
		}
		if first := c.h.created(call.Run); first != nil && first.new.Origin == "" && !others[call.Run] &&
			!others[call.ExternalID] {
			c.violation("S16", call.Run, call.Ended, "client %d rolled its start back, and it exists", call.Client)
		}
	}
}

// ticks: each tick of a schedule has the runs that it must have, and no other time has one (S8). Runs that were deleted
// count.
func (c *checker) ticks() {
	type tick struct {
		schedule string
		at       int64
	}
	fired := map[tick][]*change{}
	known := map[string]bool{}
	for _, t := range c.e.Ticks {
		known[t.Schedule] = true
	}
	for _, change := range c.h.changes {
		if change.ofRun() && change.Operation == "INSERT" && known[change.new.Schedule] && !change.new.FireAt.IsZero() {
			key := tick{change.new.Schedule, change.new.FireAt.UnixMicro()}
			fired[key] = append(fired[key], change)
		}
	}
	for _, t := range c.e.Ticks {
		key := tick{t.Schedule, t.At.UnixMicro()}
		switch runs := fired[key]; {
		case len(runs) > 1:
			c.violation("S8", runs[1].Run, c.at(runs[1]), "schedule %q has started it for %s, as it has run %s",
				t.Schedule, clockTime(t.At), runs[0].Run)
		case len(runs) == 0 && t.May == "fire":
			c.violation("S8", "", c.h.clock.machine(t.At), "schedule %q has started no run for %s", t.Schedule,
				clockTime(t.At))
		}
		delete(fired, key)
	}
	for _, runs := range fired {
		for _, change := range runs {
			c.violation("S8", change.Run, c.at(change), "schedule %q has started it for %s, which is no tick",
				change.new.Schedule, clockTime(change.new.FireAt.Time))
		}
	}
}

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05.000") }
