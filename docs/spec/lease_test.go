package spec

import "fmt"

// Lease and fence: two workers and one run of one step. A claim gives a lease, which may end while the worker goes on.
// Every write carries the lease. Answers are lost, and workers crash.
//
//	claim, its answer     store.Claims.Claim, store.Claims.Resolve
//	load                  store.Histories.Load: the history, read after the claim
//	call                  internal/replay, Branch.Step: a worker calls a step's function only while its Term lasts
//	record, its commit    insertResults, recordSteps (FOR SHARE on the run's row), resolve
//	finish, its answer    completeRuns, resolve

// leaseTwin is a mistake that is made on purpose.
type leaseTwin int

const (
	leaseRight         leaseTwin = iota
	recordsByJoin                // the record tests the lease without a lock on the run's row
	finishWithoutLease           // the end of a run does not compare the lease
	finishWithoutLook            // a finish that is repeated and finds nothing to write counts as lost
	callWithoutTerm              // a worker calls a step's function although its lease may be over
)

// The phases of a worker.
const (
	idle         = iota
	claimUnknown // the answer to its claim was lost
	claimed
	loaded    // it has read the history
	called    // it has a result, which is not recorded
	recording // its record is written, and not committed
	recordUnknown
	ready // the result is in the table
	finishUnknown
	reported    // it has told that the run is over
	misreported // it has told that it has lost the run, which its own write has ended
)

var leasePhases = []string{
	"idle", "claim unknown", "claimed", "loaded", "called", "recording", "record unknown",
	"ready", "finish unknown", "reported", "misreported",
}

type leaseWorker struct {
	phase, lease, result uint8
}

type leaseState struct {
	lease      uint8 // of the run: the number of claims so far
	expired    bool
	result     uint8 // the recorded one: the lease under which it was made
	ended      bool
	by, output uint8 // of the end
	worker     [2]leaseWorker
	faults     uint8
	again      bool // a step was called after its result was recorded
	stolen     bool // the run was ended under a lease that is not its own
}

const (
	mostLeases      = 4
	mostLeaseFaults = 3
)

func leaseSpec(twin leaseTwin) specification[leaseState] {
	return specification[leaseState]{
		steps: func(s leaseState) (next []step[leaseState]) {
			if s.lease > 0 && s.lease < mostLeases && !s.expired && !s.ended {
				to := s
				to.expired = true
				next = append(next, step[leaseState]{what: "the lease ends", to: to})
			}
			for w := range s.worker {
				next = append(next, leaseSteps(s, w, twin)...)
			}
			return next
		},
		wrong: func(s leaseState) string {
			switch {
			case s.again:
				return "a step is called although its result is recorded"
			case s.stolen:
				return "a worker ends a run that it does not hold"
			case s.ended && s.output != s.result:
				return "the run ends with another result than its step's"
			case s.worker[0].phase == misreported || s.worker[1].phase == misreported:
				return "a worker takes a run for lost that its own write has ended"
			}
			return ""
		},
		done: func(s leaseState) bool { return s.ended },
		text: func(s leaseState) string {
			text := fmt.Sprintf("lease %d, expired %v, recorded %d, ended %v", s.lease, s.expired, s.result, s.ended)
			for i, w := range s.worker {
				text += fmt.Sprintf("; worker %d: %s under %d, result %d", i+1, leasePhases[w.phase], w.lease, w.result)
			}
			return text
		},
	}
}

// leaseSteps are the steps of one worker.
func leaseSteps(s leaseState, w int, twin leaseTwin) (next []step[leaseState]) {
	me := s.worker[w]
	add := func(what string, fault bool, change func(*leaseState, *leaseWorker)) {
		to := s
		if fault {
			to.faults++
		}
		change(&to, &to.worker[w])
		next = append(next, step[leaseState]{fmt.Sprintf("worker %d: %s", w+1, what), to, fault})
	}
	faulty := s.faults < mostLeaseFaults
	holds := s.lease == me.lease && !s.ended
	if me.phase != idle && faulty && (me.lease != s.lease || s.lease < mostLeases) {
		add("crash", true, func(_ *leaseState, w *leaseWorker) { *w = leaseWorker{} })
	}
	switch me.phase {
	case idle:
		if !s.ended && (s.lease == 0 || s.expired) && s.lease < mostLeases && !locked(s, twin) {
			claim := func(phase uint8) func(s *leaseState, w *leaseWorker) {
				return func(s *leaseState, w *leaseWorker) {
					s.lease, s.expired = s.lease+1, false
					*w = leaseWorker{phase: phase, lease: s.lease}
				}
			}
			add("claim", false, claim(claimed))
			if faulty {
				add("claim, the answer is lost", true, claim(claimUnknown))
			}
		}
	case claimUnknown:
		add("resolve the claim", false, func(_ *leaseState, w *leaseWorker) {
			if w.phase = claimed; !holds {
				*w = leaseWorker{}
			}
		})
	case claimed:
		add("load the history", false, func(s *leaseState, w *leaseWorker) { w.phase, w.result = loaded, s.result })
	case loaded:
		next = append(next, callOrGoOn(s, w, twin)...)
	case called, recording, recordUnknown:
		next = append(next, recordings(s, w, holds, faulty)...)
	case ready, finishUnknown:
		next = append(next, finishes(s, w, twin, holds, faulty)...)
	}
	return next
}

