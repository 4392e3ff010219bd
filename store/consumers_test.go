package store

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/pg"
)

func consumerOf(name string, topics ...string) *Consumer {
	return &Consumer{
		Name: name, Key: OwnGroup(name), Topics: topics, Queue: "queue", Priority: 2, LeastWake: 30 * time.Second,
		MostWake: 24 * time.Hour, PauseOnFailure: true,
	}
}

func subscribe(t *testing.T, s *Store, consumers ...*Consumer) {
	t.Helper()
	if err := s.Consumers.Register(t.Context(), consumers); err != nil {
		t.Fatal(err)
	}
}

// consumersRequest claims runs of the consumers.
func consumersRequest(names ...string) ClaimRequest {
	req := keyedRequest(10)
	req.Types = nil
	for _, name := range names {
		req.Types = append(req.Types, WorkflowVersions{Type: name, Versions: []int{1}, Default: 1})
	}
	return req
}

// due returns the runs that a claim takes of the consumers.
func due(t *testing.T, s *Store, names ...string) []*ClaimedRun {
	t.Helper()
	return claim(t, s, consumersRequest(names...)).Runs
}

// mustRun returns the run that a claim takes of the consumer.
func mustRun(t *testing.T, s *Store, name string) *ClaimedRun {
	t.Helper()
	runs := due(t, s, name)
	if len(runs) != 1 || runs[0].Type != name {
		t.Fatalf("claimed %+v, want a run of consumer %s", runs, name)
	}
	return runs[0]
}

func mustNotRun(t *testing.T, s *Store, names ...string) {
	t.Helper()
	if runs := due(t, s, names...); len(runs) != 0 {
		t.Fatalf("claimed %s, want no run", runs[0].Type)
	}
}

// look makes a claim look at the keys of all consumers, as does a worker that ends a run.
func look(t *testing.T, s *Store) {
	t.Helper()
	exec(t, s.pool, `INSERT INTO kagzi.key_changes (key_scope, namespace_id, run_key) SELECT DISTINCT '', namespace_id,
		run_key FROM kagzi.consumers`)
}

