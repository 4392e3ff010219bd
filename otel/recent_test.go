package kagziotel_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	kagziotel "github.com/kagzi/kagzi/otel"
)

// An attempt that goes on after its worker has lost the run ends beside the next execution, and does not write what
// that one knows.
func TestAbandonedAttemptBesideTheNextExecution(t *testing.T) {
	t.Parallel()
	p := newProbe(t, kagziotel.Config{})
	i := p.tel.Interceptor()
	execute := func(next func(context.Context)) {
		_ = i.Execute(t.Context(), kagzi.Execution{Run: "run", Workflow: "checkout"}, func(ctx context.Context) error {
			next(ctx)
			return kagzi.ErrSuspended
		})
	}
	step := func(ctx context.Context, name string, next func() error) {
		_ = i.Step(ctx, kagzi.StepInfo{Run: "run", Workflow: "checkout", Step: name}, func(context.Context) error {
			return next()
		})
	}
	fails, completes := func() error { return errors.New("no") }, func() error { return nil }

	release, returned := make(chan struct{}), make(chan struct{})
	execute(func(ctx context.Context) {
		step(ctx, "charge", fails)
		begun := make(chan struct{})
		go func() {
			defer close(returned)
			step(ctx, "charge", func() error {
				close(begun)
				await.Opened(t, release)
				return nil
			})
		}()
		await.Opened(t, begun)
	})
	execute(func(ctx context.Context) {
		close(release)
		step(ctx, "other", completes) // with the race detector: at the same time
		await.Opened(t, returned)
		step(ctx, "charge", completes)
	})
	all := p.named("step charge")
	if len(all) != 3 || len(all[2].Links) != 1 || all[2].Links[0].SpanContext.SpanID() != all[0].SpanContext.SpanID() {
		t.Errorf("the attempt of the second execution is not linked to the last one that the first execution "+
			"knew\n%s", p.list())
	}
}
