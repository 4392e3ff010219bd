package model

import (
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/store"
)

// The verbs of people and other runs, which know no lease.

// signal sends a message, or repeats an earlier one.
func (w *world) signal(t *rapid.T) {
	w.post(t, store.Message{RunID: w.run(t), Name: "name", ID: w.name("message"), Payload: []byte("payload")})
}

func (w *world) signalAgain(t *rapid.T) {
	if len(w.signals) == 0 {
		panic(nothingToDo{})
	}
	w.post(t, pick(t, "message", w.signals))
}

func (w *world) post(t *rapid.T, m store.Message) {
	s := w.store(t)
	w.lossy(t, func() {
		_, err := s.Signal(ctx, nil, m)
		w.wantError(t, "signal", err, w.Signal(m.RunID, m.ID))
	})
	w.signals = append(w.signals, m)
}

func (w *world) cancel(t *rapid.T) {
	id, s := w.run(t), w.store(t)
	w.lossy(t, func() {
		_, err := s.Cancel(ctx, nil, id, store.Why{}, far)
		w.wantError(t, "cancel", err, w.Cancel(id, false))
	})
}

func (w *world) terminate(t *rapid.T) {
	id, s := w.run(t), w.store(t)
	w.lossy(t, func() {
		_, err := s.Terminate(ctx, nil, id, store.Why{})
		w.wantError(t, "terminate", err, w.Cancel(id, true))
	})
}

func (w *world) resume(t *rapid.T) {
	id, s := w.run(t), w.store(t)
	if r := w.Runs[id]; r != nil {
		if p := w.Runs[r.Parent]; p != nil && !r.Detached && !p.Active() {
			return // an invariant forbids active children of a run that is over
		}
	}
	w.lossy(t, func() {
		_, err := s.Resume(ctx, nil, id, store.Why{})
		w.wantError(t, "resume", err, w.Resume(id))
	})
}

func (w *world) restart(t *rapid.T) { w.restartAt(t, "") }

func (w *world) fork(t *rapid.T) {
	w.restartAt(t, drawn(t, "step", "one", "two", "nap", "missing"))
}

func (w *world) restartAt(t *rapid.T, step string) {
	id, s := w.run(t), w.store(t)
	r := store.Restart{Run: id, New: uuid.Must(uuid.NewV7()), Step: step}
	w.lossy(t, func() {
		_, err := s.Restart(ctx, nil, r)
		w.wantError(t, "restart", err, w.Restart(id, r.New, step))
	})
}

func (w *world) pause(t *rapid.T) {
	id, s := w.runWhich(t, func(*Run) bool { return true }).ID, w.store(t)
	w.lossy(t, func() {
		w.wantError(t, "pause", s.PauseRun(ctx, nil, id, store.Why{}), w.Pause(id))
	})
}

func (w *world) unpause(t *rapid.T) {
	id, s := w.run(t), w.store(t)
	w.lossy(t, func() {
		_, err := s.UnpauseRun(ctx, nil, id, store.Why{})
		w.wantError(t, "unpause", err, w.Unpause(id))
	})
}

func (w *world) remove(t *rapid.T) {
	id, s := w.run(t), w.store(t)
	w.lossy(t, func() {
		_, err := s.Delete(ctx, nil, id, store.Why{}, false)
		w.wantError(t, "delete", err, w.Delete(id))
	})
}

// look reads the history and the inbox of a run, as an execution does.
func (w *world) look(t *rapid.T) {
	id, s := w.run(t), w.store(t)
	histories, err := s.History(ctx, []uuid.UUID{id})
	if err != nil {
		t.Fatal(err)
	}
	inboxes, err := s.Inbox(ctx, []uuid.UUID{id})
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
		if last := attempts[len(attempts)-1]; row.Attempt != len(attempts) || row.Status != last.Status || row.Status == store.Completed && string(row.Output) != last.Output {
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
			if c := w.Runs[last.Child]; !c.Active() || c.Cancelling {
				ends++
			}
		}
	}
	if inbox.Wakeups != r.Wakeups || len(inbox.Signals) != unread || len(inbox.Ends) != ends {
		t.Fatalf("%d wake-ups, %d messages, %d ends; want %d, %d, %d", inbox.Wakeups, len(inbox.Signals), len(inbox.Ends), r.Wakeups, unread, ends)
	}
}
