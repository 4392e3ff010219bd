package kagzi

import (
	"context"
	"fmt"

	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/kind"
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

// A Sealer transforms the bytes of a [Codec] before they are stored, and back after they are read, for example by
// encryption. It must be safe for concurrent use, and the same for all clients and workers of a namespace.
//
// Inputs (those of schedules too), results of steps and runs, states of consumers, and payloads of signals and events
// are sealed. Names, IDs, metadata and the texts of errors are not. Those of its own errors are logged and stored, too,
// and must not quote the data.
//
// An error of Open is final, as is data that does not decode. A Sealer that depends on a key server must retry by
// itself. See docs/security.md, also for changes of keys.
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
	// them: the first 16 bytes of HMAC-SHA-256 of the encoded bytes. Nil means SHA-256 without a key: then every reader
	// of the database sees which inputs are equal, and may guess a short one. After a change of the key, a start does
	// not recognize the input of an active run, which is ErrIDConflict, and a Map does not recognize its items: keep
	// the key as long as runs last.
	HashKey() []byte
}

// CheckSealer returns an error if the client has no [Sealer] and a worker of its namespace has one: what the client
// sends could not be read there, and it cannot read what is stored. It is for programs in which people send messages
// and inputs; other programs have the same configuration as the workers. It knows a worker from its start until a week
// after its end, and does not look for the opposite: a client with a Sealer among workers without.
func (c *Client) CheckSealer(ctx context.Context) error {
	err := c.Core().Usable(ctx)
	var sealed bool
	if err == nil && c.core.Payloads.Sealer == nil {
		sealed, err = c.core.Store.Workers.Sealed(ctx)
	}
	if err == nil && sealed {
		err = failure.Of(kind.BadRequest, fmt.Errorf("the payloads of namespace %q are sealed, and this program has "+
			"no Sealer: what it sends could not be read; use one with the Sealer of the workers, such as a command "+
			"line that your program makes with cli.Main", c.cfg.Namespace))
	}
	return c.Core().FailedIf(ctx, err, "check the Sealer")
}
