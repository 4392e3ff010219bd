package admin_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// A new run with the old one's input, under its ID.
func ExampleRuns_Restart() {
	ctx, _, client, worker := setup()
	defer teardown()

	double := kagzi.Define[int, int]("double")
	kagzi.Handle(worker, double, func(ctx kagzi.Context, n int) (int, error) { return 2 * n, nil })
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, double, 21, kagzi.ID("double-21"))
	_, _ = run.Result(ctx)

	id, err := admin.New(client).Runs.Restart(ctx, run.ID(), kagzi.Reason("to be sure"))
	if err != nil {
		fmt.Println(err)
		return
	}
	again, _ := kagzi.Find(ctx, client, double, id)
	fmt.Println(again.Result(ctx))
	info, _ := again.Info(ctx)
	fmt.Println(info.ExternalID, info.Origin == run.ID())
	// Output:
	// 42 <nil>
	// double-21 true
}

// Nothing calls the bank again while it is not known what the first call has done. Ada has asked it.
func ExampleRuns_Resolve() {
	ctx, _, client, worker := setup()
	defer teardown()

	refund := kagzi.Define[string, string]("refund")
	kagzi.Handle(worker, refund, func(ctx kagzi.Context, order string) (string, error) {
		return kagzi.Step(ctx, "refund", func(context.Context) (string, error) {
			return "", errors.New("connection reset")
		}, kagzi.AtMostOnce())
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, refund, "order 42", kagzi.ID("order-42"))
	kit.UntilWaitingOn(ctx, client, run, "doubt refund")
	runs := admin.New(client).Runs
	doubts, _ := runs.Doubts(ctx, 0)
	for _, d := range doubts {
		fmt.Println(d.ID, d.Step, d.Error)
	}
	err := runs.Resolve(ctx, run, "refund", admin.Happened("refund 77"), kagzi.Actor("ada"))
	fmt.Println(err)
	fmt.Println(run.Result(ctx))
	err = runs.Resolve(ctx, run, "refund", admin.DidNotHappen())
	fmt.Println(errors.Is(err, admin.ErrNoDoubt))
	// Output:
	// order-42 refund connection reset
	// <nil>
	// refund 77 <nil>
	// true
}

// The fork keeps the steps that the old run had recorded before: no customer pays twice.
func ExampleRuns_Fork() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, product string) (string, error) {
		receipt, err := kagzi.Step(ctx, "pay", func(ctx context.Context) (string, error) {
			fmt.Println("paying")
			return "receipt 1", nil
		})
		if err != nil {
			return "", err
		}
		return kagzi.Step(ctx, "ship", func(ctx context.Context) (string, error) {
			return product + " with " + receipt, nil
		})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, order, "lamp")
	fmt.Println(run.Result(ctx))

	id, err := admin.New(client).Runs.Fork(ctx, run.ID(), "ship", admin.NewInput("chair"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fork, _ := kagzi.Find(ctx, client, order, id)
	fmt.Println(fork.Result(ctx))

	_, err = admin.New(client).Runs.Fork(ctx, run.ID(), "refund")
	fmt.Println(errors.Is(err, kagzi.ErrNotFound))
	// Output:
	// paying
	// lamp with receipt 1 <nil>
	// chair with receipt 1 <nil>
	// true
}

// First a dry run, then the same in earnest.
func ExampleRuns_ResumeAll() {
	ctx, _, client, worker := setup()
	defer teardown()

	repaired := false
	order := kagzi.Define[int, int]("order", kagzi.RetryPolicy{MaxAttempts: 1})
	kagzi.Handle(worker, order, func(ctx kagzi.Context, n int) (int, error) {
		if n%2 == 0 && !repaired {
			return 0, errors.New("the lorry is broken")
		}
		return n, nil
	})
	serve(ctx, worker)
	var runs []*kagzi.Run[int]
	for n := range 5 {
		run, _ := kagzi.Start(ctx, client, order, n)
		_, _ = run.Result(ctx)
		runs = append(runs, run)
	}

	failed := kagzi.RunFilter{Workflow: "order", Status: []kagzi.Status{kagzi.StatusFailed}}
	bulk, err := admin.New(client).Runs.ResumeAll(ctx, failed, admin.DryRun())
	fmt.Println(len(bulk.Changed), "would be resumed,", len(bulk.Skipped), "skipped", err)

	repaired = true
	bulk, err = admin.New(client).Runs.ResumeAll(ctx, failed, kagzi.Reason("the lorry is repaired"))
	fmt.Println(len(bulk.Changed), "are resumed", err)
	fmt.Println(runs[4].Result(ctx))

	_, err = admin.New(client).Runs.ResumeAll(ctx, kagzi.RunFilter{})
	fmt.Println(err)
	// Output:
	// 3 would be resumed, 0 skipped <nil>
	// 3 are resumed <nil>
	// 4 <nil>
	// kagzi: resume all: the filter is empty: say which runs; Status alone selects all runs with that status
}

func ExampleRuns_CancelAll() {
	ctx, _, client, _ := setup()
	defer teardown()

	order := kagzi.Define[int, int]("order")
	for n := range 4 {
		_, _ = kagzi.Start(ctx, client, order, n, kagzi.Metadata{"tenant": []string{"acme", "other"}[n%2]})
	}
	bulk, err := admin.New(client).Runs.CancelAll(ctx, kagzi.RunFilter{Metadata: kagzi.Metadata{"tenant": "acme"}})
	fmt.Println(bulk.Matched, len(bulk.Changed), err)
	// Output: 2 2 <nil>
}

// An incident: the waiting runs are of no use any more, and have done nothing to be undone. A dry run comes first.
func ExampleRuns_TerminateAll() {
	ctx, _, client, _ := setup()
	defer teardown()

	mail := kagzi.Define[int, int]("mail")
	for n := range 3 {
		_, _ = kagzi.Start(ctx, client, mail, n)
	}
	mails := kagzi.RunFilter{Workflow: "mail"}
	bulk, err := admin.New(client).Runs.TerminateAll(ctx, mails, admin.DryRun())
	fmt.Println(len(bulk.Changed), "would end,", err)
	bulk, err = admin.New(client).Runs.TerminateAll(ctx, mails, kagzi.Reason("incident 17"))
	fmt.Println(len(bulk.Changed), "ended,", err)

	info, _ := client.Get(ctx, bulk.Changed[0])
	fmt.Println(info.Status, info.Error)
	// Output:
	// 3 would end, <nil>
	// 3 ended, <nil>
	// CANCELLED run was terminated: incident 17
}

// New has the new runs, by those that they come from.
func ExampleRuns_RestartAll() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[int, int]("order")
	kagzi.Handle(worker, order, func(ctx kagzi.Context, n int) (int, error) { return n, nil })
	serve(ctx, worker)
	run, _ := kagzi.Start(ctx, client, order, 7)
	_, _ = run.Result(ctx)

	bulk, _ := admin.New(client).Runs.RestartAll(ctx, kagzi.RunFilter{Workflow: "order"}, kagzi.Version(1))
	for _, old := range bulk.Changed {
		again, _ := kagzi.Find(ctx, client, order, bulk.New[old])
		fmt.Println(again.Result(ctx))
	}
	// Output: 7 <nil>
}

