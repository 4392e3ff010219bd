package spec

import "fmt"

// A consumer becomes clean while events arrive. Two publishers publish an event each; a claim decides whether the
// consumer gets a run; a run reads the published events and consumes them.
//
//	publish          lockTopics, drawPosition, storeEvents: reads the last position, takes a lock under it, draws a
//	                 position, inserts the event and change; the commit shows them, and then the lock goes
//	claim            lockKeys, publishers, startConsumers, COMMIT, each in a snapshot of its own
//	run              Consumers.Peek (settledEvents, peekEvents), commitSubscriptions; the worker hands the key to its
//	                 next claim
//	die, recheck     the coordinator leaves changes for keys with consumers

// consumerTwin is a mistake that is made on purpose.
type consumerTwin int

const (
	consumerRight     consumerTwin = iota
	looksAtTheHighest              // a claim or a run that looks goes up to the highest position that it sees
	locksBeforeLast                // who publishes is read before the last position, and not after it
	deletesUnread                  // a claim deletes changes that came after it has read them
	endUnseen                      // the worker forgets the key when the run of the consumer ends
	forgetsUnsettled               // a claim that finds an event behind an open publisher does not come again
)

const publishers = 2

// The phases of a publisher.
const (
	unpublished uint8 = iota
	knowsLast         // it has read the last position
	hasLock
	hasDrawn
	visible // its event and its change are committed, and its lock is not gone yet
	published
	rolledBack
)

type publisher struct {
	phase, last, position uint8
}

// The phases of a claim for the consumer's key.
const (
	noLook uint8 = iota
	hasKey
	knowsPosition // of the two reads of publishers, one is done
	knowsSettled
	decided
)

// The phases of the consumer's run.
const (
	noRun uint8 = iota
	runBegins
	runKnowsPosition
	runKnowsSettled
	runHasRead
)

type consumerState struct {
	publisher [publishers]publisher
	drawn     uint8 // the last position

	looked                       uint8 // looked_at
	consumed                     uint8 // bits: the events of which publishers
	run                          uint8
	runLast, runSettled, runRead uint8

	claim                         uint8
	claimRead, claimLast, settled uint8
	starts, again                 bool // what the claim has decided

	changes uint8 // bits: of the publishers, then of the recheck
	place   bool  // the key is in the line: a claim comes by itself
	freed   bool
	recheck bool
	faults  uint8
}

const mostConsumerFaults = 1

func consumerSpec(twin consumerTwin) specification[consumerState] {
	return specification[consumerState]{
		steps: func(s consumerState) (next []step[consumerState]) {
			for i := range s.publisher {
				next = append(next, publisherSteps(s, i)...)
			}
			next = append(next, lookSteps(s, twin)...)
			next = append(next, runSteps(s, twin)...)
			return append(next, crashSteps(s)...)
		},
		wrong: func(consumerState) string { return "" },
		done: func(s consumerState) bool {
			for i, p := range s.publisher {
				if p.phase < published || p.phase == published && s.consumed&(1<<i) == 0 {
					return false
				}
			}
			return s.run == noRun
		},
		text: func(s consumerState) string {
			var text string
			for i, p := range s.publisher {
				text += fmt.Sprintf("publisher %d: %s, position %d; ", i+1, []string{
					"-", "has read the last position",
					"locked", "drawn", "visible", "published", "rolled back",
				}[p.phase], p.position)
			}
			return text + fmt.Sprintf("looked at %d, consumed %02b, changes %03b, in line %v, freed %v; claim "+
				"%d, run %d", s.looked, s.consumed, s.changes, s.place, s.freed, s.claim, s.run)
		},
	}
}

// settledAt is the position up to which a reader that has read the last position sees everything: below the lock of
// each publisher that may have drawn a lower one.
func (s *consumerState) settledAt(last uint8) uint8 {
	settled := last
	for _, p := range s.publisher {
		if (p.phase == hasLock || p.phase == hasDrawn || p.phase == visible) && p.last <= last {
			settled = min(settled, p.last)
		}
	}
	return settled
}

// highest is the highest position of an event that can be read.
func (s *consumerState) highest() (position uint8) {
	for _, p := range s.publisher {
		if p.isVisible() {
			position = max(position, p.position)
		}
	}
	return position
}

// isVisible reports whether the event of a publisher can be read.
func (p publisher) isVisible() bool { return p.phase == visible || p.phase == published }

func publisherSteps(s consumerState, i int) (next []step[consumerState]) {
	add := func(what string, fault bool, change func(*consumerState, *publisher)) {
		to := s
		change(&to, &to.publisher[i])
		next = append(next, step[consumerState]{fmt.Sprintf("publisher %d: %s", i+1, what), to, fault})
	}
	switch s.publisher[i].phase {
	case unpublished:
		add("read the last position", false, func(s *consumerState, p *publisher) {
			p.phase, p.last = knowsLast, s.drawn
		})
	case knowsLast:
		add("lock", false, func(_ *consumerState, p *publisher) { p.phase = hasLock })
	case hasLock:
		add("draw a position", false, func(s *consumerState, p *publisher) {
			s.drawn++
			p.phase, p.position = hasDrawn, s.drawn
		})
	case hasDrawn:
		add("commit", false, func(s *consumerState, p *publisher) {
			p.phase = visible
			s.changes |= 1 << i
		})
		add("roll back", true, func(_ *consumerState, p *publisher) { p.phase = rolledBack })
	case visible:
		add("unlock", false, func(_ *consumerState, p *publisher) { p.phase = published })
	}
	return next
}

