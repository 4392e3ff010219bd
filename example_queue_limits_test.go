package kagzi_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
)

// The emails of a customer are handled one at a time and in order, those of different customers at once.
func ExampleKey() {
	ctx, _, client, worker := setup()
	defer teardown()
	_ = admin.New(client).Queues.Set(ctx, admin.QueueLimits{
		Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1},
		Hold: true,
	})

	var mu sync.Mutex
	var handled []string
	email := kagzi.Define[string, string]("email")
	kagzi.Handle(worker, email, func(ctx kagzi.Context, text string) (string, error) {
		if err := kagzi.Sleep(ctx, "a while", 20*time.Millisecond); err != nil { // the run keeps its slot
			return "", err
		}
		return text, kagzi.Do(ctx, "handle", func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			handled = append(handled, text)
			return nil
		})
	})
	serve(ctx, worker)

	var last *kagzi.Run[string]
	for _, text := range []string{"hello", "how are you?", "goodbye"} {
		last, _ = kagzi.Start(ctx, client, email, text, kagzi.Key("ada"))
	}
	fmt.Println(last.Result(ctx))
	fmt.Printf("%q\n", handled)
	// Output:
	// goodbye <nil>
	// ["hello" "how are you?" "goodbye"]
}

// At most one run of a group has begun and not ended, whatever its queue and its workflow.
func ExampleGroup() {
	ctx, _, client, worker := setup()
	defer teardown()

	running, most := 0, 0
	var mu sync.Mutex
	read := kagzi.Define[string, string]("read")
	write := kagzi.Define[string, string]("write")
	for _, wf := range []kagzi.Workflow[string, string]{read, write} {
		kagzi.Handle(worker, wf, func(ctx kagzi.Context, in string) (string, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				running--
			}()
			return in, kagzi.Do(ctx, "the account", func(context.Context) error { return nil })
		})
	}
	serve(ctx, worker)

	mail := kagzi.Group("mail")
	first, _ := kagzi.Start(ctx, client, read, "inbox", mail)
	second, _ := kagzi.Start(ctx, client, write, "draft", mail)
	fmt.Println(first.Result(ctx))
	fmt.Println(second.Result(ctx))
	fmt.Println("at a time:", most)
	// Output:
	// inbox <nil>
	// draft <nil>
	// at a time: 1
}

// Get says why a run that is due does not begin.
func ExampleClient_Get_waitingOn() {
	ctx, _, client, worker := setup()
	defer teardown()
	letter := kagzi.Define[string, string]("letter", kagzi.Group("post"))
	kagzi.Handle(worker, letter, func(ctx kagzi.Context, text string) (string, error) {
		return kagzi.Step(ctx, "write", func(ctx context.Context) (string, error) {
			next, err := kagzi.Start(ctx, client, kagzi.Define[int, int]("parcel"), 1, kagzi.Group("post"))
			if err != nil {
				return "", err
			}
			info, err := client.Get(ctx, next.ID()) // it has to wait for the end of this run
			return info.WaitingOn.String(), err
		})
	})
	serve(ctx, worker)
	run, _ := kagzi.Start(ctx, client, letter, "hello", kagzi.ID("letter-1"))
	fmt.Println(run.Result(ctx))

	_ = admin.New(client).Pauses.Set(ctx, admin.Target{Queue: "shop"})
	paused, _ := kagzi.Start(ctx, client, letter, "hello", kagzi.Queue("shop"))
	info, err := client.Get(ctx, paused.ID())
	fmt.Println(info.WaitingOn, err)
	// Output:
	// group post (1 of 1 running), behind letter-1 <nil>
	// pause of queue shop <nil>
}
