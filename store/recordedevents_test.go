package store

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/pgproxy"
)

// publishing returns a record that publishes the events.
func publishing(r *ClaimedRun, step string, position int64, events ...*NewEvent) *Record {
	rec := record(r, step, "")
	rec.Kind, rec.Output, rec.Position, rec.Events = KindPublish, nil, position, events
	return rec
}

// The events of a run have the order in which it published them. Those of a run whose lease is lost are not published.
func TestRecordsPublish(t *testing.T) {
	t.Parallel()
	s := open(t)
	rs := running(t, s, 3)
	slices.SortFunc(rs, func(a, b *ClaimedRun) int { return compareIDs(a.RunID, b.RunID) })
	supersede(t, s, rs[1])
	over := running(t, s, 1)[0]
	flush(t, s, &Flush{Finishes: []*Finish{finish(over)}})
	f := func() *Flush {
		return &Flush{
			Records: []*Record{
				publishing(rs[0], "b", 1, named("a", "2", "1")...), publishing(rs[0], "a", 2, named("a", "4", "3")...),
				publishing(rs[0], "none", 3),
				publishing(rs[1], "a", 1, named("a", "lost")...), publishing(over, "a", 1, named("a", "over")...),
				publishing(rs[2], "a", 1, append(named("a", "1", "5"), named("b", "1")...)...),
			},
			Finishes: []*Finish{finish(rs[2])},
		}
	}
	for range 2 { // the second time as after a lost answer
		f := f()
		flush(t, s, f)
		for _, r := range f.Records {
			if r.RunID != rs[2].RunID { // whose end is its outcome
				wantOutcome(t, "record "+r.StepID, r.Outcome,
					map[bool]Outcome{true: Lost, false: Done}[r.RunID != rs[0].RunID])
			}
		}
		wantOutcome(t, "finish", f.Finishes[0].Outcome, Done)
		wantEvents(t, s, "a", "2", "1", "4", "3", "5")
		wantEvents(t, s, "b", "1")
	}
	if e, err := s.Topics.ReadEvents(t.Context(), "a", 0, 1); err != nil || e[0].Title != "title of 2" ||
		string(e[0].Payload) != `"2"` {
		t.Errorf("read %+v, %v", e, err)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.step_runs WHERE step_kind = 'PUBLISH'`); n != 4 {
		t.Errorf("%d records", n)
	}
}

// A flush that publishes returns a consumer of the topics, which is due then.
func TestRecordedEventsMakeConsumersDue(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"), consumerOf("d", "b"))
	look(t, s)
	for _, name := range []string{"c", "d"} { // a new consumer runs once
		flush(t, s, &Flush{Finishes: []*Finish{finish(mustRun(t, s, name))}})
	}
	look(t, s)
	mustNotRun(t, s, "c", "d")
	r := running(t, s, 1)[0]
	f := &Flush{Records: []*Record{publishing(r, "a", 1, named("a", "x")...)}}
	flush(t, s, f)
	if want := []DueRun{{Queue: "queue", Type: "c"}}; !slices.Equal(f.Woken, want) {
		t.Errorf("due %+v, want %+v", f.Woken, want)
	}
	mustRun(t, s, "c")
	mustNotRun(t, s, "d")
	f = &Flush{Records: []*Record{publishing(r, "b", 2, named("a", "x")...)}}
	if flush(t, s, f); len(f.Woken) != 0 {
		t.Errorf("an event that is there makes %+v due", f.Woken)
	}
}

// A flush that is repeated, because its answer was lost, finds its events, also in a partition that is no longer open.
func TestLostFlushOfEvents(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, done bool) {
		s, direct, proxy := losing(t)
		rotateEvents(t, direct)
		ageEvents(t, direct, 11)
		f := &Flush{Records: []*Record{publishing(running(t, direct, 1)[0], "a", 1,
			&NewEvent{Topic: "a", ID: "derived"})}}
		drop := lose(proxy, "INSERT INTO kagzi.events ")
		wantAway(t, s.Records.Flush(t.Context(), f))
		happened(t, drop)
		if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.events`); n != map[bool]int{true: 1}[done] {
			t.Fatalf("INVALID: %d events", n)
		}
		rotateEvents(t, direct)
		if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.event_parts`); n != 2 {
			t.Errorf("INVALID: %d partitions are in use", n)
		}
		flush(t, s, f)
		wantOutcome(t, "record", f.Records[0].Outcome, Done)
		wantEvents(t, direct, "a", "derived")
	})
}

// An ID that an open transaction has published makes the runs wait that publish it, and no others.
func TestHeldIDOfARecordsEvent(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		t.Run(fmt.Sprint("Commits=", commits), func(t *testing.T) {
			t.Parallel()
			s := open(t)
			rs := running(t, s, 4)
			tx := begin(t, s)
			publishIn(t, s, tx, named("a", "held")...)
			f := &Flush{
				Records: []*Record{
					publishing(rs[0], "a", 1, named("a", "other", "held")...),
					publishing(rs[1], "a", 1, &NewEvent{Topic: "b", ID: "derived"}), record(rs[2], "a", ""),
				},
				Finishes: []*Finish{finish(rs[0]), finish(rs[3])},
			}
			flush(t, s, f)
			for _, r := range f.Records {
				wantOutcome(t, "record", r.Outcome, map[bool]Outcome{true: Busy, false: Done}[r.RunID == rs[0].RunID])
			}
			for _, e := range f.Finishes {
				wantOutcome(t, "finish", e.Outcome, map[bool]Outcome{true: Busy, false: Done}[e.RunID == rs[0].RunID])
			}
			wantEvents(t, s, "b", "derived")
			if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.events WHERE event_id = 'other'`); n != 0 {
				t.Error("a part of the events was published")
			}
			want := []string{"other", "held"}
			if commits {
				commit(t, tx)
				want = []string{"held", "other"}
			} else {
				rollback(t, tx)
			}
			flush(t, s, &Flush{Records: f.Records, Finishes: f.Finishes})
			wantEvents(t, s, "a", want...)
		})
	}
}

