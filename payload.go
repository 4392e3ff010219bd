package kagzi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
)

// A subject names an encoded value, for errors.
type subject struct{ kind, name string }

func (s subject) String() string {
	if s.name == "" {
		return s.kind
	}
	return fmt.Sprintf("%s %q", s.kind, s.name)
}

// encode returns v as it is stored.
func (c *Client) encode(what subject, v any) ([]byte, error) {
	plain, err := c.plain(what, v)
	if err != nil {
		return nil, err
	}
	return c.seal(what, plain)
}

// encodeHashed returns v as it is stored, and the hash by which it is compared with other values.
func (c *Client) encodeHashed(what subject, v any) (stored, hash []byte, err error) {
	plain, err := c.plain(what, v)
	if err != nil {
		return nil, nil, failure.Of(kind.BadRequest, err) // a value that is compared comes from the caller
	}
	stored, err = c.seal(what, plain)
	return stored, c.hashOf(plain), err
}

// identity returns the hash by which v is compared with other values. v itself is not stored.
func (c *Client) identity(what subject, v any) ([]byte, error) {
	plain, err := c.plain(what, v)
	if err != nil {
		return nil, err
	}
	return c.hashOf(plain), c.fits(what, plain)
}

func (c *Client) plain(what subject, v any) ([]byte, error) {
	data, err := c.cfg.Codec.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("kagzi: %s: a %T cannot be encoded: %w; give it a type that the client's Codec encodes",
			what, v, err)
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

func (c *Client) seal(what subject, plain []byte) ([]byte, error) {
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

// A sealError is an error of a Sealer. Unlike a failure to encode, it may be transient.
type sealError struct {
	what subject
	err  error
}

func (e *sealError) Error() string {
	return fmt.Sprintf("kagzi: %s cannot be sealed: %v", e.what, e.err)
}
func (e *sealError) Unwrap() error { return e.err }

// unstorable returns the failure of a step or run whose result cannot be stored. Only an error of a Sealer may be
// transient.
func unstorable(err error) error {
	if _, ok := errors.AsType[*sealError](err); ok {
		return err
	}
	return failure.Permanent(kind.Validation, err)
}

// isRefused reports whether a value could not be stored for a reason that is no mistake of the code that gave it: the
// same call may succeed in a program with another limit, or later.
func isRefused(err error) bool {
	_, sealing := errors.AsType[*sealError](err)
	return sealing || errors.Is(err, ErrPayloadTooLarge)
}

func (c *Client) fits(what subject, data []byte) error {
	if len(data) > c.cfg.MaxPayload {
		return fmt.Errorf("%w: %s is %d bytes, the limit (ClientConfig.MaxPayload) is %d; keep it elsewhere and "+
			"return a reference, or raise MaxPayload", ErrPayloadTooLarge, what, len(data), c.cfg.MaxPayload)
	}
	return nil
}

// hashOf returns the hash by which values are compared. It hashes the bytes before they are sealed: those are the same
// each time.
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

// open returns stored bytes as they were before they were sealed.
func (c *Client) open(stored []byte) ([]byte, error) {
	if c.cfg.Sealer == nil {
		return stored, nil
	}
	data, err := c.unseal(stored)
	if err != nil {
		return nil, fmt.Errorf("it cannot be opened: %w", err)
	}
	return data, nil
}

func (c *Client) unseal(stored []byte) (data []byte, err error) {
	defer caught(&err, "Open of the client's Sealer")
	return c.cfg.Sealer.Open(stored)
}

// caught makes a panic of a decoder its error. The text of the panic may quote the value, so the error names only the
// type and the place. It is deferred.
func caught(err *error, decoder string) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("%s panicked with a %T at %s; the text is left out because it may quote the value", decoder,
			v, failure.PlaceOf(debug.Stack()))
	}
}

// CheckSealer returns an error if the client has no [Sealer] and a worker of its namespace has one: what the client
// sends could not be read there, and it cannot read what is stored. It is for programs in which people send messages
// and inputs; other programs have the same configuration as the workers. It knows the workers of the last week.
func (c *Client) CheckSealer(ctx context.Context) error {
	err := c.usable(ctx)
	var sealed bool
	if err == nil && c.cfg.Sealer == nil {
		sealed, err = c.store.Sealed(ctx)
	}
	if err == nil && sealed {
		err = failure.Of(kind.BadRequest, fmt.Errorf("the payloads of namespace %q are sealed, and this program has "+
			"no Sealer: what it sends could not be read; use one with the Sealer of the workers, such as a command "+
			"line that your program makes with cli.Main", c.cfg.Namespace))
	}
	return c.failedIf(ctx, err, "check the Sealer")
}

// hashStored is hashOf for a stored input.
func (c *Client) hashStored(stored []byte) ([]byte, error) {
	plain, err := c.openInput(stored)
	if err != nil {
		return nil, fmt.Errorf("the input of the run, by which starts with the new ID are compared: %w", err)
	}
	return c.hashOf(plain), nil
}

// shown returns stored bytes for people: opened, or as they are if they cannot be opened.
func (c *Client) shown(stored []byte) []byte {
	if data, err := c.openInput(stored); stored != nil && err == nil {
		return data
	}
	return stored
}

// decode opens stored bytes and decodes them into v.
func (c *Client) decode(stored []byte, v any) error {
	data, err := c.open(stored)
	if err != nil {
		return err
	}
	return c.decodePlain(data, v)
}

func (c *Client) decodePlain(data []byte, v any) (err error) {
	defer caught(&err, "Decode of the client's Codec")
	return c.cfg.Codec.Decode(data, v)
}

// openInput is open for an input. That of a batch becomes a JSON array of its items, if they are JSON.
func (c *Client) openInput(stored []byte) ([]byte, error) {
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

// decodeInput is decode for an input. That of a batch decodes item by item into a slice.
func (c *Client) decodeInput(stored []byte, v any) error {
	items, ok := unframe(stored)
	if !ok {
		return c.decode(stored, v)
	}
	slice := reflect.ValueOf(v).Elem()
	if slice.Kind() != reflect.Slice {
		return fmt.Errorf("it is a batch of %d items, and %v is no slice", len(items), slice.Type())
	}
	slice.Set(reflect.MakeSlice(slice.Type(), len(items), len(items)))
	for i, item := range items {
		if err := c.decode(item, slice.Index(i).Addr().Interface()); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	return nil
}

// A decodable returns an error if the encoding of a value does not decode into the type that readers have for it.
type decodable func(c *Client, what subject, stored []byte) error

// decodableAs returns the decodable of v, which readers expect to be a T.
func decodableAs[T any](v T) decodable {
	return func(c *Client, what subject, stored []byte) error {
		var read T
		if err := c.decode(stored, &read); err != nil {
			return undecodable(what, v, reflect.TypeFor[T](), err)
		}
		return nil
	}
}

// check returns the decodable's error as a refusal of the call that gave the value.
func (d decodable) check(c *Client, what subject, stored []byte) error {
	if err := d(c, what, stored); err != nil {
		return failure.Of(kind.BadRequest, err)
	}
	return nil
}

// undecodable returns the failure of a value whose encoding cannot be decoded. If it were stored, every reader would
// fail.
func undecodable(what subject, v any, as reflect.Type, err error) error {
	advice := "give it a type that decodes what it encodes"
	if as.Kind() == reflect.Interface {
		advice = fmt.Sprintf("%v is an interface, which does not say what to make of the data: give it a "+
			"concrete type", as)
	}
	return fmt.Errorf("kagzi: %s: a %T, as it is encoded, does not decode into %v: %w; %s", what, v, as, err, advice)
}
