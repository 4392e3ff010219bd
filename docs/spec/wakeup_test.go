package spec

import "fmt"

// Suspend and wake-up: a run needs two messages, or the ends of two children, which come the same way: each counts one
// wake-up in the transaction that stores it. The execution reads what there is, and suspends the run if that is not
// enough. A late suspension is refused by its lease, of which the other specification says more.
//
//	read the count, read the inbox   store.Inbox: two statements, in this order
//	take                             recordSteps and consumeSignals
//	suspend                          suspendRuns
//	a message comes                  storeMessages; writeEndings for the end of a child
//	cancel                           endRuns: it marks a run that is executed, and ends one that sleeps
//	claim                            store.Claims.Claim: it takes runs that are due, and those whose lease is over

// wakeupTwin is a mistake that is made on purpose.
type wakeupTwin int

const (
	wakeupRight         wakeupTwin = iota
	inboxBeforeCount               // the execution reads the inbox, and then the count
	suspendWithoutCount            // the suspension does not compare the count
	cancelUnseen                   // the suspension does not look for a cancel
)

// The phases of a run.
const (
	due    uint8 = iota // it sleeps, and a claim may take it
	sleeps              // no time makes it due
	runs
	over
)

// The phases of an execution.
const (
	begins    uint8 = iota
	readFirst       // of the two reads
	readBoth
)

const messages = 2

type wakeupState struct {
	run       uint8
	wakeups   uint8
	awaited   uint8
	stored    uint8 // bits: the messages in the table
	taken     uint8 // bits: those that a step has read
	cancelled bool

	phase uint8 // of the execution
	seen  uint8 // the count that it has read
	inbox uint8 // bits: what it has read
	asked bool  // it has read that the run is to be cancelled

	faults uint8
}

const mostWakeupFaults = 3

func wakeupSpec(twin wakeupTwin) specification[wakeupState] {
	return specification[wakeupState]{
		steps: func(s wakeupState) (next []step[wakeupState]) {
			next = append(arrivals(s), executionSteps(s, twin)...)
			if s.run == due {
				to := s
				to.run, to.phase, to.seen, to.inbox, to.asked = runs, begins, 0, 0, s.cancelled
				next = append(next, step[wakeupState]{what: "claim", to: to})
			}
			return next
		},
		wrong: func(s wakeupState) string {
			switch {
			case s.run == sleeps && s.stored&^s.taken != 0:
				return "a run sleeps for ever, and has a message that it has not read"
			case s.run == sleeps && s.cancelled:
				return "a run sleeps for ever, and is to be cancelled"
			case s.taken&^s.stored != 0:
				return "a message was read that there is not"
			}
			return ""
		},
		done: func(s wakeupState) bool { return s.run == over },
		text: func(s wakeupState) string {
			return fmt.Sprintf("%s, wake-ups %d, awaits %d, stored %02b, taken %02b, cancelled %v; execution %s, has "+
				"seen %d, inbox %02b",
				[]string{"due", "sleeps", "runs", "over"}[s.run], s.wakeups, s.awaited, s.stored, s.taken, s.cancelled,
				[]string{"begins", "has read one", "has read both"}[s.phase], s.seen, s.inbox)
		},
	}
}

// arrivals are the steps of those who send messages, and of who cancels the run.
func arrivals(s wakeupState) (next []step[wakeupState]) {
	if s.run == over {
		return nil
	}
	for i := range messages {
		if bit := uint8(1) << i; s.stored&bit == 0 {
			to := s
			to.stored |= bit
			to.wakeups++
			if s.run == sleeps && to.wakeups >= s.awaited {
				to.run = due
			}
			next = append(next, step[wakeupState]{what: fmt.Sprintf("message %d comes", i+1), to: to})
		}
	}
	if !s.cancelled {
		to := s
		if to.cancelled = s.run == runs; !to.cancelled {
			to.run = over
		}
		next = append(next, step[wakeupState]{what: "cancel", to: to, fault: true})
	}
	return next
}

func executionSteps(s wakeupState, twin wakeupTwin) (next []step[wakeupState]) {
	add := func(what string, fault bool, change func(*wakeupState)) {
		to := s
		if fault {
			to.faults++
		}
		change(&to)
		next = append(next, step[wakeupState]{what, to, fault})
	}
	if s.run != runs {
		return next
	}
	if s.faults < mostWakeupFaults {
		add("the worker dies", true, func(s *wakeupState) {
			s.run, s.phase, s.seen, s.inbox, s.asked = due, begins, 0, 0, false
		})
	}
	count := func(s *wakeupState) { s.seen = s.wakeups }
	inbox := func(s *wakeupState) { s.inbox = s.stored &^ s.taken }
	first, second, names := count, inbox, []string{"read the count", "read the inbox"}
	if twin == inboxBeforeCount {
		first, second, names = inbox, count, []string{"read the inbox", "read the count"}
	}
	switch s.phase {
	case begins:
		add(names[0], false, func(s *wakeupState) { first(s); s.phase = readFirst })
	case readFirst:
		add(names[1], false, func(s *wakeupState) { second(s); s.phase = readBoth })
	case readBoth:
		next = append(next, decisions(s, twin)...)
	}
	return next
}

// decisions are the steps of an execution that has read its inbox.
func decisions(s wakeupState, twin wakeupTwin) []step[wakeupState] {
	switch {
	case s.asked, s.taken == 1<<messages-1:
		to := s
		to.run = over
		return []step[wakeupState]{{what: "end", to: to}}
	case s.inbox != 0:
		to := s
		first := s.inbox & -s.inbox
		to.taken, to.inbox = s.taken|first, s.inbox&^first
		return []step[wakeupState]{{what: "take a message", to: to}}
	}
	to := s
	to.awaited = s.seen + 1
	switch {
	case twin != suspendWithoutCount && s.wakeups >= to.awaited, twin != cancelUnseen && s.cancelled:
		to.run = due
	default:
		to.run = sleeps
	}
	to.phase, to.seen, to.asked = begins, 0, false
	return []step[wakeupState]{{what: "suspend", to: to}}
}
