package kagzi_test

import (
	"context"
	"fmt"

	"github.com/kagzi/kagzi"
)

// The payloads are most of a long history. A filter leaves them out.
func ExampleStepFilter() {
	ctx, _, client, worker := setup()
	defer teardown()

	report := kagzi.Define[int, int]("report")
	kagzi.Handle(worker, report, func(ctx kagzi.Context, pages int) (int, error) {
		sum := 0
		for n := range pages {
			size, err := kagzi.Step(ctx, fmt.Sprintf("page %d", n+1), func(context.Context) (int, error) {
				return 100 + n, nil
			})
			if err != nil {
				return 0, err
			}
			sum += size
		}
		return sum, nil
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, report, 3)
	_, _ = run.Result(ctx)
	steps, _ := client.Steps(ctx, run, kagzi.StepFilter{NoPayloads: true})
	for _, s := range steps {
		fmt.Println(s.Step, s.Status, len(s.Output))
	}
	steps, _ = client.Steps(ctx, run, kagzi.StepFilter{Steps: []string{"page 2"}})
	for _, s := range steps {
		fmt.Println(s.Step, s.Status, string(s.Output))
	}
	// Output:
	// page 1 COMPLETED 0
	// page 2 COMPLETED 0
	// page 3 COMPLETED 0
	// page 2 COMPLETED 101
}
