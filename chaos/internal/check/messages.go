package check

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// messages: an acknowledged message is there, and a run reads its messages once and in the order in which they came.
// The statements of package dbtest find messages that two steps read.
func (c *checker) messages() {
	type id struct{ run, id string }
	there := map[id]bool{}
	bySequence := map[string]map[int64]evidence.Message{}
	for _, m := range c.e.Messages {
		if there[id{m.Run, m.ID}] {
			c.violation("messages", m.Run, 0, "message %q is stored twice", m.ID)
		}
		there[id{m.Run, m.ID}] = true
		if bySequence[m.Run] == nil {
			bySequence[m.Run] = map[int64]evidence.Message{}
		}
		bySequence[m.Run][m.Sequence] = m
	}
	for _, call := range c.e.Calls {
		if _, exists := c.h.final[call.Run]; !exists || call.Verb != "signal" || call.Outcome != evidence.OK ||
			c.x.Lossy {
			continue
		}
		if !there[id{call.Run, call.Message}] {
			c.violation("messages", call.Run, call.Ended, "client %d was told that message %q is stored, and it is "+
				"not there", call.Client, call.Message)
		}
	}
	for _, r := range c.e.Runs {
		c.read(r, bySequence[r.ID])
	}
}

// read checks the messages that a run has read on its own branch. Branches read in any order. A fork reads some again,
// behind records that it has copied.
func (c *checker) read(r evidence.Run, messages map[int64]evidence.Message) {
	if r.Origin != "" {
		return
	}
	var got []string
	last := map[string]int64{} // the last sequence by name
	steps := slices.Clone(c.h.table[r.ID])
	slices.SortStableFunc(steps, func(a, b evidence.Step) int { return cmp.Compare(a.Position, b.Position) })
	for _, s := range steps {
		if s.Kind != "SIGNAL" && s.Kind != "REQUEST" || s.Status != "COMPLETED" || s.Sequence == 0 ||
			strings.Contains(s.Step, "/") {
			continue
		}
		m := messages[s.Sequence]
		if s.Sequence < last[m.Name] {
			c.violation("messages", r.ID, c.h.clock.machine(s.Finished), "step %s read message %d after message %d",
				s.Step, s.Sequence, last[m.Name])
		}
		last[m.Name] = s.Sequence
		got = append(got, m.Payload)
	}
	want, ok := c.ending(r)
	if !ok || want.Messages == nil {
		return
	}
	if r.Epoch > 1 { // the records of the earliest epochs are gone
		if r.Status != "COMPLETED" {
			return
		}
		want.Messages = want.Messages[max(0, len(want.Messages)-len(got)):]
	}
	for i, payload := range got {
		if i >= len(want.Messages) || !same(payload, want.Messages[i]) {
			c.violation("messages", r.ID, 0, "the messages that it read are %.300q, and its program reads %.300q", got,
				want.Messages)
			return
		}
	}
	if r.Status == "COMPLETED" && len(got) < len(want.Messages) {
		c.violation("messages", r.ID, 0, "it completed having read %d messages, and its program reads %d", len(got),
			len(want.Messages))
	}
}

// asks: who asks a run gets the one answer, and is told that the run is over only if it is, and has not answered. A run
// that completes has answered all requests that it has read.
func (c *checker) asks() {
	for _, call := range c.e.Calls {
		r, there := c.h.final[call.Run]
		if call.Verb != "ask" || !there || c.x.Answer == nil {
			continue
		}
		switch want := c.x.Answer(call); {
		case call.Outcome == evidence.OK && call.Output != want:
			c.violation("messages", call.Run, call.Ended, "client %d got the answer %q to request %q, and it is %q",
				call.Client, call.Output, call.Message, want)
		case call.Outcome == evidence.Failed && !over(r.Status) && !c.x.Lossy && !c.h.had(call.Run, "RESUMED"):
			c.violation("messages", call.Run, call.Ended, "client %d was told that the run is over (%.200s), and it "+
				"is %s", call.Client, call.Error, r.Status)
		case call.Outcome == evidence.Failed && r.Status == "COMPLETED" && !c.x.Lossy &&
			!c.h.had(call.Run, "RESUMED") && c.reads(r, call.Name):
			c.violation("messages", call.Run, call.Ended, "client %d got no answer to request %q (%.200s), and the "+
				"run has answered it", call.Client, call.Message, call.Error)
		}
	}
}

// reads reports whether the program of a run reads a message with that payload.
func (c *checker) reads(r evidence.Run, payload string) bool {
	want, ok := c.ending(r)
	return ok && slices.Contains(want.Messages, payload)
}

