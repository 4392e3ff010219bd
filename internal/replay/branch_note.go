package replay

import (
	"context"
	"time"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/store"
)

// A NoteSpec describes an operation whose result is no function's of the application: the engine records what Read
// returns.
type NoteSpec struct {
	Name    string
	BadName error  // why the name is invalid; nil if it is valid
	Invalid error  // why the rest of the call is invalid; nil if it is valid
	Kind    string // of the record
	Read    func(ctx context.Context) ([]byte, error)
}

// Note records what Read returns, and returns it: in a replay that of the record. If Read returns an error, it is the
// database's, and Note calls Read again.
func (b *Branch) Note(spec NoteSpec) ([]byte, error) {
	defer b.operate().done()
	id, err := b.enter(spec.Name, spec.BadName)
	if err != nil {
		return nil, err
	}
	if spec.Invalid != nil {
		return nil, b.Misuse(failure.Wrap(spec.Invalid, "%q", id))
	}
	row := b.lookup(id, spec.Kind)
	if row == nil {
		if err := b.begins(); err != nil {
			return nil, err
		}
		output, err := readNote(b, spec.Read)
		if err != nil {
			return nil, err
		}
		r := b.newRecord(id, spec.Kind, store.Completed, 1, 1)
		r.Output = output
		row = b.record(r)
	}
	b.passed(row)
	return row.Output, nil
}

// readNote calls f until it succeeds, or the branch is cancelled.
func readNote(b *Branch, f func(context.Context) ([]byte, error)) ([]byte, error) {
	for failures := 0; ; failures++ {
		output, err := f(b.ctx)
		if err == nil {
			return output, nil
		}
		if err := b.cancelled(); err != nil {
			return nil, err
		}
		b.e.Trouble(err)
		b.e.Pause(min(10*time.Millisecond<<min(failures, 10), time.Second))
		b.e.exitIfStopped()
	}
}
