package replay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A watchdog finds code of the application that hangs: a step's function that goes on although its context has ended,
// and the function of a workflow or branch that is in no operation for long. It looks at the branches from time to
// time, so that a step pays for no timer. See doc_hung.go.
type watchdog struct {
	env     *Env
	after   time.Duration         // how long code must have gone on
	seen    map[*Branch]*sighting // of the last pass
	next    time.Time             // when the stacks may be taken again
	nesting nesting
}

// A watch is one pass of the watchdog over what a worker holds.
type watch struct {
	*watchdog
	runs  map[*Run]bool // and whether they hold slots
	slots int           // of the worker, if all are held; zero: some are free
}

// A sighting is what a branch does that it should not do for long.
type sighting struct {
	activity int64 // as long as it stays, the code has not returned: see suspicionOf
	attempt  attemptUnderWay
	begun    time.Time // when the step's context ended, or when the branch was first seen
	hung     *store.HungCode
	logged   bool
}

// mostHung is how much hung code a heartbeat reports one by one.
const mostHung = 100

// Watch returns a function that looks at the branches of the runs that a worker holds, and of those that were given up.
// It returns what a heartbeat says of code that has gone on for after, and of steps that wait for runs while such steps
// hold all slots; nil if there is none. It logs such code, and code that has returned since the call before.
//
// runs says which of them hold slots, and loses those whose code has returned. slots is how many the worker has, or
// zero if some are free. The last call does not wait for code whose run was given up. Calls come one after the other.
func Watch(env *Env, after time.Duration) func(runs map[*Run]bool, slots int, last bool) *store.Hung {
	w := &watchdog{env: env, after: after}
	return func(runs map[*Run]bool, slots int, last bool) *store.Hung {
		pass := watch{w, runs, slots}
		return pass.pass(time.Now(), last)
	}
}

func (w *watch) pass(now time.Time, last bool) *store.Hung {
	before := w.seen
	w.seen = map[*Branch]*sighting{}
	branches := w.branches()
	for _, b := range branches {
		stopped, abandoned := b.e.whenStopped()
		found, suspicious := suspicionOf(b, now, stopped)
		if !suspicious {
			continue
		}
		old := before[b]
		again := old != nil && old.activity == found.activity
		if again {
			found = *old
		}
		if found.hung == nil && (again && now.Sub(found.begun) >= w.after || last && abandoned) {
			found.hung = hungCodeOf(b, &found, now)
		}
		w.seen[b] = &found
	}
	for b, old := range before {
		if current := w.seen[b]; old.logged && (current == nil || current.activity != old.activity) {
			hungLog(b, old).Info("kagzi: code that hung has returned", "for", goneOn(now, old))
		}
	}
	w.log(now, last)
	return w.report(w.nested(branches, now))
}

// branches returns the branches of all runs that have not ended.
func (w *watch) branches() (all []*Branch) {
	for e := range w.runs {
		e.Lock()
		all = e.addGuardedLocked(all)
		ended := !e.isLiveLocked()
		e.Unlock()
		if ended {
			delete(w.runs, e)
		}
	}
	return all
}

// suspicionOf returns what b does, if that is something that it should not do for long: it executes a step's function
// whose context has ended, or it is in no operation. stopped is when the execution stopped, zero if it is under way.
// The activity is the position of the attempt, or below zero and another one after each operation.
func suspicionOf(b *Branch, now, stopped time.Time) (s sighting, suspicious bool) {
	operations := b.operations.Load()
	if a, inFunction := b.function(); inFunction {
		if a.ctx.Err() == nil {
			return s, false
		}
		s = sighting{activity: a.position, attempt: a, begun: now}
		if at, ok := a.ctx.Deadline(); ok && errors.Is(context.Cause(a.ctx), kind.Timeout) {
			s.begun = at
		} else if !stopped.IsZero() {
			s.begun = stopped
		}
		return s, true
	}
	s = sighting{activity: -1 - operations>>32, begun: now}
	if !stopped.IsZero() {
		s.begun = stopped
	}
	return s, operations&(1<<32-1) == 0
}

// hungCodeOf describes the code of s, for people.
func hungCodeOf(b *Branch, s *sighting, now time.Time) *store.HungCode {
	e := b.e
	h := &store.HungCode{
		RunID: e.RunID, Lease: e.Lease, Workflow: e.Type,
		Since: e.Now().Add(s.begun.Sub(now)).UTC(),
	}
	if s.attempt.ctx == nil {
		h.Branch = b.result.name
		return h
	}
	h.Step, h.Attempt, h.Cause = s.attempt.id, s.attempt.number,
		text.Sanitize(context.Cause(s.attempt.ctx).Error(), 200)
	return h
}

