package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
)

// A branch has a Context of its own: pass that one, not the run's, to the operations in it.
func ExampleGo() {
	ctx, _, client, worker := setup()
	defer teardown()

	offer := kagzi.Define[string, string]("offer")
	kagzi.Handle(worker, offer, func(ctx kagzi.Context, product string) (string, error) {
		price := kagzi.Go(ctx, "price", func(ctx kagzi.Context) (int, error) {
			return kagzi.Step(ctx, "look-up", func(ctx context.Context) (int, error) { return 20, nil })
		})
		stock := kagzi.Go(ctx, "stock", func(ctx kagzi.Context) (int, error) {
			return kagzi.Step(ctx, "look-up", func(ctx context.Context) (int, error) { return 3, nil })
		})
		euros, err := price.Result(ctx)
		if err != nil {
			return "", err
		}
		pieces, err := stock.Result(ctx)
		return fmt.Sprintf("%d pieces for %d each", pieces, euros), err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, offer, "lamp")
	fmt.Println(run.Result(ctx))
	// Output: 3 pieces for 20 each <nil>
}

func ExampleParallel() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, product string) (string, error) {
		var parcel, invoice string // each set by one branch
		err := kagzi.Parallel(ctx, "fulfil", map[string]func(kagzi.Context) error{
			"ship": func(ctx kagzi.Context) (err error) {
				parcel, err = kagzi.Step(ctx, "pack", func(ctx context.Context) (string, error) {
					return "parcel 7", nil
				})
				return err
			},
			"bill": func(ctx kagzi.Context) (err error) {
				invoice, err = kagzi.Step(ctx, "write", func(ctx context.Context) (string, error) {
					return "invoice 9", nil
				})
				return err
			},
		})
		return parcel + ", " + invoice, err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, "lamp")
	fmt.Println(run.Result(ctx))
	// Output: parcel 7, invoice 9 <nil>
}

func ExampleMap() {
	ctx, _, client, worker := setup()
	defer teardown()

	resize := kagzi.Define[[]string, []string]("resize")
	kagzi.Handle(worker, resize, func(ctx kagzi.Context, pictures []string) ([]string, error) {
		return kagzi.Map(ctx, "pictures", pictures, func(ctx kagzi.Context, picture string) (string, error) {
			return kagzi.Step(ctx, "resize", func(ctx context.Context) (string, error) {
				return "small " + picture, nil
			})
		}, kagzi.Concurrency(2))
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, resize, []string{"cat", "dog", "fox"})
	fmt.Println(run.Result(ctx))
	// Output: [small cat small dog small fox] <nil>
}

func ExampleCollectErrors() {
	ctx, _, client, worker := setup()
	defer teardown()

	notify := kagzi.Define[[]string, string]("notify")
	kagzi.Handle(worker, notify, func(ctx kagzi.Context, users []string) (string, error) {
		_, err := kagzi.Map(ctx, "users", users, func(ctx kagzi.Context, user string) (struct{}, error) {
			return struct{}{}, kagzi.Do(ctx, "mail", func(ctx context.Context) error {
				if user == "Bob" {
					return kagzi.Permanent(errors.New("no such mailbox"))
				}
				return nil
			})
		}, kagzi.CollectErrors())
		var failed kagzi.BranchErrors
		if errors.As(err, &failed) {
			return fmt.Sprintf("%d of %d failed, %s first", len(failed), len(users), users[failed[0].Index]), nil
		}
		return "all were notified", err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, notify, []string{"Ada", "Bob", "Cyd"})
	fmt.Println(run.Result(ctx))
	// Output: 1 of 3 failed, Bob first <nil>
}

// The winner is recorded: a replay has the same.
func ExampleRace() {
	ctx, _, client, worker := setup()
	defer teardown()

	ask := kagzi.Define[string, string]("ask")
	kagzi.Handle(worker, ask, func(ctx kagzi.Context, question string) (string, error) {
		winner, answer, err := kagzi.Race(ctx, "answer", map[string]func(kagzi.Context) (string, error){
			"oracle": func(ctx kagzi.Context) (string, error) {
				return kagzi.Step(ctx, "ask", func(ctx context.Context) (string, error) { return "42", nil })
			},
			"patience": func(ctx kagzi.Context) (string, error) {
				return "no answer in a day", kagzi.Sleep(ctx, "a-day", 24*time.Hour)
			},
		})
		return winner + ": " + answer, err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, ask, "why?")
	fmt.Println(run.Result(ctx))
	// Output: oracle: 42 <nil>
}
