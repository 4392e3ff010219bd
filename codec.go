package kagzi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
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

// A what names what is encoded, for errors.
type what struct{ kind, name string }

func (w what) String() string {
	if w.name == "" {
		return w.kind
	}
	return fmt.Sprintf("%s %q", w.kind, w.name)
}

// encode returns v as it is stored.
func (c *Client) encode(what what, v any) ([]byte, error) {
	plain, err := c.plain(what, v)
	if err != nil {
		return nil, err
	}
	return c.seal(what, plain)
}

// encodeHashed returns v as it is stored, and the hash by which it is compared with other values.
func (c *Client) encodeHashed(what what, v any) (stored, hash []byte, err error) {
	plain, err := c.plain(what, v)
	if err != nil {
		return nil, nil, failure.Of(kind.BadRequest, err) // what is compared a caller has given
	}
	stored, err = c.seal(what, plain)
	return stored, c.hashOf(plain), err
}

// identity returns the hash by which v is compared with other values. Nothing is stored of v.
func (c *Client) identity(what what, v any) ([]byte, error) {
	plain, err := c.plain(what, v)
	if err != nil {
		return nil, err
	}
	return c.hashOf(plain), c.fits(what, plain)
}

func (c *Client) plain(what what, v any) ([]byte, error) {
	data, err := c.cfg.Codec.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("kagzi: %s: a %T cannot be encoded: %w", what, v, err)
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

func (c *Client) seal(what what, plain []byte) ([]byte, error) {
	if c.cfg.Sealer == nil {
		return plain, c.fits(what, plain)
	}
	sealed, err := c.cfg.Sealer.Seal(plain)
	if err != nil {
		return nil, &sealError{what, err}
	}
	if sealed == nil {
		sealed = []byte{}
	}
	return sealed, c.fits(what, sealed)
}

// A sealError is a Sealer's: unlike what cannot be encoded it may pass.
type sealError struct {
	what what
	err  error
}

func (e *sealError) Error() string {
	return fmt.Sprintf("kagzi: %s cannot be sealed: %v", e.what, e.err)
}
func (e *sealError) Unwrap() error { return e.err }

// unstorable is the failure of a step, or of a run, whose result cannot be stored. Only a Sealer may do better next time.
func unstorable(err error) error {
	if _, ok := errors.AsType[*sealError](err); ok {
		return err
	}
	return failure.Permanent(kind.Validation, err)
}

func (c *Client) fits(what what, data []byte) error {
	if len(data) > c.cfg.MaxPayload {
		return fmt.Errorf("%w: %s is %d bytes, the limit (ClientConfig.MaxPayload) is %d", ErrPayloadTooLarge, what, len(data), c.cfg.MaxPayload)
	}
	return nil
}

// hashOf is the hash by which values are compared. It is of the bytes before they are sealed, which are the same each time.
func (c *Client) hashOf(plain []byte) []byte {
	if c.cfg.Sealer != nil {
		if key := c.cfg.Sealer.HashKey(); key != nil {
			mac := hmac.New(sha256.New, key)
			mac.Write(plain)
			return mac.Sum(nil)[:16]
		}
	}
	sum := sha256.Sum256(plain)
	return sum[:16]
}

// open returns the bytes that were stored as they were before they were sealed.
func (c *Client) open(stored []byte) ([]byte, error) {
	if c.cfg.Sealer == nil {
		return stored, nil
	}
	data, err := c.cfg.Sealer.Open(stored)
	if err != nil {
		return nil, fmt.Errorf("it cannot be opened: %w", err)
	}
	return data, nil
}

// hashStored is hashOf what was stored.
func (c *Client) hashStored(stored []byte) ([]byte, error) {
	plain, err := c.open(stored)
	if err != nil {
		return nil, fmt.Errorf("the input of the run, by which starts with the new ID are compared: %w", err)
	}
	return c.hashOf(plain), nil
}

// shown is what was stored, opened if it can be: for people.
func (c *Client) shown(stored []byte) []byte {
	if data, err := c.open(stored); stored != nil && err == nil {
		return data
	}
	return stored
}

// decode puts what was stored into v.
func (c *Client) decode(stored []byte, v any) error {
	data, err := c.open(stored)
	if err != nil {
		return err
	}
	return c.cfg.Codec.Decode(data, v)
}

// A decodable reports, by an error, that what was encoded of a value does not decode into the type that readers have for it.
type decodable func(c *Client, what what, stored []byte) error

// decodableAs is the decodable of v, which readers take for a T.
func decodableAs[T any](v T) decodable {
	return func(c *Client, what what, stored []byte) error {
		var read T
		if err := c.decode(stored, &read); err != nil {
			return undecodable(what, v, reflect.TypeFor[T](), err)
		}
		return nil
	}
}

// check is the decodable's answer about what a caller has given.
func (d decodable) check(c *Client, what what, stored []byte) error {
	if err := d(c, what, stored); err != nil {
		return failure.Of(kind.BadRequest, err)
	}
	return nil
}

// undecodable is the failure of a value that was encoded and cannot be decoded again: stored, it would be in the way of
// whoever reads it, each time.
func undecodable(what what, v any, as reflect.Type, err error) error {
	advice := "give it a type that decodes what it encodes"
	if as.Kind() == reflect.Interface {
		advice = fmt.Sprintf("%v is an interface, which does not say what to make of the data: give it a concrete type", as)
	}
	return fmt.Errorf("kagzi: %s: a %T, as it is encoded, does not decode into %v: %w; %s", what, v, as, err, advice)
}
