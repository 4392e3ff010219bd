package kagzi

import (
	"encoding/json"
	"errors"
	"maps"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/valid"
)

// Headers go with a run to all that it starts: a tenant, a user, a traceparent. Its children, compensations, restarts
// and forks inherit them, and so do the runs of a schedule whose Run has some.
//
// An option of a child adds to them, and so does each further Headers of a start, also a default of [Define]: of one
// name the last value counts.
//
// Workflows read them by [Context], steps by [CurrentStep], and other code by [RunInfo]. To search for runs, use
// [Metadata]. There are at most 64 headers, and 16 KiB of names and values together. A name has at most 255 bytes, and
// its case counts.
//
// A message has headers of its own: see [Message.WithHeaders].
type Headers map[string]string

func (h Headers) start(c *startConfig) { c.headers = h.over(c.headers) }

func (h Headers) validate() error { return valid.Tags("Headers", "header", h) }

// over returns base with h over it. It changes neither.
func (h Headers) over(base Headers) Headers {
	if len(h) == 0 || len(base) == 0 {
		if len(h) == 0 {
			return base
		}
		return h
	}
	all := maps.Clone(base)
	maps.Copy(all, h)
	return all
}

// with adds a header to h, or to a new map if there is none.
func (h Headers) with(name, value string) Headers {
	if h == nil {
		h = Headers{}
	}
	h[name] = value
	return h
}

// stored returns the headers as they are stored: nil if there are none.
func (h Headers) stored() json.RawMessage { return core.StoredTags(h) }

// storedHeaders is the inverse of Headers.stored.
func storedHeaders(data json.RawMessage) Headers { return core.Tags(data) }

// SetMetadata changes tags of the run, recorded under name; the rules of [Step]'s names apply. Tags that m does not
// name stay, and an empty value removes a tag.
//
// It returns at once, and later operations are recorded after it. [RunInfo] and [RunFilter] see the change once the
// record is written. A replay changes nothing.
//
// [Context] has the metadata as the code knows them, without the changes of an operator (admin.Runs.Update). If both
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