func peek(t *testing.T, s *Store, consumer, topic string) Peek {
	t.Helper()
	p, err := s.Consumers.Peek(t.Context(), consumer, topic, 1000, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func eventIDs(p Peek) (ids []string) {
	for _, e := range p.Events {
		ids = append(ids, e.ID)
	}
	return ids
}

// consumes returns the end of a run that has looked at p, and consumes the events with the IDs.
func consumption(p Peek, topic string, ids ...string) ConsumedTopic {
	c := ConsumedTopic{Topic: topic, Looked: p.Settled}
	for _, e := range p.Events {
		if slices.Contains(ids, e.ID) {
			c.Ranges = append(c.Ranges, [2]int64{e.After, e.Position})
		}
	}
	return c
}

// completes ends the run, and makes a claim look at the keys of all consumers.
func completes(t *testing.T, s *Store, r *ClaimedRun, state string, wake time.Time, topics ...ConsumedTopic) {
	t.Helper()
	e := finish(r)
	named, err := pg.AskOne[[]string](t.Context(), s.pool, `SELECT ARRAY(SELECT topic FROM kagzi.subscriptions
		WHERE consumer = $1 AND namespace_id = $2 AND subscribed)`, r.Type, s.namespace)
	if err != nil {
		t.Fatal(err)
	}
	e.Output, e.Consumed = []byte(state), &Consumed{Consumer: r.Type, Named: named, WakeAt: wake, Topics: topics}
	flush(t, s, &Flush{Finishes: []*Finish{e}})
	look(t, s)
}

func TestConsumer(t *testing.T) {
	t.Parallel()
	s := open(t)
	publishes(t, s, named("a", "1", "2", "3")...)
	subscribe(t, s, consumerOf("c", "a"))

	// A new consumer runs once, and gets the events that are kept.
	r := mustRun(t, s, "c")
	if string(r.Input) != "" || r.Key != (Key{"consumer c", true}) || r.ExternalID != "consumer c" {
		t.Errorf("claimed %+v", r)
	}
	p := peek(t, s, "c", "a")
	if got := eventIDs(p); !slices.Equal(got, []string{"1", "2", "3"}) || string(p.Events[0].Payload) != `"1"` {
		t.Errorf("peeked %v", got)
	}
	publishes(t, s, named("b", "1")...) // no consumer subscribes to it
	mustNotRun(t, s, "c")
	completes(t, s, r, "one", time.Time{}, consumption(p, "a", "1", "3"))
	mustNotRun(t, s, "c")

	// An event that it has not looked at makes it due.
	publishes(t, s, named("a", "4")...)
	r = mustRun(t, s, "c")
	if string(r.Input) != "one" {
		t.Errorf("state %q", r.Input)
	}
	p = peek(t, s, "c", "a")
	if got := eventIDs(p); !slices.Equal(got, []string{"2", "4"}) {
		t.Errorf("peeked %v", got)
	}
	publishes(t, s, named("a", "5")...)
	completes(t, s, r, "two", time.Time{}, consumption(p, "a"))
	r = mustRun(t, s, "c")
	p = peek(t, s, "c", "a")
	if got := eventIDs(p); !slices.Equal(got, []string{"2", "4", "5"}) {
		t.Errorf("peeked %v", got)
	}
	completes(t, s, r, "three", time.Time{}, consumption(p, "a", "2", "4", "5"))
	mustNotRun(t, s, "c")
	if got := eventIDs(peek(t, s, "c", "a")); len(got) != 0 {
		t.Errorf("peeked %v", got)
	}
	if ranges := one[string](t, s.pool, `SELECT consumed::text FROM kagzi.subscriptions`); ranges != "{}" {
		t.Errorf("ranges %s are left", ranges)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 3 {
		t.Errorf("%d runs, want 3", n)
	}
}

// What a consumer has consumed are as few ranges as possible.
func TestConsumedRanges(t *testing.T) {
	t.Parallel()
	s := open(t)
	ids := strings.Split("0123456789", "")
	for _, id := range ids {
		publishes(t, s, named("a", id)...)
		publishes(t, s, named("b", id)...)
	}
	subscribe(t, s, consumerOf("c", "a"))
	pending := slices.Clone(ids)
	for i, step := range []struct {
		consume string
		ranges  int
	}{{"5", 1}, {"7", 2}, {"6", 1}, {"01", 1}, {"94", 2}, {"3", 2}, {"2", 1}, {"8", 0}} {
		if i > 0 {
			publishes(t, s, named("a", "x"+step.consume)...) // makes it due
			pending = append(pending, "x"+step.consume)
		}
		r := mustRun(t, s, "c")
		p := peek(t, s, "c", "a")
		if got := eventIDs(p); !slices.Equal(got, pending) {
			t.Fatalf("peeked %v, want %v", got, pending)
		}
		consume := strings.Split(step.consume, "")
		for _, id := range pending {
			if id[0] == 'x' {
				consume = append(consume, id)
			}
		}
		completes(t, s, r, "", time.Time{}, consumption(p, "a", consume...))
		pending = slices.DeleteFunc(pending, func(id string) bool { return slices.Contains(consume, id) })
		if n := one[int](t, s.pool, `SELECT (SELECT count(*) FROM unnest(consumed)) FROM kagzi.subscriptions`); n >
			step.ranges+1 {
			t.Errorf("after %q %d ranges, want %d", step.consume, n, step.ranges)
		}
	}
}

// A run that consumes nothing is followed by another one when an event comes, or at the time that it has asked for.
func TestConsumerWakes(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"), consumerOf("d", "a"))
	wakeAt := func(name string) time.Duration {
		t.Helper()
		return time.Duration(one[float64](t, s.pool, `SELECT coalesce(extract(epoch FROM wake_at - now()), 0)::float8
			FROM kagzi.consumers WHERE consumer = $1`, name) * float64(time.Second))
	}
	now := time.Now()
	for _, c := range []struct {
		wake, least, most time.Duration
	}{
		{time.Second, 20 * time.Second, 30 * time.Second},
		{-time.Hour, 20 * time.Second, 30 * time.Second},
		{time.Hour, 50 * time.Minute, time.Hour},
		{1000 * time.Hour, 23 * time.Hour, 24 * time.Hour},
	} {
		exec(t, s.pool, `UPDATE kagzi.consumers SET wake_at = now()`)
		look(t, s)
		runs := due(t, s, "c", "d")
		if len(runs) != 2 {
			t.Fatalf("%d runs, want two", len(runs))
		}
		completes(t, s, runs[0], "", now.Add(c.wake))
		completes(t, s, runs[1], "", time.Time{})
		if got := wakeAt(runs[0].Type); got < c.least || got > c.most {
			t.Errorf("asked for %v, wakes in %v", c.wake, got)
		}
		if got := wakeAt(runs[1].Type); got != 0 {
			t.Errorf("wakes in %v although it did not ask for it", got)
		}
		mustNotRun(t, s, "c", "d")
	}
	// The time is a place in the line: no change has to say so.
	exec(t, s.pool, `UPDATE kagzi.consumers SET wake_at = now() - interval '1 s' WHERE wake_at IS NOT NULL`)
	exec(t, s.pool, `UPDATE kagzi.run_keys SET available_at = available_at - interval '25 hours'
		WHERE available_at < 'infinity'`)
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_keys WHERE available_at < now()`); n != 1 {
		t.Errorf("%d keys are in the line, want one", n)
	}
	if runs := due(t, s, "c", "d"); len(runs) != 1 {
		t.Errorf("%d runs, want one", len(runs))
	}
}

// The consumers of a group run one at a time, the one with the oldest event first.
func TestGroupOfConsumers(t *testing.T) {
	t.Parallel()
	s := open(t)
	var group []*Consumer
	for _, name := range []string{"c", "d", "e"} {
		c := consumerOf(name, "topic of "+name)
		c.Key = "group"
		group = append(group, c)
	}
	subscribe(t, s, group...)
	for range group {
		runs := due(t, s, "c", "d", "e")
		if len(runs) != 1 {
			t.Fatalf("%d runs are active, want one", len(runs))
		}
		completes(t, s, runs[0], "", time.Time{})
	}
	mustNotRun(t, s, "c", "d", "e")
	for _, name := range []string{"e", "c", "d"} {
		publishes(t, s, named("topic of "+name, "1")...)
	}
	for _, name := range []string{"e", "c", "d"} {
		runs := due(t, s, "c", "d", "e")
		if len(runs) != 1 || runs[0].Type != name {
			t.Fatalf("claimed %+v, want a run of %s", runs, name)
		}
		mustNotRun(t, s, "c", "d", "e")
		completes(t, s, runs[0], "", time.Time{}, consumption(peek(t, s, name, "topic of "+name), "topic of "+name))
	}
	mustNotRun(t, s, "c", "d", "e")
}

// However a run ends without success, another one follows.
func TestConsumerWhoseRunIsEnded(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	r := mustRun(t, s, "c")
	if _, err := s.Runs.Terminate(t.Context(), nil, r.RunID, Why{}); err != nil {
		t.Fatal(err)
	}
	mustNotRun(t, s, "c")
	place := one[float64](t, s.pool, `SELECT extract(epoch FROM available_at - now())::float8 FROM kagzi.run_keys`)
	if place < 20 || place > 30 {
		t.Errorf("the next look is in %v s, want half a minute", place)
	}
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET finished_at = finished_at - interval '1 minute'`)
	look(t, s)
	next := mustRun(t, s, "c")

	// The end of a run that was left behind changes nothing.
	completes(t, s, r, "late", time.Time{})
	if _, err := s.Runs.Resume(t.Context(), nil, r.RunID, Why{}); err == nil {
		t.Error("a run that was left behind was resumed")
	}
	completes(t, s, next, "next", time.Time{})
	if _, err := s.Runs.Resume(t.Context(), nil, r.RunID, Why{}); err == nil {
		t.Error("a run that was left behind was resumed")
	}
	if got := one[string](t, s.pool, `SELECT convert_from(state, 'UTF8') FROM kagzi.consumers`); got != "next" {
		t.Errorf("state %q", got)
	}
}

// Events behind a publisher who has not committed make nothing due. A rollback writes nothing: the place in the line
// does.
func TestConsumerBehindAPublisher(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			subscribe(t, s, consumerOf("c", "a"))
			completes(t, s, mustRun(t, s, "c"), "", time.Time{})
			mustNotRun(t, s, "c")
			tx := begin(t, s)
			publishIn(t, s, tx, named("a", "first")...)
			publishes(t, s, named("a", "second")...)
			mustNotRun(t, s, "c")
			exec(t, tx, end)
			exec(t, s.pool, `UPDATE kagzi.run_keys SET available_at = available_at - interval '1 minute',
				consumers_at = consumers_at - interval '1 minute'`)
			want := []string{"second"}
			if end == "COMMIT" {
				want = []string{"first", "second"}
			}
			r := mustRun(t, s, "c")
			p := peek(t, s, "c", "a")
			if got := eventIDs(p); !slices.Equal(got, want) {
				t.Errorf("peeked %v, want %v", got, want)
			}
			completes(t, s, r, "", time.Time{}, consumption(p, "a", want...))
			mustNotRun(t, s, "c")
		})
	}
}

