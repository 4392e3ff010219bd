// Signup waits for a person: it mails a link, waits for the click, and gives up after a while.
//
//	go run ./examples/signup
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/examples/internal/demo"
)

// SignUp is the contract of the workflow: its name, its input and its result.
var SignUp = kagzi.Define[string, string]("sign-up")

// Confirmed is the signal that the link sends. Its payload is the confirmed address.
var Confirmed = kagzi.DefineSignal[string]("confirmed")

func signUp(ctx kagzi.Context, name string) (string, error) {
	err := kagzi.Do(ctx, "mail-link", func(ctx context.Context) error {
		return nil // a real program sends the mail
	})
	if err != nil {
		return "", err
	}
	// While it waits, the run is only a row in Postgres. A real timeout would be a week.
	address, err := kagzi.WaitSignal(ctx, Confirmed, kagzi.Timeout(500*time.Millisecond))
	if errors.Is(err, kagzi.ErrNoMessage) {
		return "", kagzi.Do(ctx, "delete-account", func(ctx context.Context) error {
			fmt.Println("deleted the account of", name)
			return nil
		})
	}
	return address, err
}

func main() {
	handle := func(w *kagzi.Worker) { kagzi.Handle(w, SignUp, signUp) }
	demo.Main("signup", handle, func(ctx context.Context, client *kagzi.Client) error {
		ada, err := kagzi.Start(ctx, client, SignUp, "Ada", kagzi.ID("ada"))
		if err != nil {
			return err
		}
		if err := client.Signal(ctx, ada, Confirmed.With("ada@example.org")); err != nil { // the click
			return err
		}
		address, err := ada.Result(ctx)
		if err != nil {
			return err
		}
		fmt.Println("Ada confirmed", address)

		bob, err := kagzi.Start(ctx, client, SignUp, "Bob", kagzi.ID("bob")) // Bob never clicks
		if err != nil {
			return err
		}
		_, err = bob.Result(ctx)
		return err
	})
}
