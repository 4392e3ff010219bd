package spec

import "fmt"

// Calls at most once: two workers and one run of one step, which writes an intent before its call. Leases end, answers
// are lost, workers crash, and a worker may be frozen between its intent and its call. Operators say what has happened.
//
//	write the intent, its commit   internal/replay, stepCall.executeOnce: recordSteps, a RUNNING row
//	call                           stepCall.callUser
//	withdraw                       executeOnce: the worker stops before the call, and gives the run back
//	mark                           doubt.begin: recordSteps, the same row with an error
//	resolve                        store.Messages.Resolve: storeMessages under the lock of the run's row
//	take the message               doubt.resolution: recordSteps and consumeSignals

// doubtTwin is a mistake that is made on purpose.
type doubtTwin int

const (
	doubtRight         doubtTwin = iota
	callWithoutIntent            // the call does not wait until the intent is committed
	callsAgain                   // a worker that finds an intent makes the attempt again, as that of another step
	intentWithoutLease           // the intent is written by a worker that has lost the run
	withdrawsLate                // a worker withdraws the intent although it has called
	resolvesAgain                // a resolution does not look for one that is under way
)

// The row of the step's newest attempt.
const (
	noRow uint8 = iota
	intentRow
	markedRow // in doubt
	resultRow
)

// The phases of a worker.
const (
	isIdle uint8 = iota
	hasRun
	hasReadRow
	isIntending // the statement has run, and is not committed
	intentUnknown
	hasIntended
	hasCalled
	isInDoubt
)

var doubtPhases = []string{
	"idle", "claimed", "loaded", "intending", "intent unknown", "intended", "called", "in doubt",
}

// The message of a resolution.
const (
	noMessage uint8 = iota
	saysHappened
	saysNot
)

type doubtWorker struct {
	phase, lease, attempt, row uint8 // with the row and its attempt, as the worker has read them
}

type doubtState struct {
	lease        uint8 // of the run: the number of claims so far
	expired      bool
	attempt, row uint8
	message      uint8
	told         uint8 // operators whose resolution of this attempt has succeeded
	calls, again uint8 // of the function; resolutions that let it be called again
	ended        bool
	worker       [2]doubtWorker
	faults       uint8
}

const (
	mostDoubtLeases = 4
	mostDoubtFaults = 3
	mostAttempts    = 3
)

func doubtSpec(twin doubtTwin) specification[doubtState] {
	return specification[doubtState]{
		steps: func(s doubtState) (next []step[doubtState]) {
			if s.lease > 0 && s.lease < mostDoubtLeases && !s.expired && !s.ended {
				to := s
				to.expired = true
				next = append(next, step[doubtState]{what: "the lease ends", to: to})
			}
			for w := range s.worker {
				next = append(next, doubtSteps(s, w, twin)...)
			}
			return append(next, resolutions(s, twin)...)
		},
		wrong: func(s doubtState) string {
			switch {
			case s.calls > 1+s.again:
				return "a function is called again without a resolution"
			case s.told > 1:
				return "two resolutions of one doubt succeed"
			}
			return ""
		},
		done: func(s doubtState) bool { return s.ended },
		text: func(s doubtState) string {
			text := fmt.Sprintf("lease %d, expired %v, attempt %d, row %d, message %d, calls %d", s.lease, s.expired,
				s.attempt, s.row, s.message, s.calls)
			for i, w := range s.worker {
				text += fmt.Sprintf("; worker %d: %s under %d, attempt %d", i+1, doubtPhases[w.phase], w.lease,
					w.attempt)
			}
			return text
		},
	}
}

// resolutions are what operators may say of a step in doubt.
func resolutions(s doubtState, twin doubtTwin) (next []step[doubtState]) {
	if s.row != markedRow || s.message != noMessage && twin != resolvesAgain || s.ended {
		return nil
	}
	to := s
	to.message, to.told = saysHappened, s.told+1
	next = append(next, step[doubtState]{what: "resolve: it happened", to: to})
	if s.attempt+1 < mostAttempts {
		to.message = saysNot
		next = append(next, step[doubtState]{what: "resolve: it did not happen", to: to})
	}
	return next
}

