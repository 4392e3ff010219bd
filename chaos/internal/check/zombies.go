package check

import "time"

// begins is how long a process may take from its look at the time to the first line of the step.
const begins = 500 * time.Millisecond

// zombies: no worker begins a step whose result another one recorded a while ago (S6). repetitions goes by the order of
// leases, and cannot see that: the zombie's lease is the older one. So this check compares clocks. A step that begins
// shortly after the record may have been allowed to.
func (c steps) zombies() {
	if !c.h.clock.steady {
		return
	}
	for _, key := range sortedSteps(c.h.result) {
		record := c.h.result[key]
		holder := c.h.holder[record.ChangeID]
		if holder == nil || record.new.Kind != function || record.new.RunAttempt == 0 {
			continue
		}
		for _, line := range c.h.lines[key] {
			l := c.h.leases[leaseKey{key.run, line.Lease}]
			if line.Event != "BEGIN" || l == nil || line.Lease == holder.id || l.claim.ChangeID > record.ChangeID {
				continue
			}
			if late := line.At - c.at(record); late > drift+begins {
				c.violation("S6", key.run, line.At, "step %s began in worker %s under lease %s, %v after its result "+
					"was recorded under lease %s (change %d)",
					key.step, line.Worker, line.Lease, late, holder.id, record.ChangeID)
			}
		}
	}
}
