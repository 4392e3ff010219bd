package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// effects: a transactional step has exactly one effect if it is recorded, and else none (S16). One in parts, with a
// checkpoint after each, has the effects of the first parts, each once, and of all if it is recorded. The steps that a
// fork copied have theirs in the other run.
func (c steps) effects() {
	count := map[stepKey]int{}
	for _, effect := range c.e.Effects {
		count[stepKey{effect.Run, effect.Step}]++
	}
	for _, key := range sortedSteps(count) {
		if step, part, ok := partOf(key); ok {
			c.part(key, step, part, count)
			continue
		}
		switch record := c.h.result[key]; {
		case record == nil:
			c.violation("S16", key.run, 0, "transactional step %s had its effect, and is not recorded", key.step)
		case count[key] > 1:
			c.violation("S16", key.run, c.at(record), "transactional step %s had its effect %d times", key.step,
				count[key])
		}
	}
	for _, key := range sortedSteps(c.h.result) {
		record := c.h.result[key]
		if c.x.Moves != nil && c.x.Moves(key.step) && record.new.Kind == function && record.new.RunAttempt > 0 &&
			count[key] == 0 {
			c.violation("S16", key.run, c.at(record), "transactional step %s is recorded (change %d), and had "+
				"no effect", key.step, record.ChangeID)
		}
		for part := range c.parts(key.step) {
			if record.new.RunAttempt > 0 && count[partKey(key, part)] == 0 {
				c.violation("S16", key.run, c.at(record), "step %s is recorded (change %d), and part %d had no effect",
					key.step, record.ChangeID, part)
			}
		}
	}
}

// part checks the effects of one part of a step.
func (c steps) part(key, step stepKey, part int, count map[stepKey]int) {
	switch {
	case count[key] > 1:
		c.violation("S16", key.run, 0, "part %d of step %s had its effect %d times", part, step.step, count[key])
	case part > 0 && count[partKey(step, part-1)] == 0:
		c.violation("S16", key.run, 0, "part %d of step %s had its effect, and the one before had none", part,
			step.step)
	}
}

// parts returns how many parts a step has; zero: it is a whole.
func (c steps) parts(step string) int {
	if c.x.Parts == nil {
		return 0
	}
	return c.x.Parts(step)
}

// partKey names the effect of a part of a step.
func partKey(step stepKey, part int) stepKey {
	return stepKey{step.run, fmt.Sprintf("%s:%d", step.step, part)}
}

// partOf is the inverse of partKey.
func partOf(key stepKey) (step stepKey, part int, ok bool) {
	name, number, ok := strings.Cut(key.step, ":")
	part, err := strconv.Atoi(number)
	return stepKey{key.run, name}, part, ok && err == nil
}

// items: each item of a batch is dealt with at most once, and in the run that the acknowledgement named (S16). If that
// run completed, it has dealt with it (S1).
func (c steps) items() {
	by := map[string][]string{}
	for _, i := range c.e.Items {
		by[i.Item] = append(by[i.Item], i.Run)
		if n := len(by[i.Item]); n > 1 {
			c.violation("S16", i.Run, 0, "it has dealt with %q, as had run %s", i.Item, by[i.Item][n-2])
		}
	}
	if c.x.Item == nil {
		return
	}
	for _, call := range c.e.Calls {
		item, ok := c.x.Item(call)
		if !ok || call.Outcome != evidence.OK || c.x.Lossy {
			continue
		}
		switch runs := by[item]; {
		case len(runs) == 0 && c.h.final[call.Run].Status == "COMPLETED":
			c.violation("S1", call.Run, call.Ended, "it completed, and has not dealt with %q, which client %d "+
				"has added", item, call.Client)
		case len(runs) > 0 && !slices.Contains(runs, call.Run):
			c.violation("S16", runs[0], call.Ended, "it has dealt with %q, and client %d was told that run %s would",
				item, call.Client, call.Run)
		}
	}
}

// accounts: each account has what it had at the beginning and what the effects moved, so the sum is the same (S16).
func (c steps) accounts() {
	if c.x.Accounts == nil {
		return
	}
	want, before, after := map[string]int64{}, int64(0), int64(0)
	for name, balance := range c.x.Accounts {
		want[name] = balance
		before += balance
	}
	for _, effect := range c.e.Effects {
		want[effect.From] -= effect.Amount
		want[effect.To] += effect.Amount
	}
	for _, balance := range c.e.Accounts {
		after += balance
	}
	if before != after {
		c.violation("S16", "", 0, "the accounts have %d in all, and had %d", after, before)
		return
	}
	for _, name := range sorted(want) {
		if got := c.e.Accounts[name]; got != want[name] {
			c.violation("S16", "", 0, "account %q has %d, and the transfers make it %d", name, got, want[name])
		}
	}
}
