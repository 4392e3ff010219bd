package check

import (
	"slices"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A machine is too busy to judge a process if two samples are further apart than late, although the driver takes
// several a second, or if on average of some samples more threads want to run than crowd for each processor.
const (
	late  = time.Second
	crowd = 12.0
	some  = 20
)

// troubled reports whether sample i is of a time of trouble: that of a fault, or of a machine that is too busy.
func troubled(samples []evidence.Sample, i int) bool { return samples[i].Trouble || busy(samples, i) }

// busy reports whether sample i is of a time in which the machine was too busy.
func busy(samples []evidence.Sample, i int) bool {
	if i > 0 && samples[i].At-samples[i-1].At > late {
		return true
	}
	sum, last := 0.0, samples[max(0, i+1-some):i+1]
	for _, s := range last {
		sum += s.Runnable
	}
	return sum > crowd*float64(len(last))
}

// wasRefusedMessages reports whether a message to the run was refused.
func wasRefusedMessages(e *evidence.Evidence, run string) bool {
	return slices.ContainsFunc(e.Calls, func(call evidence.Call) bool {
		return call.Run == run && (call.Verb == "signal" || call.Verb == "ask") && call.Outcome == evidence.Failed
	})
}

// unended: every run has ended (L1), unless it is paused, or waits for a message that was refused because the run was
// over: a client has ended it and resumed it meanwhile.
func (c fleet) unended() {
	for _, r := range c.e.Runs {
		if over(r.Status) || r.Paused || c.h.interfered(r.ID) && wasRefusedMessages(c.e, r.ID) {
			continue
		}
		c.violation("L1", r.ID, c.e.Over, "it is still %s (%s)", r.Status, r.WaitingOn)
	}
}

// unheld: no run is RUNNING under a lease that no live worker process holds, for longer than a failure detector needs
// (L2). Time of trouble does not count.
func (c fleet) unheld() {
	if c.x.Unheld == 0 {
		return
	}
	since := map[leaseKey]time.Duration{}
	told := map[leaseKey]bool{}
	for i, s := range c.e.Samples {
		trouble := troubled(c.e.Samples, i)
		for key := range since {
			if trouble || s.Running[key.run] != key.lease || s.Held[key.lease] {
				delete(since, key)
			}
		}
		for _, run := range sorted(s.Running) {
			key := leaseKey{run, s.Running[run]}
			if trouble || s.Held[key.lease] {
				continue
			}
			first, known := since[key]
			if !known {
				since[key] = s.At
			} else if wait := s.At - first; wait > c.x.Unheld && !told[key] {
				told[key] = true
				c.violation("L2", run, s.At, "for %v it has been RUNNING under lease %s, which no live worker holds",
					wait, key.lease)
			}
		}
	}
}

// due: no due run waits beside a worker with a free slot for longer than the poll interval (L3). Time of trouble does
// not count.
func (c fleet) due() {
	if c.x.Due == 0 {
		return
	}
	var quiet time.Duration // since when there is no trouble, and there are such runs
	told := false
	for i, s := range c.e.Samples {
		if troubled(c.e.Samples, i) || s.Due == 0 {
			quiet, told = 0, false
			continue
		}
		if quiet == 0 {
			quiet = s.At
		}
		if late := s.Now.Sub(s.DueSince); min(late, s.At-quiet) > c.x.Due && !told {
			told = true
			c.violation("L3", s.DueRun, s.At, "%d due runs wait beside a free slot, one of them for %v", s.Due, late)
		}
	}
}

// admitted: no run that is the next one of a queue or key with limits waits beside a free slot for longer than the poll
// interval while there is room (L3). Time of trouble does not count.
func (c fleet) admitted() {
	if c.x.Due == 0 {
		return
	}
	next := func(s *evidence.Sample) map[string]string { return s.Next }
	lasting(c.e.Samples, c.x.Due, next, func(limit, run string, at, waits time.Duration) {
		c.violation("L3", run, at, "for %v it has been the next run of %q, which has room, beside a free slot", waits,
			limit)
	})
}

// lasting calls found, once for each, for what the samples have for longer than that. Time of trouble does not count.
func lasting(samples []evidence.Sample, most time.Duration, of func(*evidence.Sample) map[string]string,
	found func(key, value string, at, lasts time.Duration),
) {
	type pair struct{ key, value string }
	since := map[pair]time.Duration{}
	said := map[pair]bool{}
	for i := range samples {
		s, trouble := &samples[i], troubled(samples, i)
		now := of(s)
		for p := range since {
			if trouble || now[p.key] != p.value {
				delete(since, p)
			}
		}
		for _, key := range sorted(now) {
			p := pair{key, now[key]}
			first, known := since[p]
			switch lasts := s.At - first; {
			case trouble:
			case !known:
				since[p] = s.At
			case lasts > most && !said[p]:
				said[p] = true
				found(p.key, p.value, s.At, lasts)
			}
		}
	}
}

// settle: once everything is healed, the runs that existed then end soon (L4).
func (c fleet) settle() {
	if c.x.Settle == 0 || c.e.Healed == 0 {
		return
	}
	for _, r := range c.e.Runs {
		if !over(r.Status) || c.h.clock.machine(r.Created) > c.e.Healed {
			continue
		}
		if took := c.h.clock.machine(r.Finished) - c.e.Healed; took > c.x.Settle {
			c.violation("L4", r.ID, c.h.clock.machine(r.Finished), "it ended %v after everything was healed", took)
		}
	}
}

// takeovers: a worker process that died is OFFLINE, and its runs are claimed by others, or set back, soon (L5). Deaths
// in a time of trouble do not count.
func (c fleet) takeovers() {
	if c.x.Takeover == 0 {
		return
	}
	c.dead()
	for _, t := range c.h.takeovers() {
		if t.took > c.x.Takeover && c.quiet(t.died, t.died+c.x.Takeover) {
			c.violation("L5", t.lease.run, t.died+t.took, "process %s died with it, and %v later nobody had taken "+
				"it over", t.lease.by, t.took)
		}
	}
}

// dead: in the end, the workers of processes that died long before are OFFLINE.
func (c fleet) dead() {
	if len(c.e.Samples) == 0 {
		return
	}
	last := c.e.Samples[len(c.e.Samples)-1].At
	status := map[string]string{}
	for _, w := range c.e.Workers {
		status[w.ID] = w.Status
	}
	for _, x := range c.e.Exits {
		if !x.Killed || last-x.At < c.x.Takeover || !c.quiet(last-c.x.Takeover, last) {
			continue
		}
		for _, line := range c.e.Ledger {
			if s := status[line.Detail]; line.Worker == x.Worker && line.Event == "ONLINE" && s != "" &&
				s != "OFFLINE" {
				c.violation("L5", "", x.At, "process %s died, and %v later its worker %s is %s", x.Worker, last-x.At,
					line.Detail, s)
			}
		}
	}
}
