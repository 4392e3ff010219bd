package spec

import "fmt"

// Admission of runs that have a key: the key has so many slots, and a row with its place in the line. Two workers
// claim, each in one transaction of two statements. Whatever may let a run of the key begin leaves a change.
//
//	start          insertRuns, insertChanges: one commit shows the run and its change
//	lock           lockKeys: locks the row of a key that has a place or a change, or that the worker hands on,
//	               unless another worker has it
//	take           claimKeys: counts and takes, in a later snapshot, and gives the key its next place. It may raise
//	               the key's cursor: later claims find no run that was not waiting, unless their lock lowers it
//	commit         deletes the changes that lock has read, and unlocks
//	end            completeRuns: it leaves no change; the worker hands the key to its next claim
//	suspend        suspendRuns: the run waits for a slot again; the worker hands on the key, and says so
//	die, release   DeclareDead, Release of Workers with recheckKeys: now, and once more when no late write can come
//	take over      claimRuns: a run that holds a slot is taken from a dead worker without a count
//
// The limit of a queue is held in the same way, by lockQueue and claimLimited.

// admissionTwin is a mistake that is made on purpose.
type admissionTwin int

const (
	admissionRight         admissionTwin = iota
	countBeforeLock                      // one statement locks and counts: its snapshot is older than its lock
	changesDeletedUnlocked               // a claim deletes the changes of a key that another claim has locked
	endWithoutHandover                   // the worker forgets the key whose slot it has given up
	oneRecheck                           // the changes for a dead worker come only at once
	cursorRight                          // right, with a cursor and suspensions, but only two runs
	changeWithoutDue                     // the change of a start does not say when its run is due
	suspensionAsEnd                      // the worker hands on the key of a run that waits again as if it were over
)

const admissionRuns = 3

// runs returns how many runs there are.
func (t admissionTwin) runs() int {
	if t >= cursorRight {
		return 2
	}
	return admissionRuns
}

// The states of a run. Those of an execution are the number of the worker that holds the run, with holdsSlot.
const (
	absent uint8 = iota
	waiting
	held1
	held2
	orphan // its worker is dead: it holds its slot, until a worker takes it over
	finished
)

// The phases of a claim.
const (
	noClaim uint8 = iota
	keyLocked
	keyTaken
)

type admissionWorker struct {
	phase   uint8
	read    uint8 // the changes that lock has read, as bits
	holding uint8 // slots that it has counted with the lock, if it counts that early
	take    uint8 // the runs that it takes, as bits
	place   bool  // the key's next place
	freed   bool  // it has given up a slot of the key
	back    bool  // a run that had one waits again
	hidden  uint8 // the key's next cursor: the runs that claims do not find, as bits
}

type admissionState struct {
	runs     [admissionRuns]uint8
	worker   [2]admissionWorker
	locked   uint8 // the number of the worker that has locked the key
	place    bool  // the key is in the line
	hidden   uint8 // the key's cursor: the runs that claims do not find, as bits
	again    bool  // a run has been suspended
	changes  uint8 // bits: of the start of each run, then of the two rechecks
	rechecks uint8 // that are to come
	faults   uint8
}

const mostAdmissionFaults = 1

func admissionSpec(twin admissionTwin, slots int) specification[admissionState] {
	return specification[admissionState]{
		steps: func(s admissionState) (next []step[admissionState]) {
			next = append(starts(s, twin), deathSteps(s, twin)...)
			for w := range s.worker {
				next = append(next, claimSteps(s, w, twin, slots)...)
				next = append(next, endSteps(s, w, twin)...)
			}
			return next
		},
		wrong: func(s admissionState) string {
			if n := s.holding(); n > slots {
				return fmt.Sprintf("%d runs hold the key's %d slots", n, slots)
			}
			return ""
		},
		done: func(s admissionState) bool {
			for _, r := range s.runs[:twin.runs()] {
				if r != finished {
					return false
				}
			}
			return true
		},
		text: func(s admissionState) string {
			text := "runs"
			for _, r := range s.runs {
				text += " " + []string{"absent", "waiting", "held by 1", "held by 2", "orphan", "over"}[r]
			}
			text += fmt.Sprintf("; in line %v, changes %05b, hidden %03b, locked by %d", s.place, s.changes, s.hidden,
				s.locked)
			for i, w := range s.worker {
				text += fmt.Sprintf("; worker %d: %s, hands on %v, back %v", i+1,
					[]string{"no claim", "has the lock", "has taken"}[w.phase], w.freed, w.back)
			}
			return text
		},
	}
}

// holding returns how many runs hold a slot.
func (s *admissionState) holding() (n int) {
	for _, r := range s.runs {
		if r == held1 || r == held2 || r == orphan {
			n++
		}
	}
	return n
}

// starts are the commits of starts.
func starts(s admissionState, twin admissionTwin) (next []step[admissionState]) {
	for i, r := range s.runs {
		if r == absent && i < twin.runs() {
			to := s
			to.runs[i] = waiting
			to.changes |= 1 << i
			next = append(next, step[admissionState]{what: fmt.Sprintf("run %d is started", i+1), to: to})
		}
	}
	return next
}