// report returns what the heartbeat says of hung code and of nested waits; nil if there is none.
func (w *watch) report(nested []store.HungCode) *store.Hung {
	var h store.Hung
	slots := map[*Run]bool{}
	for b, s := range w.seen {
		if s.hung == nil {
			continue
		}
		h.Functions++
		h.Codes = append(h.Codes, *s.hung)
		if w.runs[b.e] {
			slots[b.e] = true
		}
	}
	if h.Functions+len(nested) == 0 {
		return nil
	}
	h.Slots = len(slots)
	slices.SortFunc(h.Codes, func(a, b store.HungCode) int {
		return cmp.Or(a.Since.Compare(b.Since), bytes.Compare(a.RunID[:], b.RunID[:]), cmp.Compare(a.Branch, b.Branch),
			cmp.Compare(a.Step, b.Step))
	})
	h.Codes = append(h.Codes, nested...)
	h.Codes = h.Codes[:min(len(h.Codes), mostHung)]
	return &h
}

// log logs the hung code that is not logged yet, with the stacks, and at the last pass the other hung code, too. If
// stacks were taken too recently, a later pass does so.
func (w *watchdog) log(now time.Time, last bool) {
	var stacks []byte
	for b, s := range w.seen {
		if s.hung == nil {
			continue
		}
		if s.logged {
			if last {
				hungLog(b, s).Warn("kagzi: code that hangs goes on as the worker stops", "for", goneOn(now, s))
			}
			continue
		}
		if stacks == nil {
			if !last && now.Before(w.next) {
				return
			}
			stacks = w.dump()
		}
		s.logged = true
		log, stack := hungLog(b, s), stackOf(stacks, b) // the stack comes last: it is long
		if s.attempt.ctx == nil {
			log.Warn("kagzi: a workflow function blocks outside of steps: only a step may wait for something that is "+
				"not Kagzi's", "for", goneOn(now, s), "stack", stack)
		} else {
			log.Warn("kagzi: the function of a step goes on although its context has ended: pass ctx to what it calls",
				"because", s.hung.Cause, "for", goneOn(now, s), "stack", stack)
		}
	}
}

// goneOn says how long the code of s has gone on. It is a text, because JSON would have nanoseconds.
func goneOn(now time.Time, s *sighting) string {
	return now.Sub(s.begun).Round(time.Millisecond).String()
}

// hungLog returns the logger for lines about the code of s.
func hungLog(b *Branch, s *sighting) *slog.Logger {
	log := b.e.log().With("worker", b.e.ID())
	switch {
	case s.attempt.ctx != nil:
		return log.With("step", s.attempt.id, "attempt", s.attempt.number)
	case b.result.name != "":
		return log.With("branch", b.result.name)
	}
	return log
}

const (
	// mostStacks is how many goroutines a process may have for a dump of all stacks, which stops them all: for some 20
	// milliseconds for each thousand.
	mostStacks = 10_000

	// stacksPause is how many times as long as a dump the pause after it is, so that a worker never spends much of its
	// time on dumps.
	stacksPause = 20

	dumped    = 4 << 10 // bytes of a dump for each goroutine: most take a quarter
	mostStack = 8 << 10 // bytes of a stack in a line of the log
)

// dump returns the stacks of all goroutines; none if there are too many goroutines.
func (w *watchdog) dump() []byte {
	n := runtime.NumGoroutine()
	if n > mostStacks {
		return []byte{}
	}
	begun, stacks := time.Now(), make([]byte, (n+64)*dumped)
	stacks = stacks[:runtime.Stack(stacks, true)]
	w.next = time.Now().Add(stacksPause * time.Since(begun))
	return stacks
}

// stackOf finds the stack of b's goroutine. Its frame of guard shows the addresses of the execution and of the branch.
// Nothing else tells one goroutine from another in a dump, unless each of them paid for it when it began.
func stackOf(stacks []byte, b *Branch) string {
	frame := fmt.Appendf(nil, "replay.(*Run).guard(%p, %p,", b.e, b)
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, frame) {
			return text.Sanitize(string(failure.WithoutArguments(stack)), mostStack)
		}
	}
	return "not found: get it from /debug/pprof/goroutine?debug=2"
}
