package payloads

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/kagzi/kagzi/internal/plainjson"
)

// Codec is that of package kagzi.
type Codec interface {
	Encode(v any) ([]byte, error)
	Decode(data []byte, v any) error
}

// Sealer is that of package kagzi.
type Sealer interface {
	Seal(data []byte) ([]byte, error)
	Open(sealed []byte) ([]byte, error)
	HashKey() []byte
}

// ErrTooLarge says that what is to be stored is larger than the client's MaxPayload.
var ErrTooLarge = errors.New("kagzi: payload too large")

// A Coder encodes values, seals the bytes, and does the reverse.
type Coder struct {
	Codec  Codec
	Sealer Sealer // nil: bytes are stored as they are encoded
	Max    int    // bytes of a payload
}

// JSON is the default Codec.
type JSON struct{}

// Encode returns v as JSON.
func (JSON) Encode(v any) ([]byte, error) {
	data, err := plainjson.Marshal(v)
	return data, plainjson.WithoutValues(err)
}

// Decode decodes JSON into v.
func (JSON) Decode(data []byte, v any) error {
	return plainjson.WithoutValues(plainjson.Unmarshal(data, v))
}

// The input of a batch is a sequence of frames, one for each item: a mark, the length of the item as it is stored, and
// the item. The database cannot join the items in any other way, because the client's Codec and Sealer made them.
var frameMark = []byte("\x00kagzi\x00\x01")

// Frame returns the item as one of a batch.
func Frame(item []byte) []byte {
	framed := make([]byte, 0, len(frameMark)+4+len(item))
	framed = append(framed, frameMark...)
	framed = binary.BigEndian.AppendUint32(framed, uint32(len(item)))
	return append(framed, item...)
}

// unframe returns the items of a stored input, and false if it is not that of a batch.
func unframe(stored []byte) (items [][]byte, ok bool) {
	for len(stored) > 0 {
		rest, marked := bytes.CutPrefix(stored, frameMark)
		if !marked || len(rest) < 4 {
			return nil, false
		}
		n := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; uint64(len(rest)) < uint64(n) {
			return nil, false
		}
		items, stored = append(items, rest[:n:n]), rest[n:]
	}
	return items, items != nil
}
