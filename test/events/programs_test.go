package events_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

func TestAwait(t *testing.T) {
	t.Run("Published", func(t *testing.T) {
		k := kit.New(t)
		publish(k, paid.With(7).WithID("order-7"))
		e, err := topic.Await(k.Ctx, k.Client, paid, "order-7")
		if err != nil || e.Payload != 7 || e.ID != "order-7" || e.Position == 0 {
			t.Errorf("got %+v, %v", e, err)
		}
	})
	t.Run("PublishedByAnother", func(t *testing.T) {
		k := kit.New(t)
		got := make(chan int, 1)
		go func() {
			e, err := topic.Await(k.Ctx, k.Client, paid, "order-7")
			if err != nil {
				t.Error(err)
			}
			got <- e.Payload
		}()
		if err := topic.New(kit.NewClient(t, k.Pool)).Publish(k.Ctx, paid.With(7).WithID("order-7")); err != nil {
			t.Fatal(err)
		}
		if n := await.Receive(t, got); n != 7 {
			t.Errorf("got %d", n)
		}
	})
	t.Run("UntilCtxEnds", func(t *testing.T) {
		k := kit.New(t)
		ctx, cancel := context.WithTimeout(k.Ctx, 20*time.Millisecond)
		defer cancel()
		if _, err := topic.Await(ctx, k.Client, paid, "order-7"); !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), `wait for event "order-7" of paid`) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("WrongCalls", func(t *testing.T) {
		k := kit.New(t)
		_, err := topic.Await(k.Ctx, k.Client, paid, "")
		kit.MustContain(t, err, "the event's ID is empty")
		if _, err := topic.Await(k.Ctx, nil, paid, "a"); err == nil {
			t.Error("without a client: no error")
		}
	})
}

