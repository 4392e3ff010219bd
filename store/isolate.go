package store

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/pg"
)

// Isolate calls f with all of items. If the database answers with an error that may be about one of them, Isolate calls
// f with halves of them, down to single items, so that a row which cannot be read or written does not hold up the
// others. It passes an item that fails by itself to alone. f must send its statement even for no items: if that fails,
// too, the error is not about an item, and Isolate returns it. Isolate also returns an error after which the outcome is
// unknown.
func Isolate[T any](items []T, f func([]T) error, alone func(T, error)) error {
	err := f(items)
	if err == nil || !MayBeRowError(err) {
		return err
	}
	if f(nil) != nil {
		return err
	}
	return halves(items, err, f, alone)
}

// halves is Isolate for items that failed together with err.
func halves[T any](items []T, err error, f func([]T) error, alone func(T, error)) error {
	if len(items) == 1 {
		alone(items[0], err)
		return nil
	}
	n := len(items) / 2
	for _, half := range [][]T{items[:n], items[n:]} {
		err := f(half)
		if err != nil && MayBeRowError(err) {
			err = halves(half, err, f, alone)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
