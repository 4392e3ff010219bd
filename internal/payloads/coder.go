// Package payloads encodes inputs, results and messages as they are stored, and decodes them: with the Codec and the
// Sealer of a client.
package payloads

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/kagzi/kagzi/internal/details"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
)

// A Subject names an encoded value, for errors.
type Subject struct{ Kind, Name string }

func (s Subject) String() string {
	if s.Name == "" {
		return s.Kind
	}
	return fmt.Sprintf("%s %q", s.Kind, s.Name)
}

// Encode returns v as it is stored.
func (c *Coder) Encode(what Subject, v any) ([]byte, error) {
	plain, err := c.plain(what, v)
	if err != nil {
		return nil, err
	}
	return c.seal(what, plain)
}

// EncodeHashed returns v as it is stored, and the hash by which it is compared with other values.
func (c *Coder) EncodeHashed(what Subject, v any) (stored, hash []byte, err error) {
	plain, err := c.plain(what, v)
	if err != nil {
		return nil, nil, failure.Of(kind.BadRequest, err) // a value that is compared comes from the caller
	}
	stored, err = c.seal(what, plain)
	return stored, c.hashOf(plain), err
}

// Identity returns the hash by which v is compared with other values. v itself is not stored.
func (c *Coder) Identity(what Subject, v any) ([]byte, error) {
	plain, err := c.plain(what, v)
	if err != nil {
		return nil, err
	}
	return c.hashOf(plain), c.fits(what, plain)
}

func (c *Coder) plain(what Subject, v any) ([]byte, error) {
	data, err := c.Codec.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("kagzi: %s: a %T cannot be encoded: %w; give it a type that the client's Codec encodes",
			what, v, err)
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

func (c *Coder) seal(what Subject, plain []byte) ([]byte, error) {
	if c.Sealer == nil {
		return plain, c.fits(what, plain)
	}
	sealed, err := c.Sealer.Seal(plain)
	if err != nil {
		return nil, &SealError{what, err}
	}
	if sealed == nil {
		sealed = []byte{}
	}
	return sealed, c.fits(what, sealed)
}

// A SealError is an error of a Sealer. Unlike a failure to encode, it may be transient.
type SealError struct {
	what Subject
	err  error
}

func (e *SealError) Error() string {
	return fmt.Sprintf("kagzi: %s cannot be sealed: %v", e.what, e.err)
}
func (e *SealError) Unwrap() error { return e.err }

// Unstorable returns the failure of a step or run whose result cannot be stored. Only an error of a Sealer may be
// transient.
func Unstorable(err error) error {
	if IsSealing(err) {
		return err
	}
	return failure.Permanent(kind.Validation, err)
}

// IsSealing reports whether err is an error of a Sealer.
func IsSealing(err error) bool {
	_, ok := errors.AsType[*SealError](err)
	return ok
}

// IsRefused reports whether a value could not be stored for a reason that is no mistake of the code that gave it: the
// same call may succeed in a program with another limit, or later.
func IsRefused(err error) bool {
	return IsSealing(err) || errors.Is(err, ErrTooLarge)
}

func (c *Coder) fits(what Subject, data []byte) error {
	if len(data) > c.Max {
		return fmt.Errorf("%w: %s is %d bytes, the limit (ClientConfig.MaxPayload) is %d; keep it elsewhere and "+
			"return a reference, or raise MaxPayload", ErrTooLarge, what, len(data), c.Max)
	}
	return nil
}

// hashOf returns the hash by which values are compared. It hashes the bytes before they are sealed: those are the same
// each time.
func (c *Coder) hashOf(plain []byte) []byte {
	if c.Sealer != nil {
		if key := c.Sealer.HashKey(); key != nil {
			mac := hmac.New(sha256.New, key)
			mac.Write(plain)
			return mac.Sum(nil)[:16]
		}
	}
	sum := sha256.Sum256(plain)
	return sum[:16]
}

// open returns stored bytes as they were before they were sealed.
func (c *Coder) open(stored []byte) ([]byte, error) {
	if c.Sealer == nil {
		return stored, nil
	}
	data, err := c.unseal(stored)
	if err != nil {
		return nil, fmt.Errorf("it cannot be opened: %w", err)
	}
	return data, nil
}

func (c *Coder) unseal(stored []byte) (data []byte, err error) {
	defer caught(&err, "Open of the client's Sealer")
	return c.Sealer.Open(stored)
}

// caught makes a panic of a decoder its error. The text of the panic may quote the value, so the error names only the
// type and the place. It is deferred.
func caught(err *error, decoder string) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("%s panicked with a %T at %s; the text is left out because it may quote the value", decoder,
			v, failure.PlaceOf(debug.Stack()))
	}
}

