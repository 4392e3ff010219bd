package inspect

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store"
)

// aside returns the write that sets aside the run's message with that number.
func aside(r *store.ClaimedRun, sequence int64) *store.SetAside {
	return &store.SetAside{RunID: r.RunID, Lease: r.Lease, Name: "signal", Sequence: sequence, Reason: "why"}
}

// setsAside returns a run that has n messages, which were set aside.
func setsAside(t *testing.T, s *both, n int) *store.ClaimedRun {
	t.Helper()
	r := running(t, s, 1)[0]
	f := &store.Flush{}
	for i := range n {
		send(t, s, messageTo(r.RunID, string(rune('1'+i))))
		f.Aside = append(f.Aside, aside(r, int64(i+1)))
	}
	flush(t, s, f)
	return r
}

func messagesOf(t *testing.T, s *both, run uuid.UUID) []StoredMessage {
	t.Helper()
	got, err := s.View.Messages(t.Context(), run, MessageFilter{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSetAside(t *testing.T) {
	t.Parallel()
	t.Run("UnderTheLease", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		send(t, s, messageTo(r.RunID, "1"))
		stale := aside(r, 1)
		stale.Lease = uuid.New()
		flush(t, s, &store.Flush{Aside: []*store.SetAside{stale}})
		if m := messagesOf(t, s, r.RunID)[0]; m.SetAside != "" {
			t.Error("a worker without the lease has set it aside")
		}
		for range 2 { // the second one changes nothing
			flush(t, s, &store.Flush{Aside: []*store.SetAside{aside(r, 1)}})
			if m := messagesOf(t, s, r.RunID)[0]; m.SetAside != "why" || m.SetAsideAt.IsZero() || m.ReadBy != "" {
				t.Errorf("message %+v", m)
			}
		}
		inbox, err := s.Messages.Inbox(t.Context(), []uuid.UUID{r.RunID})
		if err != nil || len(inbox[r.RunID].Signals) > 0 {
			t.Errorf("it is in the inbox: %+v, %v", inbox[r.RunID], err)
		}
		if page, more, err := s.Messages.UnreadOfName(t.Context(), r.RunID, "signal", 0); err != nil || len(page) > 0 ||
			more {
			t.Errorf("it is in a page: %+v, more %t, %v", page, more, err)
		}
		if n, _, err := s.InboxOf(t.Context(), &store.Run{RunID: r.RunID}, true); err != nil || n != 1 {
			t.Errorf("%d of the run, %v", n, err)
		}
	})

	// The message was read, dropped, or given back under another number meanwhile.
	t.Run("Late", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := setsAside(t, s, 3)
		if err := s.Messages.Drop(t.Context(), nil, r.RunID, "1", store.Why{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Messages.Redeliver(t.Context(), nil, r.RunID, "2", store.Why{}); err != nil {
			t.Fatal(err)
		}
		send(t, s, messageTo(r.RunID, "4"))
		rec := record(r, "signal", "x")
		rec.Kind, rec.Signal, rec.Sequence = store.KindSignal, "signal", 5
		flush(t, s, &store.Flush{Records: []*store.Record{rec}})
		flush(t, s, &store.Flush{Aside: []*store.SetAside{aside(r, 1), aside(r, 2), aside(r, 3), aside(r, 5)}})
		got := messagesOf(t, s, r.RunID)
		if len(got) != 3 || got[0].ID != "3" || got[0].SetAside == "" || got[1].ID != "2" || got[1].SetAside != "" ||
			got[2].ID != "4" || got[2].SetAside != "" || got[2].ReadBy != "signal" {
			t.Errorf("messages %+v", got)
		}
	})

	// A mark and the run's end in one transaction: the mark comes first.
	t.Run("WithTheEnd", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		send(t, s, messageTo(r.RunID, "1"))
		flush(t, s, &store.Flush{Aside: []*store.SetAside{aside(r, 1)}, Finishes: []*store.Finish{finish(r)}})
		if m := messagesOf(t, s, r.RunID)[0]; m.SetAside == "" {
			t.Error("it is not set aside")
		}
		if found, err := s.SetAside(t.Context(), s.pool, 10); err != nil || len(found) > 0 {
			t.Errorf("the run is over, and yet found: %+v, %v", found, err)
		}
	})
}

// A run may have more unread messages than it takes: a fork has those that its source had read. Then no message of it
// is lost.
func TestRedeliverToAFullInbox(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := setsAside(t, s, 1)
	fillInbox(t, s, r.RunID, store.MostUnread)
	for name, in := range map[string]bool{"InTx": true, "Alone": false} {
		var tx pgx.Tx
		if in {
			tx = begin(t, s)
		}
		if _, err := s.Messages.Redeliver(t.Context(), tx, r.RunID, "1", store.Why{}); !errors.Is(err,
			store.ErrInboxFull) {
			t.Errorf("%s: error %v, want ErrInboxFull", name, err)
		}
		if in {
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n, _, err := s.InboxOf(t.Context(), &store.Run{RunID: r.RunID}, true); err != nil || n != 1 {
			t.Errorf("%s: %d messages are set aside, %v", name, n, err)
		}
	}
	if events, err := s.Runs.Events(t.Context(), r.RunID); err != nil || len(events) > 0 {
		t.Errorf("events %+v, %v", events, err)
	}
	exec(t, s.pool, `DELETE FROM kagzi.signals WHERE signal_id = 'other1'`)
	if _, err := s.Messages.Redeliver(t.Context(), nil, r.RunID, "1", store.Why{}); err != nil {
		t.Error(err)
	}
}

// ---- lost answers ----

func TestLostSetAside(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		r := running(t, direct, 1)[0]
		send(t, direct, messageTo(r.RunID, "1"))
		f := &store.Flush{Aside: []*store.SetAside{aside(r, 1)}, Suspensions: []*store.Suspension{sleep(r, time.Hour)}}
		drop := lose(proxy, "SET set_aside_at")
		wantAway(t, s.Records.Flush(t.Context(), f))
		happened(t, drop)
		if n, _, err := direct.InboxOf(t.Context(), &store.Run{RunID: r.RunID}, true); err != nil || (n == 1) != done {
			t.Fatalf("the server did it: %d, %v; want %t", n, err, done)
		}
		flush(t, s, f) // again
		wantOutcome(t, "set aside", f.Aside[0].Outcome, store.Done)
		wantOutcome(t, "suspend", f.Suspensions[0].Outcome, store.Done)
		if m := messagesOf(t, direct, r.RunID)[0]; m.SetAside != "why" {
			t.Errorf("message %+v", m)
		}
	})
}

// A drop whose answer is lost drops nothing more: neither fails the call, nor goes the message that its sender has sent
// again.
func TestLostDropMessage(t *testing.T) {
	for _, part := range []string{"DELETE FROM kagzi.signals g", "INSERT INTO kagzi.run_events", "commit"} {
		t.Run(part, func(t *testing.T) {
			eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, _ bool) {
				s, direct, proxy := losing(t)
				r := setsAside(t, direct, 2)
				drop := lose(proxy, part)
				err := s.Messages.Drop(t.Context(), nil, r.RunID, "1", store.Why{Actor: "ada"})
				happened(t, drop)
				if err != nil {
					t.Fatal(err)
				}
				if got := messagesOf(t, direct, r.RunID); len(got) != 1 || got[0].ID != "2" {
					t.Errorf("messages %+v", got)
				}
				if events, err := direct.Runs.Events(t.Context(), r.RunID); err != nil || len(events) != 1 ||
					events[0].Event != store.EventMessageDropped {
					t.Errorf("events %+v, %v", events, err)
				}
			})
		})
	}
}

