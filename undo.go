package kagzi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/goroutine"
	"github.com/kagzi/kagzi/store"
)

// undoStep is the step in which a run that is being undone remembers how it ends. No name of a user's has a #.
const undoStep = "#undo"

// An undo is what Compensate registered.
type undo struct {
	id    string
	place int64 // in the order of registration
	call  stepFunc
	cfg   stepConfig
}

// Compensate registers undo, for when the run fails for good, is cancelled, or is over its Timeout: what is registered
// by then runs as steps, one after the other, the last registered first. Compensate returns once the registration is
// recorded, so call it before the step that undo takes back: a crash in between must not lose it. undo must then
// tolerate a step that never ran.
//
// undo is a step function as in [Step]: it is tried again as its [RetryPolicy] says, survives crashes, and
// [CurrentStep] tells it a key. The workflow function itself is first replayed to where it was, so that undo finds its
// variables as they were. Its children are cancelled before. If an attempt of undo is left to fail for good, the
// others run nevertheless, and the run ends as failed with [KindCompensation]. A run that completes, or that
// [Client.Terminate] ends, calls none.
//
// name counts among the names of steps, so give it one that no step has: "cancel-flight" for the step "book-flight". Else
// the step that comes second becomes "book-flight#2".
//
// A wrong call fails the run.
func Compensate(ctx Context, name string, undo func(context.Context) error, opts ...StepOption) {
	b, err := branchOf(ctx)
	if err != nil {
		panic(err)
	}
	if !b.owned() {
		b.e.fail(misuse(failed(b.foreign(), "compensation %q", name)))
		return
	}
	b.e.exitIfEnded()
	if b.ctx.Err() != nil { // the branch's next step says so
		return
	}
	id, err := b.enter("compensation", name)
	cfg, optErr := stepOptions(opts, false)
	if err = cmp.Or(err, optErr); err == nil && undo == nil {
		err = errors.New("kagzi: the function is nil")
	}
	if err != nil {
		b.e.fail(misuse(failed(err, "compensation %q", name)))
		runtime.Goexit()
	}
	b.register(id, func(ctx context.Context, _ pgx.Tx) (any, error) { return nil, undo(ctx) }, cfg)
}

// register remembers an undo, once it is recorded that there is one.
func (b *branch) register(id string, call stepFunc, cfg stepConfig) {
	e := b.e
	u := &undo{id: id, call: call, cfg: cfg}
	row := b.lookup(id, store.KindCompensation)
	if row != nil {
		u.place = row.Sequence
		b.replay()
	} else {
		b.begins()
		e.mu.Lock()
		e.places++
		u.place = e.places
		e.mu.Unlock()
		r := e.newRecord(id, store.KindCompensation, store.Completed, 0, 0)
		r.Sequence = u.place
		row = b.record(r)
		if r.Outcome == store.Undecided { // the branch lost a race meanwhile, and is about to be cancelled: its next step says so
			<-b.ctx.Done()
			return
		}
		b.advance(row.FinishedAt)
	}
	e.mu.Lock()
	switch i := slices.IndexFunc(e.undos, func(o *undo) bool { return o.id == id }); {
	case i < 0:
		e.undos = append(e.undos, u)
	case e.asItIs(): // the execution before this one was cut off, and this one's variables have what was recorded then
		e.undos[i] = u
	}
	e.mu.Unlock()
	e.exitIfEnded() // a cancel that found the registration waits for the undo
}

// placesOf returns the last place given to a registration, and whether there is one.
func placesOf(history map[string]*store.StepRow) (last int64, any bool) {
	for _, row := range history {
		if row.Kind == store.KindCompensation {
			last, any = max(last, row.Sequence), true
		}
	}
	return last, any
}

// condemned returns how the run ends, if that was decided before it was claimed: it was being undone, was cancelled, or
// its time is over.
func (e *execution) condemned() *store.Finish {
	if e.run.CancelRequested {
		return e.cancelled()
	}
	if row := e.history[undoStep]; row != nil {
		var v undoVerdict
		if err := json.Unmarshal(row.Output, &v); err != nil {
			return e.newFinish(store.Failed, KindNondeterminism, fmt.Sprintf("the record of how the run ends is unreadable: %v", err))
		}
		return e.newFinish(v.Status, v.Kind, v.Error)
	}
	if !e.run.DeadlineAt.IsZero() && !e.run.DeadlineAt.After(e.s.now()) {
		return e.newFinish(store.Failed, KindDeadline, errorText(errDeadline))
	}
	return nil
}

func (e *execution) cancelled() *store.Finish {
	return e.newFinish(store.Cancelled, KindCancelled, "run was cancelled")
}

// cancelRequested ends what is under way, for the run to be undone.
func (e *execution) cancelRequested() {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.loading: // what is registered is not known yet
		e.run.CancelRequested = true
	case e.undoing || e.replays:
		if Kind(e.verdict.ErrorKind) != KindCompensation {
			e.verdict = e.cancelled()
		}
	case e.reason == underWay:
		e.verdict = e.cancelled()
		e.endLocked(endUndone, errCancelled)
	}
}