// HashStored is hashOf for a stored input.
func (c *Coder) HashStored(stored []byte) ([]byte, error) {
	plain, err := c.openInput(stored)
	if err != nil {
		return nil, fmt.Errorf("the input of the run, by which starts with the new ID are compared: %w", err)
	}
	return c.hashOf(plain), nil
}

// Details returns the details in err's chain as they are stored, nil if it has none.
func (c *Coder) Details(err error) ([]byte, error) {
	found := details.In(err)
	if found == nil {
		return nil, nil
	}
	return found.Stored(c, func(v any) ([]byte, error) { return c.Encode(Subject{Kind: "details of a failure"}, v) })
}

// DetailsOf returns the details that the record of a failure has as an error, nil if it has none. wrong is called if
// they do not decode into what a program asks for; nil: nothing is.
func (c *Coder) DetailsOf(stored []byte, wrong func(error)) error {
	if stored == nil {
		return nil
	}
	return details.Recorded(&details.Record{
		Stored: stored, By: c, Wrong: wrong, Decode: func(into any) error { return c.Decode(stored, into) },
	})
}

// Shown returns stored bytes for people: opened, or as they are if they cannot be opened.
func (c *Coder) Shown(stored []byte) []byte {
	if data, err := c.openInput(stored); stored != nil && err == nil {
		return data
	}
	return stored
}

// Decode opens stored bytes and decodes them into v.
func (c *Coder) Decode(stored []byte, v any) error {
	data, err := c.open(stored)
	if err != nil {
		return err
	}
	return c.decodePlain(data, v)
}

func (c *Coder) decodePlain(data []byte, v any) (err error) {
	defer caught(&err, "Decode of the client's Codec")
	return c.Codec.Decode(data, v)
}

// openInput is open for an input. That of a batch becomes a JSON array of its items, if they are JSON.
func (c *Coder) openInput(stored []byte) ([]byte, error) {
	items, ok := unframe(stored)
	if !ok {
		return c.open(stored)
	}
	out := []byte{'['}
	for i, item := range items {
		data, err := c.open(item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, data...)
	}
	return append(out, ']'), nil
}

// DecodeInput is Decode for an input. That of a batch decodes item by item into a slice.
func (c *Coder) DecodeInput(stored []byte, v any) error {
	items, ok := unframe(stored)
	if !ok {
		return c.Decode(stored, v)
	}
	slice := reflect.ValueOf(v).Elem()
	if slice.Kind() != reflect.Slice {
		return fmt.Errorf("it is a batch of %d items, and %v is no slice", len(items), slice.Type())
	}
	slice.Set(reflect.MakeSlice(slice.Type(), len(items), len(items)))
	for i, item := range items {
		if err := c.Decode(item, slice.Index(i).Addr().Interface()); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	return nil
}

// A Decodable returns an error if the encoding of a value does not decode into the type that readers have for it.
type Decodable func(c *Coder, what Subject, stored []byte) error

// roundTrips reports whether no value of t needs to be decoded to know that it can be.
func (c *Coder) roundTrips(t reflect.Type) bool {
	return c.Codec == Codec(JSON{}) && c.Sealer == nil && roundTrips(t)
}

// DecodableAs returns the Decodable of v, which readers expect to be a T.
func DecodableAs[T any](v T) Decodable {
	return func(c *Coder, what Subject, stored []byte) error {
		if c.roundTrips(reflect.TypeFor[T]()) {
			return nil
		}
		var read T
		if err := c.Decode(stored, &read); err != nil {
			return Undecodable(what, v, reflect.TypeFor[T](), err)
		}
		return nil
	}
}

// Check returns the decodable's error as a refusal of the call that gave the value.
func (d Decodable) Check(c *Coder, what Subject, stored []byte) error {
	if err := d(c, what, stored); err != nil {
		return failure.Of(kind.BadRequest, err)
	}
	return nil
}

// Undecodable returns the failure of a value whose encoding cannot be decoded. If it were stored, every reader would
// fail.
func Undecodable(what Subject, v any, as reflect.Type, err error) error {
	advice := "give it a type that decodes what it encodes"
	if as.Kind() == reflect.Interface {
		advice = fmt.Sprintf("%v is an interface, which does not say what to make of the data: give it a "+
			"concrete type", as)
	}
	return fmt.Errorf("kagzi: %s: a %T, as it is encoded, does not decode into %v: %w; %s", what, v, as, err, advice)
}
