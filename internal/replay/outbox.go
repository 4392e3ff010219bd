package replay

import (
	"slices"
	"sync"
	"time"

	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/waits"
)

// A write is written in one transaction: records of an execution, at its end a suspension or a finish, and perhaps its
// progress. An empty write is settled once all writes before it are.
type write struct {
	// the writing branch, or the one whose wait suspends the execution; nil: the execution itself
	by         *node
	records    []*store.Record // deferred records first, then the write's own
	suspension *store.Suspension
	finish     *store.Finish
	progress   *store.Progress     // nil: the write takes none along
	aside      []*store.SetAside   // messages that do not decode; such a write has nothing else
	settled    func(store.Outcome) // called once with the outcome; nil if no branch waits
	givesBack  bool                // it gives the run back as it is in the table, and builds on nothing

	speculative bool // the run uses a result among the records already. Set by takeDeferredLocked.
	free        int  // how many of the first records could go with any other write. Set by take, changed by divide.
	bare        bool // a finish without anything of the application's. Set by doWithout.
}

// An outbox is an execution's FIFO of writes that are not settled, with the records that wait for the next of them.
// enqueue adds a write; if the outbox was empty, it tells the host. A flush takes writes
// from the front. A busy write stays in front, and all later writes wait behind it: no write overtakes one that it may
// depend on. The host makes flushes until More says that none is left. The execution's mutex guards the outbox: its
// files lock it, and a method ending in Locked is called with it. See doc_flush.go.
type outbox struct {
	mu       *sync.Mutex // the execution's
	env      *Env
	of       store.HeldRun
	ending   *ending  // the execution's
	listener Host     // is told of writes, steps and news
	writes   []*write // not settled, oldest first
	// the host has been told of writes, and flushes them; true while there are any. Set by enqueue, reset by More.
	active bool
	taken  int // writes[:taken] are in a flush. Only that flush sets it.
	// the execution was told why the server has not written its records. Reset when they are written.
	told    bool
	refused bool // the server has refused a write: see refuseLocked, which sets it, for good

	progress progress
	deferred []deferredRecord
	aside    []*store.SetAside // messages that do not decode, for the next write
	// deferred or writes may have results that the run uses. Set by speculateLocked, reset by speculates.
	speculated bool
	premises   premises
}

// hasWritesLocked reports whether writes are not settled.
func (o *outbox) hasWritesLocked() bool { return len(o.writes) > 0 }

// A deferredRecord is a record that no branch waits for. It enters the outbox with the execution's next write. If its
// branch may still lose a race, it enters with the next write of that branch or of a branch below. If the process dies
// before, a replay defers it again.
type deferredRecord struct {
	record *store.Record
	by     *node
	// the message that the record takes; nil if none. It returns to the inbox if the branch loses a race.
	message     *store.Signal
	speculative bool // the result of a step that the run uses already: see recorder.awaitResults
	ordinary    bool // with speculative: the step is not repeatable
}

// takeDeferredLocked removes and returns the deferred records that are written with w, or before it. The next execution
// defers those again that even the end of this one leaves out.
func (o *outbox) takeDeferredLocked(w *write) (taken []deferredRecord) {
	if len(o.deferred) == 0 {
		return nil
	}
	if o.refused {
		o.deferred = slices.DeleteFunc(o.deferred, func(d deferredRecord) bool { return d.record.Compensation == nil })
	}
	o.deferred = slices.DeleteFunc(o.deferred, func(d deferredRecord) bool {
		take := d.goesWith(w.by)
		if take {
			taken = append(taken, d)
			w.speculative = w.speculative || d.speculative
		}
		return take
	})
	return taken
}

// mayPrecede reports whether the record may be committed before the write that takes it, in a transaction of its own:
// it is the read of a message on the run's own branch, which cannot lose a race. Its end is then as if WaitSignal had
// recorded it at once. A registration needs the record of its step, and a message that a racer read needs the decision
// of its race.
func (d *deferredRecord) mayPrecede() bool {
	return d.message != nil && d.by.isRoot() && d.record.Kind != store.KindFunction
}

