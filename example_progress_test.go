package kagzi_test

import (
	"context"
	"fmt"

	"github.com/kagzi/kagzi"
)

// A long step says how far it is.
func ExampleSetProgress() {
	ctx, _, client, worker := setup()
	defer teardown()

	imports := kagzi.Define[[]string, int]("import")
	kagzi.Handle(worker, imports, func(ctx kagzi.Context, pages []string) (int, error) {
		return kagzi.Step(ctx, "load", func(ctx context.Context) (int, error) {
			for i := range pages {
				_ = kagzi.SetProgress(ctx, fmt.Sprintf("%d of %d pages", i+1, len(pages)),
					float64(i+1)/float64(len(pages)))
			}
			return len(pages), nil
		})
	})
	serve(ctx, worker)

	run, _ := kagzi.Start(ctx, client, imports, []string{"a", "b", "c", "d"})
	fmt.Println(run.Result(ctx))
	info, _ := client.Get(ctx, run)
	fmt.Println(info.Progress.Text, *info.Progress.Fraction)
	// Output:
	// 4 <nil>
	// 4 of 4 pages 1
}
