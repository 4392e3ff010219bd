package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// Figures are what a round measured.
type Figures struct {
	Runs, Ended int
	Steps       int // with a recorded result
	Heard       int // of these, waits for events
	Executions  int // of functions of steps
	Repeated    int // of these, executions of an attempt that had been executed before
	Refused     int // writes of workers that had lost their lease
	Claims      int
	TakenOver   int             // claims of runs that were RUNNING
	HealedToEnd time.Duration   // from the last fault's end to the end of the last run that existed then
	Last        string          // that run
	Watched     time.Duration   // from the first sample to the last
	Judged      time.Duration   // the part of it that was no time of trouble, so that liveness was checked
	KillToClaim []time.Duration // from the death of a worker process to the next claim of each of its runs, sorted
	DueToClaim  []time.Duration // from when a run without limits was due to its claim, sorted
}

// Measure returns the figures of a round.
func Measure(e *evidence.Evidence) Figures {
	h := newHistory(e)
	f := Figures{Runs: len(e.Runs), Steps: len(h.result)}
	for _, r := range e.Runs {
		if over(r.Status) {
			f.Ended++
			if end := h.clock.machine(r.Finished); e.Healed > 0 && h.clock.machine(r.Created) <= e.Healed {
				if took := end - e.Healed; took > f.HealedToEnd {
					f.HealedToEnd, f.Last = took, r.ID
				}
			}
		}
	}
	for _, record := range h.result {
		if record.new.Kind == eventKind {
			f.Heard++
		}
	}
	f.addLedger(e.Ledger)
	f.addClaims(h)
	for _, t := range h.takeovers() {
		f.KillToClaim = append(f.KillToClaim, t.took)
	}
	for i := 1; i < len(e.Samples); i++ {
		gap := e.Samples[i].At - e.Samples[i-1].At
		f.Watched += gap
		if !troubled(e.Samples, i) {
			f.Judged += gap
		}
	}
	slices.Sort(f.KillToClaim)
	slices.Sort(f.DueToClaim)
	return f
}

// addLedger counts what the workers executed.
func (f *Figures) addLedger(lines []evidence.Line) {
	begun := map[attemptKey]bool{}
	for _, line := range lines {
		switch line.Event {
		case evidence.Refused:
			f.Refused++
		case evidence.Begin:
			f.Executions++
			key := attemptKey{stepKey{line.Run, line.Step}, line.Attempt}
			if begun[key] {
				f.Repeated++
			}
			begun[key] = true
		}
	}
}

// addClaims counts the claims.
func (f *Figures) addClaims(h *history) {
	for _, all := range h.claims {
		for _, l := range all {
			f.Claims++
			switch old := l.claim.old; {
			case old == nil:
			case old.Status == "RUNNING":
				f.TakenOver++
			case l.claim.new.Slot == 0 && old.Available.Before(infinite) && !old.Available.IsZero():
				f.DueToClaim = append(f.DueToClaim, max(0, l.claim.At.Sub(old.Available.Time)))
			}
		}
	}
}

func (f Figures) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d of them over; %d steps recorded, %d of them waits for events; %d executions of "+
		"steps, %d of them repeated; %d refused writes\n", f.Runs, f.Ended, f.Steps, f.Heard, f.Executions, f.Repeated,
		f.Refused)
	fmt.Fprintf(&b, "%d claims, %d of them takeovers; %v from healing to the last end\n", f.Claims, f.TakenOver,
		f.HealedToEnd.Round(time.Millisecond))
	fmt.Fprintf(&b, "from a worker's death to the next claim: %s\n", spread(f.KillToClaim))
	fmt.Fprintf(&b, "from due to claimed, without limits: %s\n", spread(f.DueToClaim))
	fmt.Fprintf(&b, "liveness was judged in %v of %v: the rest were faults, and the times to recover from them\n",
		f.Judged.Round(time.Second), f.Watched.Round(time.Second))
	return b.String()
}

// spread describes sorted durations.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	at := func(percent int) time.Duration { return all[(len(all)-1)*percent/100].Round(time.Millisecond) }
	return fmt.Sprintf("%d, median %v, 90 %% %v, 99 %% %v, longest %v", len(all), at(50), at(90), at(99), at(100))
}

// A takeover is the end of a lease whose worker process died.
type takeover struct {
	lease *lease
	died  time.Duration
	took  time.Duration // until the run was claimed again, set back or ended
}

