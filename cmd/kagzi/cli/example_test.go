package cli_test

import (
	"fmt"
	"os"

	"github.com/kagzi/kagzi/cmd/kagzi/cli"
)

// An application makes a command line of its own: with its Sealer, payloads can be read and sent.
func ExampleMain() {
	os.Args = []string{"shop-admin", "runs", "count", "--limit", "x"}
	code := cli.Main(cli.Config{Sealer: sealer{}})
	fmt.Println(code)
	// Output: 2
}

// A sealer is your own.
type sealer struct{}

func (sealer) Seal(data []byte) ([]byte, error)   { return data, nil }
func (sealer) Open(sealed []byte) ([]byte, error) { return sealed, nil }
func (sealer) HashKey() []byte                    { return nil }