// lookSteps are the steps of a claim.
func lookSteps(s consumerState, twin consumerTwin) []step[consumerState] {
	to, what := s, ""
	switch s.claim {
	case noLook:
		if s.changes == 0 && !s.place && !s.freed {
			return nil
		}
		what = "lock the key, read the changes"
		to.claim, to.claimRead, to.freed = hasKey, s.changes, false
	case hasKey:
		to.claim = knowsPosition
		what, to.claimLast, to.settled = s.firstRead(twin)
	case knowsPosition:
		to.claim = knowsSettled
		what, to.claimLast, to.settled = s.secondRead(twin, s.claimLast, s.settled)
	case knowsSettled:
		what = "decide"
		to.claim = decided
		if twin == looksAtTheHighest {
			s.settled = s.highest()
		}
		to.settled = s.settled
		to.starts, to.again = s.decide(twin)
	case decided:
		what = "commit"
		if to.changes &^= s.claimRead; twin == deletesUnread {
			to.changes = 0
		}
		to.place = s.again
		if s.starts {
			to.run, to.looked = runBegins, max(s.looked, s.settled)
		}
		to.claim, to.claimRead, to.claimLast, to.settled, to.starts, to.again = noLook, 0, 0, 0, false, false
	}
	return []step[consumerState]{{what: "claim: " + what, to: to}}
}

// firstRead and secondRead read the last position, and then who publishes.
func (s *consumerState) firstRead(twin consumerTwin) (what string, last, settled uint8) {
	if twin == locksBeforeLast {
		return "read who publishes", 0, s.settledAt(noPosition)
	}
	return "read the last position", s.drawn, 0
}

func (s *consumerState) secondRead(twin consumerTwin, last, settled uint8) (string, uint8, uint8) {
	if twin == locksBeforeLast {
		return "read the last position", 0, min(settled, s.drawn)
	}
	return "read who publishes", 0, s.settledAt(last)
}

// noPosition is above all positions.
const noPosition = 255

// decide decides whether the consumer gets a run, and whether a claim is to come again soon.
func (s *consumerState) decide(twin consumerTwin) (starts, again bool) {
	if s.run != noRun {
		return false, false
	}
	unsettled := false
	for _, p := range s.publisher {
		if p.isVisible() && p.position > s.looked {
			starts = starts || p.position <= s.settled
			unsettled = unsettled || p.position > s.settled
		}
	}
	return starts, unsettled && !starts && twin != forgetsUnsettled
}

// runSteps are the steps of the consumer's run.
func runSteps(s consumerState, twin consumerTwin) []step[consumerState] {
	to, what := s, ""
	switch s.run {
	case noRun:
		return nil
	case runBegins:
		to.run = runKnowsPosition
		what, to.runLast, to.runSettled = s.firstRead(twin)
	case runKnowsPosition:
		to.run = runKnowsSettled
		what, to.runLast, to.runSettled = s.secondRead(twin, s.runLast, s.runSettled)
	case runKnowsSettled:
		what = "read the events"
		to.run = runHasRead
		if twin == looksAtTheHighest {
			to.runSettled = s.highest()
		}
		for i, p := range s.publisher {
			if p.isVisible() && s.consumed&(1<<i) == 0 && p.position <= to.runSettled {
				to.runRead |= 1 << i
			}
		}
	case runHasRead:
		what = "end"
		to.consumed |= s.runRead
		to.looked = s.runSettled
		to.run, to.runLast, to.runSettled, to.runRead = noRun, 0, 0, 0
		to.freed = twin != endUnseen
	}
	return []step[consumerState]{{what: "run: " + what, to: to}}
}

// crashSteps are the death of the worker, and what the coordinator does then.
func crashSteps(s consumerState) (next []step[consumerState]) {
	if s.faults < mostConsumerFaults {
		to := s
		to.faults++
		to.recheck, to.freed = true, false
		to.claim, to.claimRead, to.claimLast, to.settled, to.starts, to.again = noLook, 0, 0, 0, false, false
		if s.run != noRun { // another worker executes it from its beginning
			to.run, to.runLast, to.runSettled, to.runRead = runBegins, 0, 0, 0
		}
		next = append(next, step[consumerState]{"the worker dies", to, true})
	}
	if s.recheck {
		to := s
		to.recheck = false
		to.changes |= 1 << publishers
		next = append(next, step[consumerState]{what: "recheck the keys of consumers", to: to})
	}
	return next
}