// Runs that never came to the step are skipped.
func ExampleRuns_ForkAll() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[string, string]("order", kagzi.RetryPolicy{MaxAttempts: 1})
	kagzi.Handle(worker, order, func(ctx kagzi.Context, product string) (string, error) {
		if product == "moon" {
			return "", errors.New("not for sale")
		}
		return kagzi.Step(ctx, "ship", func(ctx context.Context) (string, error) { return product + " shipped", nil })
	})
	serve(ctx, worker)
	for _, product := range []string{"lamp", "moon"} {
		run, _ := kagzi.Start(ctx, client, order, product)
		_, _ = run.Result(ctx)
	}

	bulk, _ := admin.New(client).Runs.ForkAll(ctx, kagzi.RunFilter{Workflow: "order"}, "ship")
	fmt.Println(len(bulk.Changed), "forked")
	for _, reason := range bulk.Skipped {
		fmt.Println("skipped:", errors.Is(reason, kagzi.ErrNotFound))
	}
	// Output:
	// 1 forked
	// skipped: true
}

// The events of a run say which verbs changed it, and why.
func ExampleRuns_Log() {
	ctx, _, client, _ := setup()
	defer teardown()

	order := kagzi.Define[int, int]("order")
	run, _ := kagzi.Start(ctx, client, order, 1)
	_ = client.Cancel(ctx, run.ID())
	_ = admin.New(client).Runs.Resume(ctx, run.ID(), kagzi.Reason("cancelled by mistake"))

	events, _ := admin.New(client).Runs.Log(ctx, run.ID())
	for _, e := range events {
		if e.Event == "RESUMED" {
			fmt.Println(e.Event, e.Reason)
		}
	}
	// Output: RESUMED cancelled by mistake
}

// The function handled a failed step, and failed later in another one: Resume repeats only the later step. Forget names
// more steps to repeat.
func ExampleForget() {
	ctx, _, client, worker := setup()
	defer teardown()

	order := kagzi.Define[int, string]("order")
	up := false
	vendor := func(context.Context) error {
		if !up {
			return kind.Unavailable
		}
		return nil
	}
	kagzi.Handle(worker, order, func(ctx kagzi.Context, _ int) (string, error) {
		first := kagzi.Do(ctx, "ask A", vendor, kagzi.RetryPolicy{MaxAttempts: 1})
		second := kagzi.Do(ctx, "ask B", vendor, kagzi.RetryPolicy{MaxAttempts: 1})
		switch {
		case first == nil:
			return "from A", nil
		case second == nil:
			return "from B", nil
		}
		return "", errors.New("no vendor")
	})
	serve(ctx, worker)
	run, _ := kagzi.Start(ctx, client, order, 1)
	_, err := run.Result(ctx)
	fmt.Println(errors.Is(err, kind.Unknown))

	up = true
	err = admin.New(client).Runs.Resume(ctx, run, admin.Forget("ask C"))
	fmt.Println("no such failure:", errors.Is(err, kagzi.ErrNotFound))
	_ = admin.New(client).Runs.Resume(ctx, run, admin.Forget("ask A"), kagzi.Reason("A is up again"))
	fmt.Println(run.Result(ctx))
	// Output:
	// true
	// no such failure: true
	// from A <nil>
}
