package check

// sleeps: a sleep is recorded as over at or after its time (S9). If a fault has set the database's clock, the change's
// time may be earlier than that of the end.
func (c steps) sleeps() {
	for _, key := range sortedSteps(c.h.result) {
		record := c.h.result[key]
		if record.new.Kind != "SLEEP" || record.new.RunAttempt == 0 || !c.h.clock.steady {
			continue
		}
		if early := record.new.WakeAt.Sub(record.At); early > 0 {
			c.violation("S9", key.run, c.at(record), "sleep %s was over %v before its time (change %d)", key.step,
				early, record.ChangeID)
		}
	}
}

// backoffs: after a failed attempt, the next one is due after a backoff as its policy says, and does not begin before
// (S9).
func (c steps) backoffs() {
	if !c.h.clock.steady {
		return
	}
	for _, s := range c.e.Steps {
		if s.Kind != function || s.Status != "FAILED" || s.WakeAt.IsZero() || s.ErrorKind == "cancelled" {
			continue
		}
		key := stepKey{s.Run, s.Step}
		if record := c.h.over[attemptKey{key, s.Attempt}]; record != nil && c.x.Backoff != nil {
			least, most := c.x.Backoff(s)
			if wait := s.WakeAt.Sub(record.At); wait > most {
				c.violation("S9", s.Run, c.at(record), "attempt %d of step %s failed (%s), and the next is to follow "+
					"%v after the record, not after at most %v", s.Attempt, s.Step, s.ErrorKind, wait, most)
			}
			if wait := s.WakeAt.Sub(s.Finished); wait < least {
				c.violation("S9", s.Run, c.at(record), "attempt %d of step %s failed (%s), and the next is to follow "+
					"after %v, not after at least %v", s.Attempt, s.Step, s.ErrorKind, wait, least)
			}
		}
		if c.x.Lossy { // the attempt that was begun may be one that is lost
			continue
		}
		for _, line := range c.h.lines[key] {
			if early := c.h.clock.machine(s.WakeAt) - drift - line.At; line.Event == "BEGIN" &&
				line.Attempt == s.Attempt+1 && early > 0 {
				c.violation("S9", s.Run, line.At, "attempt %d of step %s began %v before the end of its backoff",
					line.Attempt, s.Step, early+drift)
			}
		}
	}
}

// turns: no run is claimed before its time, which is the end of the lease if a worker has it. After a failed attempt of
// a run its next one is due within the backoff of its policy (S9).
func (c steps) turns() {
	for _, change := range c.h.changes {
		if !change.ofRun() || change.old == nil || change.new == nil || !c.h.clock.steady {
			continue
		}
		old, now := change.old, change.new
		if early := old.Available.Sub(change.At); now.Status == "RUNNING" && now.Lease != old.Lease && early > 0 {
			c.violation("S9", change.Run, c.at(change), "process %q claimed it %v before its time (change %d)",
				change.By, early, change.ChangeID)
		}
		if now.Attempts == old.Attempts || now.Status != "PENDING" || c.x.RunBackoff == nil {
			continue
		}
		if most := c.x.RunBackoff(now.Workflow, now.Attempts); most > 0 && now.Available.Sub(change.At) > most {
			c.violation("S9", change.Run, c.at(change), "attempt %d failed, and the next is to follow after %v, not "+
				"after at most %v (change %d)", now.Attempts, now.Available.Sub(change.At), most, change.ChangeID)
		}
	}
}
