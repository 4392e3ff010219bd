package kagzi

import (
	"encoding/json"
)

// A Codec turns inputs, results and payloads into bytes, and back. It must be safe for concurrent use. To encrypt or compress
// the bytes, see [Sealer].
type Codec interface {
	// Encode returns v as bytes. Equal values must give equal bytes: inputs of starts with an [ID], and items of a
	// [Map], are compared as they are encoded.
	Encode(v any) ([]byte, error)
	// Decode puts what Encode has made into v, a pointer to the type that the reader expects. Data that is not of that
	// type is an error.
	Decode(data []byte, v any) error
}

type jsonCodec struct{}

func (jsonCodec) Encode(v any) ([]byte, error)    { return json.Marshal(v) }
func (jsonCodec) Decode(data []byte, v any) error { return json.Unmarshal(data, v) }

// A Sealer is what the bytes of a [Codec] go through before they are stored, and after they are read: encryption, for
// one. It must be safe for concurrent use, and the same for all clients and workers of a namespace. Inputs, those of
// schedules too, results of steps and runs, and payloads of signals are sealed. Names, IDs, metadata and the texts of errors
// are not.
//
// An error of Open is final, as data that does not decode is: a run whose input does not open fails with [kind.BadInput],
// one whose step's result does not is quarantined with [kind.Nondeterminism]. A Sealer that asks a key server repeats that
// itself. To change keys, have Seal write which key it took, and Open know the old ones.
type Sealer interface {
	// Seal returns what is stored instead of data. Unlike Encode it may return other bytes each time: a random nonce is
	// fine. An error is one of the call that brought data. Of a result it is the failure of that attempt of the step or run,
	// whose function has been executed: repeat inside of Seal what can pass, such as a key server that is away.
	Seal(data []byte) ([]byte, error)
	// Open returns what Seal was given. Data that it did not make, or that was changed since, is an error.
	Open(sealed []byte) ([]byte, error)
	// HashKey returns a secret for the hashes by which inputs and items are compared, which are stored beside them: the
	// first 16 bytes of HMAC-SHA-256 of the encoded bytes. Nil means SHA-256 without a key: then whoever reads the database
	// sees which inputs are equal, and may find a short one by trying. With another key a start does not know the input of
	// an active run again, which is ErrIDConflict, and a Map not its items: keep the key for as long as runs last.
	HashKey() []byte
}
