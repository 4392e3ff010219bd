package kagzitest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/topic"
)

var received = topic.Define[string]("received")

// ofReceived is the configuration of a consumer of the topic.
func ofReceived(cfg topic.ConsumerConfig) topic.ConsumerConfig {
	cfg.Topics = []topic.AnyTopic{received}
	return cfg
}

// take takes all events of the topic.
func take(ctx kagzi.Context) ([]string, error) {
	events, err := topic.Peek(ctx, "new", received, 100)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range events {
		out = append(out, e.Payload)
	}
	return out, topic.Reserve(ctx, "new", events...)
}

// runsOf returns the runs of a consumer, the oldest first.
func runsOf(t *testing.T, env *kagzitest.Env, c topic.Consumer) []kagzi.RunInfo {
	t.Helper()
	runs, err := env.Client.List(t.Context(), kagzi.RunFilter{Workflow: c.Name(), Limit: 1000, Payloads: true})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(runs)
	return runs
}

// Published events are dealt with before Advance returns, in the order in which they came.
func TestConsumersGetWhatATestPublishes(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	c := topic.DefineConsumer("c", ofReceived(topic.ConsumerConfig{}))
	topic.Consume(env.Worker, c, func(ctx kagzi.Context, all []string) ([]string, error) {
		events, err := take(ctx)
		return append(all, events...), err
	})
	env.Advance(0)
	mustEqual(t, "runs of a new consumer", len(runsOf(t, env, c)), 1)
	for i := range 20 {
		env.Publish(received.With(fmt.Sprint(i, "a")), received.With(fmt.Sprint(i, "b")))
		env.Advance(0)
		runs := runsOf(t, env, c)
		mustEqual(t, "runs", len(runs), i+2)
		last := runs[len(runs)-1]
		mustEqual(t, "status", last.Status, kagzi.StatusCompleted)
		if want := fmt.Sprintf(`"%da","%[1]db"]`, i); !hasSuffix(last.Output, want) {
			t.Fatalf("the state is %s, want …%s", last.Output, want)
		}
	}
}

func hasSuffix(data []byte, suffix string) bool {
	return len(data) >= len(suffix) && string(data[len(data)-len(suffix):]) == suffix
}

// A consumer wakes at eight every day, and sees the events since.
func TestConsumerWakesAtItsTime(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	digest := topic.DefineConsumer("digest", ofReceived(topic.ConsumerConfig{}))
	var digests []string
	type state struct{ Next time.Time }
	topic.Consume(env.Worker, digest, func(ctx kagzi.Context, last state) (state, error) {
		now := ctx.Now().UTC()
		if !last.Next.IsZero() && now.Before(last.Next) {
			return last, topic.WakeAt(ctx, last.Next)
		}
		if !last.Next.IsZero() {
			events, err := take(ctx)
			if err != nil {
				return last, err
			}
			if err := kagzi.Do(ctx, "send", func(context.Context) error {
				digests = append(digests, fmt.Sprint(now.Format("15:04 "), len(events)))
				return nil
			}); err != nil {
				return last, err
			}
		}
		last.Next = time.Date(now.Year(), now.Month(), now.Day()+1, 8, 0, 0, 0, time.UTC)
		return last, topic.WakeAt(ctx, last.Next)
	})
	env.Advance(0)
	now := env.Now()
	env.Advance(time.Date(now.Year(), now.Month(), now.Day()+1, 7, 0, 0, 0, time.UTC).Sub(now)) // seven tomorrow
	for day := range 30 {
		for i := range day % 3 {
			env.Publish(received.With(fmt.Sprint(i)))
		}
		env.Advance(24 * time.Hour)
	}
	mustEqual(t, "digests", len(digests), 30)
	for i, d := range digests {
		mustEqual(t, "digest", d, fmt.Sprint("08:00 ", i%3))
	}
	var kept int
	for _, err := range topic.Events(t.Context(), env.Client, received, 0) {
		if err != nil {
			t.Fatal(err)
		}
		kept++
	}
	mustEqual(t, "events that are kept", kept, 30)
}