// isFree reports whether the record may be committed before the rest of the write that takes it: an earlier write of
// the execution itself would have taken it alone. A registration needs the record of its step.
func (d *deferredRecord) isFree() bool { return !d.by.mayLose() && d.record.Compensation == nil }

// hasDeferredLocked reports whether the branch's next write would take deferred records.
func (o *outbox) hasDeferredLocked(by *node) bool {
	return slices.ContainsFunc(o.deferred, func(d deferredRecord) bool { return d.goesWith(by) })
}

// goesWith reports whether a write of the branch, or of the execution itself if by is nil, takes the record. Values
// that others see wait until their branch cannot lose any more. A loser's checkpoint harms nothing.
func (d *deferredRecord) goesWith(by *node) bool {
	return !d.by.mayLose() || d.isCheckpoint() || !d.isValue() && by.under(d.by.keeperLocked())
}

func (d *deferredRecord) isValue() bool { return d.record.Kind == store.KindValue }

// isUrgent reports whether the record is written soon: see soonPause.
func (d *deferredRecord) isUrgent() bool { return d.ordinary || d.record.Kind == store.KindReply }

func (d *deferredRecord) isCheckpoint() bool { return d.record.Kind == store.KindCheckpoint }

// dropDeferredLocked drops the deferred records of a branch that lost a race, and of those below it. It returns the
// messages that they took; the caller returns them to the inbox.
func (o *outbox) dropDeferredLocked(loser *node) (taken []*store.Signal) {
	o.deferred = slices.DeleteFunc(o.deferred, func(d deferredRecord) bool {
		lost := d.by.under(loser)
		if lost && d.message != nil {
			taken = append(taken, d.message)
		}
		return lost
	})
	return taken
}

// Take marks the first writes as taken, as many as fit into a transaction that has the given numbers of writes and
// bytes already, and may have mostWrites and mostBytes. A larger write gets one of its own. It returns the
// transaction's new numbers.
func (o *outbox) Take(writes, bytes, mostWrites, mostBytes int) (int, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.taken = 0; o.taken < len(o.writes) && writes < mostWrites; o.taken++ {
		size := o.writes[o.taken].size()
		if writes > 0 && bytes+size > mostBytes {
			break
		}
		writes, bytes = writes+1, bytes+size
	}
	return writes, bytes
}

// addLocked adds the taken writes to f. It leaves out a RUNNING record whose step's end, or another one, is in f, too,
// and a value or a checkpoint before the last one: a statement cannot write a row twice.
func (o *outbox) addLocked(f *store.Flush) {
	first, replaced := len(f.Records), false
	for _, w := range o.writes[:o.taken] {
		f.Records = append(f.Records, w.records...)
		if w.suspension != nil {
			f.Suspensions = append(f.Suspensions, w.suspension)
		}
		if w.finish != nil {
			f.Finishes = append(f.Finishes, w.finish)
		}
		f.Aside = append(f.Aside, w.aside...)
	}
	o.addProgressLocked(f)
	o.addPremisesLocked(f)
	records := f.Records[first:]
	for _, r := range records {
		replaced = replaced || r.Status == store.Running || store.Replaces(r.Kind)
	}
	if !replaced || len(records) == 1 {
		return
	}
	type row struct {
		step    string
		attempt int
	}
	last := map[row]*store.Record{}
	for _, r := range records {
		at := row{r.StepID, r.Attempt}
		if l := last[at]; r.Status != store.Running || l == nil || l.Status == store.Running {
			last[at] = r
		}
	}
	records = slices.DeleteFunc(records, func(r *store.Record) bool {
		out := last[row{r.StepID, r.Attempt}] != r
		if out {
			r.Outcome = store.Done
		}
		return out
	})
	f.Records = f.Records[:first+len(records)]
}

