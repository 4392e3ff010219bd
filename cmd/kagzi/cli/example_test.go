package cli_test

import (
	"fmt"
	"os"
	"slices"

	"github.com/kagzi/kagzi/cmd/kagzi/cli"
)

// An application makes a command line of its own: with its Sealer, payloads can be read and sent. This one is asked for
// something that does not exist.
func ExampleMain() {
	os.Args = []string{"shop-admin", "runs", "count", "--limit", "x"}
	code := cli.Main(cli.Config{Sealer: sealer{}})
	fmt.Println(code)
	// Output: 2
}

// A sealer is the Sealer of the application.
type sealer struct{}

func (sealer) Seal(data []byte) ([]byte, error)   { return reversed(data), nil }
func (sealer) Open(sealed []byte) ([]byte, error) { return reversed(sealed), nil }
func (sealer) HashKey() []byte                    { return nil }

func reversed(data []byte) []byte {
	data = slices.Clone(data)
	slices.Reverse(data)
	return data
}
