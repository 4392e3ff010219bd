// Kagzi shows and changes the workflows of a database: see README.md, or kagzi --help.
package main

import (
	"os"

	"github.com/kagzi/kagzi/cmd/kagzi/cli"
)

func main() { os.Exit(cli.Main(cli.Config{})) }
