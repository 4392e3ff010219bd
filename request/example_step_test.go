package request_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
)

// Price is answered by the run of a shop.
var Price = request.Define[string, int]("price")

func shop(ctx kagzi.Context, n int) (int, error) {
	for i := range n {
		r, err := request.Wait(ctx, Price)
		if err != nil {
			return i, err
		}
		if err := r.Reply(ctx, 10*len(r.In)); err != nil {
			return i, err
		}
	}
	return n, nil
}

// A run asks another one, and is suspended until it has the answer.
func ExampleAskStep() {
	ctx, _, client, worker := setup()
	defer teardown()

	shopping, buy := kagzi.Define[int, int]("shop"), kagzi.Define[string, string]("buy")
	kagzi.Handle(worker, shopping, shop)
	kagzi.Handle(worker, buy, func(ctx kagzi.Context, what string) (string, error) {
		price, err := request.AskStep(ctx, "price", kagzi.ID("shop-1"), Price.With(what))
		return fmt.Sprintf("%s for %d", what, price), err
	})
	serve(ctx, worker)

	_, _ = kagzi.Start(ctx, client, shopping, 1, kagzi.ID("shop-1"))
	run, _ := kagzi.Start(ctx, client, buy, "lamp")
	fmt.Println(run.Result(ctx))
	// Output: lamp for 40 <nil>
}

// Send does not wait. The answer is there later, also after the run has ended.
func ExampleSend() {
	ctx, pool, client, worker := setup()
	defer teardown()

	shopping := kagzi.Define[int, int]("shop")
	kagzi.Handle(worker, shopping, shop)
	serve(ctx, worker)

	question := Price.With("pen").WithID("order-9")
	tx, _ := pool.Begin(ctx)
	fmt.Println(request.Send(ctx, client, shopping.With(1, kagzi.ID("shop-2")), question, kagzi.InTx(tx)))
	_ = tx.Commit(ctx)

	run, _ := kagzi.Find(ctx, client, shopping, kagzi.ID("shop-2"))
	fmt.Println(run.Result(ctx))
	fmt.Println(request.Ask(ctx, client, run, question))
	// Output:
	// <nil>
	// 1 <nil>
	// 30 <nil>
}

// A question that no run reads in time is not read later.
func ExampleQuestion_Within() {
	ctx, _, client, _ := setup()
	defer teardown()

	shopping := kagzi.Define[int, int]("shop")
	run, _ := kagzi.Start(ctx, client, shopping, 1) // no worker executes it
	_, err := request.Ask(ctx, client, run, Price.With("pen").Within(10*time.Millisecond))
	fmt.Println(errors.Is(err, kind.Timeout))
	// Output: true
}
