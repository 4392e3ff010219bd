package operations_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/topic"
)

// The only consumer.
func theConsumer(k *kit.Kit) admin.ConsumerInfo {
	k.T.Helper()
	all, err := admin.New(k.Client).Consumers.List(k.Ctx)
	if err != nil || len(all) != 1 {
		k.T.Fatalf("consumers %+v, %v", all, err)
	}
	return all[0]
}

// What a consumer reserves, consumes and returns is told while it runs, and after.
func TestConsumers(t *testing.T) {
	k := kit.New(t)
	c := topic.DefineConsumer("c",
		topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers, topic.Define[string]("others")}, Group: "g"})
	for i := range 5 {
		must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(i)))
	}
	begun, goOn := make(chan bool), make(chan bool)
	serveConsumer(k, c, func(ctx kagzi.Context, last map[string]int) (map[string]int, error) {
		events, err := topic.Peek(ctx, "new", numbers, 10)
		if err != nil {
			return last, err
		}
		if err := topic.Reserve(ctx, "two", events[:2]...); err != nil {
			return last, err
		}
		return map[string]int{"seen": len(events)}, kagzi.Do(ctx, "wait", func(context.Context) error {
			begun <- true
			await.Opened(t, goOn)
			return nil
		})
	})
	await.Receive(t, begun)
	info := theConsumer(k)
	if info.Name != "c" || info.Group != "g" || info.Queue != "default" || info.RunStatus != kagzi.StatusRunning ||
		info.Run == "" || info.State != nil || info.CreatedAt.IsZero() || info.Pause != (admin.Pause{}) {
		t.Errorf("%+v", info)
	}
	want := []admin.ConsumerTopic{
		{Topic: "numbers", Pending: 5, Reserved: 2, Oldest: info.Topics[0].Oldest},
		{Topic: "others"},
	}
	if len(info.Topics) != 2 || info.Topics[0] != want[0] || info.Topics[1] != want[1] ||
		time.Since(info.Topics[0].Oldest) > time.Hour {
		t.Errorf("topics %+v, want %+v", info.Topics, want)
	}
	topics, err := admin.New(k.Client).Topics.List(k.Ctx)
	if err != nil || len(topics) != 2 || topics[0].Name != "numbers" || topics[0].Events != 5 || topics[0].More ||
		topics[0].Newest.IsZero() || fmt.Sprint(topics[0].Subscribers) != "[c]" || topics[1].Events != 0 {
		t.Errorf("topics %+v, %v", topics, err)
	}
	must(t, admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Queue: "default"}, kagzi.Reason("holiday"),
		kagzi.Actor("ada")))
	close(goOn)
	await.True(t, "the run has ended", func() bool { return theConsumer(k).RunStatus == kagzi.StatusCompleted })
	info = theConsumer(k)
	if string(info.State) != `{"seen":5}` || info.RunEnded.IsZero() || info.Topics[0].Pending != 3 ||
		info.Topics[0].Reserved != 0 {
		t.Errorf("%+v", info)
	}
	if p := info.Pause; p.Target != (admin.Target{Queue: "default"}) || p.Reason != "holiday" || p.Actor != "ada" ||
		p.Since.IsZero() {
		t.Errorf("pause %+v", p)
	}
}