// claimSteps are the steps of a worker's claim.
func claimSteps(s admissionState, w int, twin admissionTwin, slots int) (next []step[admissionState]) {
	to := s
	me := &to.worker[w]
	what := ""
	switch me.phase {
	case noClaim:
		switch {
		case !s.place && s.changes == 0 && !me.freed: // nothing to look at
			return nil
		case s.locked == 0 || twin == countBeforeLock && s.locked != uint8(w+1):
			what = "lock the key"
			me.phase, me.read, me.holding = keyLocked, s.changes, uint8(s.holding())
			me.hidden = lowered(s, w, twin)
			if s.locked == 0 {
				to.locked = uint8(w + 1)
			}
		case twin == changesDeletedUnlocked && s.changes != 0:
			what = "find the key locked, and delete its changes"
			to.changes = 0
		default:
			return nil
		}
	case keyLocked:
		if to.locked == 0 { // it has waited for the lock
			to.locked = uint8(w + 1)
		}
		if to.locked != uint8(w+1) {
			return nil
		}
		what = "count and take"
		take(&to, w, twin, slots)
		if me.take != 0 && twin >= cursorRight {
			raised := to
			for i, r := range raised.runs {
				if r != waiting || me.take&(1<<i) != 0 {
					raised.worker[w].hidden |= 1 << i
				}
			}
			what := fmt.Sprintf("worker %d: take, and raise the cursor", w+1)
			next = append(next, step[admissionState]{what: what, to: raised})
		}
	case keyTaken:
		what = "commit"
		for i := range to.runs {
			if me.take&(1<<i) != 0 {
				to.runs[i] = held1 + uint8(w)
			}
		}
		to.place, to.locked, to.changes, to.hidden = me.place, 0, to.changes&^me.read, me.hidden
		late := s.worker[w].read&freedLate != 0
		*me = admissionWorker{freed: me.freed && late, back: me.back && late}
	}
	return append(next, step[admissionState]{what: fmt.Sprintf("worker %d: %s", w+1, what), to: to})
}

// lowered returns which runs the claim still does not find once its lock has read the changes.
func lowered(s admissionState, w int, twin admissionTwin) uint8 {
	if s.changes>>admissionRuns != 0 || s.worker[w].back {
		return 0
	}
	if twin == changeWithoutDue {
		return s.hidden
	}
	return s.hidden &^ s.changes
}

// freedLate is a bit of admissionWorker.read: the worker has given up a slot since its claim has begun.
const freedLate = 1 << 7

// take decides which runs the claim takes, and the key's next place.
func take(s *admissionState, w int, twin admissionTwin, slots int) {
	me := &s.worker[w]
	taken := s.holding()
	if twin == countBeforeLock {
		taken = int(me.holding)
	}
	left := false
	for i, r := range s.runs {
		switch {
		case r != waiting || me.hidden&(1<<i) != 0:
		case taken < slots && me.take == 0: // the worker has room for one
			me.take |= 1 << i
			taken++
		default:
			left = true
		}
	}
	me.phase, me.place = keyTaken, left && taken < slots
}

// endSteps are the ends and the suspensions of the runs that a worker holds.
func endSteps(s admissionState, w int, twin admissionTwin) (next []step[admissionState]) {
	for i, r := range s.runs {
		if r != held1+uint8(w) {
			continue
		}
		to := s
		to.runs[i] = finished
		if twin != endWithoutHandover {
			if to.worker[w].freed = true; to.worker[w].phase != noClaim {
				to.worker[w].read |= freedLate
			}
		}
		next = append(next, step[admissionState]{what: fmt.Sprintf("worker %d: end run %d", w+1, i+1), to: to})
		if !s.again && twin >= cursorRight {
			to.runs[i], to.again, to.worker[w].back = waiting, true, twin != suspensionAsEnd
			next = append(next, step[admissionState]{what: fmt.Sprintf("worker %d: suspend run %d", w+1, i+1), to: to})
		}
	}
	return next
}

// deathSteps are the death of a worker, and its consequences.
func deathSteps(s admissionState, twin admissionTwin) (next []step[admissionState]) {
	add := func(what string, fault bool, change func(*admissionState)) {
		to := s
		change(&to)
		next = append(next, step[admissionState]{what, to, fault})
	}
	for w := range s.worker {
		if s.faults == mostAdmissionFaults {
			break
		}
		add(fmt.Sprintf("worker %d dies", w+1), true, func(s *admissionState) {
			for i, r := range s.runs {
				if r == held1+uint8(w) {
					s.runs[i] = orphan
				}
			}
			if s.locked == uint8(w+1) {
				s.locked = 0
			}
			s.worker[w] = admissionWorker{} // another one takes its place
			s.faults++
			s.rechecks = 2
		})
	}
	for i, r := range s.runs {
		if r != orphan {
			continue
		}
		if s.rechecks < 2 { // released
			for w := range s.worker {
				add(fmt.Sprintf("worker %d: take over run %d", w+1, i+1), false, func(s *admissionState) {
					s.runs[i] = held1 + uint8(w)
				})
			}
		}
		if s.rechecks > 0 {
			add(fmt.Sprintf("run %d is ended by a late write of the dead worker", i+1), true, func(s *admissionState) {
				s.runs[i] = finished
			})
		}
	}
	if s.rechecks > 0 {
		add("recheck the keys of the dead worker", false, func(s *admissionState) {
			s.rechecks--
			if twin != oneRecheck || s.rechecks == 1 {
				s.changes |= 1 << (admissionRuns + int(s.rechecks))
			}
		})
	}
	return next
}
