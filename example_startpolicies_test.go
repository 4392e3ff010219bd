package kagzi_test

import (
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
)

// Only one import runs at a time: the second start gets an error.
func ExampleIfActive() {
	ctx, _, client, _ := setup()
	defer teardown()

	load := kagzi.Define[string, int]("load", kagzi.RejectActive)
	_, err := kagzi.Start(ctx, client, load, "monday.csv", kagzi.ID("load"))
	fmt.Println(err)
	_, err = kagzi.Start(ctx, client, load, "tuesday.csv", kagzi.ID("load"))
	fmt.Println(errors.Is(err, kagzi.ErrIDTaken))
	running, _ := kagzi.Find(ctx, client, load, kagzi.ID("load"))
	info, _ := running.Info(ctx)
	fmt.Printf("at work: %s\n", info.Input)

	again, _ := kagzi.Start(ctx, client, load, "monday.csv", kagzi.ID("load"), kagzi.ReturnActive)
	fmt.Println(again.ID() == running.ID(), again.Existed())
	again, _ = kagzi.Start(ctx, client, load, "tuesday.csv", kagzi.ID("load"), kagzi.ReturnAnyInput)
	fmt.Println(again.ID() == running.ID(), again.Existed())
	// Output:
	// <nil>
	// true
	// at work: "monday.csv"
	// true true
	// true true
}

// Only the newest text is worth an index: a run for an older one is terminated.
func ExampleIfActive_replace() {
	ctx, _, client, _ := setup()
	defer teardown()

	index := kagzi.Define[string, int]("index", kagzi.ReplaceActive)
	first, _ := kagzi.Start(ctx, client, index, "draft", kagzi.ID("index-7"))
	second, _ := kagzi.Start(ctx, client, index, "final", kagzi.ID("index-7"))
	for _, run := range []*kagzi.Run[int]{first, second} {
		info, _ := run.Info(ctx)
		fmt.Println(string(info.Input), info.Status)
	}
	// Output:
	// "draft" CANCELLED
	// "final" PENDING
}

// An order is charged once, however often and however late the message about it comes.
func ExampleIfEnded() {
	ctx, _, client, worker := setup()
	defer teardown()

	charge := kagzi.Define[int, string]("charge", kagzi.RejectEnded)
	kagzi.Handle(worker, charge, func(_ kagzi.Context, cents int) (string, error) {
		return fmt.Sprintf("charged %d cents", cents), nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, charge, 1999, kagzi.ID("charge-42"))
	fmt.Println(run.Result(ctx))

	_, err := kagzi.Start(ctx, client, charge, 1999, kagzi.ID("charge-42"))
	fmt.Println(errors.Is(err, kagzi.ErrIDTaken))

	again, err := kagzi.Start(ctx, client, charge, 1999, kagzi.ID("charge-42"), kagzi.StartAgain)
	fmt.Println(again.Existed(), err)
	// Output:
	// charged 1999 cents <nil>
	// true
	// false <nil>
}

// A failed run may be started again, a completed one may not.
func ExampleIfEnded_failed() {
	ctx, _, client, worker := setup()
	defer teardown()

	ship := kagzi.Define[string, string]("ship", kagzi.StartIfFailed, kagzi.RetryPolicy{MaxAttempts: 1})
	kagzi.Handle(worker, ship, func(_ kagzi.Context, address string) (string, error) {
		if address == "" {
			return "", errors.New("no address")
		}
		return "shipped to " + address, nil
	})
	serve(ctx, worker)

	for _, address := range []string{"", "1 High Street", "1 High Street"} {
		run, err := kagzi.Start(ctx, client, ship, address, kagzi.ID("ship-42"))
		if errors.Is(err, kagzi.ErrIDTaken) {
			fmt.Println("not started: it is shipped")
			continue
		}
		place, err := run.Result(ctx)
		fmt.Println(place, err != nil)
	}
	// Output:
	//  true
	// shipped to 1 High Street false
	// not started: it is shipped
}