// takeovers returns the leases that processes held when they died. The time of a death is that of the last sign of
// life: what the driver says of it, or the process's last line. A lease that no process ended until the round was over
// counts until then.
func (h *history) takeovers() (all []takeover) {
	died := map[string]time.Duration{}
	for _, x := range h.e.Exits {
		if x.Killed {
			died[x.Worker] = x.At
		}
	}
	for _, run := range sorted(h.claims) {
		for _, l := range h.claims[run] {
			at, dead := died[l.by]
			if !dead || h.clock.machine(l.claim.At) > at {
				continue
			}
			end := h.e.Over
			if l.ended != nil {
				end = h.clock.machine(l.ended.At)
			}
			if end > at {
				all = append(all, takeover{l, at, end - at})
			}
		}
	}
	slices.SortFunc(all, func(a, b takeover) int {
		return cmp.Or(cmp.Compare(a.died, b.died), cmp.Compare(a.lease.run, b.lease.run))
	})
	return all
}

// stall is how far apart two samples may be: the driver takes several a second.
const stall = 5 * time.Second

// Exercised returns the reasons why a round with these figures proves nothing; none if it does. Single faults without
// an effect are no reason while more of them had one.
func Exercised(e *evidence.Evidence, figures Figures) (reasons []string) {
	because := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if idle, worked := Idle(e); len(idle) > 0 && len(idle) >= worked {
		reasons = append(reasons, idle...)
	}
	if !newHistory(e).completedAfter(e.Healed) {
		because("no run completed after the last fault")
	}
	killed := 0
	for _, x := range e.Exits {
		if x.Killed {
			killed++
		}
	}
	if killed > 0 && figures.TakenOver == 0 {
		because("%d workers were killed, and no run was taken over", killed)
	}
	if len(e.Ledger) == 0 || len(e.Changes) == 0 || len(e.Samples) == 0 || len(e.Clock) == 0 {
		because("evidence is missing: %d lines of ledgers, %d changes, %d samples, %d stamps", len(e.Ledger),
			len(e.Changes), len(e.Samples), len(e.Clock))
	}
	for i := 1; i < len(e.Samples); i++ {
		if gap := e.Samples[i].At - e.Samples[i-1].At; gap > stall && !e.Samples[i].Trouble && !e.Samples[i-1].Trouble {
			because("the machine stalled: %v between two samples", gap.Round(time.Millisecond))
		}
	}
	return reasons
}

// completedAfter reports whether a run has completed after a moment. It goes by the changes, because the run may be
// deleted from the final table.
func (h *history) completedAfter(at time.Duration) bool {
	return slices.ContainsFunc(h.changes, func(c *change) bool {
		return c.ofRun() && c.new != nil && c.new.Status == "COMPLETED" &&
			(c.old == nil || c.old.Status != "COMPLETED") && h.clock.machine(c.At) > at
	})
}

// Idle returns why faults proved nothing, and how many had an effect. It leaves out those that others hid.
func Idle(e *evidence.Evidence) (idle []string, worked int) {
	for _, f := range e.Injected {
		switch {
		case f.Effect > 0 && f.Err == "":
			worked++
		case hidden(f, e.Injected):
		case f.Err != "":
			idle = append(idle, fmt.Sprintf("fault %q could not be injected: %s", f.Fault, f.Err))
		default:
			idle = append(idle, fmt.Sprintf("fault %q had no effect", f.Fault))
		}
	}
	return idle, worked
}

// hidden reports whether a fault had no effect because another one that had was under way: the server was away, for
// example.
func hidden(f evidence.Injected, all []evidence.Injected) bool {
	return (f.Effect == 0 || f.Err != "") && slices.ContainsFunc(all, func(other evidence.Injected) bool {
		return other.Effect > 0 && other.Err == "" && other.Began < f.Ended && f.Began < other.Ended
	})
}

// Pairs returns the pairs of faults that were under way at once and had an effect, each as "F1 and F4", sorted.
func Pairs(e *evidence.Evidence) (pairs []string) {
	kind := func(f evidence.Injected) string { k, _, _ := strings.Cut(f.Fault, " "); return k }
	for i, a := range e.Injected {
		for _, b := range e.Injected[i+1:] {
			if a.Effect > 0 && b.Effect > 0 && a.Began < b.Ended && b.Began < a.Ended {
				pair := []string{kind(a), kind(b)}
				slices.Sort(pair)
				pairs = append(pairs, strings.Join(pair, " and "))
			}
		}
	}
	slices.Sort(pairs)
	return slices.Compact(pairs)
}