// A follower gets what was published before and what comes later, each once and in order, also what does not decode.
func TestFollow(t *testing.T) {
	k := kit.New(t)
	publish(k, paid.With(1))
	ctx, stop := context.WithCancel(k.Ctx)
	got := make(chan int)
	ended := make(chan error, 1)
	go func() {
		for e, err := range topic.Follow(ctx, k.Client, paid, 0) {
			if err != nil && e.Position == 0 {
				ended <- err
				return
			}
			if err != nil {
				e.Payload = -1
			}
			got <- e.Payload
		}
		ended <- nil
	}()
	for i, p := range []func(){
		func() {},
		func() { publish(k, paid.With(2)) },
		func() {
			tx := k.CallersTx()
			publish(k, paid.With(3), kagzi.InTx(tx))
			kit.CommitTx(t, tx)
		},
		func() { publish(k, topic.Define[string]("paid").With("four")) },
		func() {
			if err := topic.New(kit.NewClient(t, k.Pool)).Publish(k.Ctx, paid.With(5)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		p()
		want := i + 1
		if i == 3 {
			want = -1
		}
		if n := await.Receive(t, got); n != want {
			t.Errorf("event %d is %d", i, n)
		}
	}
	stop()
	if err := await.Receive(t, ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	for _, err := range topic.Follow(k.Ctx, nil, paid, 0) {
		if err == nil {
			t.Error("without a client: no error")
		}
	}
	for e, err := range topic.Follow(k.Ctx, k.Client, paid, 0) {
		if e.Payload != 1 || err != nil {
			t.Errorf("from the beginning: %+v, %v", e, err)
		}
		break
	}
}

var (
	ship    = kagzi.Define[int, int]("ship")
	shipper = topic.DefineConsumer("shipper", topic.ConsumerConfig{Topics: []topic.AnyTopic{paid}})
)

// StartOn starts a run for each event, once, whatever becomes of the workers.
func TestStartOn(t *testing.T) {
	t.Run("EachEventOnce", func(t *testing.T) {
		k := kit.New(t)
		var shipped atomic.Int64
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
		topic.StartOn(w, shipper, paid, ship)
		kagzi.Handle(w, ship, func(ctx kagzi.Context, n int) (int, error) {
			shipped.Add(1)
			return n, nil
		})
		kit.StartWorker(t, w)
		const many = 250 // more than one run of the consumer starts
		events := make([]topic.NewEvent, many)
		for i := range events {
			events[i] = paid.With(i)
		}
		publish(k, paid.With(7).WithID("order-7"))
		if err := topic.New(k.Client).PublishMany(k.Ctx, events); err != nil {
			t.Fatal(err)
		}
		await.True(t, "all events have their runs", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'ship'
				AND status = 'COMPLETED'`) == many+1
		})
		if got := kit.ResultOf(k, kit.Find(t, k.Client, ship, kagzi.ID("shipper/order-7"))); got != 7 {
			t.Errorf("got %d", got)
		}
		publish(k, paid.With(8).WithID("order-7")) // the topic has it
		publish(k, paid.With(9).WithID("order-9"))
		kit.ResultOf(k, kit.Find(t, k.Client, ship, awaitRun(k, "shipper/order-9")))
		if n := k.Count(`SELECT count(DISTINCT external_id) FROM kagzi.workflow_runs
			WHERE workflow_type = 'ship'`); n != many+2 {
			t.Errorf("%d IDs", n)
		}
		if n := shipped.Load(); n != many+2 {
			t.Errorf("%d runs", n)
		}
	})
	// Two consumers of a topic start a run each, also beside a run that has the event's ID.
	t.Run("TwoConsumers", func(t *testing.T) {
		k := kit.New(t)
		kit.Begin(k, ship, 1, kagzi.ID("order-7"), kagzi.Queue("other"))
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
		bill := kagzi.Define[int, int]("bill")
		topic.StartOn(w, shipper, paid, ship)
		biller := topic.DefineConsumer("biller", topic.ConsumerConfig{Topics: []topic.AnyTopic{paid}})
		topic.StartOn(w, biller, paid, bill)
		kagzi.Handle(w, ship, func(_ kagzi.Context, n int) (int, error) { return n, nil })
		kagzi.Handle(w, bill, func(_ kagzi.Context, n int) (int, error) { return -n, nil })
		kit.StartWorker(t, w)
		publish(k, paid.With(7).WithID("order-7"))
		if got := kit.ResultOf(k, kit.Find(t, k.Client, ship, awaitRun(k, "shipper/order-7"))); got != 7 {
			t.Errorf("shipped %d", got)
		}
		if got := kit.ResultOf(k, kit.Find(t, k.Client, bill, awaitRun(k, "biller/order-7"))); got != -7 {
			t.Errorf("billed %d", got)
		}
	})
}

// A consumer of other topics cannot start runs for this one: its other events would stay.
func TestStartOnOfOtherTopics(t *testing.T) {
	k := kit.New(t)
	refunded := topic.Define[int]("refunded")
	for _, topics := range [][]topic.AnyTopic{{refunded}, {paid, refunded}, nil} {
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
		topic.StartOn(w, topic.DefineConsumer("shipper", topic.ConsumerConfig{Topics: topics}), paid, ship)
		kit.MustContain(t, w.Run(k.Ctx), `StartOn is for topic "paid"`, `consumer "shipper" has the topics`)
	}
}

func TestStartOnWithAnID(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	shipper := topic.DefineConsumer("shipper", topic.ConsumerConfig{Topics: []topic.AnyTopic{paid}})
	topic.StartOn(w, shipper, paid, ship, kagzi.ID("mine"))
	kit.MustContain(t, w.Run(k.Ctx), `StartOn of consumer "shipper" takes no ID`)
}

// awaitRun waits until a run has the ID.
func awaitRun(k *kit.Kit, id kagzi.ID) kagzi.ID {
	await.True(k.T, "there is a run", func() bool {
		_, err := k.Client.Get(k.Ctx, id)
		return err == nil
	})
	return id
}