// A person skips the event at which each run fails, and the consumer goes on behind it.
func TestSkip(t *testing.T) {
	k := kit.New(t)
	c := topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}})
	for i := range 3 {
		must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(i).WithID(kagzi.ID(fmt.Sprint("event-", i)))))
	}
	done := make(chan int, 2)
	serveConsumer(k, c, func(ctx kagzi.Context, last int) (int, error) {
		events, err := topic.Peek(ctx, "new", numbers, 1)
		if err != nil || len(events) == 0 {
			return last, err
		}
		if events[0].Payload == 1 {
			return last, errors.New("one is bad")
		}
		done <- events[0].Payload
		return events[0].Payload, topic.Reserve(ctx, "it", events...)
	})
	await.Receive(t, done)
	await.True(t, "the consumer is paused", func() bool { return theConsumer(k).Pause != (admin.Pause{}) })
	info := theConsumer(k)
	if info.Pause.Group != c.Group() || !strings.Contains(info.Pause.Reason, string(info.Run)) ||
		info.RunStatus != kagzi.StatusFailed {
		t.Errorf("%+v", info)
	}
	// Health names the run that failed, and says what to do.
	report, err := admin.New(k.Client).Health(k.Ctx)
	if detail := report.Check("pauses").Detail; err != nil || !strings.Contains(detail, "run "+string(info.Run)+
		" of consumer c failed") || !strings.Contains(detail, "An unpause ends it.") {
		t.Errorf("health: %q, %v", detail, err)
	}
	for range 2 {
		must(t, admin.New(k.Client).Consumers.Skip(k.Ctx, c, numbers, "event-1"))
	}
	if got := theConsumer(k).Topics[0].Pending; got != 1 {
		t.Errorf("%d events are pending, want one", got)
	}
	must(t, admin.New(k.Client).Pauses.End(k.Ctx, info.Pause.Target))
	if got := await.Receive(t, done); got != 2 {
		t.Errorf("went on with %d", got)
	}
	other := topic.DefineConsumer("other", topic.ConsumerConfig{})
	for what, err := range map[string]error{
		"consumer not found": admin.New(k.Client).Consumers.Skip(k.Ctx, other, numbers, "event-1"),
		"event not found":    admin.New(k.Client).Consumers.Skip(k.Ctx, c, numbers, "event-3"),
	} {
		if !errors.Is(err, kagzi.ErrNotFound) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
	for what, err := range map[string]error{
		"the topic is nil":  admin.New(k.Client).Consumers.Skip(k.Ctx, c, nil, "event-1"),
		"event ID is empty": admin.New(k.Client).Consumers.Skip(k.Ctx, c, numbers, ""),
		"topic is empty":    admin.New(k.Client).Consumers.Skip(k.Ctx, c, topic.Topic[int]{}, "event-1"),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %s", err, what)
		}
	}
}

// A coordinator keeps the events that a consumer has not consumed, for as long as it is told.
func TestCoordinatorKeepsPendingEvents(t *testing.T) {
	k := kit.New(t)
	c := topic.DefineConsumer("c", topic.ConsumerConfig{Topics: []topic.AnyTopic{numbers}})
	ran := make(chan bool, 10)
	stop := serveConsumer(k, c, func(ctx kagzi.Context, _ int) (int, error) {
		ran <- true
		return 0, nil
	})
	await.Receive(t, ran)
	must(t, stop())
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(1)))
	pass := func(pending time.Duration) {
		co := kit.NewCoordinator(t, k.Client, kagzi.CoordinatorConfig{
			KeepEvents:        time.Hour,
			KeepPendingEvents: pending,
		})
		hooks := &testhook.Hooks{Passes: func(p testhook.Passes) {
			if _, err := p.(interface {
				RotateEvents(ctx context.Context) (time.Duration, error)
			}).RotateEvents(k.Ctx); err != nil {
				t.Error(err)
			}
		}}
		must(t, co.Run(testhook.With(k.Ctx, hooks)))
	}
	dbtest.Exec(t, k.Pool, `DELETE FROM kagzi.event_parts`)
	dbtest.Exec(t, k.Pool, `INSERT INTO kagzi.event_parts (part, opened_at, closed_at)
		VALUES (0, now() - interval '4 hours', now() - interval '3 hours'), (1, now(), NULL)`)
	for _, pending := range []time.Duration{0, 4 * time.Hour} {
		if pass(pending); len(eventsOf(k, numbers, 0)) != 1 {
			t.Errorf("KeepPendingEvents %v: the event is gone", pending)
		}
	}
	if pass(2 * time.Hour); len(eventsOf(k, numbers, 0)) != 0 {
		t.Error("the event is still there")
	}
}
