package kagzi_test

import (
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
)

// A report is made once a day for each tenant, however often and however late it is asked for.
func ExampleOncePer() {
	ctx, _, client, worker := setup()
	defer teardown()

	report := kagzi.Define[string, string]("report", kagzi.OncePer(24*time.Hour))
	kagzi.Handle(worker, report, func(_ kagzi.Context, tenant string) (string, error) {
		return "report of " + tenant, nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, report, "acme", kagzi.ID("report-acme"))
	fmt.Println(run.Result(ctx))
	again, _ := kagzi.Start(ctx, client, report, "acme", kagzi.ID("report-acme"))
	fmt.Println(again.ID() == run.ID(), again.Existed())
	fmt.Println(again.Result(ctx))
	// Output:
	// report of acme <nil>
	// true true
	// report of acme <nil>
}

// A document is indexed once its author has not typed for a while, and with its last text.
func ExampleDebounce() {
	ctx, _, client, worker := setup()
	defer teardown()

	index := kagzi.Define[string, string]("index")
	kagzi.Handle(worker, index, func(_ kagzi.Context, text string) (string, error) {
		return fmt.Sprintf("indexed %q", text), nil
	})
	typed := kagzi.Debounce{Key: "doc-7", Delay: 200 * time.Millisecond, Max: time.Minute}
	first, _ := kagzi.Start(ctx, client, index, "wait", typed)
	last, _ := kagzi.Start(ctx, client, index, "wait until they have stopped typing", typed)
	fmt.Println(last.ID() == first.ID(), last.Existed())

	serve(ctx, worker)
	fmt.Println(first.Result(ctx))
	// Output:
	// true true
	// indexed "wait until they have stopped typing" <nil>
}

// Rows are written three at a time, or after an hour.
func ExampleStartItem() {
	ctx, _, client, worker := setup()
	defer teardown()

	write := kagzi.Define[[]string, int]("write", kagzi.Batch{Most: 3, Within: time.Hour})
	kagzi.Handle(worker, write, func(_ kagzi.Context, rows []string) (int, error) {
		fmt.Println("write", rows)
		return len(rows), nil
	})
	serve(ctx, worker)

	first, _ := kagzi.StartItem(ctx, client, write, "a")
	second, _ := kagzi.StartItem(ctx, client, write, "b")
	third, _ := kagzi.StartItem(ctx, client, write, "c")
	fourth, _ := kagzi.StartItem(ctx, client, write, "d")
	fmt.Println(third.Result(ctx))
	fmt.Println(second.ID() == first.ID(), third.ID() == first.ID(), fourth.ID() == first.ID())
	// Output:
	// write [a b c]
	// 3 <nil>
	// true true false
}

// Items of several tenants, which are written apart, are started together.
func ExampleItemOf() {
	ctx, _, client, _ := setup()
	defer teardown()

	write := kagzi.Define[[]string, int]("write", kagzi.Batch{Within: time.Hour})
	started, err := client.StartMany(ctx, []kagzi.Call{
		kagzi.ItemOf(write, "a", kagzi.Batch{Key: "acme", Within: time.Hour}),
		kagzi.ItemOf(write, "b", kagzi.Batch{Key: "acme", Within: time.Hour}),
		kagzi.ItemOf(write, "c", kagzi.Batch{Key: "other", Within: time.Hour}),
	})
	fmt.Println(err)
	for _, s := range started {
		info, _ := client.Get(ctx, s.ID)
		fmt.Printf("%s %v\n", info.Input, s.Existed)
	}
	// Output:
	// <nil>
	// ["a","b"] false
	// ["a","b"] true
	// ["c"] false
}
