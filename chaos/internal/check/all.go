package check

import "github.com/kagzi/kagzi/chaos/internal/evidence"

// All returns all violations, those of one invariant together.
func All(e *evidence.Evidence, x Expectations) []Violation {
	c := &checker{e: e, x: x, h: newHistory(e)}
	s, f := steps{c}, fleet{c}
	for _, check := range []func(){
		c.acknowledgedStarts, c.activeRuns, c.answers, c.unknownStarts,
		c.resumes, c.endings,
		f.holders, f.leases,
		s.results, s.repetitions, s.calls, s.zombies, s.happened, s.unrecorded, s.executions, s.values,
		c.ticks,
		s.sleeps, s.lengths, s.backoffs, s.turns,
		c.cancels,
		f.drains,
		c.deletions,
		s.effects, s.items, s.accounts, c.rolledBack,
		c.compensations, c.messages, c.asks, c.events, c.published, s.news, c.consumers, c.children, c.verbs,
		f.unended, f.unheld, f.due, f.admitted, f.settle, f.takeovers, f.told,
	} {
		check()
	}
	return c.found
}