func TestDeleteConsumer(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"), consumerOf("d", "a"))
	if runs := due(t, s, "c", "d"); len(runs) != 2 {
		t.Fatalf("%d runs", len(runs))
	}
	if err := s.Consumers.Delete(t.Context(), nil, "c", Why{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Consumers.Delete(t.Context(), nil, "c", Why{}); err == nil {
		t.Error("deleted twice")
	}
	publishes(t, s, named("a", "1")...)
	if got := eventIDs(peek(t, s, "d", "a")); len(got) != 1 {
		t.Errorf("the other consumer has %v", got)
	}
	mustNotRun(t, s, "c")
	if keys := one[string](t, s.pool, `SELECT string_agg(run_key, ' ') FROM kagzi.run_keys
		WHERE consumers_at IS NOT NULL`); keys != OwnGroup("d") {
		t.Errorf("keys with consumers: %s", keys)
	}
}

func TestTriggerConsumer(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	r := mustRun(t, s, "c")
	if _, err := s.Consumers.Trigger(t.Context(), nil, "c", true, Why{}); err == nil {
		t.Error("triggered although a run is active")
	}
	completes(t, s, r, "", time.Time{})
	mustNotRun(t, s, "c")
	if due, err := s.Consumers.Trigger(t.Context(), nil, "c", true, Why{}); err != nil ||
		due != (DueRun{uuid.Nil, "queue", "c", 0}) {
		t.Errorf("%+v, %v", due, err)
	}
	r = mustRun(t, s, "c")
	if _, err := s.Consumers.Trigger(t.Context(), nil, "c", false, Why{}); err != nil {
		t.Error(err)
	}
	completes(t, s, r, "", time.Time{})
	completes(t, s, mustRun(t, s, "c"), "", time.Time{})
	mustNotRun(t, s, "c")
	if _, err := s.Consumers.Trigger(t.Context(), nil, "x", false, Why{}); err == nil {
		t.Error("triggered a consumer that there is not")
	}
}

// A pause of all runs stops looks at the keys of consumers, too. Its end begins them again.
func TestConsumerAfterAPause(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	r := mustRun(t, s, "c")
	pause(t, s, Pause{})
	completes(t, s, r, "", time.Now().Add(time.Hour))
	mustNotRun(t, s, "c")
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_keys WHERE available_at < 'infinity'`); n != 0 {
		t.Fatal("a key is in the line although everything is paused")
	}
	if _, err := s.Pauses.Unpause(t.Context(), nil, Pause{}); err != nil {
		t.Fatal(err)
	}
	mustNotRun(t, s, "c")
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.run_keys WHERE available_at < 'infinity'`); n != 1 {
		t.Error("the key is not in the line")
	}
}

// A worker that died may have ended a run of a consumer, and handed its key to no worker.
func TestConsumerOfALostWorker(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	r := mustRun(t, s, "c")
	publishes(t, s, named("a", "1")...)
	mustNotRun(t, s, "c")
	flush(t, s, &Flush{Finishes: []*Finish{finish(r)}})
	mustNotRun(t, s, "c")
	if err := s.Workers.releaseAll(t.Context(), s.pool, &LostWorker{RecheckKeys: true}); err != nil {
		t.Fatal(err)
	}
	mustRun(t, s, "c")
}

// A claim finds that the last consumer of a group was deleted, and is about to write that the group has none, while
// another one is registered.
func TestConsumerRegisteredBesideAClaim(t *testing.T) {
	t.Parallel()
	s := open(t)
	in := func(name string) []*Consumer {
		c := consumerOf(name)
		c.Key = "group"
		return []*Consumer{c}
	}
	subscribe(t, s, in("old")...)
	if err := s.Consumers.Delete(t.Context(), nil, "old", Why{}); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, s)
	exec(t, tx, lockKeys, s.namespace, "queue", 9, []string{}, []string{}, 0, 0, 500, []bool{})
	_, start := s.Consumers.consumersLook(nil, false)
	b := &pgx.Batch{}
	start(b, []string{"group"})
	exec(t, tx, b.QueuedQueries[0].SQL, b.QueuedQueries[0].Arguments...)
	meetsLock(t, s, func(ctx context.Context) {
		err := s.Consumers.Register(ctx, in("new"))
		for pg.Locked(err) { // it waits for a tenth of a second
			err = s.Consumers.Register(ctx, in("new"))
		}
		if err != nil {
			t.Error(err)
		}
	}, func() { commit(t, tx) })
	mustRun(t, s, "new")
}

