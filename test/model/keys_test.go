package model

import (
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/store"
)

// The verbs of limits.

// tokenInterval is the time between two tokens of each rate: so long that only the test lets it pass.
const tokenInterval = 100 * time.Hour

func rate(burst int) store.Rate {
	if burst == 0 {
		return store.Rate{}
	}
	return store.Rate{Interval: tokenInterval, Burst: burst}
}

// limitingQueue sets the limits of the queue.
func (w *world) limitingQueue(t *rapid.T) act {
	if !w.keys {
		panic(nothingToDo{})
	}
	q := Queue{
		Max: drawn(t, "max", 0, 0, 0, 2, 3), Burst: drawn(t, "burst", 0, 0, 0, 2),
		KeyMax:   drawn(t, "key's max", 0, 1, 1, 2),
		KeyBurst: drawn(t, "key's burst", 0, 0, 0, 1, 2), Held: number(t, "held", 2) == 0,
	}
	return changing("limit the queue", func(s *store.Store) error {
		return s.Limits.SetQueue(ctx, store.QueueLimits{
			Queue: "queue", MaxRunning: q.Max, Rate: rate(q.Burst), EachKey: store.KeyLimits{
				MaxRunning: q.KeyMax,
				Rate:       rate(q.KeyBurst),
			}, Held: q.Held,
		}, store.Why{})
	}, func(m *Model) error {
		m.SetQueue(q)
		return nil
	})
}

// limitingKey sets the limits of a key.
func (w *world) limitingKey(t *rapid.T) act {
	if !w.keys {
		panic(nothingToDo{})
	}
	k, l := store.Key{Name: drawn(t, "key", "k", "l")},
		KeyLimit{Max: drawn(t, "max", 0, 1, 2), Burst: drawn(t, "burst", 0, 0, 1, 2)}
	return changing("limit a key", func(s *store.Store) error {
		return s.Limits.SetKey(ctx, "queue", k.Name, store.KeyLimits{MaxRunning: l.Max, Rate: rate(l.Burst)},
			store.Why{})
	}, func(m *Model) error {
		m.SetKey(k, l)
		return nil
	})
}

// interval lets the time between two tokens pass.
func (w *world) interval(t *rapid.T) {
	if !w.keys {
		panic(nothingToDo{})
	}
	w.exec(t, `UPDATE kagzi.queues SET rate_at = rate_at - $1::interval`, tokenInterval)
	w.exec(t, `UPDATE kagzi.run_keys SET rate_at = rate_at - $1::interval,
		available_at = CASE WHEN available_at > now() AND available_at < 'infinity' THEN now()
			ELSE available_at END`, tokenInterval)
	w.Interval()
}

// limits describes what the tables have of limits, for the log of a failure.
func (w *world) limits(t *rapid.T) (text string) {
	for _, table := range []string{"queues", "run_keys", "key_changes"} {
		rows, _ := w.pool.Query(ctx, `SELECT to_json(x)::text FROM kagzi.`+table+` x`)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			text += "\n\t" + table + " " + l
		}
	}
	return text
}
