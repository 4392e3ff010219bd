package checkup

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/duration"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// nested adds a check if steps that wait for the results of runs hold all slots of their workers.
func (e *examination) nested(workers []inspect.LiveWorker) {
	var parts []string
	for _, w := range workers {
		if w.Silent || w.Hung == nil {
			continue
		}
		for _, c := range w.Hung.Codes {
			if c.Awaits != uuid.Nil {
				parts = append(parts, fmt.Sprintf("%s of workflow %s (run %s, worker %s) for run "+
					"%s, for %s", codeText(c), text.Quote(c.Workflow), c.RunID, w.ID, c.Awaits,
					duration.About(e.report.At.Sub(c.Since))))
			}
		}
	}
	if len(parts) > 0 {
		e.add("nested", health.Degraded, "Steps wait for the results of runs, and such steps hold all slots of their "+
			"workers, so that none is free for these runs: %s. Call such a run as a child: "+
			"a workflow that waits for a child holds no slot. Until then start more workers, or raise MaxConcurrent.",
			text.List(parts, namedAtMost))
	}
}

// hung adds a check if code hangs in the workers.
func (e *examination) hung(workers []inspect.LiveWorker) {
	type found struct {
		store.HungCode
		text string
	}
	var all []found
	runs := map[uuid.UUID]bool{}
	functions, slots, steps, outside := 0, 0, false, false
	for _, w := range workers {
		if w.Silent || w.Hung == nil {
			continue
		}
		functions, slots = functions+w.Hung.Functions, slots+w.Hung.Slots
		for _, c := range w.Hung.Codes {
			if c.Awaits != uuid.Nil {
				continue
			}
			runs[c.RunID] = true
			steps, outside = steps || c.Step != "", outside || c.Step == ""
			all = append(all, found{c, fmt.Sprintf("%s of workflow %s (run %s, worker %s) for %s", codeText(c),
				text.Quote(c.Workflow), c.RunID, w.ID, duration.About(e.report.At.Sub(c.Since)))})
		}
	}
	if functions == 0 {
		return
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.text, b.text)) })
	var parts []string
	for _, f := range all {
		parts = append(parts, f.text)
	}
	number, hold := fmt.Sprintf("%d functions hang", functions), "Their runs hold "
	switch {
	case functions == 1:
		number, hold = "1 function hangs", "Its run holds "
	case len(runs) == 1:
		hold = "Their run holds "
	}
	switch slots {
	case 0:
		hold += "no slot"
	case 1:
		hold += "1 slot"
	default:
		hold += fmt.Sprintf("%d slots", slots)
	}
	advice := ""
	if steps {
		advice += " The function of a step must return when its ctx ends: pass ctx to all that it calls."
	}
	if outside {
		advice += " A workflow function must block in steps and in Kagzi's waits only."
	}
	e.add("hung", health.Degraded, "%s: %s. %s.%s The log of the worker has the stack. Restart the worker to free "+
		"what they hold.", number, text.List(parts, namedAtMost), hold, advice)
}

// codeText returns a part of a sentence that names the function, such as "step \"charge\"".
func codeText(c store.HungCode) string {
	switch {
	case c.Step != "":
		return "step " + text.Quote(c.Step)
	case c.Branch != "":
		return "branch " + text.Quote(c.Branch)
	}
	return "the function"
}

// slotsAdvice returns sentences that say what to do about runs that wait for a free slot.
func (e *examination) slotsAdvice() string {
	sum := e.report.Workers
	if sum.Hung == 0 {
		return "Start more workers or raise MaxConcurrent."
	}
	return fmt.Sprintf("Code that hangs holds %d of the %d slots: repair it and restart its workers, as the check "+
		"\"hung\" says. More workers help only until it hangs there, too.", sum.Hung, sum.Most)
}