// A worker that starts waits for no claim and no end of a run, which lock the rows of its consumers, unless it changes
// them.
func TestRegisterConsumersAgain(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	tx := begin(t, s)
	exec(t, tx, `SELECT FROM kagzi.consumers FOR UPDATE`)
	exec(t, tx, `SELECT FROM kagzi.subscriptions FOR UPDATE`)
	exec(t, tx, `SELECT FROM kagzi.run_keys FOR UPDATE`)
	subscribe(t, s, consumerOf("c", "a"))
	changed := consumerOf("c", "a")
	changed.Priority = 3
	if err := s.Consumers.Register(t.Context(), []*Consumer{changed}); !pg.Locked(err) {
		t.Errorf("got %v", err)
	}
	exec(t, tx, "ROLLBACK")
	changed = consumerOf("c", "b")
	changed.Key, changed.MostWake = "group", time.Hour
	subscribe(t, s, changed)
	if got := one[string](t, s.pool, `SELECT concat_ws(' ', c.run_key, c.most_wake,
		(SELECT string_agg(s.topic || s.subscribed, ' ' ORDER BY s.topic) FROM kagzi.subscriptions s),
		(SELECT string_agg(k.run_key, ' ' ORDER BY k.run_key) FROM kagzi.run_keys k WHERE k.consumers_at IS NOT NULL))
			FROM kagzi.consumers c`); got != "group 01:00:00 afalse btrue consumer c group" {
		t.Errorf("the row is %s", got)
	}
	// A consumer that changes its group while a run is active goes on under the new one.
	r := mustRun(t, s, "c")
	changed.Key = "another"
	subscribe(t, s, changed)
	mustNotRun(t, s, "c")
	flush(t, s, &Flush{Finishes: []*Finish{finish(r)}})
	exec(t, s.pool, `DELETE FROM kagzi.key_changes`)
	if place := one[float64](t, s.pool, `SELECT extract(epoch FROM available_at - now())::float8 FROM kagzi.run_keys
		WHERE run_key = 'another'`); place < 1 || place > 5 {
		t.Errorf("the next look is in %v s", place)
	}
}