// LeastWake and MostWake bound the time that a run asks for, and the zero time asks for none.
func TestBoundsOfWakeAt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg   topic.ConsumerConfig
		asked time.Duration
		want  time.Duration // zero: it sleeps until the next event
	}{
		"Sooner":      {topic.ConsumerConfig{LeastWake: time.Hour}, time.Second, time.Hour},
		"Past":        {topic.ConsumerConfig{LeastWake: time.Hour}, -day, time.Hour},
		"Later":       {topic.ConsumerConfig{}, 40 * day, day},
		"Between":     {topic.ConsumerConfig{}, 3 * time.Hour, 3 * time.Hour},
		"OwnMost":     {topic.ConsumerConfig{MostWake: 50 * day}, 60 * day, 50 * day},
		"WithinOwn":   {topic.ConsumerConfig{MostWake: 50 * day}, 40 * day, 40 * day},
		"NoneAskedOf": {topic.ConsumerConfig{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := kagzitest.New(t)
			consumer := topic.DefineConsumer("c", ofReceived(c.cfg))
			topic.Consume(env.Worker, consumer, func(ctx kagzi.Context, n int) (int, error) {
				if c.asked == 0 {
					return n + 1, topic.WakeAt(ctx, time.Time{})
				}
				return n + 1, topic.WakeAt(ctx, ctx.Now().Add(c.asked))
			})
			env.Advance(max(c.want*5/2, day))
			runs := runsOf(t, env, consumer)
			if c.want == 0 {
				mustEqual(t, "runs", len(runs), 1)
				env.Publish(received.With("x"))
				env.Advance(0)
				mustEqual(t, "runs", len(runsOf(t, env, consumer)), 2)
				return
			}
			if len(runs) < 2 {
				t.Fatalf("%d runs", len(runs))
			}
			if waited := runs[1].CreatedAt.Sub(runs[0].EndedAt); waited < c.want-20*time.Minute ||
				waited > c.want+20*time.Minute {
				t.Errorf("the second run comes after %v, want %v", waited, c.want)
			}
		})
	}
}

// By default a run is followed by another one after half a minute at the soonest.
func TestLeastWake(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	c := topic.DefineConsumer("c", topic.ConsumerConfig{})
	topic.Consume(env.Worker, c, func(ctx kagzi.Context, n int) (int, error) {
		return n + 1, topic.WakeAt(ctx, ctx.Now())
	})
	env.Advance(0)
	env.Advance(10 * time.Minute)
	if n := len(runsOf(t, env, c)); n < 11 || n > 21 {
		t.Errorf("%d runs in 10 minutes, want one each half minute", n)
	}
}

// An event does not wait for the time that a run has asked for.
func TestEventsComeBeforeWakeAt(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	c := topic.DefineConsumer("c", ofReceived(topic.ConsumerConfig{}))
	topic.Consume(env.Worker, c, func(ctx kagzi.Context, n int) (int, error) {
		_, err := take(ctx)
		return n + 1, errors.Join(err, topic.WakeAt(ctx, ctx.Now().Add(12*time.Hour)))
	})
	env.Advance(time.Hour)
	env.Publish(received.With("x"))
	env.Advance(0)
	mustEqual(t, "runs", len(runsOf(t, env, c)), 2)
	env.Advance(11*time.Hour + 30*time.Minute) // the first run's time is taken back
	mustEqual(t, "runs", len(runsOf(t, env, c)), 2)
	env.Advance(time.Hour)
	mustEqual(t, "runs", len(runsOf(t, env, c)), 3)
}