// addProgressLocked adds the last progress of the taken writes to f. Those before it are out of date.
func (o *outbox) addProgressLocked(f *store.Flush) {
	var last *store.Progress
	for _, w := range o.writes[:o.taken] {
		if w.progress == nil {
			continue
		}
		if last != nil {
			last.Outcome = store.Done
		}
		last = w.progress
	}
	if last != nil {
		f.Progress = append(f.Progress, last)
	}
}

// settleLocked removes the taken writes that are not busy, and appends them to settled. An empty write stays behind a
// busy one. unheard says that a write is busy until the execution knows that its run was cancelled or paused.
func (o *outbox) settleLocked(settled []*write) (_ []*write, anyBusy, unheard bool) {
	var busy []*write
	for _, w := range o.writes[:o.taken] {
		if out := w.outcome(); out == store.Busy || out == store.Unheard || busy != nil && w.empty() {
			busy = append(busy, w)
			unheard = unheard || out == store.Unheard
		} else {
			settled = append(settled, w)
		}
	}
	o.writes = slices.Replace(o.writes, 0, o.taken, busy...)
	o.taken = 0
	return settled, busy != nil, unheard
}

func (w *write) empty() bool {
	return len(w.records) == 0 && w.suspension == nil && w.finish == nil && w.progress == nil && w.aside == nil
}

// ends reports whether w ends the execution.
func (w *write) ends() bool { return w.suspension != nil || w.finish != nil }

// waitsFor returns what the run waits for that w suspends; nil if w is nil.
func (w *write) waitsFor() waits.List {
	if w == nil {
		return nil
	}
	return w.suspension.WaitingOn
}

// record returns w's own record.
func (w *write) record() *store.Record { return w.records[len(w.records)-1] }

// mayWait reports whether w may have to wait for a transaction of the application.
func (w *write) mayWait() bool { return slices.ContainsFunc(w.records, (*store.Record).MayWait) }

// size estimates the bytes of w in a statement.
func (w *write) size() int {
	n := 200
	for _, r := range w.records {
		n += sizeOf(r)
	}
	if w.finish != nil {
		n += len(w.finish.Output) + len(w.finish.Error)
	}
	if w.suspension != nil && w.suspension.Next != nil {
		n += len(w.suspension.Next.Input) + 200*w.suspension.Next.Records
	}
	if w.progress != nil {
		n += len(w.progress.Text)
	}
	for _, a := range w.aside {
		n += 200 + len(a.Reason)
	}
	return n
}

// eventSize is what an event counts beside its payload, in bytes. It bounds the events of a flush to 8,000.
const eventSize = 1 << 10

// sizeOf estimates the bytes of r in a statement.
func sizeOf(r *store.Record) int {
	n := 200 + len(r.Input) + len(r.Output) + len(r.Error)
	if r.Start != nil {
		n += 200 + len(r.Start.Input) + len(r.Start.Metadata) + len(r.Start.Headers) + len(r.Start.RetryPolicy)
	}
	for _, e := range r.Events {
		n += eventSize + len(e.Payload)
	}
	if r.Compensation != nil {
		n += 200 + len(r.Compensation.Input) + len(r.Compensation.Metadata) + len(r.Compensation.Headers) +
			len(r.Compensation.RetryPolicy)
	}
	return n
}

func (w *write) outcome() store.Outcome {
	switch {
	case w.suspension != nil:
		return w.suspension.Outcome
	case w.finish != nil:
		return w.finish.Outcome
	case len(w.records) > 0:
		return w.record().Outcome
	case w.progress != nil:
		return w.progress.Outcome
	case w.aside != nil:
		return w.aside[0].Outcome // all are of one run
	default:
		return store.Done
	}
}

// settle passes the outcome to the waiter, if there is one. It does so once: afterwards the waiter's receipt belongs to
// another write.
func (w *write) settle(o store.Outcome) {
	if settled := w.settled; settled != nil {
		w.settled = nil
		settled(o)
	}
}

