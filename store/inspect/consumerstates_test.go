package inspect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kagzi/kagzi/store"
)

func topicStatesOf(t *testing.T, s *both) []TopicState {
	t.Helper()
	topics, err := s.TopicStates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return topics
}

func consumerStatesOf(t *testing.T, s *both) []ConsumerState {
	t.Helper()
	consumers, err := s.ConsumerStates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return consumers
}

func consumerState(t *testing.T, s *both, name string) ConsumerState {
	t.Helper()
	all := consumerStatesOf(t, s)
	i := slices.IndexFunc(all, func(c ConsumerState) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no consumer %s in %+v", name, all)
	}
	return all[i]
}

func TestTopicStates(t *testing.T) {
	t.Parallel()
	s := open(t)
	if got := topicStatesOf(t, s); len(got) != 0 {
		t.Errorf("topics %+v", got)
	}
	rotateEvents(t, s)
	publishes(t, s, named("b", "1", "2")...)
	ageEvents(t, s, 11)
	rotateEvents(t, s) // the rest goes to another partition
	publishes(t, s, named("b", "3")...)
	publishes(t, s, named("d", "1")...)
	other := newBoth(s.pool, "other")
	for _, topic := range []string{"a", "b", "e"} {
		publishes(t, other, named(topic, "1", "2", "3", "4")...)
	}
	subscribe(t, s, consumerOf("two", "c", "b"), consumerOf("one", "b", "d", "gone"))
	subscribe(t, s, consumerOf("one", "b"))
	subscribe(t, other, consumerOf("three", "d"))
	got := topicStatesOf(t, s)
	var short []string
	for _, g := range got {
		short = append(short, fmt.Sprint(g.Topic, " ", g.Events, g.More, g.Subscribers))
		if want := one[time.Time](t, s.pool, `SELECT coalesce(max(published_at), '0001-01-01 00:00:00Z')
			FROM kagzi.events WHERE topic = $1 AND namespace_id = 'test'`, g.Topic); !g.Newest.Equal(want) {
			t.Errorf("newest of %s: %v, want %v", g.Topic, g.Newest, want)
		}
	}
	if want := []string{"b 3 false [one two]", "c 0 false [two]", "d 1 false []"}; !slices.Equal(short, want) {
		t.Errorf("topics %q, want %q", short, want)
	}
}

// Counts end at their bounds.
func TestStatesOfManyEvents(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a", "b"))
	var ids []string
	for i := range mostEvents {
		ids = append(ids, fmt.Sprint(i))
	}
	publishes(t, s, named("a", ids...)...)
	check := func(more bool) {
		t.Helper()
		if got := topicStatesOf(t, s); len(got) != 2 || got[0].Events != mostEvents || got[0].More != more ||
			got[1].More {
			t.Errorf("topics %+v", got)
		}
		if got := consumerState(t, s, "c").Topics; len(got) != 2 || got[0].Pending != mostEvents ||
			got[0].More != more || got[1].Pending != 0 {
			t.Errorf("topics of the consumer: %+v", got)
		}
	}
	check(false)
	publishes(t, s, named("a", "x")...)
	check(true)
}

