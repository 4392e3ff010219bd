package store

import (
	"errors"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/pg"
)

// A Halving sends items together, and those that fail together in halves, so that an item which cannot be sent holds up
// no other.
type Halving[T any] struct {
	// Try sends items together. With an error, it returns those that are left to send.
	Try func(items []T) (left []T, err error)

	// Divides reports whether err may be about one of the items. Else what follows would fail, too.
	Divides func(err error) bool

	// Alone is passed an item that has failed by itself, with its error. It returns an error if the others are to wait,
	// and the item if it is left to send.
	Alone func(item T, err error) (left []T, _ error)
}

// Send sends items in their order, together if possible. With an error, it returns those that are left to send.
func (h *Halving[T]) Send(items []T) (left []T, err error) {
	left, err = h.Try(items)
	return h.Divide(left, err)
}

// Divide goes on after a try of items that has failed with err; nil if it has not failed.
func (h *Halving[T]) Divide(items []T, err error) (left []T, _ error) {
	n := len(items) / 2
	switch {
	case err == nil:
		return nil, nil
	case len(items) == 0 || !h.Divides(err):
		return items, err
	case n == 0:
		return h.Alone(items[0], err)
	}
	if left, err = h.Send(items[:n]); err != nil {
		return slices.Concat(left, items[n:]), err
	}
	return h.Send(items[n:])
}

// Isolate calls f with all of items. If the database answers with an error that may be about one of them, Isolate calls
// f with halves of them, down to single items, so that a row which cannot be read or written does not hold up the
// others. It passes an item that fails by itself to alone. f must send its statement even for no items: if that fails,
// too, the error is not about an item, and Isolate returns it. Isolate also returns an error after which the outcome is
// unknown.
func Isolate[T any](items []T, f func([]T) error, alone func(T, error)) error {
	tested := false
	h := Halving[T]{
		Try: func(some []T) ([]T, error) { return some, f(some) },
		Divides: func(err error) bool {
			divides := MayBeRowError(err) && (tested || f(nil) == nil)
			tested = true
			return divides
		},
		Alone: func(item T, err error) ([]T, error) {
			alone(item, err)
			return nil, nil
		},
	}
	_, err := h.Send(items)
	return err
}

// MayBeRowError reports whether err is an answer of the server that may be about one row of the statement, so that the
// same statement may succeed for other rows.
func MayBeRowError(err error) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) || pg.ConnectionEnded(pe) {
		return false
	}
	switch pe.Code {
	case pg.ReadOnly, "53300": // too many connections
		return false
	}
	return pe.Code[:min(len(pe.Code), 2)] != "57" && pg.Classify(err) != pg.ClassForbidden || pe.Code == "57014"
}
