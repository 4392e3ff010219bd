package store

import (
	"encoding/json"
	"errors"
	"time"
)

// ErrNotDeclared reports that no code declares the limits that are to be reset.
var ErrNotDeclared = errors.New("no code declares it")

// An Origin says where the values of a limit come from. The zero Origin is that of a limit which a step has named, and
// that was neither declared nor set.
type Origin struct {
	Declared json.RawMessage // what the code declares; nil: nothing
	Set      *SetBy          // who has set it since; nil: it is as the code declares
}

// A SetBy says who has set a limit, and when.
type SetBy struct {
	Actor  string    `json:"actor,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"` // by the database's clock
}

// String returns the origin as a word, for the audit log.
func (o *Origin) String() string {
	switch {
	case o.Set != nil:
		return "set"
	case o.Declared != nil:
		return "declared"
	}
	return ""
}

// A change of limits comes from an operator, or from the code. Code changes nothing that an operator has set, and an
// operator can take that back.
type change int

const (
	sets change = iota
	declares
	resets
)

// next returns the origin of limits after a change of them that the code declares as declared. applies says that the
// values change, too.
func (c change) next(before Origin, declared any, why Why) (after Origin, applies bool, err error) {
	after = before
	switch c {
	case sets:
		after.Set = &SetBy{Actor: why.Actor, Reason: why.Reason}
	case declares:
		after.Declared, err = json.Marshal(declared)
		return after, before.Set == nil, err
	case resets:
		if before.Declared == nil {
			return after, false, ErrNotDeclared
		}
		after.Set = nil
	}
	return after, true, nil
}

// args returns the columns declared and set_by. The statement adds when it was set.
func (o *Origin) args() []any {
	var by any
	if o.Set != nil {
		by = o.Set
	}
	return []any{o.Declared, by}
}

// originTo returns the destinations of the columns declared and set_by.
func originTo(o *Origin) []any { return []any{&o.Declared, &o.Set} }
