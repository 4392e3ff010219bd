package operations_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testhook"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

var numbers = topic.Define[int]("numbers")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventsOf returns the payloads of the topic's events.
func eventsOf[T any](k *kit.Kit, about topic.Topic[T], after int64) (all []T) {
	for e, err := range topic.Events(k.Ctx, k.Client, about, after) {
		if err != nil {
			k.T.Fatal(err)
		}
		all = append(all, e.Payload)
	}
	return all
}

func TestPublishedEventsAreRead(t *testing.T) {
	k := kit.New(t)
	var many []topic.NewEvent
	for i := range 1200 {
		many = append(many, numbers.With(i))
	}
	must(t, topic.New(k.Client).PublishMany(k.Ctx, many))
	must(t, topic.New(k.Client).PublishMany(k.Ctx, nil))
	for i, n := range eventsOf(k, numbers, 0) {
		if n != i {
			t.Fatalf("event %d is %d", i, n)
		}
	}
	for e, err := range topic.Events(k.Ctx, k.Client, numbers, 0) {
		if err != nil || e.ID == "" || e.PublishedAt.IsZero() || e.Position < 1 {
			t.Errorf("%+v, %v", e, err)
		}
		if rest := eventsOf(k, numbers, e.Position); len(rest) != 1199 {
			t.Errorf("%d behind the first", len(rest))
		}
		break
	}
}

func TestBadEventsAreRefused(t *testing.T) {
	k := kit.NewWith(t, kagzi.ClientConfig{MaxPayload: 100})
	long := strings.Repeat("x", 256)
	for want, e := range map[string]topic.NewEvent{
		"the NewEvent is empty: make one with Topic.With": {},
		"topic is empty":               topic.Define[int]("").With(1),
		"topic \"xxx":                  topic.Define[int](long).With(1),
		"the event's ID is empty":      numbers.With(1).WithID(""),
		"event ID \"a\\nb\" contains":  numbers.With(1).WithID("a\nb"),
		"title of an event \"xxx":      numbers.With(1).Title(long),
		"payload too large":            topic.Define[string]("t").With(long),
		"a chan int cannot be encoded": topic.Define[chan int]("t").With(nil),
	} {
		if err := topic.New(k.Client).Publish(k.Ctx, e); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "kagzi: ") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	err := topic.New(k.Client).PublishMany(k.Ctx, []topic.NewEvent{numbers.With(1), {}})
	kit.MustContain(t, err, "publish 2 events", "event 1", "the NewEvent is empty")
	var many []topic.NewEvent
	for i := range 1001 {
		many = append(many, topic.Define[int](fmt.Sprint("topic ", i)).With(i))
	}
	must(t, topic.New(k.Client).PublishMany(k.Ctx, many[1:]))
	kit.MustContain(t, topic.New(k.Client).PublishMany(k.Ctx, many), "of more than 1000 topics", "make several calls")
	dbtest.Exec(t, k.Pool, `DELETE FROM kagzi.events`)
	if err := topic.New(k.Client).Publish(k.Ctx, numbers.With(1), kagzi.Reason("x")); err == nil {
		t.Error("an option of other calls was accepted")
	}
	for _, err := range topic.Events(k.Ctx, k.Client, topic.Define[int](""), 0) {
		kit.MustContain(t, err, "topic is empty")
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.events`); n != 0 {
		t.Errorf("%d events were stored", n)
	}
}

// An event of another type comes with an error, and the reader may go on behind it.
func TestEventThatDoesNotDecode(t *testing.T) {
	k := kit.New(t)
	words := topic.Define[json.RawMessage]("numbers")
	for i, raw := range []string{`1`, `"two"`, `3`} {
		must(t, topic.New(k.Client).Publish(k.Ctx, words.With(json.RawMessage(raw)).WithID(kagzi.ID(fmt.Sprint(i)))))
	}
	var got []string
	for e, err := range topic.Events(k.Ctx, k.Client, numbers, 0) {
		got = append(got, fmt.Sprint(e.Payload, err != nil))
		if err != nil {
			kit.MustContain(t, err, `event "1" of topic "numbers" does not decode into int`)
			if !strings.HasPrefix(err.Error(), "kagzi: event ") {
				t.Errorf("the prefix is not there once: %v", err)
			}
			if rest := eventsOf(k, numbers, e.Position); len(rest) != 1 {
				t.Errorf("%d events behind it", len(rest))
			}
		}
	}
	if want := "[1 false 0 true 3 false]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestPublishMeetsAnOpenTransaction(t *testing.T) {
	k := kit.New(t)
	tx, err := k.Pool.Begin(k.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(1).WithID("one"), kagzi.InTx(tx)))
	other, err := k.Pool.Begin(k.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback(context.Background()) }()
	if _, err := other.Exec(k.Ctx, `SET LOCAL lock_timeout = '10ms'`); err != nil {
		t.Fatal(err)
	}
	err = topic.New(k.Client).Publish(k.Ctx, numbers.With(2).WithID("one"), kagzi.InTx(other))
	kit.MustContain(t, err, "one of the event IDs is held by another transaction", "nothing was published")

	strict, err := k.Pool.BeginTx(k.Ctx, pgx.TxOptions{IsoLevel: pgx.Serializable})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = strict.Rollback(context.Background()) }()
	if err := topic.New(k.Client).Publish(k.Ctx, numbers.With(3),
		kagzi.InTx(strict)); kagzi.KindOf(err) != kind.BadRequest {
		t.Errorf("in a stricter transaction: %v", err)
	}
}

// A coordinator removes old events, and a publisher that takes long only delays it.
func TestCoordinatorRemovesOldEvents(t *testing.T) {
	k := kit.New(t)
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(1)))
	co := kit.NewCoordinator(t, k.Client, kagzi.CoordinatorConfig{KeepEvents: time.Hour})
	pass := func() {
		hooks := &testhook.Hooks{Passes: func(p testhook.Passes) {
			if _, err := p.(interface {
				RotateEvents(ctx context.Context) (time.Duration, error)
			}).RotateEvents(k.Ctx); err != nil {
				t.Error(err)
			}
		}}
		must(t, co.Run(testhook.With(k.Ctx, hooks)))
	}
	older := func() {
		dbtest.Exec(t, k.Pool, `UPDATE kagzi.event_parts SET opened_at = opened_at - interval '1 hour',
			closed_at = closed_at - interval '1 hour'`)
	}
	pass()
	older()
	tx, err := k.Pool.Begin(k.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(2), kagzi.InTx(tx)))
	pass()
	if n := k.Count(`SELECT count(*) FROM kagzi.event_parts`); n != 1 {
		t.Errorf("%d partitions: one was opened while somebody published", n)
	}
	must(t, tx.Commit(k.Ctx))
	pass()
	must(t, topic.New(k.Client).Publish(k.Ctx, numbers.With(3)))
	older()
	pass()
	if got := eventsOf(k, numbers, 0); fmt.Sprint(got) != "[3]" {
		t.Errorf("the topic has %v, want the event of the last hour", got)
	}
}