// A failure pauses the consumer, however long the clock moves on. The end of the pause makes it due.
func TestAFailurePausesAConsumer(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	c := topic.DefineConsumer("c", ofReceived(topic.ConsumerConfig{}))
	broken := true
	kagzitest.Mock(env, "look", func(context.Context) (bool, error) { return broken, nil })
	topic.Consume(env.Worker, c, func(ctx kagzi.Context, n int) (int, error) {
		events, err := take(ctx)
		if err != nil || len(events) == 0 {
			return n, err
		}
		broken, err := kagzi.Step(ctx, "look", func(context.Context) (bool, error) { panic(0) })
		if err == nil && broken {
			err = errReal
		}
		return n + len(events), err
	})
	env.Publish(received.With("x"))
	env.Advance(0)
	pauses, err := admin.New(env.Client).Pauses.List(t.Context())
	if err != nil || len(pauses) != 1 || pauses[0].Target != (admin.Target{Group: c.Group()}) {
		t.Fatalf("pauses: %+v, %v", pauses, err)
	}
	before := len(runsOf(t, env, c))
	env.Publish(received.With("y"))
	env.Advance(10 * day)
	mustEqual(t, "runs", len(runsOf(t, env, c)), before)

	broken = false
	if err := admin.New(env.Client).Pauses.End(t.Context(), pauses[0].Target); err != nil {
		t.Fatal(err)
	}
	env.Advance(0)
	runs := runsOf(t, env, c)
	mustEqual(t, "runs", len(runs), before+1)
	mustEqual(t, "state", string(runs[len(runs)-1].Output), "2")
}

// With IgnoreFailure another run follows after LeastWake.
func TestAFailureThatIsIgnored(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	c := topic.DefineConsumer("c", ofReceived(topic.ConsumerConfig{LeastWake: time.Hour, IgnoreFailure: true}))
	topic.Consume(env.Worker, c, func(kagzi.Context, int) (int, error) { return 0, errReal })
	env.Advance(4*time.Hour + 30*time.Minute)
	mustEqual(t, "runs", len(runsOf(t, env, c)), 5)
}

// A consumer waits for the run of its group, while time goes on.
func TestConsumersOfAGroup(t *testing.T) {
	t.Parallel()
	env := napping(t)
	c := topic.DefineConsumer("c", ofReceived(topic.ConsumerConfig{Group: "mail"}))
	topic.Consume(env.Worker, c, func(ctx kagzi.Context, n int) (int, error) {
		_, err := take(ctx)
		return n + 1, err
	})
	env.Advance(0)
	nap := kagzitest.Start(env, trial, "x", kagzi.Group("mail"))
	env.Advance(0)
	env.Publish(received.With("x"))
	env.Advance(15 * time.Minute)
	env.Publish(received.With("y"))
	env.Advance(15 * time.Minute)
	mustEqual(t, "status beside the nap", runsOf(t, env, c)[1].Status, kagzi.StatusPending)
	env.Advance(time.Hour)
	mustEqual(t, "status after the nap", runsOf(t, env, c)[1].Status, kagzi.StatusCompleted)
	if begun, over := runsOf(t, env, c)[1].StartedAt, infoOf(t, env, nap.ID()).EndedAt; begun.Before(over) {
		t.Errorf("the consumer began at %v, before the nap was over at %v", begun, over)
	}
}

// The replay after the test is for runs of consumers, too.
func TestConsumersAreReplayed(t *testing.T) {
	t.Parallel()
	got := reports(t, func(env *kagzitest.Env) {
		n := 0
		topic.Consume(env.Worker, topic.DefineConsumer("c", ofReceived(topic.ConsumerConfig{})),
			func(ctx kagzi.Context, all []string) ([]string, error) {
				n++
				events, err := take(ctx)
				return append(all, append(events, fmt.Sprint(n))...), err
			})
		env.Advance(0)
	})
	mustReport(t, got, `version 1, diverges: `, `it completed with ["2"]; the run completed with ["1"]`)
}

