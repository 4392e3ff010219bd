package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/store"
)

// An Override says who has set limits. What the code declares changes nothing until they are reset.
type Override struct {
	Actor  string    `json:"actor,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// overrideOf returns who has set limits; nil if they are as declared, or were never set.
func overrideOf(o store.Origin) *Override {
	if o.Set == nil {
		return nil
	}
	return &Override{Actor: o.Set.Actor, Reason: o.Set.Reason, At: o.Set.At.UTC()}
}

// declaredOf returns what the code declares, as the store has written it; nil: nothing.
func declaredOf[T, Out any](o store.Origin, out func(T) Out) *Out {
	var declared T
	if o.Declared == nil || json.Unmarshal(o.Declared, &declared) != nil {
		return nil
	}
	v := out(declared)
	return &v
}

// changeLimits changes limits by do, unless the client, the options, the limits or the schema are wrong.
func changeLimits(ctx context.Context, c *core.Client, opts []kagzi.ChangeOption, wrong error,
	do func(store.Why) error,
) error {
	cfg, err := limitOptions(c, opts)
	if err = cmp.Or(err, wrong); err == nil {
		err = c.CheckSchema(ctx, nil)
	}
	if err == nil {
		err = do(cfg.Why)
	}
	if errors.Is(err, store.ErrNotDeclared) {
		err = core.ErrNotDeclared
	}
	return err
}

// warnOfOverride logs that what the code declares is not in force; by is nil if it is.
func warnOfOverride(ctx context.Context, c *core.Client, by *store.SetBy, kind, name string) {
	if by != nil {
		c.Log.WarnContext(ctx, "kagzi: limits are not as the code declares them, because they were set: reset them to "+
			"use those of the code",
			kind, name, "actor", by.Actor, "reason", by.Reason, "at", by.At)
	}
}
