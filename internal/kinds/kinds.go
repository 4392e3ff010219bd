// Package kinds classifies errors: of which kind they are, whether another attempt is worth it, and with which HTTP
// status a handler answers.
package kinds

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"strings"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/payloads"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/replay"
	"github.com/kagzi/kagzi/internal/standing"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/migrations"
	"github.com/kagzi/kagzi/store"
)

// Of returns the kind of err: see kagzi.KindOf.
func Of(err error) (found kind.Kind) {
	if err == nil {
		return ""
	}
	// The methods of a user's error may panic, above all on a nil pointer in the interface.
	defer func() {
		if recover() != nil {
			found = kind.Unknown
		}
	}()
	if k := declared(err); k != "" {
		return cmp.Or(kind.Kind(text.Sanitize(string(k), valid.MaxNameBytes)), kind.Unknown) // it is stored
	}
	return classify(err)
}

// declared returns the outermost kind in err's chain, or "".
func declared(err error) (found kind.Kind) {
	failure.Walk(err, func(err error) bool {
		switch e := err.(type) {
		case kind.Kind:
			found = e
		case *failure.Panic:
			found = kind.Panic
		case *failure.Error:
			found = e.Kind
		case interface{ As(any) bool }:
			e.As(&found)
		}
		return found != ""
	})
	return found
}

// classify goes from the most specific evidence to the least: a context's end explains the broken connection that it
// caused, and a missing socket is a network error before it is a file not found.
func classify(err error) kind.Kind {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return kind.Timeout
	case errors.Is(err, context.Canceled):
		return kind.Cancelled
	}
	if _, ok := errors.AsType[*store.MissingRights](err); ok {
		return kind.Unauthorized
	}
	if k := failure.Classify(err); k != "" {
		return k
	}
	switch {
	case errors.Is(err, sql.ErrNoRows), errors.Is(err, fs.ErrNotExist), errors.Is(err, core.ErrNotFound):
		return kind.NotFound
	case errors.Is(err, fs.ErrPermission):
		return kind.Unauthorized
	case errors.Is(err, migrations.ErrMissing), errors.Is(err, migrations.ErrOlder),
		errors.Is(err, migrations.ErrNewer):
		return kind.Unavailable // until an operator has migrated the database, or deployed the program
	case errors.Is(err, pg.ErrIsolation):
		return kind.BadRequest
	case errors.Is(err, core.ErrKeyFull), errors.Is(err, core.ErrInboxFull):
		return kind.RateLimited // a slot becomes free, or the run reads messages
	case failure.IsBadURL(err), errors.Is(err, payloads.ErrTooLarge), errors.Is(err, core.ErrIDConflict),
		errors.Is(err, core.ErrIDTaken), errors.Is(err, core.ErrRunFinished), errors.Is(err, core.ErrCompensated),
		errors.Is(err, core.ErrNoDoubt),
		errors.Is(err, replay.ErrForeignGoroutine):
		return kind.BadRequest
	}
	if isRefusal(err) {
		return kind.BadRequest
	}
	return kind.Unknown
}

// isRefusal reports whether Kagzi refused a call for its arguments. Such an error has Kagzi's prefix and wraps no other
// error. Three errors of the same form are not about the arguments: a run is still active, or work was interrupted.
func isRefusal(err error) bool {
	for _, other := range []error{core.ErrRunActive, standing.ErrLeaseLost, standing.ErrShutdown} {
		if errors.Is(err, other) {
			return false
		}
	}
	return failure.Walk(err, func(err error) bool {
		switch err.(type) {
		case interface{ Unwrap() error }, interface{ Unwrap() []error }:
			return false
		}
		return strings.HasPrefix(err.Error(), "kagzi: ")
	})
}
