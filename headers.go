package kagzi

import (
	"encoding/json"
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
