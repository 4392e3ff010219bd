package admin

import (
	"encoding/json"
	"time"

	"github.com/kagzi/kagzi/store"
)

// An Override says who has set limits in place of those that the code declares.
type Override struct {
	Actor  string    `json:"actor,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// overrideOf returns the override of limits that the code declares; nil if there is none.
func overrideOf(o store.Origin) *Override {
	if o.Declared == nil || o.Set == nil {
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
