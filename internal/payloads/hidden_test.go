package payloads

import (
	"encoding/json"
	"testing"
)

type (
	hidden    struct{ n int }
	asText    struct{ n int }
	outer     struct{ hidden }
	outerSeen struct{ Seen }
	Seen      struct {
		N int `json:",omitempty"`
	}
)

func (asText) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

// A struct all of whose fields are left out would arrive empty.
func TestHiddenFields(t *testing.T) {
	t.Parallel()
	c := &Coder{Codec: JSON{}, Max: 100}
	for _, v := range []any{hidden{1}, &hidden{}, outer{hidden: hidden{n: 1}}, struct {
		F func() `json:"-"`
	}{}} {
		if data, err := c.Encode(Subject{Kind: "input"}, v); err == nil {
			t.Errorf("%T is encoded as %s", v, data)
		}
	}
	var none *hidden
	for _, v := range []any{
		struct{}{},
		struct{ _ int }{},
		asText{n: 1},
		Seen{},
		outerSeen{},
		map[string]int{},
		none, nil,
		json.RawMessage("{}"),
	} {
		if _, err := c.Encode(Subject{Kind: "input"}, v); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
}
