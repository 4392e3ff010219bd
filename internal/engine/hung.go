package engine

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
	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// A watchdog finds code of the application that hangs: a step's function that goes on although its context has ended,
// and the function of a workflow or branch that is in no operation for long. It looks at the branches from time to
// time, so that a step pays for no timer. Only the goroutine of its loop uses it. See doc_hung.go.
type watchdog struct {
	s    *Session
	seen map[*Branch]*sighting // of the last pass
	next time.Time             // when the stacks may be taken again

	nesting nesting
}

// A sighting is what a branch does that it should not do for long.
type sighting struct {
	activity int64 // as long as it stays, the code has not returned: see suspicion
	attempt  attemptUnderWay
	begun    time.Time // when the step's context ended, or when the branch was first seen
	hung     *store.HungCode
	logged   bool
}

// mostHung is how much hung code a heartbeat reports one by one.
const mostHung = 100

// watch makes passes until stop is closed, and then a last one: what goes on after the drain does not obey its context.
func (s *Session) watch(stop chan struct{}) {
	w := &watchdog{s: s, nesting: nesting{s: s}}
	ticker := time.NewTicker(max(s.cfg.HungAfter/4, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.pass(time.Now(), false)
		case <-stop:
			w.pass(time.Now(), true)
			return
		}
	}
}

// pass looks at all branches. It reports and logs the code that has gone on for HungAfter, and logs what has returned
// since the pass before. The last pass does not wait for code whose run was given up.
func (w *watchdog) pass(now time.Time, last bool) {
	before := w.seen
	w.seen = map[*Branch]*sighting{}
	branches := w.s.branches()
	for _, b := range branches {
		stopped, abandoned := b.e.whenStopped()
		found, suspicious := b.suspicion(now, stopped)
		if !suspicious {
			continue
		}
		old := before[b]
		again := old != nil && old.activity == found.activity
		if again {
			found = *old
		}
		if found.hung == nil && (again && now.Sub(found.begun) >= w.s.cfg.HungAfter || last && abandoned) {
			found.hung = b.hungCode(&found, now)
		}
		w.seen[b] = &found
	}
	for b, old := range before {
		if current := w.seen[b]; old.logged && (current == nil || current.activity != old.activity) {
			b.hungLog(old).Info("kagzi: code that hung has returned", "for", goneOn(now, old))
		}
	}
	w.log(now, last)
	if w.s.setHung(w.report(w.nesting.pass(branches, now))) {
		goroutine.Signal(w.s.heartbeats)
	}
}

// branches returns the branches of all executions, and of those that were given up, that have not ended.
func (s *Session) branches() (all []*Branch) {
	s.mu.Lock()
	executions := make([]*execution, 0, len(s.executing)+len(s.abandoned))
	for _, e := range s.executing {
		executions = append(executions, e)
	}
	for e := range s.abandoned {
		executions = append(executions, e)
	}
	s.mu.Unlock()
	var ended []*execution
	for _, e := range executions {
		e.Lock()
		all = e.addGuardedLocked(all)
		if !e.isLiveLocked() {
			ended = append(ended, e)
		}
		e.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range ended {
		delete(s.abandoned, e)
	}
	return all
}

// abandon makes the watchdog go on watching e, whose run is given up although its code has not returned.
func (s *Session) abandon(e *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned[e] = true
}

// suspicion returns what b does, if that is something that it should not do for long: it executes a step's function
// whose context has ended, or it is in no operation. stopped is when the execution stopped, zero if it is under way.
// The activity is the position of the attempt, or below zero and another one after each operation.
func (b *Branch) suspicion(now, stopped time.Time) (s sighting, suspicious bool) {
	operations := b.operations.Load()
	if a, inFunction := b.display.current(&b.inStep); inFunction {
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

// hungCode describes the code of s, for people.
func (b *Branch) hungCode(s *sighting, now time.Time) *store.HungCode {
	e := b.e
	h := &store.HungCode{
		RunID: e.RunID, Lease: e.Lease, Workflow: e.Type,
		Since: e.now().Add(s.begun.Sub(now)).UTC(),
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
func (w *watchdog) report(nested []store.HungCode) *store.Hung {
	var h store.Hung
	slots := map[*execution]bool{}
	for b, s := range w.seen {
		if s.hung == nil {
			continue
		}
		h.Functions++
		h.Codes = append(h.Codes, *s.hung)
		if b.e.holdsSlot() {
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

// setHung replaces the report. It reports whether there is more or less of it than before.
func (s *Session) setHung(h *store.Hung) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.hung
	s.hung = h
	switch {
	case old == nil || h == nil:
		return old != h
	case old.Functions != h.Functions || old.Slots != h.Slots:
		return true
	}
	return !slices.Equal(old.Codes, h.Codes)
}

// Hung returns how many functions hang.
func (s *Session) Hung() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hung == nil {
		return 0
	}
	return s.hung.Functions
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
				b.hungLog(s).Warn("kagzi: code that hangs goes on as the worker stops", "for", goneOn(now, s))
			}
			continue
		}
		if stacks == nil {
			var taken bool
			if stacks, taken = w.takeStacks(last); !taken {
				return
			}
		}
		s.logged = true
		log, stack := b.hungLog(s), stackOf(stacks, b) // the stack comes last: it is long
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
func (b *Branch) hungLog(s *sighting) *slog.Logger {
	log := b.e.log().With("worker", b.e.environment.ID())
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

	mostDump  = 64 << 20 // bytes of a dump
	mostStack = 8 << 10  // bytes of a stack in a line of the log
)

// takeStacks returns the stacks of all goroutines, or why there are none. taken is false if it is too early, unless now
// says that it must be now.
func (w *watchdog) takeStacks(now bool) (stacks []byte, taken bool) {
	begun := time.Now()
	if !now && begun.Before(w.next) {
		return nil, false
	}
	n := runtime.NumGoroutine()
	if n > mostStacks {
		return fmt.Appendf(nil, notTaken+", because the process has %d goroutines: get them from "+
			"/debug/pprof/goroutine?debug=2", n), true
	}
	defer func() { w.next = time.Now().Add(stacksPause * time.Since(begun)) }()
	for size := max(64<<10, n*(4<<10)); ; size *= 2 {
		stacks = make([]byte, min(size, mostDump))
		if n := runtime.Stack(stacks, true); n < len(stacks) || size >= mostDump {
			return stacks[:n], true
		}
	}
}

const notTaken = "not taken"

// stackOf finds the stack of b's goroutine. Its frame of guard shows the addresses of the execution and of the branch.
// Nothing else tells one goroutine from another in a dump, unless each of them paid for it when it began.
func stackOf(stacks []byte, b *Branch) string {
	frame := fmt.Appendf(nil, "engine.(*execution).guard(%p, %p,", b.e, b)
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, frame) {
			return text.Sanitize(string(failure.WithoutArguments(stack)), mostStack)
		}
	}
	if bytes.HasPrefix(stacks, []byte(notTaken)) {
		return string(stacks)
	}
	return "not found: get it from /debug/pprof/goroutine?debug=2"
}
