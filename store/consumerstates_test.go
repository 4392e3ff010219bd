package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/pg"
)

func skip(t *testing.T, s *Store, consumer, topic, id string) {
	t.Helper()
	if err := s.Consumers.SkipEvent(t.Context(), nil, consumer, topic, id, Why{}); err != nil {
		t.Fatal(err)
	}
}

// Whatever is skipped and consumed, in whatever order: that is gone, and the rest is there, in few ranges.
func TestSkipEvent(t *testing.T) {
	t.Parallel()
	s := open(t)
	rotateEvents(t, s)
	subscribe(t, s, consumerOf("c", "a"), consumerOf("d", "a"))
	pending := strings.Split("0123456789", "")
	for i, id := range pending {
		publishes(t, s, named("a", id)...)
		publishes(t, s, named("b", id)...) // positions in between
		if i == 5 {
			ageEvents(t, s, 11)
			rotateEvents(t, s)
		}
	}
	check := func(what string, ranges int) {
		t.Helper()
		if got := eventIDs(peek(t, s, "c", "a")); !slices.Equal(got, pending) {
			t.Errorf("%s: pending %v, want %v", what, got, pending)
		}
		if n := one[int](t, s.pool, `SELECT (SELECT count(*) FROM unnest(consumed)) FROM kagzi.subscriptions
			WHERE consumer = 'c'`); n != ranges {
			t.Errorf("%s: %d ranges, want %d", what, n, ranges)
		}
	}
	gone := func(ids ...string) {
		pending = slices.DeleteFunc(pending, func(id string) bool { return slices.Contains(ids, id) })
	}
	for _, step := range []struct {
		id     string
		ranges int
	}{{"3", 1}, {"5", 2}, {"4", 1}, {"4", 1}, {"0", 1}, {"9", 2}, {"1", 2}, {"2", 1}, {"0", 1}, {"3", 1}} {
		skip(t, s, "c", "a", step.id)
		gone(step.id)
		check("after "+step.id, step.ranges)
	}
	// A run that had seen them all before.
	r := due(t, s, "c")[0]
	p := peek(t, s, "c", "a")
	skip(t, s, "c", "a", "7")
	completes(t, s, r, "", time.Time{}, consumption(p, "a", "6", "7"))
	gone("6", "7")
	check("after the run", 1)
	skip(t, s, "c", "a", "8")
	gone("8")
	check("after all", 0)
	if got := eventIDs(peek(t, s, "d", "a")); len(got) != 10 {
		t.Errorf("the other consumer has %v", got)
	}

	for want, err := range map[error]error{
		ErrNoConsumer: s.Consumers.SkipEvent(t.Context(), nil, "x", "a", "1", Why{}),
		ErrNoEvent:    s.Consumers.SkipEvent(t.Context(), nil, "d", "a", "x", Why{}),
	} {
		if !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	if err := s.Consumers.SkipEvent(t.Context(), nil, "d", "b", "1", Why{}); !errors.Is(err, ErrNoConsumer) {
		t.Errorf("got %v for a topic that the consumer has not", err)
	}
	other := New(s.pool, "other")
	if err := other.Consumers.SkipEvent(t.Context(), nil, "d", "a", "1", Why{}); !errors.Is(err, ErrNoConsumer) {
		t.Errorf("got %v in another namespace", err)
	}
}

// Behind a publisher who has not committed, an event is skipped alone: what it commits stays.
func TestSkipEventBehindAPublisher(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	tx := begin(t, s)
	publishIn(t, s, tx, named("a", "first")...)
	publishes(t, s, named("a", "second")...)
	skip(t, s, "c", "a", "second")
	commit(t, tx)
	if got := eventIDs(peek(t, s, "c", "a")); !slices.Equal(got, []string{"first"}) {
		t.Errorf("pending %v", got)
	}
	skip(t, s, "c", "a", "first")
	if n := one[int](t, s.pool, `SELECT (SELECT count(*) FROM unnest(consumed)) FROM kagzi.subscriptions`); n != 0 {
		t.Errorf("%d ranges are left", n)
	}
}

// A skip and the end of a run wait for each other, in both orders, and nothing is lost.
func TestSkipEventRacesWithARun(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"skip", "run"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			subscribe(t, s, consumerOf("c", "a"))
			publishes(t, s, named("a", "1", "2", "3", "4")...)
			r := mustRun(t, s, "c")
			p := peek(t, s, "c", "a")
			e := finish(r)
			e.Consumed = &Consumed{Consumer: "c", Topics: []ConsumedTopic{consumption(p, "a", "1", "3")}}
			tx := begin(t, s)
			second := func(ctx context.Context) (err error) {
				for err = errors.New("not tried"); err != nil && ctx.Err() == nil; { // it waits only briefly
					if err = s.Records.Flush(ctx, &Flush{Finishes: []*Finish{e}}); !pg.Locked(err) &&
						e.Outcome != Busy {
						return err
					}
					err = cmp.Or(err, errors.New("busy"))
				}
				return err
			}
			if first == "skip" {
				if err := s.Consumers.SkipEvent(t.Context(), tx, "c", "a", "2", Why{}); err != nil {
					t.Fatal(err)
				}
			} else {
				exec(t, tx, `UPDATE kagzi.subscriptions s SET `+consumeRanges+
					` FROM (SELECT $1::int8multirange AS ranges) done`, multirange(e.Consumed.Topics[0].Ranges))
				second = func(ctx context.Context) error {
					return s.Consumers.SkipEvent(ctx, nil, "c", "a", "2", Why{})
				}
			}
			meetsLock(t, s, func(ctx context.Context) {
				if err := second(ctx); err != nil {
					t.Error(err)
				}
			}, func() { commit(t, tx) })
			if got := eventIDs(peek(t, s, "c", "a")); !slices.Equal(got, []string{"4"}) {
				t.Errorf("pending %v, want the last", got)
			}
		})
	}
}
