package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/store"
)

// The verbs of pauses.

// work draws something that may be paused.
func (w *world) work(t *rapid.T) Work {
	if !w.pauses {
		panic(nothingToDo{})
	}
	return drawn(t, "work", Work{}, Work{Queue: "queue"}, Work{Queue: "queue", Type: "a"}, Work{Type: "b"},
		Work{Type: "b"},
		Work{Key: store.Key{Name: "k"}}, Work{Key: store.Key{Name: "k"}}, Work{Key: store.Key{Name: "g", Group: true}})
}

func (p Work) pause(parks bool) store.Pause {
	out := store.Pause{Queue: p.Queue, Type: p.Type, Key: p.Key, Parks: parks}
	if p.Key.Name != "" && !p.Key.Group {
		out.Queue = "queue"
	}
	return out
}

func (w *world) pausingWork(t *rapid.T) act {
	work, parks := w.work(t), number(t, "parks", 2) == 0
	return changing("pause work", func(s *store.Store) error {
		_, err := s.Pauses.Pause(ctx, nil, work.pause(parks))
		return err
	}, func(m *Model) error {
		m.PauseWork(work, parks)
		return nil
	})
}

func (p Work) compare(q Work) int { return strings.Compare(fmt.Sprint(p), fmt.Sprint(q)) }

// unpausingWork ends a pause.
func (w *world) unpausingWork(t *rapid.T) act {
	work := w.work(t)
	if paused := slices.SortedFunc(maps.Keys(w.Pauses), Work.compare); len(paused) > 0 && number(t, "paused", 4) > 0 {
		work = pick(t, "which", paused)
	}
	return changing("unpause work", func(s *store.Store) error {
		_, err := s.Pauses.Unpause(ctx, nil, work.pause(false))
		return err
	}, func(m *Model) error { return m.UnpauseWork(work) })
}
