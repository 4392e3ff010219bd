package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
)

// A Ref is what a kagzi.Ref stands for: a run ID, or an ID that the caller gave. The zero Ref stands for a nil one.
type Ref struct {
	Text  string
	Given bool // it is not that of a nil kagzi.Ref
	ByID  bool // the text is an ID that the caller gave, not a run ID
}

// RefOf returns what r stands for. r may be nil, or a nil pointer.
func RefOf(r interface{ Core() Ref }) Ref {
	if v := reflect.ValueOf(r); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return Ref{}
	}
	return r.Core()
}

// OfRun returns the Ref of a run ID.
func OfRun(id string) Ref { return Ref{Text: id, Given: true} }

// OfID returns the Ref of an ID that the caller gave.
func OfID(id string) Ref { return Ref{Text: id, Given: true, ByID: true} }

// String returns the name that errors give the run.
func (r Ref) String() string {
	return cmp.Or(r.Text, "a run")
}

// Resolve returns the run ID behind ref.
func (c *Client) Resolve(ctx context.Context, tx pgx.Tx, ref Ref) (uuid.UUID, error) {
	if err := c.CheckSchema(ctx, tx); err != nil {
		return uuid.Nil, err
	}
	switch {
	case !ref.Given:
		return uuid.Nil, errors.New("kagzi: the reference is nil: pass a kagzi.RunID, a kagzi.ID or the run itself")
	case !ref.ByID && ref.Text == "":
		return uuid.Nil, errors.New("kagzi: the run ID is empty: a zero Run, RunInfo or Started stands for no run")
	case !ref.ByID:
		id, err := uuid.Parse(ref.Text)
		if err != nil {
			return uuid.Nil, fmt.Errorf("%w: %.60q is not a run ID; for an ID of your own pass kagzi.ID(…)",
				ErrRunNotFound, ref.Text)
		}
		return id, nil
	case ref.Text == "":
		return uuid.Nil, errors.New("kagzi: the ID is empty: give the one that the run was started with")
	}
	if err := valid.ExternalID(ref.Text); err != nil {
		return uuid.Nil, err
	}
	var db pg.DB
	if tx != nil {
		db = tx
	}
	return c.Store.Runs.Find(ctx, db, ref.Text)
}

// ResolveToChange is Resolve for a change of the run. It also returns the transaction, adapted, and refuses one that is
// too strict for a change.
func (c *Client) ResolveToChange(ctx context.Context, tx pgx.Tx, ref Ref) (pgx.Tx, uuid.UUID, error) {
	if err := c.CheckSchema(ctx, tx); err != nil {
		return nil, uuid.Nil, err
	}
	tx, err := c.Store.CheckedTx(ctx, tx)
	if err != nil {
		return nil, uuid.Nil, err
	}
	id, err := c.Resolve(ctx, tx, ref)
	return tx, id, err
}

// Cancel cancels a run.
func (c *Client) Cancel(ctx context.Context, ref Ref, cfg *ChangeConfig) error {
	err := c.End(ctx, ref, cfg.Tx, func(ctx context.Context, tx pgx.Tx, id uuid.UUID) (*store.CancelledRuns, error) {
		return c.Store.Runs.Cancel(ctx, tx, id, cfg.Why, cfg.Grace)
	})
	return c.FailedIf(ctx, err, "cancel %v", ref)
}

// End ends a run by calling how.
func (c *Client) End(ctx context.Context, ref Ref, tx pgx.Tx,
	how func(context.Context, pgx.Tx, uuid.UUID) (*store.CancelledRuns, error),
) error {
	tx, id, err := c.ResolveToChange(ctx, tx, ref)
	if err != nil {
		return err
	}
	ended, err := how(ctx, tx, id)
	if err != nil {
		return err
	}
	return c.Hints.Cancelled(ctx, tx, ended)
}

// KeyOrGroup returns the key that the store knows as k: one of the two is empty.
func KeyOrGroup(k store.Key) (key, group string) {
	if k.Group {
		return "", k.Name
	}
	return k.Name, ""
}