// A redelivery whose answer is lost stores one message, and returns the run that a hint has to reach.
func TestLostRedeliverMessage(t *testing.T) {
	for _, part := range []string{
		"DELETE FROM kagzi.signals g", "INSERT INTO kagzi.signals",
		"INSERT INTO kagzi.run_events", "commit",
	} {
		t.Run(part, func(t *testing.T) {
			eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, _ bool) {
				s, direct, proxy := losing(t)
				r := setsAside(t, direct, 1)
				drop := lose(proxy, part)
				found, err := s.Messages.Redeliver(t.Context(), nil, r.RunID, "1", store.Why{Actor: "ada"})
				happened(t, drop)
				if err != nil || found.RunID != r.RunID || !found.Running {
					t.Fatalf("found %+v, %v", found, err)
				}
				if got := messagesOf(t, direct, r.RunID); len(got) != 1 || got[0].SetAside != "" ||
					string(got[0].Payload) != "1" {
					t.Errorf("messages %+v", got)
				}
				if row := readRow(t, direct.pool, r.RunID); row.Wakeups != 2 {
					t.Errorf("%d wakeups, want 2", row.Wakeups)
				}
				if events, err := direct.Runs.Events(t.Context(), r.RunID); err != nil || len(events) != 1 ||
					events[0].Event != store.EventMessageRedelivered {
					t.Errorf("events %+v, %v", events, err)
				}
			})
		})
	}
}
