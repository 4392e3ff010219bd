package kagzi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
)

func ExampleRunChild() {
	ctx, _, client, worker := setup()
	defer teardown()

	invoice := kagzi.Define[int, string]("invoice")
	kagzi.Handle(worker, invoice, func(ctx kagzi.Context, euros int) (string, error) {
		return kagzi.Step(ctx, "print", func(ctx context.Context) (string, error) {
			return fmt.Sprintf("invoice of %d €", euros), nil
		})
	})
	order := kagzi.Define[int, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, pieces int) (string, error) {
		return kagzi.RunChild(ctx, "invoice", invoice, 20*pieces)
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, 3)
	fmt.Println(run.Result(ctx))
	// Output: invoice of 60 € <nil>
}

// A child that did not complete is a *RunError, of the kind that its workflow returned.
func ExampleStartChild() {
	ctx, _, client, worker := setup()
	defer teardown()

	const declined kind.Kind = "card_declined"
	payment := kagzi.Define[int, int]("payment", kagzi.RetryPolicy{MaxAttempts: 1})
	kagzi.Handle(worker, payment, func(ctx kagzi.Context, euros int) (int, error) {
		return 0, declined
	})
	order := kagzi.Define[int, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, pieces int) (string, error) {
		paid, err := kagzi.StartChild(ctx, "payment", payment, 20*pieces)
		if err != nil {
			return "", err
		}
		err = kagzi.Do(ctx, "pack", func(ctx context.Context) error { return nil }) // meanwhile
		if err != nil {
			return "", err
		}
		_, err = paid.Result(ctx)
		var failed *kagzi.RunError
		if errors.Is(err, declined) && errors.As(err, &failed) {
			return fmt.Sprintf("unpacked: %s is %s", failed.Workflow, failed.Status), nil
		}
		return "shipped", err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, 3)
	fmt.Println(run.Result(ctx))
	// Output: unpacked: payment is FAILED <nil>
}

