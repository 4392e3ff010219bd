// Package check finds out whether a round of chaos kept the promises. Its functions are pure: they read the evidence
// and nothing else.
//
// Some promises are about moments: whether a worker held the lease when it wrote, whether a step was executed after its
// result was recorded. The checks of these go through the audit's changes in their order, and compare no clocks. What
// the final tables and the audit tell by themselves, the statements of package dbtest find.
//
//	S1   an acknowledged start exists
//	S2   an external ID has one active run at each moment; acknowledgements name a run of that ID; an unknown start
//	     made at most one run
//	S3   a run that is over stays over, unless it was resumed; it ends as the oracle says, unless a client interfered
//	S4   only the process that claimed the lease writes under it, and only it executes steps
//	S5   a step has one recorded result
//	S6   a recorded step is not executed again
//	S7   each record has happened, with that result
//	S8   each tick of a schedule has its run, and no other time has one
//	S9   no sleep or backoff ends early, none lasts longer than its program or its policy says, and no run is
//	     claimed before its time
//	S10  a cancel that was acknowledged wins, and nothing begins after it
//	S11  a step is executed at most once for each attempt and interruption
//	S12  a worker that was drained leaves nothing
//	S13  a run is deleted only if it is old, or a client asked for it
//	S15  payloads come back as they were
//	S16  a transactional step has its effect exactly if it is recorded; a start that was rolled back left nothing; an
//	     item of a batch is dealt with once, and an event that a run publishes is published once
//	S17  an event is published once, with its first payload; each run and each client that waits for it gets that
//
// The others are called "compensations", "messages", "consumers", "children" and "verbs". L1 to L6 are about liveness:
//
//	L1  every run has ended
//	L2  no run is RUNNING under a lease that no live worker holds
//	L3  no due run waits beside a free slot, nor does the next run of a queue or key whose limit has room
//	L4  after healing, the last run ends soon
//	L5  a dead worker's runs are taken over soon
//	L6  no run waits for an event that is published
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A Violation is a promise that was broken.
type Violation struct {
	Invariant string        // "S6"
	Run       string        // empty if it is about no single run
	What      string        // for people
	At        time.Duration // by the machine's monotonic clock; zero if it is unknown
}

func (v Violation) String() string {
	if v.Run == "" {
		return v.Invariant + ": " + v.What
	}
	return fmt.Sprintf("%s: run %s: %s", v.Invariant, v.Run, v.What)
}

// Expectations are what the round's plan and its workloads promise. A function that is nil, and a bound that is zero,
// expects nothing.
type Expectations struct {
	// Ending says how a run must end. It returns false for a run of which the oracle knows nothing.
	Ending func(evidence.Run) (Ending, bool)

	// Program returns the number of the program that a run executes, if a customer's start made it. It returns false
	// for children, compensations and runs of schedules and consumers.
	Program func(evidence.Run) (int, bool)

	// Transactional reports whether a step, named by its ID, is executed in a transaction: it is executed again if that
	// failed. Moves reports whether it has an Effect, too.
	Transactional func(step string) bool
	Moves         func(step string) bool

	// Parts returns how many parts a transactional step has, each with an Effect and a checkpoint: its Effects have the
	// steps "step:0", "step:1" and so on. Zero: it is a whole.
	Parts func(step string) int

	// Once reports whether a step is called at most once for each of its attempts, and may have a result that no call
	// has returned.
	Once func(step string) bool

	// Ended reports whether a start with an ID may return a run that is over, because its policy says so.
	Ended func(evidence.Call) bool

	// Item returns the item that a customer's call added to a batch. It returns false for other calls.
	Item func(evidence.Call) (string, bool)

	// Answer returns the answer to the request that a customer has asked.
	Answer func(evidence.Call) string

	// Sleep says for how long a run sleeps in a step, named by its ID. It returns false if the step is no sleep of its
	// program.
	Sleep func(run evidence.Run, step string) (time.Duration, bool)

	// Backoff returns the shortest and the longest wait after a failed attempt of a step, with its jitter (S9).
	Backoff func(evidence.Step) (least, most time.Duration)

	// RunBackoff is the longest wait after so many failed attempts of a workflow's run, with its jitter (S9); zero if
	// anything is right.
	RunBackoff func(workflow string, attempts int) time.Duration

	Events

	// Accounts are the balances at the beginning.
	Accounts map[string]int64

	// Lossy says that a failover may have lost the newest commits. What is left must still be consistent, also with
	// what workers had in memory, but what was acknowledged may be gone.
	Lossy bool

	Bounds
}

