package kagzitest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/topic"
)

var Paid = topic.Define[int]("invoice.paid")

// A consumer that sums up the payments, and reports it once a week.
var Weekly = topic.DefineConsumer("weekly", topic.ConsumerConfig{
	Topics:   []topic.AnyTopic{Paid},
	MostWake: 7 * 24 * time.Hour,
})

type week struct{ Ends time.Time }

func weekly(ctx kagzi.Context, last week) (week, error) {
	now := ctx.Now()
	switch {
	case last.Ends.IsZero(): // its first run
		last.Ends = now.Add(7 * 24 * time.Hour)
		return last, topic.WakeAt(ctx, last.Ends)
	case now.Before(last.Ends): // a payment makes it run, too
		return last, topic.WakeAt(ctx, last.Ends)
	}
	payments, err := topic.Peek(ctx, "of the week", Paid, 1000)
	if err != nil {
		return last, err
	}
	sum := 0
	for _, p := range payments {
		sum += p.Payload
	}
	if err := kagzi.Do(ctx, "report", func(context.Context) error { return mail(fmt.Sprint(sum)) }); err != nil {
		return last, err
	}
	if err := topic.Reserve(ctx, "reported", payments...); err != nil {
		return last, err
	}
	last.Ends = last.Ends.Add(7 * 24 * time.Hour)
	return last, topic.WakeAt(ctx, last.Ends)
}

// A test of three weeks. Advance stops at each time that the consumer has asked for.
func ExampleEnv_Publish() {
	t := newExampleT() // the *testing.T of the test
	defer t.end()

	env := kagzitest.New(t)
	topic.Consume(env.Worker, Weekly, weekly)
	kagzitest.MockDo(env, "report", func(context.Context) error { fmt.Println("reported"); return nil })

	env.Advance(time.Hour) // the first week begins
	for range 3 {
		env.Publish(Paid.With(20), Paid.With(22))
		env.Advance(7 * 24 * time.Hour)
	}
	for e := range topic.Events(t.Context(), env.Client, Paid, 0) {
		fmt.Print(e.Payload, " ")
	}
	// Output:
	// reported
	// reported
	// reported
	// 20 22 20 22 20 22
}