// events: an event whose publication was acknowledged is there. Events are kept for longer than a round lasts.
func (c *checker) events() {
	if c.x.Lossy {
		return
	}
	type id struct{ topic, id string }
	there := map[id]bool{}
	for _, e := range c.e.Events {
		there[id{e.Topic, e.ID}] = true
	}
	for _, call := range c.e.Calls {
		if call.Verb == "publish" && call.Outcome == evidence.OK && !call.RolledBack &&
			!there[id{call.Name, call.Message}] {
			c.violation("consumers", "", call.Ended, "client %d was told that event %q of topic %q is published, and "+
				"it is not there", call.Client, call.Message, call.Name)
		}
	}
}

// published: an event that a run publishes is there once if the step is recorded, and else not at all (S16). What a
// fork copied was published by the other run.
func (c *checker) published() {
	if c.x.Published == nil {
		return
	}
	count := map[stepKey]int{}
	for _, e := range c.e.Events {
		if run, step, ok := c.x.Published(e); ok {
			count[stepKey{run, step}]++
		}
	}
	for _, key := range sortedSteps(c.h.result) {
		record := c.h.result[key]
		if record.new.Kind != "PUBLISH" || record.new.RunAttempt == 0 {
			continue
		}
		key.step = key.step[strings.LastIndex(key.step, "/")+1:]
		if n := count[key]; n != 1 {
			c.violation("S16", key.run, c.at(record), "step %s is recorded (change %d), and its event was published "+
				"%d times", key.step, record.ChangeID, n)
		}
		delete(count, key)
	}
	for _, key := range sortedSteps(count) {
		c.violation("S16", key.run, 0, "the event of step %s was published, and the step is not recorded", key.step)
	}
}

// consumers: each consumer looks at the events of a topic in their order, and passes none over. A consumer that crashed
// may look at an event again.
func (c *checker) consumers() {
	type event struct{ consumer, id string }
	seen := map[event]int{} // when it was first looked at, as a number
	for _, line := range c.e.Ledger {
		if line.Event != evidence.Consume {
			continue
		}
		first := c.h.created(line.Run)
		if first == nil {
			if !c.x.Lossy {
				c.violation("consumers", line.Run, line.At, "it looked at event %q, and does not exist", line.Detail)
			}
			continue
		}
		if this := (event{first.new.Workflow, line.Detail}); seen[this] == 0 {
			seen[this] = len(seen) + 1
		}
	}
	type topic struct{ namespace, name string }
	events := map[topic][]evidence.Event{}
	for _, e := range c.e.Events {
		key := topic{e.Namespace, e.Topic}
		events[key] = append(events[key], e)
	}
	for _, r := range c.e.Readers {
		last := evidence.Event{}
		for _, e := range events[topic{r.Namespace, r.Topic}] {
			when := seen[event{r.Consumer, e.ID}]
			switch {
			case when == 0 && e.Position <= r.Position:
				c.violation("consumers", "", 0, "consumer %q has passed over event %q of topic %q", r.Consumer,
					e.ID, r.Topic)
			case when == 0 && c.e.Over > 0:
				c.violation("consumers", "", c.e.Over, "consumer %q has not looked at event %q of topic %q, "+
					"position %d", r.Consumer, e.ID, r.Topic, e.Position)
			case last.ID != "" && when < seen[event{r.Consumer, last.ID}]:
				c.violation("consumers", "", 0, "consumer %q looked at event %q of topic %q before event %q, which "+
					"came earlier", r.Consumer, e.ID, r.Topic, last.ID)
			}
			if when > 0 {
				last = e
			}
		}
	}
}

// children: what a step of a parent says of its child is what the child's run says, and each attempt of the step has
// one child.
func (c *checker) children() {
	type place struct{ parent, step string }
	count := map[place]int{}
	for _, r := range c.e.Runs {
		if r.Parent != "" && r.ParentStep != "" && !strings.HasSuffix(r.ParentStep, compensationSuffix) {
			count[place{r.Parent, r.ParentStep}]++
		}
	}
	for _, key := range sortedSteps(c.h.steps) {
		attempts := c.h.steps[key]
		if attempts[0].Kind != "CHILD_WORKFLOW" {
			continue
		}
		if n := count[place{key.run, key.step}]; n > len(attempts) {
			c.violation("children", key.run, 0, "step %s has %d attempts and %d children", key.step, len(attempts), n)
		}
		for _, s := range attempts {
			child, there := c.h.final[s.Child]
			switch {
			case !there || s.Status == "RUNNING":
			case s.Status == "COMPLETED" && (child.Status != "COMPLETED" || child.Hash != s.Hash):
				c.violation("children", key.run, c.h.clock.machine(s.Finished), "step %s has the result %.100s of "+
					"its child %s, which is %s with %.100s", s.Step, s.Output, s.Child, child.Status, child.Output)
			case s.Status == "FAILED" && child.Status == "COMPLETED" && !c.h.had(child.ID, "RESUMED"):
				c.violation("children", key.run, c.h.clock.machine(s.Finished), "step %s says that its child %s "+
					"failed, and it completed", s.Step, s.Child)
			}
		}
	}
}