// Readers stop before the events of a flush that is not committed yet.
func TestReadersWaitForAFlush(t *testing.T) {
	t.Parallel()
	s := open(t)
	f := &Flush{Records: []*Record{publishing(running(t, s, 1)[0], "a", 1, named("a", "early")...)}}
	tx := begin(t, s)
	if err := s.Records.send(t.Context(), tx, f, nil); err != nil {
		t.Fatal(err)
	}
	publishes(t, s, named("a", "late")...)
	publishes(t, s, named("b", "late")...)
	wantEvents(t, s, "a")
	wantEvents(t, s, "b", "late")
	commit(t, tx)
	wantEvents(t, s, "a", "early", "late")
}

// A lease that another transaction ends while the flush waits publishes nothing.
func TestALeaseThatEndsMeanwhilePublishesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	for i := 0; ; i++ {
		r := running(t, s, 1, withID(fmt.Sprint(i)))[0]
		f := &Flush{Records: []*Record{publishing(r, "a", 1, named("a", fmt.Sprint(i))...)}}
		tx := begin(t, s)
		exec(t, tx, `UPDATE kagzi.workflow_runs SET lease = $2 WHERE run_id = $1`, r.RunID, uuid.New())
		meetsLock(t, s, func(ctx context.Context) {
			if err := s.Records.Flush(ctx, f); err != nil {
				t.Error(err)
			}
		}, func() { commit(t, tx) })
		wantEvents(t, s, "a")
		if f.Records[0].Outcome != Busy { // otherwise the second try was sooner
			wantOutcome(t, "record", f.Records[0].Outcome, Lost)
			return
		}
	}
}

// A flush that publishes with one run, and records another, locks them first: see TestLocksComeInOneOrder.
func TestAPublishingFlushLocksItsRuns(t *testing.T) {
	t.Parallel()
	a, b := &ClaimedRun{RunID: uuid.New()}, &ClaimedRun{RunID: uuid.New()}
	if ids := (&Flush{Records: []*Record{publishing(a, "a", 1, named("a", "1")...), record(b, "a", "")}}).
		runsToLock(); len(ids) != 2 {
		t.Errorf("it locks %v", ids)
	}
	if ids := (&Flush{Records: []*Record{publishing(a, "a", 1), record(b, "a", "")}}).runsToLock(); ids != nil {
		t.Errorf("without events it locks %v", ids)
	}
}