// Events say what is known of events. A function that is nil knows nothing.
type Events struct {
	// Published returns the run and the step that have published an event; the step's name without those of groups and
	// branches. It returns false for an event that no run has published.
	Published func(evidence.Event) (run, step string, ok bool)

	// Payload returns the payload with which an event was published first, of which the topic and the ID are given. It
	// returns false if that is unknown.
	Payload func(evidence.Event) (string, bool)

	// Awaited returns the event for which a run waits in a step, named by its ID, with topic and ID. It returns false
	// if the step is no such wait.
	Awaited func(run evidence.Run, step string) (evidence.Event, bool)
}

// Bounds say how long things may take.
type Bounds struct {
	Settle    time.Duration // L4: from the last fault's end to the end of the last run
	Takeover  time.Duration // L5: from the death of a worker process to the next claim of its runs
	Unheld    time.Duration // L2: how long a run may be RUNNING under a lease that no live worker process holds
	Due       time.Duration // L3: how long a due run may wait beside a free slot: the poll interval and a margin
	Told      time.Duration // L6: how long a run may wait for an event that is published
	Retention time.Duration // S13: how long ago a run ended that retention deletes; zero: it deletes none
}

// An Ending is how a run must end if no client interferes with it: cancels, terminates, resumes or deletes it, one
// above or one below it. If it completes nevertheless, it completes with Output.
type Ending struct {
	Failed     bool
	Kinds      []string // of a run that fails: the kinds of the error that are right; nil: any
	Output     string   // of a run that completes: its JSON, or the text if it is one
	Value      string   // the same of its value, as it was set last; empty: it sets none
	AnyValue   bool     // it may have begun with a later epoch, so that Value may have been set in another run
	RollsBack  bool     // it completes once its compensations have run
	Registered []string // the compensations that it registers until its end, in this order; their names without suffix
	Messages   []string // the payloads that it reads until its end, in this order: JSON, or the text
	Replaced   bool     // starts or ticks may cancel it
}

// A checker collects the violations.
type checker struct {
	e     *evidence.Evidence
	x     Expectations
	h     *history
	found []Violation
}

func (c *checker) violation(invariant, run string, at time.Duration, format string, args ...any) {
	c.found = append(c.found, Violation{invariant, run, fmt.Sprintf(format, args...), at})
}

// at returns when a change was, by the machine's clock.
func (c *checker) at(change *change) time.Duration { return c.h.clock.machine(change.At) }

// ending is Expectations.Ending.
func (c *checker) ending(r evidence.Run) (Ending, bool) {
	if c.x.Ending == nil {
		return Ending{}, false
	}
	return c.x.Ending(r)
}

// once is Expectations.Once.
func (c *checker) once(step string) bool { return c.x.Once != nil && c.x.Once(step) }

func (c *checker) transactional(step string) bool {
	return c.x.Transactional != nil && c.x.Transactional(step)
}

// sorted returns the keys of a map in order, so that two checks of the same evidence say the same.
func sorted[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// sortedSteps is sorted for maps of steps.
func sortedSteps[V any](m map[stepKey]V) []stepKey {
	keys := make([]stepKey, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b stepKey) int {
		return cmp.Or(cmp.Compare(a.run, b.run), cmp.Compare(a.step, b.step))
	})
	return keys
}
