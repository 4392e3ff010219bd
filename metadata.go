package kagzi

import (
	"encoding/json"
	"errors"

	"github.com/kagzi/kagzi/internal/valid"
)

// SetMetadata changes tags of the run, recorded under name; the rules of [Step]'s names apply. Tags that m does not
// name stay, and an empty value removes a tag.
//
// It returns at once, and later operations are recorded after it. [RunInfo] and [RunFilter] see the change once the
// record is written. A replay changes nothing.
//
// [Context] has the metadata as the code knows them, without the changes of an operator (admin.Client.Update). If both
// together are more than a start may have, tags of the operator go.
//
// The tags after the change must be valid as those of a start: otherwise the call is wrong, and the run fails with
// [kind.BadRequest]. SetMetadata returns another error only if the branch was cancelled.
func SetMetadata(ctx Context, name string, m Metadata) error {
	b, _, err := branchOf(ctx)
	if err != nil {
		return err
	}
	err = valid.Metadata(m)
	if len(m) == 0 {
		err = errors.New("kagzi: the Metadata are empty: give the tags to change")
	}
	return b.SetMetadata(name, valid.StepName("metadata", name), m, func(whole map[string]string) error {
		if err != nil {
			return err
		}
		return valid.Metadata(whole)
	})
}

// InheritMetadata gives a child the metadata of the run that starts it, as [Context] has them at the call, below those
// of its own [Metadata]. Only [StartChild] and [RunChild] take it.
func InheritMetadata() StartOption { return inheritMetadata{} }

type inheritMetadata struct{}

func (inheritMetadata) start(c *startConfig) { c.inherits = true }

// stored returns the metadata as they are stored: nil if none were given.
func (m Metadata) stored() json.RawMessage {
	if m == nil {
		return nil
	}
	data, _ := json.Marshal(m) // a map of strings always encodes
	return data
}
