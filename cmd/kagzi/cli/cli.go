// Package cli is the command line kagzi as a part of other programs: with the codec and the sealer of an application,
// it shows and sends payloads as the application does.
package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/cli"
	"github.com/kagzi/kagzi/cmd/kagzi/internal/command"
)

// A Config is what the command line needs of an application.
type Config struct {
	// Codec is the Codec of the application's clients. It encodes a json.RawMessage, which a person has written. Nil
	// means JSON.
	Codec kagzi.Codec
	// Sealer is the Sealer of the application's clients. Nil means none.
	Sealer kagzi.Sealer
}

// Main executes the command that the arguments of the program are, and returns the code with which the program should
// exit. It takes its flags from os.Args, and the database from the flags and the environment, as kagzi does. SIGINT and
// SIGTERM end it.
func Main(cfg Config) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	return cli.Run(ctx, os.Args[1:], command.World{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Columns: command.Columns, Codec: cfg.Codec,
		Sealer: cfg.Sealer,
	})
}
