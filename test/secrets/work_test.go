package secrets_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// A secret is a payload with the marks.
type secret struct {
	Text   string
	Number int64
}

func newSecret(what string) secret { return secret{word + what, number} }

var (
	parent   = kagzi.Define[secret, secret]("parent", kit.NoRetry)
	child    = kagzi.Define[secret, secret]("child", kit.NoRetry)
	undo     = kagzi.Define[secret, secret]("undo")
	batched  = kagzi.Define[[]secret, secret]("batched")
	approval = kagzi.DefineSignal[secret]("approval")
	facts    = topic.Define[secret]("facts")
	watcher  = topic.DefineConsumer("watcher", topic.ConsumerConfig{
		Topics:    []topic.AnyTopic{facts},
		LeastWake: time.Millisecond,
	})
)

// An xor is a Sealer that hides texts, and is a Sealer with a key for hashes.
type xor struct{}

func (xor) Seal(data []byte) ([]byte, error) { return xored(data), nil }
func (xor) Open(data []byte) ([]byte, error) { return xored(data), nil }
func (xor) HashKey() []byte                  { return []byte("key") }

func xored(data []byte) []byte {
	out := bytes.Clone(data)
	for i := range out {
		out[i] ^= 0xa5
	}
	return out
}

// eachForm runs a test without and with a Sealer.
func eachForm(t *testing.T, test func(t *testing.T, cfg kagzi.ClientConfig)) {
	t.Parallel()
	for name, cfg := range map[string]kagzi.ClientConfig{
		"Plain":  {RunEvents: true},
		"Sealed": {RunEvents: true, Sealer: xor{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, cfg)
		})
	}
}

// work has every kind of payload that code makes. It fails if fail is set, after everything else.
func work(fail bool) func(ctx kagzi.Context, in secret) (secret, error) {
	return func(ctx kagzi.Context, in secret) (secret, error) {
		kagzi.Compensate(ctx, "undo all", undo.With(newSecret("compensation")))
		if _, err := kagzi.Step(ctx, "step", returns("step"), kagzi.Input(newSecret("step's input")),
			kagzi.UndoneBy(undo)); err != nil {
			return in, err
		}
		_, err := kagzi.StepTx(ctx, "tx", func(context.Context, pgx.Tx) (secret, error) { return newSecret("tx"), nil })
		if err != nil {
			return in, err
		}
		_, err = kagzi.Map(ctx, "map", []secret{newSecret("item"), newSecret("other item")},
			func(ctx kagzi.Context, item secret) (secret, error) {
				return item, kagzi.Sleep(ctx, "nap", time.Millisecond)
			})
		if err != nil {
			return in, err
		}
		if err := topic.Publish(ctx, "tell", facts.With(newSecret("event"))); err != nil {
			return in, err
		}
		if _, err := kagzi.RunChild(ctx, "child", child, newSecret("child")); err != nil {
			return in, err
		}
		if _, err = kagzi.WaitSignal(ctx, approval); err != nil {
			return in, err
		}
		if fail {
			return in, errors.New("the code fails")
		}
		return newSecret("output"), nil
	}
}

func returns(what string) func(context.Context) (secret, error) {
	return func(context.Context) (secret, error) { return newSecret(what), nil }
}

func echo(_ kagzi.Context, in secret) (secret, error) { return in, nil }

// watch is the consumer's function. Its state is a payload.
func watch(ctx kagzi.Context, state secret) (secret, error) {
	events, err := topic.Peek(ctx, "new", facts, 10)
	if err != nil || len(events) == 0 {
		return state, err
	}
	return newSecret("state"), topic.Reserve(ctx, "new", events...)
}

// worker returns a worker with code for everything.
func worker(e *evidence, c *kagzi.Client, fail bool) *kagzi.Worker {
	cfg := kit.Quick
	cfg.HungAfter = 100 * time.Millisecond
	w := kit.NewWorker(e.t, c, cfg)
	kagzi.Handle(w, parent, work(fail))
	kagzi.Handle(w, child, echo)
	kagzi.Handle(w, undo, echo)
	kagzi.Handle(w, batched, func(_ kagzi.Context, in []secret) (secret, error) { return in[0], nil })
	topic.Consume(w, watcher, watch)
	return w
}

