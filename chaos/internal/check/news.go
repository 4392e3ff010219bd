package check

import (
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// news: an event that clients publish is there once, with the payload with which it was published first, and each run
// and each client that has waited for it has got that (S17). The output of a run says that it has waited.
func (c steps) news() {
	if c.x.Payload == nil {
		return
	}
	first := map[evidence.Event]int64{} // positions
	for _, e := range c.e.Events {
		key := evidence.Event{Topic: e.Topic, ID: e.ID, Namespace: e.Namespace}
		want, ok := c.x.Payload(key)
		if !ok {
			continue
		}
		if at, twice := first[key]; twice {
			c.violation("S17", "", 0, "event %q of topic %q is there twice, at the positions %d and %d", e.ID, e.Topic,
				at, e.Position)
		}
		first[key] = e.Position
		if !same(e.Payload, want) {
			c.violation("S17", "", 0, "event %q of topic %q has the payload %.200s, and was published with %.200s "+
				"first", e.ID, e.Topic, e.Payload, want)
		}
	}
	for _, call := range c.e.Calls {
		want, ok := c.x.Payload(evidence.Event{Topic: call.Name, ID: call.Message})
		if ok && call.Verb == "await" && call.Outcome == evidence.OK && call.Output != want {
			c.violation("S17", "", call.Ended, "client %d has waited for event %q of topic %q and got %.200s, and it "+
				"is %.200s", call.Client, call.Message, call.Name, call.Output, want)
		}
	}
	for _, s := range c.e.Steps {
		c.heard(s)
	}
}

// heard checks a run's record of a wait for an event. The waits have no timeout that strikes.
func (c steps) heard(s evidence.Step) {
	if s.Kind != eventKind || s.Status != "COMPLETED" || c.x.Awaited == nil {
		return
	}
	e, ok := c.x.Awaited(c.h.final[s.Run], s.Step)
	if !ok {
		return
	}
	at := c.h.clock.machine(s.Finished)
	if want, _ := c.x.Payload(e); s.ErrorKind != "" {
		c.violation("S17", s.Run, at, "step %s waited for event %q, and failed: %s", s.Step, e.ID, s.ErrorKind)
	} else if !same(s.Output, want) {
		c.violation("S17", s.Run, at, "step %s waited for event %q and got %.200s, and it is %.200s", s.Step, e.ID,
			s.Output, want)
	}
}

// told: no run sleeps and waits for an event that is published, for longer than it takes to tell the run of it; in the
// end no event is left of which runs are to be told (L6). Time of trouble does not count.
func (c fleet) told() {
	if c.x.Told == 0 {
		return
	}
	untold := func(s *evidence.Sample) map[string]string { return s.Untold }
	lasting(c.e.Samples, c.x.Told, untold, func(run, event string, at, waits time.Duration) {
		c.violation("L6", run, at, "for %v it has been waiting for event %q, which is published", waits, event)
	})
	for _, a := range c.e.Awaited {
		c.violation("L6", "", c.e.Over, "event %q of topic %q is published, and its runs are not told of it", a.ID,
			a.Topic)
	}
}