// endRun ends the run: with its children, and once it is undone. A run that is set aside is left as it is, for people.
func (e *execution) endRun(f *store.Finish) {
	if Kind(f.ErrorKind).setsAside() {
		f.Anyway = true
		e.submitFinish(f)
		return
	}
	e.mu.Lock()
	offspring, registered := len(e.offspring) > 0, e.places > 0
	clear(e.offspring)
	e.mu.Unlock()
	switch {
	case offspring:
		go func() {
			if e.s.cancelChildren(e) {
				e.endRun(f)
			} else {
				e.left(store.Lost)
			}
		}()
	case registered && f.Status != store.Completed:
		e.undo(f)
	default:
		e.submitFinish(f)
	}
}

func (e *execution) submitFinish(f *store.Finish) {
	e.release()
	e.s.submit(&item{e: e, finish: f, then: e.left})
}

// undoVerdict is what undoStep remembers.
type undoVerdict struct {
	Status string `json:"status"`
	Kind   Kind   `json:"kind,omitempty"`
	Error  string `json:"error,omitempty"`
}

// undo goes on with another execution, in this one's place, whose function is the undos.
func (e *execution) undo(verdict *store.Finish) {
	go func() {
		if !e.writeNotes(verdict) {
			e.left(store.Lost)
			return
		}
		// What was under way when the function was ended may be recorded, and not be in its variables.
		_, missing := e.forgotten()
		cut := !e.replays && e.reason != endReturned
		if (missing || cut) && e.replayFirst(verdict) {
			return
		}
		u := newExecution(e.s, e.run, nil, false)
		e.mu.Lock()
		u.history, u.own, u.undos = e.whole(), e.own, e.undos
		e.mu.Unlock()
		u.undoing, u.verdict = true, verdict
		slices.SortFunc(u.undos, func(a, b *undo) int { return cmp.Compare(b.place, a.place) })
		e.handOver(u, func() { u.execute(func(b *branch, _ []byte) ([]byte, error) { return nil, u.runUndos(b) }) })
	}()
}

// runUndos executes what is registered, the last first. One that fails for good does not keep the others from
// running.
func (e *execution) runUndos(b *branch) error {
	if e.history[undoStep] == nil {
		r := e.newRecord(undoStep, store.KindMarker, store.Completed, 1, 1)
		e.mu.Lock()
		v := undoVerdict{e.verdict.Status, Kind(e.verdict.ErrorKind), e.verdict.Error}
		e.mu.Unlock()
		r.Output, _ = json.Marshal(v) // strings
		b.record(r)
	}
	if !e.run.DeadlineAt.IsZero() {
		term, err := e.s.store.LiftDeadline(e.s.background, e.held(), e.s.w.cfg.VisibilityTimeout)
		if err != nil {
			e.s.databaseTrouble(err)
			signal(e.s.beats) // extends the lease, too
		}
		e.setTerm(term)
	}
	known := map[string]bool{}
	for _, u := range e.undos {
		known[u.id] = true
	}
	for id, row := range e.history {
		if row.Kind == store.KindCompensation && !known[id] {
			e.nondeterministic("compensation %q is registered, and the code does not come to it in a replay", id)
		}
	}
	var failures []error
	for _, u := range e.undos {
		row := e.history[u.id]
		if row != nil && row.Attempt == 0 { // its registration
			row = nil
		}
		s := &stepCall{b: b, id: u.id, kind: store.KindCompensation, place: u.place, call: u.call, cfg: u.cfg, attempt: 1, first: 1}
		if err := s.runApart(row); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// runApart runs the step on a goroutine of its own: an undo that ends that, as t.FailNow does, must not keep the others
// from running.
func (s *stepCall) runApart(row *store.StepRow) error {
	b, err := s.b, newGoexitError() // unless it gets past it
	mine := b.goid.Load()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.goid.Store(goroutine.ID())
		_, err = s.run(row)
	}()
	<-done
	b.goid.Store(mine)
	b.e.exitIfEnded()
	return err
}

// finishUndone ends the run once it is undone, or as far as it could be.
func (e *execution) finishUndone(err error) {
	e.mu.Lock()
	f, failure := e.verdict, e.failure
	e.mu.Unlock()
	switch {
	case failure != nil && KindOf(failure).setsAside():
		f = e.newFinish(store.Failed, KindOf(failure), errorText(failure))
	case failure != nil:
		f = e.newFinish(store.Failed, KindCompensation, errorText(fmt.Errorf("not undone: %w", failure)))
	case err != nil:
		why := cmp.Or(f.ErrorKind, f.Status)
		f = e.newFinish(store.Failed, KindCompensation, errorText(fmt.Errorf("not undone: %w; the run ended because: %s (%s)", err, f.Error, why)))
	}
	f.Anyway = err != nil || failure != nil // else a cancel wins that came meanwhile
	go func() {
		if f.Status == store.Cancelled && !e.explainCancel(f) {
			e.left(store.Lost)
			return
		}
		e.submitFinish(f)
	}()
}

// explainCancel adds the reason that the cancel was given. It returns false if the lease is lost.
func (e *execution) explainCancel(f *store.Finish) bool {
	return e.insist(func() error {
		events, err := e.s.store.RunEvents(e.s.background, e.run.RunID)
		for _, ev := range slices.Backward(events) {
			if ev.Event == store.EventCancelled && ev.Reason != "" {
				f.Error += ": " + ev.Reason
			}
			if ev.Event == store.EventCancelled || ev.Event == store.EventResumed {
				break
			}
		}
		return err
	})
}