// Runs that use everything, and everything that people do to them.
func TestWork(t *testing.T) {
	eachForm(t, func(t *testing.T, cfg kagzi.ClientConfig) {
		db := dbtest.Database(t)
		e := collect(t, db, cfg.Sealer != nil)
		e.hear(db.DSN)
		c := e.client(db.Pool, cfg)
		k := &kit.Kit{T: t, Ctx: e.ctx, Pool: db.Pool, Client: c}
		w := worker(e, c, false)
		stop := kit.StartWorker(t, w)
		run := kit.Begin(k, parent, newSecret("input"), kagzi.ID("x"), approval.With(newSecret("message")))
		if out := kit.ResultOf(k, run); out != newSecret("output") {
			t.Errorf("the result is %v", out)
		}
		if _, err := kagzi.StartItem(e.ctx, c, batched, newSecret("first item"),
			kagzi.Batch{Key: "k", Most: 2, Within: time.Hour}); err != nil {
			t.Fatal(err)
		}
		full, err := kagzi.StartItem(e.ctx, c, batched, newSecret("second item"),
			kagzi.Batch{Key: "k", Most: 2, Within: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		kit.ResultOf(k, full)
		changes(e, k, run.ID())
		await.True(t, "the consumer has seen an event", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'watcher'
				AND status = 'COMPLETED' AND output IS NOT NULL`) > 0
		})
		if err := w.Replay(e.ctx, run.ID()); err != nil {
			t.Error(err)
		}
		e.look(c)
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// changes does to a run that is over, and to others, what people do.
func changes(e *evidence, k *kit.Kit, run kagzi.RunID) {
	e.t.Helper()
	c, why := k.Client, []kagzi.ChangeOption{kagzi.Actor("mira"), kagzi.Reason("a test")}
	must := func(err error) {
		e.t.Helper()
		if err != nil {
			e.t.Error(err)
		}
	}
	again, err := admin.New(c).Runs.Restart(e.ctx, run, admin.NewInput(newSecret("new input")), kagzi.Actor("mira"))
	must(err)
	k.WaitStatus(again, kagzi.StatusSleeping, "signal approval")
	must(c.Signal(e.ctx, again, approval.With(newSecret("a later message")), kagzi.Actor("mira")))
	k.WaitStatus(again, kagzi.StatusCompleted)
	fork, err := admin.New(c).Runs.Fork(e.ctx, run, "child", kagzi.Actor("mira"))
	must(err)
	k.WaitStatus(fork, kagzi.StatusCompleted)
	must(topic.New(c).Publish(e.ctx, facts.With(newSecret("published")).WithID("e")))
	must(topic.New(c).Publish(e.ctx, facts.With(newSecret("published")).WithID("e")))
	for _, input := range []string{"schedule", "schedule changed"} {
		must(c.Schedule(e.ctx, kagzi.Schedule{Name: "daily", Cron: "0 0 * * *", Run: child.With(newSecret(input))},
			why...))
	}
	_, err = admin.New(c).Schedules.Trigger(e.ctx, "daily", why...)
	must(err)
	kit.Begin(k, child, newSecret("held"), kagzi.ID("held"), kagzi.Delay(time.Hour))
	_, err = kagzi.Start(e.ctx, c, child, newSecret("another"), kagzi.ID("held"))
	e.fails("another input of an active ID", err)
	e.says("another input of an active ID", "held")
	kit.Begin(k, child, newSecret("debounced"), kagzi.Debounce{Key: "soon", Delay: time.Hour, Max: time.Hour})
	kit.Begin(k, child, newSecret("debounced later"), kagzi.Debounce{Key: "soon", Delay: time.Hour, Max: time.Hour})
	must(c.Cancel(e.ctx, kagzi.ID("held"), why...))
	must(admin.New(c).Runs.Delete(e.ctx, fork, why...))
}

// Runs that fail, are compensated and resumed, and panic with payloads at hand.
func TestFailures(t *testing.T) {
	eachForm(t, func(t *testing.T, cfg kagzi.ClientConfig) {
		db := dbtest.Database(t)
		e := collect(t, db, cfg.Sealer != nil)
		c := e.client(db.Pool, cfg)
		k := &kit.Kit{T: t, Ctx: e.ctx, Pool: db.Pool, Client: c}
		panics := kagzi.Define[secret, secret]("panics", kit.NoRetry)
		stepPanics := kagzi.Define[secret, secret]("step panics", kit.NoRetry)
		hangs := kagzi.Define[secret, secret]("hangs", kit.NoRetry)
		w := worker(e, c, true)
		release := make(chan struct{})
		kagzi.Handle(w, panics, func(_ kagzi.Context, in secret) (secret, error) {
			return in, panicsWith(in.Number, in.Text, in)
		})
		kagzi.Handle(w, stepPanics, func(ctx kagzi.Context, in secret) (secret, error) {
			return in, kagzi.Do(ctx, "step", func(context.Context) error { return panicsWith(in.Number, in.Text, in) },
				kit.NoRetry)
		})
		kagzi.Handle(w, hangs, func(ctx kagzi.Context, in secret) (secret, error) {
			return in, kagzi.Do(ctx, "step", func(context.Context) error { return waitsWith(in.Number, release) },
				kagzi.Timeout(time.Millisecond), kit.NoRetry)
		})
		kit.StartWorker(t, w)
		run := kit.Begin(k, parent, newSecret("input"), approval.With(newSecret("message")))
		e.fails("a run that fails", kit.FailureOf(k, run, kagzi.StatusFailed))
		for _, wf := range []kagzi.Workflow[secret, secret]{panics, stepPanics} {
			run := kit.Begin(k, wf, newSecret("input"))
			e.fails("a panic", kit.FailureOf(k, run, kagzi.StatusFailed))
			e.say("a panic", k.InfoOf(run.ID()).Error)
		}
		e.says("a panic", "index out of range", "panicsWith(...)", "work_test.go")
		run = kit.Begin(k, hangs, newSecret("input"))
		e.log.WantLine(t, "goes on although its context has ended", "waitsWith(...)", string(run.ID()))
		close(release)
		e.fails("a step that hangs", kit.FailureOf(k, run, kagzi.StatusFailed))
		e.look(c)
	})
}

// panicsWith panics with its arguments in the stack.
//
//go:noinline
func panicsWith(n int64, text string, s secret) error {
	list := []int64{n, int64(len(text)), s.Number}
	return fmt.Errorf("not reached: %d", list[len(slices.Clone(list))])
}

// waitsWith waits with its arguments in the stack.
//
//go:noinline
func waitsWith(n int64, release <-chan struct{}) error {
	<-release
	if n == 0 {
		return errors.New("not reached")
	}
	return nil
}

// marked returns the configuration of a pool of a user whose password is a mark, who has the rights of a worker and a
// client.
func marked(t *testing.T, db *dbtest.DB) *pgxpool.Config {
	t.Helper()
	worker, client, _ := dbtest.Roles(t, db)
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.User, cfg.ConnConfig.Password = worker+"_app", password
	var quoted string
	if err := dbtest.Owner(t, db.Pool).QueryRow(t.Context(), `SELECT quote_literal($1)`, password).
		Scan(&quoted); err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, db.Pool, `CREATE ROLE `+cfg.ConnConfig.User+` LOGIN PASSWORD `+quoted+` IN ROLE `+worker+`, `+client)
	t.Cleanup(func() {
		if _, err := dbtest.Owner(t, db.Pool).Exec(context.Background(), `DROP ROLE `+cfg.ConnConfig.User); err != nil {
			t.Error(err)
		}
	})
	return cfg
}
