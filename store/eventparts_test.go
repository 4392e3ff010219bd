package store

import (
	"strconv"
	"testing"
	"time"

	"github.com/kagzi/kagzi/internal/dbtest"
)

func rotatePending(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Topics.RotateEvents(t.Context(), 60*time.Hour, 600*time.Hour); err != nil {
		t.Fatal(err)
	}
}

// consumed ends a run of the consumer that consumes the events.
func consumed(t *testing.T, s *Store, consumer, topic string, ids ...string) {
	t.Helper()
	look(t, s)
	r := mustRun(t, s, consumer)
	completes(t, s, r, "", time.Time{}, consumption(peek(t, s, consumer, topic), topic, ids...))
}

// A partition with events that a consumer has not consumed is kept, but not for ever.
func TestRotateEventsKeepsPending(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		f    func(t *testing.T, s *Store)
		kept bool
	}{
		{"NoConsumer", func(*testing.T, *Store) {}, false},
		{"Pending", func(t *testing.T, s *Store) { subscribe(t, s, consumerOf("c", "a")) }, true},
		{"OfAnotherTopic", func(t *testing.T, s *Store) { subscribe(t, s, consumerOf("c", "b")) }, false},
		{"Consumed", func(t *testing.T, s *Store) {
			subscribe(t, s, consumerOf("c", "a"))
			consumed(t, s, "c", "a", "1", "2", "3")
		}, false},
		{"OneOfTwo", func(t *testing.T, s *Store) {
			subscribe(t, s, consumerOf("c", "a"), consumerOf("d", "a"))
			for _, r := range due(t, s, "c", "d") {
				if r.Type == "c" {
					completes(t, s, r, "", time.Time{}, consumption(peek(t, s, "c", "a"), "a", "1", "2", "3"))
				}
			}
		}, true},
		{"Hole", func(t *testing.T, s *Store) {
			subscribe(t, s, consumerOf("c", "a"))
			consumed(t, s, "c", "a", "1", "3")
		}, true},
		{"ConsumedBehindAHole", func(t *testing.T, s *Store) {
			subscribe(t, s, consumerOf("c", "a"))
			consumed(t, s, "c", "a", "2", "3")
			// as if with an older partition
			exec(t, s.pool, `DELETE FROM kagzi.events WHERE namespace_id = 'test' AND event_id = '1'`)
		}, false},
		{"Skipped", func(t *testing.T, s *Store) {
			subscribe(t, s, consumerOf("c", "a"))
			consumed(t, s, "c", "a", "1", "3")
			skip(t, s, "c", "a", "2")
		}, false},
		{"PendingElsewhere", func(t *testing.T, s *Store) {
			subscribe(t, s, consumerOf("c", "a"))
			consumed(t, s, "c", "a", "1", "2", "3")
			publishes(t, s, named("a", "4")...) // in the open partition
		}, false},
		{"Deleted", func(t *testing.T, s *Store) {
			subscribe(t, s, consumerOf("c", "a"))
			if err := s.Consumers.Delete(t.Context(), nil, "c", Why{}); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"Unsubscribed", func(t *testing.T, s *Store) {
			subscribe(t, s, consumerOf("c", "a"))
			subscribe(t, s, consumerOf("c", "b"))
		}, false},
		{"Latest", func(t *testing.T, s *Store) {
			c := consumerOf("c", "a")
			c.Latest = true
			subscribe(t, s, c)
		}, false},
		{"TooOld", func(t *testing.T, s *Store) {
			subscribe(t, s, consumerOf("c", "a"))
			ageEvents(t, s, 540)
		}, false},
		{"OfAnotherNamespace", func(t *testing.T, s *Store) {
			other := New(s.pool, "other")
			subscribe(t, other, consumerOf("c", "a"))
			if err := other.Topics.RotateEvents(t.Context(), time.Hour, 100*time.Hour); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"OfAnotherNamespaceThatKeepsForLess", func(t *testing.T, s *Store) {
			other := New(s.pool, "other")
			subscribe(t, other, consumerOf("c", "a"))
			if err := other.Topics.RotateEvents(t.Context(), time.Hour, 2*time.Hour); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"OfADeadNamespace", func(t *testing.T, s *Store) {
			other := New(s.pool, "other")
			subscribe(t, other, consumerOf("c", "a"))
			if err := other.Topics.RotateEvents(t.Context(), time.Hour, 100*time.Hour); err != nil {
				t.Fatal(err)
			}
			exec(t, s.pool, `UPDATE kagzi.event_keepers SET told_at = now() - interval '31 days'
				WHERE keeper = 'other'`)
		}, false},
	} {
		check := func(t *testing.T, s *Store) {
			t.Parallel()
			rotatePending(t, s)
			publishes(t, s, named("a", "1", "2", "3")...)
			publishes(t, New(s.pool, "other"), named("a", "1")...)
			ageEvents(t, s, 11)
			rotatePending(t, s)
			tt.f(t, s)
			ageEvents(t, s, 61)
			rotatePending(t, s)
			if kept := one[int](t, s.pool, `SELECT count(*) FROM kagzi.events WHERE part = 0`) > 0; kept != tt.kept {
				t.Errorf("kept: %t, want %t", kept, tt.kept)
			}
		}
		t.Run(tt.name, func(t *testing.T) { check(t, open(t)) })
		t.Run(tt.name+"OnCitus", func(t *testing.T) {
			check(t, New(poolWith(t, dbtest.Database(t).DSN, dbtest.LooksLikeCitus), "test"))
		})
	}
}

// While pending events are kept, the partitions last for their time. Later ones without pending events leave.
func TestRotateEventsWhilePending(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	rotatePending(t, s)
	oldest := func() int {
		return one[int](t, s.pool, `SELECT coalesce(min(event_id::int), -1) FROM kagzi.events WHERE topic = 'a'`)
	}
	for hour := 0; hour < 3000; hour += 50 {
		publishes(t, s, named("a", strconv.Itoa(hour))...)
		ageEvents(t, s, 50)
		rotatePending(t, s)
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.event_parts WHERE closed_at IS NULL`); n != 1 {
			t.Fatalf("%d partitions are open", n)
		}
		if old := oldest(); old > max(0, hour-550) || hour > 1500 && old < hour-800 {
			t.Errorf("hour %d: the oldest event is of hour %d", hour, old)
		}
	}
	// Once all is consumed, the others are as old as events become otherwise.
	var ids []string
	for _, e := range peek(t, s, "c", "a").Events {
		ids = append(ids, e.ID)
	}
	consumed(t, s, "c", "a", ids...)
	rotatePending(t, s)
	if old := oldest(); old < 3000-50-60-100 {
		t.Errorf("the oldest event is of hour %d", old)
	}
}