// doubtSteps are the steps of one worker.
func doubtSteps(s doubtState, w int, twin doubtTwin) (next []step[doubtState]) {
	me := s.worker[w]
	add := func(what string, fault bool, change func(*doubtState, *doubtWorker)) {
		to := s
		if fault {
			to.faults++
		}
		change(&to, &to.worker[w])
		next = append(next, step[doubtState]{fmt.Sprintf("worker %d: %s", w+1, what), to, fault})
	}
	faulty := s.faults < mostDoubtFaults
	holds := s.lease == me.lease && !s.ended
	if me.phase != isIdle && faulty && (me.lease != s.lease || s.lease < mostDoubtLeases) {
		add("crash", true, func(s *doubtState, w *doubtWorker) {
			if me.lease == s.lease && s.lease < mostDoubtLeases {
				s.expired = true
			}
			*w = doubtWorker{}
		})
	}
	if !holds && me.phase != isIdle && me.phase != hasIntended && me.phase != isIntending &&
		!(me.phase == hasReadRow && twin == intentWithoutLease) {
		add("the lease is lost", false, func(_ *doubtState, w *doubtWorker) { *w = doubtWorker{} })
		return next
	}
	switch me.phase {
	case isIdle:
		if unlocked := s.worker[1-w].phase != isIntending; !s.ended && (s.lease == 0 || s.expired) &&
			s.lease < mostDoubtLeases && unlocked {
			add("claim", false, func(s *doubtState, w *doubtWorker) {
				s.lease, s.expired = s.lease+1, false
				*w = doubtWorker{phase: hasRun, lease: s.lease}
			})
		}
	case hasRun:
		add("load the history", false, loads)
	case hasReadRow:
		next = append(next, attempts(s, w, twin)...)
	case isIntending:
		write := func(s *doubtState) {
			if s.row <= markedRow && me.attempt == s.attempt {
				s.row = max(s.row, intentRow)
			}
		}
		add("the intent is committed", false, func(s *doubtState, w *doubtWorker) {
			write(s)
			w.phase = hasIntended
		})
		if faulty {
			add("the intent is committed, the answer is lost", true, func(s *doubtState, w *doubtWorker) {
				write(s)
				w.phase = intentUnknown
			})
			add("the intent is lost", true, func(_ *doubtState, w *doubtWorker) { w.phase = intentUnknown })
		}
	case intentUnknown: // the statement is repeated
		add("write the intent again", false, func(_ *doubtState, w *doubtWorker) { w.phase = isIntending })
	case hasIntended:
		add("call", false, func(s *doubtState, w *doubtWorker) { s.calls, w.phase = s.calls+1, hasCalled })
		if holds && s.attempt+1 < mostAttempts && s.lease < mostDoubtLeases {
			add("stop before the call, and withdraw", false, withdraws)
		}
	case hasCalled:
		add("record the result", false, func(s *doubtState, w *doubtWorker) {
			s.row, w.row, w.phase = resultRow, resultRow, hasReadRow
		})
		add("mark: the function has returned an error", false, marks)
		if twin == withdrawsLate && s.attempt+1 < mostAttempts && s.lease < mostDoubtLeases {
			add("stop, and withdraw", false, withdraws)
		}
	case isInDoubt:
		next = append(next, taken(s, w)...)
	}
	return next
}

func loads(s *doubtState, w *doubtWorker) { w.phase, w.attempt, w.row = hasReadRow, s.attempt, s.row }

func marks(s *doubtState, w *doubtWorker) { s.row, w.row, w.phase = markedRow, markedRow, isInDoubt }

// withdraws gives the run back, without an intent.
func withdraws(s *doubtState, w *doubtWorker) {
	s.attempt, s.row, s.expired = s.attempt+1, noRow, true
	*w = doubtWorker{}
}

// attempts are what a worker does with the row that it has read.
func attempts(s doubtState, w int, twin doubtTwin) []step[doubtState] {
	to, me := s, s.worker[w]
	what := ""
	switch {
	case me.row == resultRow:
		what, to.ended = "finish", true
		to.worker[w] = doubtWorker{}
	case me.row == noRow && twin == callWithoutIntent:
		what, to.worker[w].phase = "enqueue the intent", hasIntended
	case me.row == noRow:
		what, to.worker[w].phase = "write the intent", isIntending
	case twin == callsAgain:
		what, to.worker[w].phase = "make the attempt again", hasIntended
	default:
		what = "mark: the intent was found"
		marks(&to, &to.worker[w])
	}
	return []step[doubtState]{{what: fmt.Sprintf("worker %d: %s", w+1, what), to: to}}
}

// taken is the resolution that the worker takes.
func taken(s doubtState, w int) []step[doubtState] {
	to := s
	to.message, to.told = noMessage, 0
	switch s.message {
	case noMessage:
		return nil
	case saysHappened:
		to.row = resultRow
	case saysNot:
		to.row, to.attempt, to.again = noRow, s.attempt+1, s.again+1
	}
	loads(&to, &to.worker[w])
	return []step[doubtState]{{what: fmt.Sprintf("worker %d: take the message", w+1), to: to}}
}
