package store

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store/internal/clause"
)

func messageTo(run uuid.UUID, id string) Message {
	return Message{RunID: run, Name: "signal", ID: id, Payload: []byte(id)}
}

func send(t *testing.T, s *Store, m Message) Signalled {
	t.Helper()
	g, err := s.Messages.Send(t.Context(), nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestSignal(t *testing.T) {
	t.Parallel()

	t.Run("WakesWhoWaitsForIt", func(t *testing.T) {
		t.Parallel()
		// Suspension.Need, and the message that makes the run due
		for need, after := range map[int]int{0: 0, 1: 1, 3: 3} {
			t.Run(fmt.Sprint("Need=", need), func(t *testing.T) {
				t.Parallel()
				s := open(t)
				r := running(t, s, 1)[0]
				p := sleep(r, time.Hour)
				p.Need = need
				flush(t, s, &Flush{Suspensions: []*Suspension{p}})
				for i := 1; i <= 3; i++ {
					g := send(t, s, messageTo(r.RunID, fmt.Sprint(i)))
					due := after > 0 && i >= after
					if row := readRow(t, s.pool, r.RunID); row.Due != due || row.Status != Sleeping ||
						int(row.Wakeups) != i {
						t.Errorf("after message %d: %+v, want due %t", i, row, due)
					}
					if g.Due != due || g.Running || g.Queue != "queue" || g.Type != "type" {
						t.Errorf("message %d found %+v", i, g)
					}
				}
			})
		}
	})

	t.Run("BeforeTheSuspension", func(t *testing.T) {
		t.Parallel()
		for need, due := range map[int]bool{0: false, 1: true, 2: true, 3: false} {
			t.Run(fmt.Sprint("Need=", need), func(t *testing.T) {
				t.Parallel()
				s := open(t)
				r := running(t, s, 1)[0]
				for _, id := range []string{"1", "2"} {
					if g := send(t, s, messageTo(r.RunID, id)); !g.Running || g.Due {
						t.Errorf("found %+v", g)
					}
				}
				p := sleep(r, time.Hour)
				p.Need = need
				flush(t, s, &Flush{Suspensions: []*Suspension{p}})
				if row := readRow(t, s.pool, r.RunID); row.Due != due || row.Status != Sleeping {
					t.Errorf("%+v, want due %t", row, due)
				}
			})
		}
	})

	t.Run("KeepsABackoff", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		flush(t, s, &Flush{Suspensions: []*Suspension{{
			RunID: r.RunID, Lease: r.Lease, Status: Pending, Wake: time.Hour,
			Failed: &FailedAttempt{ErrorKind: "kind", Error: "text"},
		}}})
		if g := send(t, s, messageTo(r.RunID, "1")); g.Due || g.Running {
			t.Errorf("found %+v", g)
		}
		if row := readRow(t, s.pool, r.RunID); row.In < 3500 || row.Wakeups != 1 {
			t.Errorf("row %+v", row)
		}
	})

	t.Run("SequencesHaveNoGaps", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		id := start(t, s, newRun())[0]
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 10 {
					// each twice
					if _, err := s.Messages.Send(t.Context(), nil, messageTo(id, fmt.Sprint(g, i/2))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		inbox, err := s.Messages.Inbox(t.Context(), []uuid.UUID{id})
		if err != nil {
			t.Fatal(err)
		}
		n := inbox[id]
		if n.Wakeups != 40 || len(n.Signals) != 40 {
			t.Fatalf("%d wakeups, %d messages; want 40", n.Wakeups, len(n.Signals))
		}
		for i, g := range n.Signals {
			if g.Sequence != int64(i+1) || i > 0 && g.ReceivedAt.Before(n.Signals[i-1].ReceivedAt) {
				t.Errorf("message %d has sequence %d, received %v", i, g.Sequence, g.ReceivedAt)
			}
		}
	})

	t.Run("AnEndedRunThatHasItAlready", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		send(t, s, messageTo(r.RunID, "1"))
		flush(t, s, &Flush{Finishes: []*Finish{finish(r)}})
		if g := send(t, s, messageTo(r.RunID, "1")); g.Due || g.Running {
			t.Errorf("found %+v", g)
		}
		if _, err := s.Messages.Send(t.Context(), nil, messageTo(r.RunID, "2")); !errors.Is(err, ErrRunFinished) {
			t.Errorf("error %v", err)
		}
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET waiting_on = '`+clause.BeingDeleted+`'`)
		for _, id := range []string{"1", "2"} {
			if _, err := s.Messages.Send(t.Context(), nil, messageTo(r.RunID, id)); !errors.Is(err, ErrRunNotFound) {
				t.Errorf("of a run that is being deleted: %v", err)
			}
		}
	})

	// The search for the message, and the decision whether the run is active, come after the lock.
	t.Run("WaitsForTheRunsLock", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		tx := begin(t, s)
		if _, err := s.Messages.Send(t.Context(), tx, messageTo(r.RunID, "1")); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := s.Messages.Send(t.Context(), nil, messageTo(r.RunID, "1"))
			done <- err
		}()
		waitForWaiter(t, s)
		commit(t, tx)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if row := readRow(t, s.pool, r.RunID); row.Wakeups != 1 {
			t.Errorf("%d wakeups, want 1", row.Wakeups)
		}
	})
}

// TestTakenOnce shows that a record marks the message that it has taken, and no other, also when it is written again.
func TestTakenOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := running(t, s, 1)[0]
	for _, id := range []string{"1", "2"} {
		send(t, s, messageTo(r.RunID, id))
	}
	take := func(step string, sequence int64) *Record {
		rec := record(r, step, "x")
		rec.Kind, rec.Signal, rec.Sequence = KindSignal, "signal", sequence
		return rec
	}
	first := take("signal", 1)
	for range 2 {
		flush(t, s, &Flush{Records: []*Record{first}})
		wantOutcome(t, "record", first.Outcome, Done)
	}
	other := take("signal", 2) // the step has a result
	flush(t, s, &Flush{Records: []*Record{other}})
	if other.Sequence != 1 {
		t.Errorf("the record that stands has message %d", other.Sequence)
	}
	inbox, err := s.Messages.Inbox(t.Context(), []uuid.UUID{r.RunID})
	if err != nil {
		t.Fatal(err)
	}
	if g := inbox[r.RunID].Signals; len(g) != 1 || g[0].Sequence != 2 {
		t.Errorf("unread: %+v", g)
	}
}

// fillInbox stores n messages that the run does not read, as if they had been sent.
func fillInbox(t *testing.T, s *Store, run uuid.UUID, n int) {
	t.Helper()
	exec(t, s.pool, `INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id)
		SELECT run_id, 'other', wakeups + n, namespace_id, 'other' || n FROM kagzi.workflow_runs,
			generate_series(1, $2::int) n WHERE run_id = $1`, run, n)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET wakeups = wakeups + $2 WHERE run_id = $1`, run, n)
}

// A run that refuses a message is marked with the time of the first one. The next message that it takes removes the
// mark.
func TestFullInboxIsNoted(t *testing.T) {
	t.Parallel()
	s := open(t)
	run := start(t, s, newRun(withID("id")))[0]
	since := func() time.Time {
		t.Helper()
		r, err := s.Runs.Get(t.Context(), run)
		if err != nil {
			t.Fatal(err)
		}
		return r.InboxFullAt
	}
	refused := func(id string, tx pgx.Tx, why Why) {
		t.Helper()
		m := messageTo(run, id)
		m.Why = why
		if _, err := s.Messages.Send(t.Context(), tx, m); !errors.Is(err, ErrInboxFull) {
			t.Errorf("error %v", err)
		}
	}
	empty := func() {
		t.Helper()
		exec(t, s.pool, `DELETE FROM kagzi.signals WHERE signal_id = 'other1'`)
		send(t, s, messageTo(run, "other1"))
		if !since().IsZero() {
			t.Error("it took a message, and is still marked")
		}
	}
	fillInbox(t, s, run, MostUnread)
	if !since().IsZero() {
		t.Error("marked before it refused a message")
	}
	refused("1", nil, Why{})
	first := since()
	if first.IsZero() {
		t.Fatal("not marked")
	}
	refused("2", nil, Why{Actor: "ada"})
	if got := since(); !got.Equal(first) {
		t.Errorf("marked at %v and %v", first, got)
	}
	empty()
	refused("2", nil, Why{Actor: "ada"})
	if since().IsZero() {
		t.Error("not marked by a person's message")
	}
	empty()
	if err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		refused("3", tx, Why{})
		return nil
	}); err != nil || since().IsZero() {
		t.Errorf("not marked by a caller's transaction that commits: %v", err)
	}
	empty()
	again := newRun(withID("id"), func(r *NewRun) { r.Messages = []Message{messageTo(uuid.Nil, "4")} })
	if _, err := s.Starts.Start(t.Context(), nil, []NewRun{again}); !errors.Is(err, ErrInboxFull) || since().IsZero() {
		t.Errorf("not marked by a start: %v", err)
	}
}

