package pg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// A Class tells the caller how to go on after a failed call. Every error has exactly one.
type Class int

const (
	// Fine is the class of nil.
	Fine Class = iota
	// ClassAway: the server cannot be reached, is starting or stopping, or takes no writes. The call may have taken
	// effect. Pause, and repeat the same.
	ClassAway
	// ClassLate: our deadline or the server's timeout ended the call. It may have taken effect. Pause, and repeat with
	// fewer items; a single item that is too large never succeeds.
	ClassLate
	// ClassBusy: no connection was free, in the pool or at the server. Nothing was sent. Repeat the same when one is
	// free.
	ClassBusy
	// ClassUnable: the server answered that it is out of disk or memory, or that one of its files is broken. It answers
	// other calls meanwhile, and the error may be about one row. Nothing was written. Go on with other items, and
	// repeat this one after a pause.
	ClassUnable
	// ClassConflict: the transaction was rolled back because of another one. Repeat the same at once.
	ClassConflict
	// ClassLocked: a wait for another transaction's lock timed out; the transaction was rolled back. Leave that row
	// out, or try again later.
	ClassLocked
	// ClassMoved: the namespace moves to another database, or has moved. Nothing was written, and until it is back,
	// nothing will be. Repeat the same after a pause, or end.
	ClassMoved
	// ClassRefused: the server refused the content of the statement, and always will. Fail the item.
	ClassRefused
	// ClassForbidden: the user lacks a right. Log it, and try again from time to time.
	ClassForbidden
	// ClassClosed: the application has closed the pool. End.
	ClassClosed
	// ClassOther: anything else, such as a missing table or a bug of ours. Log it, and go on after a pause.
	ClassOther
)

// Classify returns the class of err.
func Classify(err error) Class {
	if err == nil {
		return Fine
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return classOf(pe)
	}
	var ce *pgconn.ConnectError
	var ne net.Error
	var nc *NoConnection
	switch {
	case errors.As(err, &nc) && nc.busy():
		return ClassBusy
	case errors.As(err, &nc):
		return ClassAway
	case closedPool(err):
		return ClassClosed
	case errors.As(err, &ce):
		return ClassAway
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		return ClassLate
	case errors.As(err, &ne), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		strings.Contains(err.Error(), "conn closed"):
		return ClassAway
	}
	return ClassOther
}

// closedPool reports whether an error in the chain is that of a closed pool. Those around it may explain it.
func closedPool(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.HasSuffix(err.Error(), "closed pool") {
			return true
		}
	}
	return false
}

// classOf returns the class of an SQLSTATE.
func classOf(pe *pgconn.PgError) Class {
	if isFence(pe) {
		return ClassMoved
	}
	switch pe.Code {
	case "40001", "40P01":
		return ClassConflict
	case "0A000":
		if strings.Contains(pe.Message, "cached plan") { // DDL has made the plan stale
			return ClassConflict
		}
		return ClassOther
	case "55P03":
		return ClassLocked
	case "57014", "25P04": // statement_timeout, transaction_timeout
		return ClassLate
	case "53300": // too_many_connections
		return ClassBusy
	case ReadOnly, "25P03": // the latter is idle_in_transaction_session_timeout, which ends the connection
		return ClassAway
	case "42501", "28000", "28P01":
		return ClassForbidden
	}
	class := pe.Code[:min(len(pe.Code), 2)]
	switch class {
	case "53", "58": // resources, files
		if ConnectionEnded(pe) {
			return ClassAway
		}
		return ClassUnable
	case "08", "57": // connections, the server's operator
		return ClassAway
	case "09", "22", "23", "27", "44", "54", "P0": // the last is the RAISE or ASSERT of a trigger
		return ClassRefused
	}
	if class != "" && !slices.Contains(serverClasses, class) { // a trigger's RAISE with a code of the application
		return ClassRefused
	}
	return ClassOther
}

// serverClasses are the classes of SQLSTATEs that Postgres itself reports. See its appendix of error codes.
var serverClasses = strings.Fields(`00 01 02 03 08 09 0A 0B 0F 0L 0P 0Z 20 21 22 23 24 25 26 27 28 2B 2D 2F 34 38 ` +
	`39 3B 3D 3F 40 42 44 53 54 55 57 58 72 F0 HV P0 XX`)

// ReadOnly is the SQLSTATE of a write in a read-only session, or on a standby.
const ReadOnly = "25006"

// ConnectionEnded reports whether the server ended the connection with this error, and not only the transaction.
func ConnectionEnded(pe *pgconn.PgError) bool {
	return pe.SeverityUnlocalized == "FATAL" || pe.SeverityUnlocalized == "PANIC"
}

// Unsent reports whether err says that there was no connection, so that nothing was sent.
func Unsent(err error) bool {
	return errors.As(err, new(*pgconn.ConnectError)) || errors.As(err, new(*NoConnection))
}

// FencePrefix begins the names of the constraints that refuse a namespace while it moves to another database, and
// afterwards.
const FencePrefix = "kagzi_moved_"

// FenceOf returns the name of the constraints that refuse a namespace.
func FenceOf(namespace string) string {
	sum := sha256.Sum256([]byte(namespace))
	return FencePrefix + hex.EncodeToString(sum[:16])
}

func isFence(pe *pgconn.PgError) bool {
	return pe.Code == "23514" && strings.HasPrefix(pe.ConstraintName, FencePrefix)
}

// ErrMoved reports a write in a namespace that moves to another database, or has moved there.
var ErrMoved = errors.New("the namespace moves to another database, or has moved: use a client of that one")

// explainFence makes the error of a fence one that says ErrMoved. The server's own names a constraint.
func explainFence(err error) error {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok && isFence(pe) && !errors.Is(err, ErrMoved) {
		return &fenceError{err}
	}
	return err
}

type fenceError struct{ err error }

func (e *fenceError) Error() string   { return ErrMoved.Error() }
func (e *fenceError) Unwrap() []error { return []error{ErrMoved, e.err} }
