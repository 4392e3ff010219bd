// Hello is a complete program, to copy. It needs a Postgres, named by DATABASE_URL.
//
// Kill it within the five seconds of its sleep, with kill -9 or Ctrl-C, and start it again: it finds its run by the ID,
// creates no second account, and continues with the welcome.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
)

// SignUp is the contract of the workflow: its name, input and result. A program that only starts runs needs nothing
// else.
var SignUp = kagzi.Define[string, string]("sign-up")

// signUp is the workflow: an ordinary function of named steps. A step whose result is recorded never runs again,
// whichever process continues the function after a crash.
func signUp(ctx kagzi.Context, name string) (string, error) {
	account, err := kagzi.Step(ctx, "create-account", func(ctx context.Context) (string, error) {
		fmt.Println("creating an account for", name)
		return "account-of-" + name, nil
	})
	if err != nil {
		return "", err
	}
	// While it sleeps, the run needs no goroutine, no connection, and not even this process.
	if err := kagzi.Sleep(ctx, "settle-in", 5*time.Second); err != nil {
		return "", err
	}
	err = kagzi.Do(ctx, "send-welcome", func(ctx context.Context) error {
		fmt.Println("sending a welcome to", account)
		return nil // an error would be retried
	}, kagzi.RetryPolicy{MaxAttempts: 5}, kagzi.Timeout(10*time.Second))
	return account, err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	if url == "" {
		return errors.New("DATABASE_URL is not set; for example: " +
			"postgres://postgres:secret@localhost:5432/postgres?pool_max_conns=10")
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := kagzi.Migrate(ctx, pool); err != nil {
		return err
	}
	client, err := kagzi.NewClient(pool, kagzi.ClientConfig{})
	if err != nil {
		return err
	}

	// A worker executes runs. Here it shares a process with the code that starts them; usually it has its own.
	worker, err := kagzi.NewWorker(client, kagzi.WorkerConfig{})
	if err != nil {
		return err
	}
	kagzi.Handle(worker, SignUp, signUp)
	if err := worker.Start(ctx); err != nil {
		return err
	}
	defer worker.Stop(context.Background()) // it drains: running steps may finish

	// The ID makes the start idempotent: while a run of this ID is active, Start returns that one.
	signup, err := kagzi.Start(ctx, client, SignUp, "ada", kagzi.ID("sign-up-ada"))
	if err != nil {
		return err
	}
	account, err := signup.Result(ctx)
	if err != nil {
		return err
	}
	fmt.Println("signed up:", account)
	return nil
}
