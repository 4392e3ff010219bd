package core

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/store"
)

// The refusals of package kagzi, which documents them.
var (
	ErrNotFound    = errors.New("kagzi: not found")
	ErrRunFinished = errors.New("kagzi: run is over")
	ErrRunActive   = errors.New("kagzi: run is not over")
	ErrNotWaiting  = errors.New("kagzi: run does not wait for that")
	ErrRunNeeded   = errors.New("kagzi: run is needed by another")
	ErrNoDoubt     = errors.New("kagzi: the step is not in doubt")
	ErrCompensated = errors.New("kagzi: run was compensated: Restart it, or Resume it if a compensation failed")
	ErrIDTaken     = errors.New("kagzi: ID taken by another run")
	ErrIDConflict  = errors.New("kagzi: ID in use with another workflow or input")
	ErrKeyFull     = errors.New("kagzi: key is full")
	ErrInboxFull   = errors.New("kagzi: the run has too many unread messages")
)

var errInboxFull = failure.Explain(fmt.Sprintf("the run has %d messages that it has not read, and takes no more "+
	"before it reads some: admin.Messages.List lists them; if a name is misspelt, send under the right one, and "+
	"admin.Messages.Drop removes the others", store.MostUnread), ErrInboxFull)

var errRequestConflict = failure.Explain("the run has another message with this ID: give each request an ID of its "+
	"own, and repeat one with the same payload", ErrIDConflict)

// Each is an ErrNotFound whose text names the thing that was not found.
var (
	ErrRunNotFound  = failure.Explain("run not found", ErrNotFound)
	ErrStepNotFound = failure.Explain("the run has no such step: Client.Steps lists those it has reached",
		ErrNotFound)
	ErrScheduleNotFound = failure.Explain("schedule not found", ErrNotFound)
	ErrLimitNotFound    = failure.Explain("limit not found", ErrNotFound)
	ErrNotDeclared      = failure.Explain("the code declares none, so there is nothing to go back to: set other "+
		"values", ErrNotFound)
	ErrWorkerNotFound   = failure.Explain("worker not found", ErrNotFound)
	ErrConsumerNotFound = failure.Explain("consumer not found: a worker with its function stores it", ErrNotFound)
	ErrMessageNotFound  = failure.Explain("the run has no message with that ID: admin.Messages.List lists those "+
		"that it has", ErrNotFound)
	ErrEventNotFound = failure.Explain("event not found: the topic has none with that ID, or none any more",
		ErrNotFound)
)

// Public turns the store's errors into those that callers see.
func Public(err error) error {
	if conflict, ok := errors.AsType[*store.IDConflict](err); ok {
		return failure.Explain(conflict.Error(), ErrIDConflict)
	}
	if taken, ok := errors.AsType[*store.IDTaken](err); ok {
		return publicTaken(taken)
	}
	if full, ok := errors.AsType[*store.KeyFull](err); ok {
		return failure.Explain(full.Error(), ErrKeyFull)
	}
	if held, ok := errors.AsType[*store.HeldError](err); ok {
		return failure.Explain(held.Error(), held)
	}
	if pg.Locked(err) {
		return failure.Explain("another transaction has locked rows that this call changes, perhaps one given with "+
			"InTx that is neither committed nor rolled back: nothing was changed; try again", err)
	}
	for _, p := range []struct{ from, to error }{
		{store.ErrInboxFull, errInboxFull},
		{store.ErrRequestConflict, errRequestConflict},
		{store.ErrRunNotFound, ErrRunNotFound},
		{store.ErrRunFinished, ErrRunFinished},
		{store.ErrIDConflict, ErrIDConflict},
		{store.ErrRunActive, ErrRunActive},
		{store.ErrNoConsumer, ErrConsumerNotFound},
		{store.ErrNoEvent, ErrEventNotFound},
		{store.ErrStepNotFound, ErrStepNotFound},
		{store.ErrCompensated, ErrCompensated},
		{store.ErrNoDoubt, ErrNoDoubt},
		{store.ErrScheduleNotFound, ErrScheduleNotFound},
		{store.ErrWorkerNotFound, ErrWorkerNotFound},
	} {
		if errors.Is(err, p.from) {
			return p.to
		}
	}
	return explainServer(err)
}

// publicTaken returns the refusal of an IfActive or IfEnded as callers see it.
func publicTaken(taken *store.IDTaken) error {
	errs := []error{ErrIDTaken}
	if taken.Differs != "" {
		errs = append(errs, ErrIDConflict)
	}
	return failure.Explain(taken.Error(), errs...)
}

// explainServer adds advice to some errors of the server and of transactions. It returns others unchanged.
func explainServer(err error) error {
	pe, _ := errors.AsType[*pgconn.PgError](err)
	switch advice := store.Advice(err); {
	case advice != "" && !strings.HasSuffix(err.Error(), advice):
		return fmt.Errorf("%w: %s", err, advice)
	case errors.Is(err, pgx.ErrTxClosed):
		return failure.Of(kind.BadRequest, failure.Explain("the transaction given with InTx has ended: begin "+
			"another", err))
	case pe == nil:
		return err
	case pe.Code == "25006":
		return failure.Explain("the server takes no writes: it is a standby or read-only, or the transaction given "+
			"with InTx is: connect to the primary "+
			"(target_session_attrs=read-write), and begin the transaction READ WRITE", err)
	case (pe.Code == "3F000" || pe.Code == "42P01") && strings.Contains(pe.Message, "kagzi"):
		// no such schema, no such table
		return failure.Of(kind.Unavailable, failure.Explain("schema missing: call kagzi.Migrate, or give InTx a "+
			"transaction of the client's database", err))
	}
	return err
}

// ErrNilContext refuses a call in a workflow.
var ErrNilContext = failure.BadRequest(errors.New("kagzi: the Context is nil: a workflow function gets one from " +
	"its worker"))
