package payloads

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"reflect"

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

// ErrTooLarge says that a value to be stored is larger than the client's MaxPayload.
var ErrTooLarge = errors.New("kagzi: payload too large")

// A Coder encodes values, seals the bytes, and does the reverse.
type Coder struct {
	Codec  Codec
	Sealer Sealer // nil: bytes are stored as they are encoded
	Max    int    // bytes of a payload
}

// JSON is the default Codec.
type JSON struct{}

// Encode returns v as JSON. It refuses a struct that would arrive empty, whatever it holds.
func (JSON) Encode(v any) ([]byte, error) {
	data, err := plainjson.Marshal(v)
	if string(data) == "{}" && hidesAll(v) {
		return nil, errors.New("no field of it is encoded, so its content would be lost: export them, or give it a " +
			"MarshalJSON")
	}
	return data, plainjson.WithoutValues(err)
}

// hidesAll reports whether v, which is encoded as an empty object, is a struct that has fields, and none that is ever
// encoded.
func hidesAll(v any) bool {
	if _, ok := v.(json.Marshaler); ok {
		return false
	}
	t := reflect.TypeOf(v)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	hidden := false
	for _, f := range reflect.VisibleFields(t) {
		switch {
		case f.Name == "_", f.Anonymous: // the fields of an embedded struct follow
		case f.IsExported() && f.Tag.Get("json") != "-":
			return false
		default:
			hidden = true
		}
	}
	return hidden
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