// A start whose first message is there already stores the others, or says why it does not.
func TestStartWithAMessageThatIsThere(t *testing.T) {
	t.Parallel()
	both := func() NewRun {
		return newRun(withID("id"), func(r *NewRun) {
			r.Messages = []Message{messageTo(uuid.Nil, "1"), messageTo(uuid.Nil, "2")}
		})
	}
	t.Run("Full", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		run := start(t, s, newRun(withID("id")))[0]
		send(t, s, messageTo(run, "1"))
		fillInbox(t, s, run, MostUnread-1)
		if _, err := s.Starts.Start(t.Context(), nil, []NewRun{both()}); !errors.Is(err, ErrInboxFull) {
			t.Errorf("error %v, want ErrInboxFull: message 2 is not stored", err)
		}
		exec(t, s.pool, `DELETE FROM kagzi.signals WHERE signal_id = 'other1'`)
		// it takes one more, which is all that it lacks
		if _, err := s.Starts.Start(t.Context(), nil, []NewRun{both()}); err != nil {
			t.Error(err)
		}
		if _, err := s.Starts.Start(t.Context(), nil, []NewRun{both()}); err != nil {
			t.Errorf("it is full, and has both: %v", err)
		}
	})
	// A repetition of a start whose first try had no effect. A run that is over has the first message.
	t.Run("Over", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		run := start(t, s, newRun(withID("id")))[0]
		send(t, s, messageTo(run, "1"))
		flush(t, s, &Flush{Finishes: []*Finish{finish(claim(t, s, request(1)).Runs[0])}})
		again := both()
		err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			started, err := s.Starts.startAll(t.Context(), tx, []NewRun{again}, true)
			if err == nil && (started[0].RunID != again.RunID || started[0].Existed) {
				t.Errorf("started %+v, want a new run", started)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.signals WHERE run_id = $1`, again.RunID); n != 2 {
			t.Errorf("the new run has %d messages", n)
		}
	})
}

// ---- lost answers ----

func TestLostSignal(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		r := running(t, direct, 1)[0]
		drop := lose(proxy, "INSERT INTO kagzi.signals")
		g, err := s.Messages.Send(t.Context(), nil, messageTo(r.RunID, "1"))
		happened(t, drop)
		if err != nil || !g.Running {
			t.Errorf("found %+v, %v", g, err)
		}
		if row := readRow(t, direct.pool, r.RunID); row.Wakeups != 1 {
			t.Errorf("%d wakeups, want 1", row.Wakeups)
		}
		if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.signals`); n != 1 {
			t.Errorf("%d messages, want 1", n)
		}
	})
}