// The parent is woken once, when the last of its children has ended.
func ExampleResults() {
	ctx, _, client, worker := setup()
	defer teardown()

	thumbnail := kagzi.Define[string, string]("thumbnail")
	kagzi.Handle(worker, thumbnail, func(ctx kagzi.Context, picture string) (string, error) {
		return "small " + picture, nil
	})
	album := kagzi.Define[[]string, []string]("album")
	kagzi.Handle(worker, album, func(ctx kagzi.Context, pictures []string) ([]string, error) {
		children := make([]*kagzi.Child[string], len(pictures))
		for i, picture := range pictures {
			var err error
			if children[i], err = kagzi.StartChild(ctx, "thumbnail-"+picture, thumbnail, picture); err != nil {
				return nil, err
			}
		}
		return kagzi.Results(ctx, children)
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, album, []string{"cat", "dog", "fox"})
	fmt.Println(run.Result(ctx))
	// Output: [small cat small dog small fox] <nil>
}

// With Map, what follows a child begins as soon as that child has ended.
func ExampleRunChild_map() {
	ctx, _, client, worker := setup()
	defer teardown()

	thumbnail := kagzi.Define[string, string]("thumbnail")
	kagzi.Handle(worker, thumbnail, func(ctx kagzi.Context, picture string) (string, error) {
		return "small " + picture, nil
	})
	album := kagzi.Define[[]string, []string]("album")
	kagzi.Handle(worker, album, func(ctx kagzi.Context, pictures []string) ([]string, error) {
		return kagzi.Map(ctx, "pictures", pictures, func(ctx kagzi.Context, picture string) (string, error) {
			small, err := kagzi.RunChild(ctx, "thumbnail", thumbnail, picture)
			if err != nil {
				return "", err
			}
			return kagzi.Step(ctx, "publish", func(ctx context.Context) (string, error) {
				return small + " is online", nil
			})
		})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, album, []string{"cat", "dog"})
	fmt.Println(run.Result(ctx))
	// Output: [small cat is online small dog is online] <nil>
}

// A detached child goes on when its parent has ended.
func ExampleDetached() {
	ctx, _, client, worker := setup()
	defer teardown()

	shipped := make(chan struct{})
	survey := kagzi.Define[string, string]("survey")
	kagzi.Handle(worker, survey, func(ctx kagzi.Context, customer string) (string, error) {
		return kagzi.Step(ctx, "ask", func(ctx context.Context) (string, error) {
			<-shipped
			return customer + " is content", nil
		})
	})
	order := kagzi.Define[string, kagzi.RunID]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, customer string) (kagzi.RunID, error) {
		child, err := kagzi.StartChild(ctx, "survey", survey, customer, kagzi.Detached())
		if err != nil {
			return "", err
		}
		return child.ID(), nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, "Ada")
	id, err := run.Result(ctx)
	fmt.Println("the order is over:", err)
	close(shipped)
	child, _ := kagzi.Find(ctx, client, survey, id)
	fmt.Println(child.Result(ctx))
	// Output:
	// the order is over: <nil>
	// Ada is content <nil>
}

// One of the children fails: what the others returned is there, and its failure has a name, an index and a kind.
func ExampleBranchErrors() {
	ctx, _, client, worker := setup()
	defer teardown()

	const declined kind.Kind = "card_declined"
	charge := kagzi.Define[int, string]("charge", kagzi.RetryPolicy{MaxAttempts: 1})
	kagzi.Handle(worker, charge, func(ctx kagzi.Context, euros int) (string, error) {
		if euros > 100 {
			return "", declined
		}
		return fmt.Sprintf("%d € paid", euros), nil
	})
	bills := kagzi.Define[[]int, string]("bills")
	kagzi.Handle(worker, bills, func(ctx kagzi.Context, amounts []int) (string, error) {
		children := make([]*kagzi.Child[string], len(amounts))
		for i, euros := range amounts {
			var err error
			if children[i], err = kagzi.StartChild(ctx, fmt.Sprint("charge-", i), charge, euros); err != nil {
				return "", err
			}
		}
		receipts, err := kagzi.Results(ctx, children)
		var failures kagzi.BranchErrors
		if !errors.As(err, &failures) {
			return fmt.Sprint(receipts), err
		}
		for _, f := range failures {
			receipts[f.Index] = fmt.Sprintf("%s declined: %v", f.Name, errors.Is(f, declined))
		}
		return strings.Join(receipts, ", "), nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, bills, []int{20, 120, 30})
	fmt.Println(run.Result(ctx))
	// Output: 20 € paid, charge-1 declined: true, 30 € paid <nil>
}

// An offer that no customer has taken is withdrawn.
func ExampleChild_Cancel() {
	ctx, _, client, worker := setup()
	defer teardown()

	accepted := kagzi.DefineSignal[bool]("accepted")
	offer := kagzi.Define[string, bool]("offer")
	kagzi.Handle(worker, offer, func(ctx kagzi.Context, _ string) (bool, error) {
		return kagzi.WaitSignal(ctx, accepted)
	})
	sale := kagzi.Define[string, string]("sale")
	kagzi.Handle(worker, sale, func(ctx kagzi.Context, product string) (string, error) {
		open, err := kagzi.StartChild(ctx, "offer", offer, product)
		if err != nil {
			return "", err
		}
		if err := kagzi.Sleep(ctx, "patience", 300*time.Millisecond); err != nil {
			return "", err
		}
		if err := open.Cancel(ctx); err != nil {
			return "", err
		}
		_, err = open.Result(ctx)
		var end *kagzi.RunError
		if errors.As(err, &end) {
			return fmt.Sprintf("the %s is %s", end.Workflow, end.Status), nil
		}
		return "sold", err
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, sale, "lamp")
	fmt.Println(run.Result(ctx))
	// Output: the offer is CANCELLED <nil>
}
