// Kagzi shows and changes the workflows of a database: see README.md, or kagzi --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kagzi/kagzi/cmd/kagzi/internal/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	return cli.Run(ctx, os.Args[1:], cli.World{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Columns: cli.Columns})
}
