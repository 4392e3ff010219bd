package replay

import (
	"runtime"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A ReplySpec describes the answer to a request.
type ReplySpec struct {
	Step    string // name of the request's wait
	Name    string // of the message that the wait has read, as it is stored
	Request int64  // its number

	// Encode fills in the answer. later says that err may be over soon. It is not called if the history has the reply.
	Encode func(row *store.StepRow) (later bool, err error)
}

// replySuffix follows the name of the wait in the name of a reply's record. Names of the application have no '#'.
const replySuffix = "#reply"

// Reply records the answer to a request on the branch. The record is deferred: if the process dies before it is
// written, no asker has seen the answer, and a replay answers again. The outbox does not keep it for long, because the
// asker waits for it; in a race it is written at once, and stands. See doc_replies.go.
func Reply(b *Branch, spec ReplySpec) error {
	defer b.operate().done()
	id, err := b.enter(spec.Step+replySuffix, nil)
	if err != nil {
		return err
	}
	row := b.lookup(id, store.KindReply)
	switch {
	case row == nil:
		if row, err = deferReply(b, id, spec); err != nil {
			return err
		}
	case row.Sequence == spec.Request:
		b.e.hasAnswered(spec.Request)
	default:
		b.e.nondeterministic(id, "%q was recorded as the answer to another request than the one that the code now "+
			"answers: answer requests in the same order", id)
	}
	b.passed(row)
	return nil
}

// deferReply defers the record of an answer, and returns its row.
func deferReply(b *Branch, id string, spec ReplySpec) (*store.StepRow, error) {
	if err := b.begins(); err != nil {
		return nil, err
	}
	e := b.e
	r := e.newRecord(id, store.KindReply, store.Completed, 1, 1)
	r.Sequence = spec.Request
	if later, err := spec.Encode(&r.StepRow); later {
		b.e.unwritable(err)
	} else if err != nil {
		return nil, failure.Wrap(failure.BadRequest(err), "reply %q", id)
	}
	row, races, err := answerWith(b, r, spec)
	if races { // else the asker would wait until the race is decided
		b.enqueue(r)
	}
	return row, err
}

// answerWith defers the record of an answer, and returns its row. races says that it has not deferred it, because the
// branch is in a race.
func answerWith(b *Branch, r *store.Record, spec ReplySpec) (_ *store.StepRow, races bool, _ error) {
	e := b.e
	e.Lock()
	defer e.Unlock()
	switch {
	case !e.underWayLocked():
		runtime.Goexit()
	case b.isOver(): // a loser answers nothing
		return nil, false, errBranchCancelled
	}
	r.Answers, r.EndedAt = e.answersLocked(spec.Request, spec.Name), b.afterNow(e.Now())
	row := r.StepRow // a copy: the record belongs to the flush then
	row.FinishedAt = r.EndedAt
	if b.mayLose() {
		return &row, true, nil
	}
	b.deferLocked(r, nil)
	return &row, false, nil
}