// TestLostSignallingStart loses the answer to a start that brings messages. What it did is found by the message, also
// if the run that got it is over by the time of the repetition: that must not start another.
func TestLostSignallingStart(t *testing.T) {
	for _, active := range []bool{false, true} {
		t.Run(fmt.Sprintf("Active=%t", active), func(t *testing.T) {
			eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
				s, direct, proxy := losing(t)
				want := 1
				var before uuid.UUID
				if active {
					before = start(t, direct, newRun(withID("id")))[0]
				}
				withMessages := newRun(withID("id"), func(r *NewRun) {
					r.Messages = []Message{messageTo(uuid.Nil, "1"), messageTo(uuid.Nil, "2")}
				})
				plain := newRun()
				drop := lose(proxy, "commit")
				started, err := s.Starts.Start(t.Context(), nil, []NewRun{plain, withMessages})
				happened(t, drop)
				if err != nil {
					t.Fatal(err)
				}
				if started[1].Existed != active || active && started[1].RunID != before ||
					started[0].RunID != plain.RunID {
					t.Errorf("started %+v", started)
				}
				if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != want+1 {
					t.Errorf("%d runs, want %d", n, want+1)
				}
				if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.signals`); n != 2 {
					t.Errorf("%d messages, want 2", n)
				}
				if row := readRow(t, direct.pool, started[1].RunID); row.Wakeups != 2 {
					t.Errorf("%d wakeups, want 2", row.Wakeups)
				}
			})
		})
	}
	t.Run("TheRunIsOver", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := newRun(withID("id"), func(r *NewRun) { r.Messages = []Message{messageTo(uuid.Nil, "1")} })
		begun := start(t, s, r)[0]
		flush(t, s, &Flush{Finishes: []*Finish{finish(claim(t, s, request(1)).Runs[0])}})
		r.RunID = uuid.New() // a start of its own, but for the message
		err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			again, err := s.Starts.startAll(t.Context(), tx, []NewRun{r}, true)
			if err == nil && (again[0].RunID != begun || !again[0].Existed) {
				t.Errorf("started %+v, want %s", again, begun)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}
