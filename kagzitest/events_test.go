package kagzitest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/topic"
)

// A run waits for an event over days that the test skips: it gets it, or its wait times out.
func TestWaitEvent(t *testing.T) {
	t.Parallel()
	paid := topic.Define[int]("paid")
	order := kagzi.Define[kagzi.ID, int]("order")
	env := kagzitest.New(t)
	kagzi.Handle(env.Worker, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
		e, err := topic.WaitEvent(ctx, "paid", paid, id, kagzi.Timeout(14*24*time.Hour))
		if errors.Is(err, kagzi.ErrNoMessage) {
			return -1, nil
		}
		if err != nil {
			return 0, err
		}
		again, err := topic.WaitEvent(ctx, "again", paid, id+"-again")
		return e.Payload + again.Payload, err
	})
	first, second := kagzitest.Start(env, order, "order-7"), kagzitest.Start(env, order, "order-8")
	env.Advance(13 * 24 * time.Hour)
	env.Publish(paid.With(7).WithID("order-7"))
	if got, err := kagzitest.Result(env, second); err != nil || got != -1 {
		t.Errorf("without a payment: %d, %v", got, err)
	}
	// No time ends the second wait.
	if moved := env.Skip(first.ID()); moved != 0 {
		t.Errorf("the clock has moved by %v", moved)
	}
	env.SkipTo(first.ID(), "event paid/order-7-again")
	env.Publish(paid.With(1).WithID("order-7-again"))
	if got, err := kagzitest.Result(env, first); err != nil || got != 8 {
		t.Errorf("paid: %d, %v", got, err)
	}
}

// A skip does not stop where a run only looks for its event again.
func TestSkipWhileARunLooks(t *testing.T) {
	t.Parallel()
	paid := topic.Define[int]("paid")
	order := kagzi.Define[kagzi.ID, int]("order")
	env := kagzitest.New(t)
	env.SetMoves(5)
	kagzi.Handle(env.Worker, order, func(ctx kagzi.Context, id kagzi.ID) (int, error) {
		_, n, err := kagzi.Race(ctx, "either", map[string]func(kagzi.Context) (int, error){
			"paid": func(ctx kagzi.Context) (int, error) {
				e, err := topic.WaitEvent(ctx, "paid", paid, id)
				return e.Payload, err
			},
			"late": func(ctx kagzi.Context) (int, error) {
				return -1, kagzi.Sleep(ctx, "years", 3*365*24*time.Hour)
			},
		})
		return n, err
	})
	run := kagzitest.Start(env, order, "order-7")
	if moved := env.Skip(run.ID()); moved.Round(time.Hour) != 3*365*24*time.Hour {
		t.Errorf("the clock has moved by %v", moved)
	}
	if got, err := kagzitest.Result(env, run); err != nil || got != -1 {
		t.Errorf("got %d, %v", got, err)
	}
}