// The clock does not jump over a transaction that has published.
func TestAnOpenTransactionThatHasPublished(t *testing.T) {
	t.Parallel()
	got := reports(t, func(env *kagzitest.Env) {
		kagzi.Handle(env.Worker, trial, threeMonths)
		env.StartWorker()
		_ = pgx.BeginFunc(t.Context(), env.Pool, func(tx pgx.Tx) error {
			if err := topic.New(env.Client).Publish(t.Context(), received.With("x"), kagzi.InTx(tx)); err != nil {
				t.Error(err)
			}
			env.Advance(day)
			return nil
		})
	})
	mustReport(t, got, "a transaction that has written to Kagzi's tables is open")
}

// failing gives env a consumer whose step fails while broken is set, and lets it fail on an event.
func failing(t *testing.T, env *kagzitest.Env) (c topic.Consumer, broken *bool) {
	t.Helper()
	c, broken = topic.DefineConsumer("c", ofReceived(topic.ConsumerConfig{})), new(bool)
	kagzitest.MockDo(env, "first", func(context.Context) error { return nil })
	kagzitest.MockDo(env, "second", func(context.Context) error {
		if *broken {
			return kagzi.Permanent(errReal)
		}
		return nil
	})
	topic.Consume(env.Worker, c, func(ctx kagzi.Context, n int) (int, error) {
		events, err := take(ctx)
		if err != nil || len(events) == 0 {
			return n, err
		}
		return n + len(events), errors.Join(do(ctx, "first"), do(ctx, "second"))
	})
	env.Advance(0)
	*broken = true
	env.Publish(received.With("x"))
	env.Advance(0)
	return c, broken
}

// A failed run that is resumed before the end of the pause goes on with its steps and its events. Once a later one has
// begun, it is too late.
func TestResumeOfAConsumersRun(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	c, broken := failing(t, env)
	failed := runsOf(t, env, c)[1]
	mustEqual(t, "status", failed.Status, kagzi.StatusFailed)

	*broken = false
	mustSet(t, admin.New(env.Client).Runs.Resume(t.Context(), failed.ID))
	env.Advance(day)
	mustEqual(t, "status in the pause", infoOf(t, env, failed.ID).Status, kagzi.StatusPending)
	mustSet(t, admin.New(env.Client).Pauses.End(t.Context(), admin.Target{Group: c.Group()}))
	env.Advance(0)
	runs := runsOf(t, env, c)
	mustEqual(t, "runs", len(runs), 2)
	mustEqual(t, "state", string(runs[1].Output), "1")
	mustSteps(t, env, failed.ID, "new", "new#2", "first", "second (unknown)", "second")

	*broken = true
	env.Publish(received.With("y"))
	env.Advance(0)
	failed = runsOf(t, env, c)[2]
	*broken = false
	mustSet(t, admin.New(env.Client).Pauses.End(t.Context(), admin.Target{Group: c.Group()}))
	env.Advance(0)
	mustEqual(t, "state", string(runsOf(t, env, c)[3].Output), "2")
	if err := admin.New(env.Client).Runs.Resume(t.Context(), failed.ID); !errors.Is(err, kagzi.ErrIDConflict) {
		t.Errorf("a resume that comes too late: %v", err)
	}
}

// A run that a client starts fails, and a restart of the consumer's failed run is the next run of the consumer.
func TestRunsOfAConsumerThatPeopleStart(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t)
	c, broken := failing(t, env)
	failed := runsOf(t, env, c)[1]
	*broken = false
	started, err := kagzi.Start(t.Context(), env.Client, kagzi.Define[int, int](c.Name()), 70)
	mustSet(t, err)
	restarted, err := admin.New(env.Client).Runs.Restart(t.Context(), failed.ID)
	mustSet(t, err)
	env.Advance(0)
	mustSet(t, admin.New(env.Client).Pauses.End(t.Context(), admin.Target{Group: c.Group()}))
	env.Advance(0)
	runs := runsOf(t, env, c)
	mustEqual(t, "runs", len(runs), 4)
	for _, r := range runs {
		switch r.ID {
		case started.ID():
			mustEqual(t, "status", r.Status, kagzi.StatusFailed)
		case restarted:
			mustEqual(t, "state", string(r.Output), "1") // it got the event that the failed one had seen
		}
	}
}
