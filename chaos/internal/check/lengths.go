package check

import "time"

// longer is how much later than asked for a time to wake may be: what computing it may take on a busy machine.
const longer = time.Second

// lengths: a sleep lasts as long as the program asked for, by the database's clock (S9). A time to wake that was
// computed by another clock is wrong from the beginning, so that it is not enough to compare the end with it.
func (c steps) lengths() {
	if c.x.Sleep == nil || !c.h.clock.steady {
		return
	}
	for _, s := range c.e.Steps {
		if s.Kind != "SLEEP" || s.Status != "COMPLETED" || s.RunAttempt == 0 {
			continue
		}
		asked, ok := c.x.Sleep(c.h.final[s.Run], s.Step)
		if !ok {
			continue
		}
		until := s.Finished
		if !s.WakeAt.IsZero() {
			until = s.WakeAt
		}
		lasted := until.Sub(s.Started)
		if lasted < asked || !s.WakeAt.IsZero() && lasted > asked+longer {
			c.violation("S9", s.Run, c.h.clock.machine(s.Started), "sleep %s lasted %v, and the program asked for %v",
				s.Step, lasted, asked)
		}
	}
}
