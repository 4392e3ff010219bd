package kagzi

import (
	"bytes"
	"encoding/binary"

	"github.com/kagzi/kagzi/internal/plainjson"
)

// A Codec encodes and decodes inputs, results and payloads. It must be safe for concurrent use. To encrypt or compress
// the bytes, use a [Sealer].
//
// The texts of its errors are logged, stored with a run and shown, and no [Sealer] seals them: they must not quote the
// value. Those of JSON, the default, do not.
type Codec interface {
	// Encode returns v as bytes. Equal values must yield equal bytes: Kagzi compares inputs of starts with an [ID], and
	// items of a [Map], by their encoding.
	Encode(v any) ([]byte, error)
	// Decode decodes bytes from Encode into v, a pointer to the type that the reader expects. It returns an error for
	// data of another type. A panic counts as an error.
	Decode(data []byte, v any) error
}

type jsonCodec struct{}

func (jsonCodec) Encode(v any) ([]byte, error) {
	data, err := plainjson.Marshal(v)
	return data, plainjson.WithoutValues(err)
}

func (jsonCodec) Decode(data []byte, v any) error {
	return plainjson.WithoutValues(plainjson.Unmarshal(data, v))
}

// A Sealer transforms the bytes of a [Codec] before they are stored, and back after they are read, for example by
// encryption. It must be safe for concurrent use, and the same for all clients and workers of a namespace. Inputs
// (those of schedules too), results of steps and runs, states of consumers, and payloads of signals and events are
// sealed. Names, IDs, metadata and the texts of errors are not.
//
// The texts of its errors are logged and stored, too, and must not quote the data.
//
// An error of Open is final, as is data that does not decode: a run whose input does not open fails with
// [kind.BadInput], one whose step's result does not open is quarantined with [kind.Nondeterminism], and a message that
// does not open is set aside. A Sealer that depends on a key server must retry by itself. To change keys, let Seal
// write which key it used, and let Open know the old ones.
type Sealer interface {
	// Seal returns the bytes to store instead of data. Unlike Encode it may return other bytes each time: a random
	// nonce is fine. Its error is returned by the call that brought data. If data is a result, the error fails that
	// attempt of the step or run, although its function has been executed: so retry transient failures inside of Seal,
	// such as a key server that is away.
	Seal(data []byte) ([]byte, error)
	// Open returns the data that Seal was given. It returns an error for bytes that Seal did not return, or that were
	// changed. A panic counts as an error.
	Open(sealed []byte) ([]byte, error)
	// HashKey returns a secret key for the hashes by which inputs and items are compared, and which are stored beside
	// them: the first 16 bytes of HMAC-SHA-256 of the encoded bytes. Nil means SHA-256 without a key: then everybody
	// who reads the database sees which inputs are equal, and may guess a short one. After a change of the key, a start
	// does not recognize the input of an active run, which is ErrIDConflict, and a Map does not recognize its items:
	// keep the key as long as runs last.
	HashKey() []byte
}

// The input of a batch is a sequence of frames, one for each item: a mark, the length of the item as it is stored, and
// the item. The database cannot join the items in any other way, because the client's Codec and Sealer made them.
var frameMark = []byte("\x00kagzi\x00\x01")

func frame(item []byte) []byte {
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
