package spec

import "fmt"

// Epochs and requests: two workers, and one run with two epochs. Both epochs read the same request. The first one
// continues without an answer, the second one answers and ends the run. The asker polls, and asks again. Leases end,
// answers to writes are lost, and workers crash.
//
//	claim, load           store.Claims.Claim, which returns the epoch, and store.Histories.Load
//	continue              one flush: recordSteps, consumeSignals, suspendRuns, continueRuns, keepPast, reopenRequests
//	answer                one flush: recordSteps, with the REPLY; replay.Reply has deferred it
//	finish                completeRuns
//	ask                   store.Messages.Answers

// epochTwin is a mistake that is made on purpose.
type epochTwin int

const (
	epochRight           epochTwin = iota
	continueWithoutLease           // a worker that has lost the run continues it
	repeatWithoutEpoch             // a flush that is repeated after a lost answer does not compare the epoch
	historyStays                   // the records of an epoch keep their IDs when the next one begins
	requestsStayTaken              // a request that was read and not answered is not given back
	toldBeforeRecord               // an asker in the worker's process gets the answer before it is in the table
)

// The phases of a worker in this specification.
const (
	away = iota
	hasClaimed
	hasLoaded
	hasRead // the request
	continueUnknown
	answerUnknown
	answered
)

var epochPhases = []string{
	"away", "claimed", "loaded", "has read", "continue unknown", "answer unknown", "answered",
}

type epochWorker struct {
	phase, lease, epoch uint8
	recorded            uint8 // the epoch, from 1, whose record of the read it has loaded; 0: none
	unread              bool  // it has found the request in the inbox
}

type epochState struct {
	lease, epoch   uint8
	running        bool
	expired, ended bool
	recorded       uint8 // the epoch, from 1, of the record that a load finds; 0: there is none
	taken          bool  // the request is
	answer, told   uint8 // the lease under which it was given
	worker         [2]epochWorker
	faults         uint8
	wrong          string
}

const (
	mostEpochLeases = 5
	mostEpochFaults = 3
)

func epochSpec(twin epochTwin) specification[epochState] {
	return specification[epochState]{
		steps: func(s epochState) (next []step[epochState]) {
			if s.running && !s.expired && s.mayLose() {
				to := s
				to.expired = true
				next = append(next, step[epochState]{what: "the lease ends", to: to})
			}
			if s.answer != 0 {
				to := s
				to.tell(s.answer)
				next = append(next, step[epochState]{what: "the asker polls", to: to})
			}
			for w := range s.worker {
				next = append(next, epochSteps(s, w, twin)...)
			}
			return next
		},
		wrong: func(s epochState) string { return s.wrong },
		done:  func(s epochState) bool { return s.ended && s.told != 0 },
		text: func(s epochState) string {
			text := fmt.Sprintf("epoch %d, lease %d, running %v, record of %d, taken %v, answer %d, told %d", s.epoch,
				s.lease, s.running, s.recorded, s.taken, s.answer, s.told)
			for i, w := range s.worker {
				text += fmt.Sprintf("; worker %d: %s in epoch %d under %d", i+1, epochPhases[w.phase], w.epoch, w.lease)
			}
			return text
		},
	}
}

// mayLose reports whether claims are left for the epochs to come if the run is lost.
func (s *epochState) mayLose() bool { return s.lease+1 < mostEpochLeases+s.epoch }

// tell gives the asker an answer.
func (s *epochState) tell(answer uint8) {
	if s.told != 0 && s.told != answer {
		s.wrong = "a request has two answers"
	}
	s.told = answer
}

// epochSteps are the steps of one worker.
func epochSteps(s epochState, w int, twin epochTwin) (next []step[epochState]) {
	me := s.worker[w]
	faulty := s.faults < mostEpochFaults
	add := func(what string, fault bool, change func(*epochState, *epochWorker)) {
		to := s
		if fault {
			to.faults++
		}
		change(&to, &to.worker[w])
		next = append(next, step[epochState]{fmt.Sprintf("worker %d: %s", w+1, what), to, fault})
	}
	// written adds a write, and what follows if its answer, or the write itself, is lost.
	written := func(what string, unknown uint8, write func(*epochState, *epochWorker)) {
		add(what, false, write)
		if faulty {
			add(what+", the answer is lost", true, func(s *epochState, w *epochWorker) {
				if write(s, w); *w != (epochWorker{}) || s.lease == me.lease {
					*w = me
					w.phase = unknown
				}
			})
			add(what+" is lost", true, func(_ *epochState, w *epochWorker) { w.phase = unknown })
		}
	}
	if me.phase != away && faulty && (me.lease != s.lease || s.mayLose()) {
		add("crash", true, func(_ *epochState, w *epochWorker) { *w = epochWorker{} })
	}
	switch me.phase {
	case away:
		if !s.ended && (!s.running || s.expired) && s.lease < mostEpochLeases {
			add("claim", false, func(s *epochState, w *epochWorker) {
				s.lease, s.running, s.expired = s.lease+1, true, false
				*w = epochWorker{phase: hasClaimed, lease: s.lease, epoch: s.epoch}
			})
		}
	case hasClaimed:
		add("load", false, func(s *epochState, w *epochWorker) {
			w.phase, w.recorded, w.unread = hasLoaded, s.recorded, !s.taken
		})
	case hasLoaded:
		if me.recorded != 0 || me.unread {
			add("read the request", false, func(s *epochState, w *epochWorker) { readRequest(s, w, twin) })
		}
	case hasRead, continueUnknown, answerUnknown:
		if me.epoch == 0 {
			written("continue", continueUnknown, func(s *epochState, w *epochWorker) { continueRun(s, w, twin) })
		} else {
			written("answer", answerUnknown, answerRequest)
		}
	case answered:
		add("finish", false, func(s *epochState, w *epochWorker) {
			if s.lease == w.lease && s.running {
				s.running, s.ended = false, true
			}
			*w = epochWorker{}
		})
	}
	return next
}

// readRequest takes the request from the inbox, or finds the record that it was read.
func readRequest(s *epochState, w *epochWorker, twin epochTwin) {
	w.phase = hasRead
	holds := s.lease == w.lease && !s.expired
	if w.recorded != 0 && w.recorded != w.epoch+1 && holds {
		s.wrong = "an epoch finds the record of another"
	}
	if twin == toldBeforeRecord && w.epoch == 1 {
		s.tell(w.lease)
	}
}

// continueRun is the flush with which the first epoch ends. Repeated, it finds what it has written.
func continueRun(s *epochState, w *epochWorker, twin epochTwin) {
	holds := s.lease == w.lease && s.running
	again := s.lease == w.lease && !s.running // it has written that before
	*w = epochWorker{}
	switch {
	case holds:
	case again && twin == repeatWithoutEpoch:
	case twin == continueWithoutLease && !again && !s.ended:
		s.wrong = "a worker continues a run that it does not hold"
	default:
		return
	}
	if s.epoch++; s.epoch > 1 {
		s.wrong = "a run skips an epoch"
	}
	s.running, s.taken = false, twin == requestsStayTaken
	if twin == historyStays {
		s.recorded = 1
	}
}

// answerRequest is the flush that records the read and the answer.
func answerRequest(s *epochState, w *epochWorker) {
	if s.lease != w.lease || !s.running {
		*w = epochWorker{}
		return
	}
	s.recorded, s.taken = 2, true
	if s.answer == 0 { // a record that is there stays
		s.answer = w.lease
	}
	w.phase = answered
}
