package model

import (
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/store"
)

// The verbs of people and other runs, which know no lease.

// signalling sends a message, or repeats an earlier one.
func (w *world) signalling(t *rapid.T) act {
	m := store.Message{RunID: w.run(t), Name: "name", ID: w.name("message"), Payload: []byte("payload")}
	w.signals = append(w.signals, m)
	return sending(m)
}

func (w *world) signalAgain(t *rapid.T) {
	if len(w.signals) == 0 {
		panic(nothingToDo{})
	}
	w.do(t, sending(pick(t, "message", w.signals)))
}

func sending(m store.Message) act {
	return changing("signal", func(s *store.Store) error {
		_, err := s.Messages.Send(ctx, nil, m)
		return err
	}, func(model *Model) error { return model.Signal(m.RunID, m.ID) })
}

// changing is an act that answers with an error or nothing.
func changing(name string, send func(*store.Store) error, apply func(*Model) error) act {
	return act{
		name:  name,
		send:  func(s *store.Store) (string, error) { return "", send(s) },
		apply: func(m *Model) (string, error) { return "", apply(m) },
	}
}

func (w *world) cancelling(t *rapid.T) act {
	id := w.run(t)
	return changing("cancel", func(s *store.Store) error {
		_, err := s.Runs.Cancel(ctx, nil, id, store.Why{}, far)
		return err
	}, func(m *Model) error { return m.Cancel(id, false) })
}

func (w *world) terminating(t *rapid.T) act {
	id := w.run(t)
	return changing("terminate", func(s *store.Store) error {
		_, err := s.Runs.Terminate(ctx, nil, id, store.Why{})
		return err
	}, func(m *Model) error { return m.Cancel(id, true) })
}

// resuming resumes a run, but not a child whose parent is over, or may end at the same time: an invariant forbids
// active children of a run that is over.
func (w *world) resuming(t *rapid.T) act {
	id := w.run(t)
	if r := w.Runs[id]; r != nil {
		if p := w.Runs[r.Parent]; p != nil && !r.Detached && (w.focus != nil || !p.Active()) {
			panic(nothingToDo{})
		}
	}
	return changing("resume", func(s *store.Store) error {
		_, err := s.Runs.Resume(ctx, nil, id, store.Why{})
		return err
	}, func(m *Model) error { return m.Resume(id) })
}

func (w *world) restarting(t *rapid.T) act { return w.restartingAt(t, "") }
func (w *world) forking(t *rapid.T) act {
	return w.restartingAt(t, drawn(t, "step", "one", "two", "nap", "missing"))
}

func (w *world) restartingAt(t *rapid.T, step string) act {
	r := store.Restart{Run: w.run(t), New: uuid.Must(uuid.NewV7()), Step: step}
	return changing("restart", func(s *store.Store) error {
		_, err := s.Runs.Restart(ctx, nil, r)
		return err
	}, func(m *Model) error { return m.Restart(r.Run, r.New, step) })
}

func (w *world) pausing(t *rapid.T) act {
	id := w.runWhich(t, func(*Run) bool { return true }).ID
	return changing("pause", func(s *store.Store) error { return s.Pauses.PauseRun(ctx, nil, id, store.Why{}) },
		func(m *Model) error { return m.Pause(id) })
}

func (w *world) unpausing(t *rapid.T) act {
	id := w.run(t)
	return changing("unpause", func(s *store.Store) error {
		_, err := s.Pauses.UnpauseRun(ctx, nil, id, store.Why{})
		return err
	}, func(m *Model) error { return m.Unpause(id) })
}

func (w *world) deleting(t *rapid.T) act {
	id := w.run(t)
	return changing("delete", func(s *store.Store) error {
		_, err := s.Deletions.Delete(ctx, nil, id, store.Why{}, false)
		return err
	}, func(m *Model) error { return m.Delete(id) })
}

// examine reads the history and the inbox of a run, as an execution does.
func (w *world) examine(t *rapid.T) {
	id, s := w.run(t), w.store(t)
	histories, err := s.Histories.Latest(ctx, []uuid.UUID{id})
	if err != nil {
		t.Fatal(err)
	}
	inboxes, err := s.Messages.Inbox(ctx, []uuid.UUID{id})
	if err != nil {
		t.Fatal(err)
	}
	r, inbox := w.Runs[id], inboxes[id]
	if r == nil {
		if len(histories[id]) > 0 || inbox != nil {
			t.Fatalf("history %v and inbox %v of no run", histories[id], inbox)
		}
		return
	}
	if len(histories[id]) != len(r.Steps) {
		t.Fatalf("history of %d steps, want %d", len(histories[id]), len(r.Steps))
	}
	for _, row := range histories[id] {
		attempts := r.Steps[row.StepID]
		if last := attempts[len(attempts)-1]; row.Attempt != len(attempts) || row.Status != last.Status ||
			row.Status == store.Completed && string(row.Output) != last.Output {
			t.Fatalf("history %+v, want %+v", row, last)
		}
	}
	w.checkInbox(t, r, inbox)
}

func (w *world) checkInbox(t *rapid.T, r *Run, inbox *store.Inbox) {
	var unread, ends int
	for _, g := range r.Messages {
		if g.ReadBy == "" {
			if unread >= len(inbox.Signals) || inbox.Signals[unread].Sequence != g.Sequence {
				t.Fatalf("inbox %+v lacks message %+v", inbox.Signals, g)
			}
			unread++
		}
	}
	for _, attempts := range r.Steps {
		if last := attempts[len(attempts)-1]; last.Kind == store.KindChild && last.Status == store.Running {
			if c := w.Runs[last.Child]; !c.Active() || c.Cancelling || c.Outcome != "" {
				ends++
			}
		}
	}
	if inbox.Wakeups != r.Wakeups || len(inbox.Signals) != unread || len(inbox.Ends) != ends {
		t.Fatalf("%d wake-ups, %d messages, %d ends; want %d, %d, %d", inbox.Wakeups, len(inbox.Signals),
			len(inbox.Ends), r.Wakeups, unread, ends)
	}
}
