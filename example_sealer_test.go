package kagzi_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kagzi/kagzi"
)

// encrypted is a Sealer: AES-GCM with a random nonce. In front of the nonce it writes the number of its key, so that
// keys can be changed: new values are sealed by the current one, and the old ones open older values.
type encrypted struct {
	keys    map[byte]cipher.AEAD
	current byte
	hashKey []byte
}

// newEncrypted returns a Sealer that seals with keys[current]. The hash key is a secret of its own: it stays when the
// others change.
func newEncrypted(keys map[byte][32]byte, current byte, hashKey []byte) (*encrypted, error) {
	if _, ok := keys[current]; !ok {
		return nil, fmt.Errorf("there is no key %d to encrypt with", current)
	}
	e := &encrypted{keys: map[byte]cipher.AEAD{}, current: current, hashKey: hashKey}
	for number, key := range keys {
		block, err := aes.NewCipher(key[:])
		if err != nil {
			return nil, err
		}
		if e.keys[number], err = cipher.NewGCM(block); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *encrypted) Seal(data []byte) ([]byte, error) {
	aead := e.keys[e.current]
	sealed := make([]byte, 1+aead.NonceSize())
	sealed[0] = e.current
	nonce := sealed[1:]
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return aead.Seal(sealed, nonce, data, nil), nil
}

func (e *encrypted) Open(sealed []byte) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, errors.New("it has no key number")
	}
	aead, ok := e.keys[sealed[0]]
	if !ok {
		return nil, fmt.Errorf("key %d is not known", sealed[0])
	}
	n := 1 + aead.NonceSize()
	if len(sealed) < n {
		return nil, errors.New("it is shorter than its nonce")
	}
	return aead.Open(nil, sealed[1:n], sealed[n:], nil)
}

func (e *encrypted) HashKey() []byte { return e.hashKey }

// Inputs and results are encrypted before they reach the database. A start with an ID is compared all the same, and the
// client shows what it can open.
func ExampleSealer() {
	ctx, pool, _, _ := setup()
	defer teardown()

	var key [32]byte // all of these secrets come from your key store
	hashKey := make([]byte, 32)
	_, _ = rand.Read(key[:])
	_, _ = rand.Read(hashKey)
	sealer, _ := newEncrypted(map[byte][32]byte{1: key}, 1, hashKey)
	client, _ := kagzi.NewClient(pool, kagzi.ClientConfig{Sealer: sealer, Logger: slog.New(slog.DiscardHandler)})
	greet := kagzi.Define[string, string]("greet")
	worker, _ := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	kagzi.Handle(worker, greet, func(ctx kagzi.Context, name string) (string, error) {
		return kagzi.Step(ctx, "greet", func(context.Context) (string, error) { return "Hello, " + name, nil })
	})

	run, _ := kagzi.Start(ctx, client, greet, "Ada", kagzi.ID("greet-ada"))
	again, _ := kagzi.Start(ctx, client, greet, "Ada", kagzi.ID("greet-ada"))
	_, err := kagzi.Start(ctx, client, greet, "Bob", kagzi.ID("greet-ada"))
	fmt.Println(again.ID() == run.ID(), errors.Is(err, kagzi.ErrIDConflict))

	serve(ctx, worker)
	out, _ := run.Result(ctx)
	info, _ := run.Info(ctx)
	fmt.Printf("%s, %s\n", out, info.Output)

	var readable bool
	_ = pool.QueryRow(ctx, `SELECT bool_or(position('Ada'::bytea IN input || output) > 0) FROM kagzi.workflow_runs`).
		Scan(&readable)
	fmt.Println("readable in the table:", readable)
	// Output:
	// true true
	// Hello, Ada, "Hello, Ada"
	// readable in the table: false
}
