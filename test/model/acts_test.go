package model

import (
	"errors"
	"strings"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
)

// An act is a call of the store, and what it does to the model. Both answer with a text and an error, which must be the
// same.
type act struct {
	name  string
	lease uuid.UUID // under which it writes; zero: none
	send  func(*store.Store) (answer string, err error)
	apply func(*Model) (answer string, err error)
	done  func() // keeps what later acts need of it; nil: nothing
}

// do does the act. The answer to its first commit may be lost: then most calls of the store find out by themselves what
// has become of it, and a flush is sent again.
func (w *world) do(t *rapid.T, a act) {
	s := w.store(t)
	var answer string
	var err error
	lost := false
	w.lossy(t, func() {
		if answer, err = a.send(s); pg.Unavailable(err) {
			lost = true
			answer, err = a.send(s)
		}
	})
	want, wantErr := a.apply(w.Model)
	if lost {
		want, wantErr = a.apply(w.Model)
	}
	if answer != want || !same(err, wantErr) {
		t.Logf("limits:%s", w.limits(t))
		t.Fatalf("%s: %q and error %v, want %q and %v", a.name, answer, err, want, wantErr)
	}
	w.finished(a, answer, wantErr)
}

// finished counts what an act has answered, and keeps what later ones need.
func (w *world) finished(a act, answer string, err error) {
	switch {
	case err != nil:
		w.met[a.name+", "+err.Error()]++
	default:
		for line := range strings.SplitSeq(strings.TrimSpace(answer), "\n") {
			word, _, _ := strings.Cut(line, " ")
			w.met[strings.TrimSpace(a.name+" "+word)]++
		}
	}
	if a.done != nil {
		a.done()
	}
}

// same reports whether err is the one that the model wants.
func same(err, want error) bool {
	var below *store.ActiveBelow
	var needed *store.NeededRun
	var held *store.GroupHeld
	var full *store.QueueFull
	switch {
	case want == ErrActiveBelow:
		return errors.As(err, &below)
	case want == ErrNeeded:
		return errors.As(err, &needed)
	case want == ErrSlotsHeld:
		return errors.As(err, &held) || errors.As(err, &full)
	case want == store.ErrIDConflict && errors.Is(err, store.ErrIDTaken):
		return false
	}
	return errors.Is(err, want)
}