// A transaction that was publishing when a consumer subscribed does not see it, and leaves no change. The coordinator
// finds that.
func TestRecheckConsumers(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"), consumerOf("d", "a"))
	rechecks := func(want ...DueRun) {
		t.Helper()
		if due, err := s.Consumers.Recheck(t.Context()); err != nil || !slices.Equal(due, want) {
			t.Errorf("%+v, %v; want %+v", due, err, want)
		}
	}
	for _, r := range due(t, s, "c", "d") {
		completes(t, s, r, "", time.Time{})
	}
	mustNotRun(t, s, "c", "d")
	rechecks()
	publishes(t, s, named("a", "1")...)
	exec(t, s.pool, `DELETE FROM kagzi.key_changes`)
	rechecks() // it is too young
	exec(t, s.pool, `UPDATE kagzi.events SET published_at = published_at - interval '1 minute'`)
	rechecks(DueRun{Queue: "queue", Type: "c"})
	runs := due(t, s, "c", "d")
	if len(runs) != 2 {
		t.Fatalf("%d runs", len(runs))
	}
	rechecks() // they are active
	exec(t, s.pool, `UPDATE kagzi.subscriptions SET looked_at = 0`)
	rechecks()
	for _, r := range runs {
		completes(t, s, r, "", time.Time{}, consumption(peek(t, s, r.Type, "a"), "a", "1"))
	}
	mustNotRun(t, s, "c", "d")
	exec(t, s.pool, `UPDATE kagzi.consumers SET wake_at = now() WHERE consumer = 'd'`)
	pause(t, s, Pause{Key: Key{Name: OwnGroup("d"), Group: true}})
	rechecks()
	if _, err := s.Pauses.Unpause(t.Context(), nil, Pause{Key: Key{Name: OwnGroup("d"), Group: true}}); err != nil {
		t.Fatal(err)
	}
	exec(t, s.pool, `DELETE FROM kagzi.key_changes`)
	rechecks(DueRun{Queue: "queue", Type: "d"})
	mustRun(t, s, "d")
}