// locked reports whether a claim leaves the run out, because a record that is not committed has locked its row.
func locked(s leaseState, twin leaseTwin) bool {
	return twin != recordsByJoin && (s.worker[0].phase == recording || s.worker[1].phase == recording)
}

func callOrGoOn(s leaseState, w int, twin leaseTwin) []step[leaseState] {
	to, me := s, s.worker[w]
	if me.result != 0 {
		to.worker[w].phase = ready
		return []step[leaseState]{{what: fmt.Sprintf("worker %d: take the recorded result", w+1), to: to}}
	}
	if over := s.lease != me.lease || s.expired; over && twin != callWithoutTerm {
		to.worker[w] = leaseWorker{}
		return []step[leaseState]{{what: fmt.Sprintf("worker %d: the term is over, give up", w+1), to: to}}
	}
	to.worker[w].phase, to.worker[w].result = called, me.lease
	to.again = s.result != 0
	return []step[leaseState]{{what: fmt.Sprintf("worker %d: call the step", w+1), to: to}}
}

// recordings are the record of a result, and its commit.
func recordings(s leaseState, w int, holds, faulty bool) (next []step[leaseState]) {
	me := s.worker[w]
	add := func(what string, fault bool, change func(*leaseState, *leaseWorker)) {
		to := s
		if fault {
			to.faults++
		}
		change(&to, &to.worker[w])
		next = append(next, step[leaseState]{fmt.Sprintf("worker %d: %s", w+1, what), to, fault})
	}
	write := func(s *leaseState) {
		if s.result == 0 { // the first result counts
			s.result = me.result
		}
	}
	switch me.phase {
	case called:
		add("record", false, func(_ *leaseState, w *leaseWorker) {
			if w.phase = recording; !holds {
				*w = leaseWorker{} // the statement wrote nothing, and resolve says that the lease is lost
			}
		})
	case recording:
		add("the record is committed", false, func(s *leaseState, w *leaseWorker) {
			write(s)
			w.phase, w.result = ready, s.result
		})
		if faulty {
			add("the record is committed, the answer is lost", true, func(s *leaseState, w *leaseWorker) {
				write(s)
				w.phase = recordUnknown
			})
			add("the record is lost", true, func(_ *leaseState, w *leaseWorker) { w.phase = recordUnknown })
		}
	case recordUnknown:
		add("resolve the record", false, func(s *leaseState, w *leaseWorker) {
			switch {
			case !holds:
				*w = leaseWorker{}
			case s.result != 0:
				w.phase, w.result = ready, s.result
			default:
				w.phase = called
			}
		})
	}
	return next
}

// finishes are the end of a run, and the second look after a lost answer.
func finishes(s leaseState, w int, twin leaseTwin, holds, faulty bool) (next []step[leaseState]) {
	me := s.worker[w]
	may := holds || twin == finishWithoutLease && !s.ended
	end := func(s *leaseState) {
		s.stolen = s.lease != me.lease
		s.ended, s.by, s.output = true, me.lease, me.result
	}
	add := func(what string, fault bool, phase uint8, writes bool) {
		to := s
		if fault {
			to.faults++
		}
		if to.worker[w] = me; writes {
			end(&to)
		}
		if to.worker[w].phase = phase; phase == idle {
			to.worker[w] = leaseWorker{}
		}
		next = append(next, step[leaseState]{fmt.Sprintf("worker %d: %s", w+1, what), to, fault})
	}
	mine := s.ended && s.by == me.lease
	switch {
	case may:
		add("finish", false, reported, true)
		if faulty {
			add("finish, the answer is lost", true, finishUnknown, true)
			add("the finish is lost", true, finishUnknown, false)
		}
	case mine && twin == finishWithoutLook:
		add("finish again: nothing to write, so the run is lost", false, misreported, false)
	case mine:
		add("finish again: the run has ended under this lease", false, reported, false)
	default:
		add("finish: the lease is lost", false, idle, false)
	}
	return next
}
