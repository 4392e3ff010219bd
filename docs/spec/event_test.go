package spec

import "fmt"

// Waits for events: two publishers of one event, who may roll back, and one run that waits for it. A worker registers
// the wait and looks; a coordinator sends the run the event. Workers and coordinators crash.
//
//	lock, store, note, commit    store.Topics.Publish: publish, and after it noteAwaited, in one transaction
//	register                     insertWaits, a transaction
//	read who publishes           openPublishers
//	read the event               findEvents, in another snapshot
//	tell: read, send, delete     housekeeping.Coordinator.TellOfEvents: Waits, SendAll, and then Told and Forget
//	take                         recordSteps, consumeSignals and endWaits

// eventTwin is a mistake that is made on purpose.
type eventTwin int

const (
	eventRight       eventTwin = iota
	notesBeforeLock            // a publisher looks for waits before it takes its lock
	eventBeforeLocks           // a worker reads the event, and then who publishes
	registersLast              // a worker looks, and then registers the wait
	openIsFinal                // a worker does not look again behind a publisher that is under way
	forgetsFirst               // a coordinator deletes the awaited event before it has sent the messages
)

// The phases of a publisher.
const (
	notBegun uint8 = iota
	tookLock
	storedEvent
	notedWaits
	isPublished
	takenBack
)

// The phases of the worker, or of the run without one.
const (
	isDue uint8 = iota
	hasRegistered
	hasReadOne // of the two: who publishes, and the event
	asleep     // only a message makes it due
	eventTaken
)

// The phases of the coordinator.
const (
	rests uint8 = iota
	hasReadWaits
	hasSent
)

type eventPublisher struct {
	phase   uint8
	notes   bool // it has seen the wait
	counted bool // the worker has seen it at its first look
}

type eventState struct {
	publisher   [2]eventPublisher
	registered  bool
	awaited     bool // there is an awaited event
	message     bool
	worker      uint8
	bounded     bool // the worker has looked: only those that it has counted concern it
	open, found bool // what it has read
	coordinator uint8
	waits       bool // the coordinator has read the wait
	faults      uint8
}

const mostEventFaults = 3

func eventSpec(twin eventTwin) specification[eventState] {
	return specification[eventState]{
		steps: func(s eventState) (next []step[eventState]) {
			add := func(what string, fault bool, change func(*eventState)) {
				to := s
				if change(&to); fault {
					to.faults++
				}
				next = append(next, step[eventState]{what, to, fault})
			}
			for i := range s.publisher {
				eventPublisherSteps(s, i, twin, add)
			}
			eventWorkerSteps(s, twin, add)
			tellingSteps(s, twin, add)
			return next
		},
		wrong: func(s eventState) string {
			if (s.message || s.worker == eventTaken) && !s.published() {
				return "a run gets an event that was not published"
			}
			return ""
		},
		done: func(s eventState) bool {
			return s.worker == eventTaken ||
				s.publisher[0].phase == takenBack && s.publisher[1].phase == takenBack
		},
		text: func(s eventState) string {
			return fmt.Sprintf("%v, registered %v, awaited %v, message %v; worker %d, bounded %v, open %v, found %v; "+
				"coordinator %d, waits %v", s.publisher, s.registered, s.awaited, s.message, s.worker, s.bounded,
				s.open, s.found, s.coordinator, s.waits)
		},
	}
}

func (s *eventState) published() bool {
	return s.publisher[0].phase == isPublished || s.publisher[1].phase == isPublished
}

func (p *eventPublisher) underWay() bool { return p.phase >= tookLock && p.phase <= notedWaits }

func eventPublisherSteps(s eventState, i int, twin eventTwin, add func(string, bool, func(*eventState))) {
	name, other := fmt.Sprintf("publisher %d ", i+1), s.publisher[1-i].phase
	p := func(s *eventState) *eventPublisher { return &s.publisher[i] }
	switch s.publisher[i].phase {
	case notBegun:
		if twin == notesBeforeLock && !s.publisher[i].notes && s.registered {
			add(name+"sees the wait", false, func(s *eventState) { p(s).notes = true })
		}
		add(name+"takes its lock", false, func(s *eventState) { p(s).phase = tookLock })
	case tookLock:
		if other != storedEvent && other != notedWaits { // it waits for the other one: the ID is unique
			add(name+"stores the event", false, func(s *eventState) { p(s).phase = storedEvent })
		}
	case storedEvent:
		add(name+"looks for waits", false, func(s *eventState) {
			p(s).phase = notedWaits
			if twin != notesBeforeLock {
				p(s).notes = s.registered
			}
		})
	case notedWaits:
		add(name+"commits", false, func(s *eventState) {
			p(s).phase = isPublished
			s.awaited = s.awaited || p(s).notes
		})
	}
	if s.publisher[i].underWay() {
		add(name+"rolls back", true, func(s *eventState) { p(s).phase = takenBack })
	}
}

func eventWorkerSteps(s eventState, twin eventTwin, add func(string, bool, func(*eventState))) {
	if s.worker != asleep && s.worker != eventTaken && s.faults < mostEventFaults {
		add("the worker dies", true, func(s *eventState) {
			s.worker, s.bounded, s.open, s.found = isDue, false, false, false
		})
	}
	if s.message && s.worker != eventTaken {
		add("take", false, func(s *eventState) { s.worker, s.registered = eventTaken, false })
		return
	}
	publishers := func(s *eventState) {
		s.open = false
		for i := range s.publisher {
			p := &s.publisher[i]
			if !s.bounded {
				p.counted = p.underWay()
			}
			s.open = s.open || p.counted && p.underWay()
		}
		s.bounded = true
	}
	event := func(s *eventState) { s.found = s.published() }
	first, second := publishers, event
	if twin == eventBeforeLocks {
		first, second = event, publishers
	}
	decide := func(s *eventState) {
		switch {
		case s.found:
			s.message, s.worker = true, asleep
		case s.open && twin != openIsFinal:
			s.worker = hasRegistered
		default:
			s.worker = asleep
		}
		if twin == registersLast && s.worker == asleep {
			s.registered = true
		}
	}
	switch s.worker {
	case isDue:
		add("register", false, func(s *eventState) { s.worker, s.registered = hasRegistered, twin != registersLast })
	case hasRegistered:
		add("the first look", false, func(s *eventState) { first(s); s.worker = hasReadOne })
	case hasReadOne:
		add("the second look", false, func(s *eventState) { second(s); decide(s) })
	}
}

func tellingSteps(s eventState, twin eventTwin, add func(string, bool, func(*eventState))) {
	if s.coordinator != rests && s.faults < mostEventFaults {
		add("the coordinator dies", true, func(s *eventState) { s.coordinator, s.waits = rests, false })
	}
	switch s.coordinator {
	case rests:
		if s.awaited {
			add("read the waits", false, func(s *eventState) {
				s.coordinator, s.waits = hasReadWaits, s.registered
				s.awaited = twin != forgetsFirst
			})
		}
	case hasReadWaits:
		add("send", false, func(s *eventState) {
			s.coordinator = hasSent
			s.message = s.message || s.waits && s.worker != eventTaken
		})
	case hasSent:
		add("forget", false, func(s *eventState) {
			if s.waits {
				s.registered = false
			}
			s.coordinator, s.waits, s.awaited = rests, false, false
		})
	}
}