// writePause is the least time between two writes of a run's progress, apart from that with its suspension or end. It
// is also the longest time that a progress, a value, a checkpoint, or the record of a message that was read or set
// aside, waits for a write that takes it along.
const writePause = time.Second

// soonPause is the longest time that a reply or the result of a step waits for a write that takes it along: an asker
// waits for the reply, and a crash would repeat the step. As a rule the next operation, or the end of the run, comes
// within microseconds.
const soonPause = time.Millisecond

// A progress is what the run's code last said of its progress. It is not part of the history: no replay reads it. The
// execution's mutex guards it.
type progress struct {
	said  *store.Progress // neither written nor in the outbox; nil: there is none
	taken time.Time       // when the last one entered the outbox
	timer *time.Timer     // calls writeLate; nil until there is something to write
	timed time.Time       // when the timer fires; zero: it does not run. Set by timeWriteLocked, reset by writeLate.
	// transactional steps of a stricter isolation that are under way: a change of the run's row would fail them
	holds int
}

// takeLocked removes and returns the progress that is to be written.
func (p *progress) takeLocked() (said *store.Progress) {
	said, p.said = p.said, nil
	p.taken = time.Now()
	return said
}

// goesWithLocked reports whether w takes the progress along: not every write does, or a loop of short steps would write
// the run's row with each of them.
func (p *progress) goesWithLocked(w *write) bool {
	return p.said != nil && (w.ends() || !w.empty() && p.holds == 0 && time.Since(p.taken) >= writePause)
}

// addPremisesLocked adds what the taken writes build on to f. If they are nothing but records of functions, they are
// to tell whether the run was cancelled or paused: the others have effects beside their records, or end the execution.
func (o *outbox) addPremisesLocked(f *store.Flush) {
	taken := o.writes[:o.taken]
	if !slices.ContainsFunc(taken, func(w *write) bool { return !w.empty() && !w.givesBack }) {
		return
	}
	f.Premises, o.premises.sent = o.premises.nowLocked(f.Premises)
	asks := o.ending.mayHearLocked() && !o.told &&
		!slices.ContainsFunc(taken, func(w *write) bool { return !w.onlyFunctions() })
	for _, w := range taken {
		for _, r := range w.records {
			r.Unheard = asks
		}
	}
}

// onlyFunctions reports whether w has nothing but records of functions.
func (w *write) onlyFunctions() bool {
	other := func(r *store.Record) bool { return r.Kind != store.KindFunction || r.Start != nil || len(r.Events) > 0 }
	return !w.ends() && w.progress == nil && !slices.ContainsFunc(w.records, other)
}

// acknowledgeLocked makes the newest record of the settled writes a premise.
func (o *outbox) acknowledgeLocked(settled []*write, by store.Witness) {
	var newest *store.Record
	for _, w := range settled {
		for _, r := range w.records {
			written := r.Outcome == store.Done && !r.StartedAt.IsZero() // not one that addTo has left out
			if written && (newest == nil || rank(r) >= rank(newest)) {
				newest = r
			}
		}
	}
	if newest != nil {
		if newest.Found { // another connection may have sent it
			by = store.Witness{}
		}
		o.told = false
		o.premises.addLocked(&newest.StepRow, by, o.premises.sent, !newest.Found)
	}
}

// rank prefers records whose rows this flush has written, and those that change no more.
func rank(r *store.Record) (n int) {
	if !r.Found {
		n += 2
	}
	if r.Status != store.Running {
		n++
	}
	return n
}

// isCommitted makes the record of a transactional step, or its checkpoint, which is written, a premise: see
// premises.addLocked.
func (o *outbox) isCommitted(row *store.StepRow, sent int64, now bool) {
	if row.Kind == store.KindFunction {
		o.listener.Stepped(1)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.premises.addLocked(row, store.Witness{}, sent, now)
}

// premisesNow is nowLocked with the lock.
func (o *outbox) premisesNow() (all []store.Premise, sent int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.premises.nowLocked(nil)
}