// A run that reads nothing has looked at the events that were there when it started.
func TestConsumerThatDoesNotPeek(t *testing.T) {
	t.Parallel()
	s := open(t)
	publishes(t, s, named("a", "1")...)
	publishes(t, s, named("b", "1")...)
	subscribe(t, s, consumerOf("c", "a", "b"))
	r := mustRun(t, s, "c")
	publishes(t, s, named("b", "2")...)
	completes(t, s, r, "", time.Time{}, consumption(peek(t, s, "c", "a"), "a"))
	r = mustRun(t, s, "c") // because of the event that came after its start
	completes(t, s, r, "", time.Time{})
	mustNotRun(t, s, "c")
	if got := eventIDs(peek(t, s, "c", "b")); len(got) != 2 {
		t.Errorf("peeked %v", got)
	}
}

// The end of a run that was cancelled meanwhile changes nothing of its consumer.
func TestConsumerWhoseRunIsCancelledAtItsEnd(t *testing.T) {
	t.Parallel()
	s := open(t)
	publishes(t, s, named("a", "1")...)
	subscribe(t, s, consumerOf("c", "a"))
	r := mustRun(t, s, "c")
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET cancel_requested_at = now()`)
	e := finish(r)
	p := peek(t, s, "c", "a")
	e.Consumed = &Consumed{
		Consumer: "c", WakeAt: time.Now().Add(time.Hour),
		Topics: []ConsumedTopic{consumption(p, "a", "1")},
	}
	flush(t, s, &Flush{Finishes: []*Finish{e}})
	if e.Outcome != Cancelling {
		t.Fatalf("outcome %v", e.Outcome)
	}
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.consumers WHERE state IS NOT NULL
		OR wake_at IS NOT NULL`); n != 0 {
		t.Error("the consumer has a state or a time")
	}
	if got := eventIDs(peek(t, s, "c", "a")); len(got) != 1 {
		t.Errorf("peeked %v", got)
	}
}