func TestConsumerStates(t *testing.T) {
	t.Parallel()
	s := open(t)
	if got := consumerStatesOf(t, s); len(got) != 0 {
		t.Errorf("consumers %+v", got)
	}
	subscribe(t, newBoth(s.pool, "other"), consumerOf("c", "z"))
	subscribe(t, s, consumerOf("none"), consumerOf("c", "b", "a", "gone"))
	subscribe(t, s, consumerOf("c", "b", "a"))
	publishes(t, s, named("a", "1", "2", "3", "4")...)
	publishes(t, s, named("b", "1")...)

	if n := consumerState(t, s, "none"); len(n.Topics) != 0 || !time.Now().After(n.WakeAt) || n.WakeAt.IsZero() ||
		n.RunID != [16]byte{} || n.RunStatus != "" {
		t.Errorf("consumer without topics: %+v", n)
	}

	// While a run is active, its records say what it has reserved.
	r := mustRun(t, s, "c")
	p := peek(t, s, "c", "a")
	flush(t, s, &store.Flush{Records: []*store.Record{record(r, "step", `"of the program"`)}})
	reserve := func(step string, n int) {
		t.Helper()
		rec := record(r, step, fmt.Sprintf(`{"a":[[%d,%d]]}`, p.Events[n].After, p.Events[n].Position))
		rec.Kind = store.KindReserve
		flush(t, s, &store.Flush{Records: []*store.Record{rec}})
	}
	reserve("first", 0)
	reserve("third", 2)
	c := consumerState(t, s, "c")
	if len(c.Topics) != 2 || c.Topics[0].Topic != "a" || c.Topics[0].Reserved != 2 || c.Topics[0].Pending != 4 ||
		c.Topics[1].Reserved != 0 || c.Topics[1].Pending != 1 {
		t.Errorf("topics %+v", c.Topics)
	}
	if c.Name != "c" || c.Key != r.Key.Name || c.Queue != "queue" || c.RunID != r.RunID ||
		c.RunStatus != store.Running ||
		!c.RunEnded.IsZero() || c.CreatedAt.IsZero() || c.Paused || c.State != nil || !c.WakeAt.IsZero() {
		t.Errorf("consumer %+v", c)
	}

	completes(t, s, r, "state", time.Now().Add(time.Hour), consumption(p, "a", "1", "3"))
	c = consumerState(t, s, "c")
	if string(c.State) != "state" || c.RunStatus != store.Completed || c.RunEnded.IsZero() ||
		time.Until(c.WakeAt) < 50*time.Minute || time.Until(c.WakeAt) > 70*time.Minute {
		t.Errorf("consumer %+v", c)
	}
	oldest := one[time.Time](t, s.pool, `SELECT published_at FROM kagzi.events WHERE topic = 'a' AND event_id = '2'`)
	if a := c.Topics[0]; a.Pending != 2 || a.More || !a.Oldest.Equal(oldest) || a.Reserved != 0 {
		t.Errorf("topic %+v, want two pending since %v", a, oldest)
	}
	exec(t, s.pool, `DELETE FROM kagzi.workflow_runs`) // as retention does
	exec(t, s.pool, `DELETE FROM kagzi.step_runs`)
	if c = consumerState(t, s, "c"); c.RunID != [16]byte{} || c.RunStatus != "" {
		t.Errorf("the run that is gone: %+v", c)
	}
}

// A consumer whose last run was cancelled, or failed without a pause, runs again.
func TestConsumerStatesAfterFailure(t *testing.T) {
	t.Parallel()
	s := open(t)
	carefree := consumerOf("carefree")
	carefree.PauseOnFailure = false
	subscribe(t, s, carefree, consumerOf("careful"), consumerOf("cancelled"))
	for _, r := range due(t, s, "carefree", "careful", "cancelled") {
		if r.Type == "cancelled" {
			if _, err := s.Runs.Terminate(t.Context(), nil, r.RunID, store.Why{}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		e := finish(r)
		e.Status, e.ErrorKind, e.Error, e.Output = store.Failed, "kind", "error", nil
		flush(t, s, &store.Flush{Finishes: []*store.Finish{e}})
	}
	for name, again := range map[string]bool{"carefree": true, "careful": false, "cancelled": true} {
		c := consumerState(t, s, name)
		if again != (!c.WakeAt.IsZero() && c.WakeAt.Sub(c.RunEnded) == 30*time.Second) || c.RunEnded.IsZero() {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// Of the pauses that stop a consumer, that of its group is named.
func TestConsumerStatesNamePauses(t *testing.T) {
	t.Parallel()
	s := open(t)
	subscribe(t, s, consumerOf("c", "a"))
	for _, p := range []store.Pause{
		{Queue: "other"},
		{Type: "other"},
		{Queue: "queue", Type: "other"},
		{Key: store.Key{Name: "other", Group: true}},
		{Queue: "queue", Key: store.Key{Name: "consumer c"}},
	} {
		pause(t, s, p)
	}
	if c := consumerState(t, s, "c"); c.Paused {
		t.Errorf("paused by %+v", c.Pause)
	}
	for _, p := range []store.Pause{
		{},
		{Queue: "queue"},
		{Type: "c"},
		{Queue: "queue", Type: "c"},
		{Key: store.Key{Name: "consumer c", Group: true}},
	} {
		p.Reason, p.Actor = "why", "who"
		pause(t, s, p)
		c := consumerState(t, s, "c")
		got := c.Pause
		if got.At.IsZero() {
			t.Error("since no time")
		}
		if got.At = p.At; !c.Paused || got != p {
			t.Errorf("paused by %+v, want %+v", c.Pause, p)
		}
	}
	for _, p := range []store.Pause{
		{Key: store.Key{Name: "consumer c", Group: true}},
		{Queue: "queue", Type: "c"},
		{Type: "c"},
		{Queue: "queue"},
		{},
	} {
		if _, err := s.Pauses.Unpause(t.Context(), nil, p); err != nil {
			t.Fatal(err)
		}
	}
	if c := consumerState(t, s, "c"); c.Paused {
		t.Errorf("paused by %+v, which has ended", c.Pause)
	}
}