// A run that completes after the consumer has left it behind changes nothing.
func TestConsumerThatHasLeftARunBehind(t *testing.T) {
	t.Parallel()
	s := open(t)
	publishes(t, s, named("a", "1")...)
	subscribe(t, s, consumerOf("c", "a"))
	r := mustRun(t, s, "c")
	p := peek(t, s, "c", "a")
	exec(t, s.pool, `UPDATE kagzi.consumers SET run_id = gen_random_uuid()`)
	completes(t, s, r, "late", time.Now().Add(time.Hour), consumption(p, "a", "1"))
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.consumers WHERE state IS NOT NULL
		OR wake_at IS NOT NULL`); n != 0 {
		t.Error("the consumer has a state or a time")
	}
	if got := eventIDs(peek(t, s, "c", "a")); len(got) != 1 {
		t.Errorf("peeked %v", got)
	}
}

// What an open publisher holds up is not there yet: there are no more events for this run.
func TestPeekBehindAPublisher(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	publishes(t, s, named("a", "1", "2")...)
	tx := begin(t, s)
	publishIn(t, s, tx, named("a", "open")...)
	publishes(t, s, named("a", "3", "4", "5")...)
	p, err := s.Consumers.Peek(t.Context(), "c", "a", 3, 1<<20, nil)
	if err != nil || !slices.Equal(eventIDs(p), []string{"1", "2"}) || p.More {
		t.Errorf("peeked %v, more: %t, %v", eventIDs(p), p.More, err)
	}
	commit(t, tx)
	if p, err = s.Consumers.Peek(t.Context(), "c", "a", 3, 1<<20, nil); err != nil ||
		!slices.Equal(eventIDs(p), []string{"1", "2", "open"}) || !p.More {
		t.Errorf("peeked %v, more: %t, %v", eventIDs(p), p.More, err)
	}
}

// Idle keys of consumers are not deleted: claims would not know that they have consumers.
func TestKeysOfConsumersStay(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	completes(t, s, mustRun(t, s, "c"), "", time.Time{})
	mustNotRun(t, s, "c")
	if deleted, _, err := s.Limits.PruneKeys(t.Context(), KeyCursor{}, 100); err != nil || deleted != 0 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
	publishes(t, s, named("a", "1")...)
	mustRun(t, s, "c")
}

// An event makes another run due in whichever order its commit, the end of the run and the look after it come.
func TestEventAroundTheEndOfARun(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"commit end look", "end commit look", "end look commit"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			subscribe(t, s, consumerOf("c", "a"))
			r := mustRun(t, s, "c")
			p := peek(t, s, "c", "a")
			tx := begin(t, s)
			publishIn(t, s, tx, named("a", "1")...)
			committed := false
			for step := range strings.FieldsSeq(order) {
				switch step {
				case "commit":
					commit(t, tx)
					committed = true
				case "end":
					completes(t, s, r, "", time.Time{}, consumption(p, "a"))
				case "look":
					if runs := due(t, s, "c"); (len(runs) == 1) != committed {
						t.Fatalf("%d runs", len(runs))
					}
				}
			}
			if order == "end look commit" {
				mustRun(t, s, "c")
			}
		})
	}
}

// A run's turn in its group is the time of its event, not that of the claim that noticed the event.
func TestTurnOfAnEventThatIsNoticedLate(t *testing.T) {
	t.Parallel()
	s := open(t)
	var group []*Consumer
	for _, name := range []string{"c", "d", "e"} {
		c := consumerOf(name, "topic of "+name)
		c.Key = "group"
		group = append(group, c)
	}
	subscribe(t, s, group...)
	for range group {
		completes(t, s, due(t, s, "c", "d", "e")[0], "", time.Time{})
	}
	publishes(t, s, named("topic of e", "1")...)
	busy := mustRun(t, s, "e")
	tx := begin(t, s)
	publishIn(t, s, tx, named("topic of c", "early")...)
	publishes(t, s, named("topic of d", "later")...)
	mustNotRun(t, s, "c", "d", "e")
	commit(t, tx)
	look(t, s)
	mustNotRun(t, s, "c", "d", "e")
	completes(t, s, busy, "", time.Time{})
	for _, want := range []string{"c", "d"} {
		runs := due(t, s, "c", "d", "e")
		if len(runs) != 1 || runs[0].Type != want {
			t.Fatalf("claimed %+v, want a run of %s", runs, want)
		}
		completes(t, s, runs[0], "", time.Time{})
	}
}
