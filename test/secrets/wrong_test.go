package secrets_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// Types whose errors of encoding/json quote the value that they cannot decode.
type (
	wrongTime   struct{ Text time.Time }
	wrongAddr   struct{ Text netip.Addr }
	wrongInt    struct{ Number int8 }
	wrongKey    map[int8]int
	wrongString struct {
		Text int `json:",string"`
	}
	wrongNumber struct{ Text json.Number }
)

// Payloads that do not decode into the type that the code has for them: inputs, results, messages, events, items,
// children's results, states of consumers.
func TestWhatDoesNotDecode(t *testing.T) {
	eachForm(t, func(t *testing.T, cfg kagzi.ClientConfig) {
		db := dbtest.Database(t)
		e := collect(t, db, cfg.Sealer != nil)
		c := e.client(db.Pool, cfg)
		k := &kit.Kit{T: t, Ctx: e.ctx, Pool: db.Pool, Client: c}
		w := kit.NewWorker(t, c, kit.Quick)
		checks := []func(){
			undecodable[wrongTime](e, k, w, newSecret("")), undecodable[wrongAddr](e, k, w, newSecret("")),
			undecodable[wrongInt](e, k, w, newSecret("")),
			undecodable[wrongString](e, k, w, newSecret("")), undecodable[wrongNumber](e, k, w, newSecret("")),
			undecodable[wrongKey](e, k, w, map[int64]string{number: word}), undecodable[string](e, k, w, newSecret("")),
		}
		kit.StartWorker(t, w)
		for _, check := range checks {
			check()
		}
		e.says("does not decode into", "may quote the value")
		e.says("does not decode into", "cannot unmarshal number into Go struct field wrongInt.Number")
		e.look(c)
	})
}

// undecodable registers code that expects a Wrong wherever the data is a Right. The function that it returns starts the
// code and waits for its failures.
func undecodable[Wrong, Right any](e *evidence, k *kit.Kit, w *kagzi.Worker, right Right) func() {
	name := fmt.Sprintf("%T", *new(Wrong))
	started, has := kagzi.Define[Right, Right](name, kit.NoRetry), kagzi.Define[Wrong, Wrong](name, kit.NoRetry)
	sent, read := kagzi.DefineSignal[Right](name), kagzi.DefineSignal[Wrong](name)
	published, seen := topic.Define[Right](name), topic.Define[Wrong](name)
	kagzi.Handle(w, has, func(_ kagzi.Context, in Wrong) (Wrong, error) { return in, nil })
	inner := kagzi.Define[int, Right]("inner of "+name, kit.NoRetry)
	kagzi.Handle(w, inner, func(kagzi.Context, int) (Right, error) { return right, nil })
	outer := kagzi.Define[string, int]("outer of "+name, kit.NoRetry)
	kagzi.Handle(w, outer, func(ctx kagzi.Context, how string) (int, error) {
		switch how {
		case "message":
			_, err := kagzi.WaitSignal(ctx, read)
			return 0, err
		case "child":
			_, err := kagzi.RunChild(ctx, "c", kagzi.Define[int, Wrong](inner.Name()), 1)
			return 0, err
		case "step":
			if err := kagzi.Do(ctx, "is replayed", func(context.Context) error { return nil }); err != nil {
				return 0, err
			}
			if ctx.Attempt() == 1 {
				_, err := kagzi.Step(ctx, "s", func(context.Context) (Right, error) { return right, nil })
				return 0, errors.Join(err, errors.New("again"))
			}
			_, err := kagzi.Step(ctx, "s", func(context.Context) (Wrong, error) { return *new(Wrong), nil })
			return 0, err
		}
		_, err := kagzi.Step(ctx, "s", func(context.Context) (any, error) { return right, nil })
		return 0, err
	})
	consumer := topic.DefineConsumer("consumer of "+name, topic.ConsumerConfig{
		Topics:    []topic.AnyTopic{seen},
		LeastWake: time.Millisecond,
	})
	topic.Consume(w, consumer, func(ctx kagzi.Context, n int) (int, error) {
		events, err := topic.Peek(ctx, "new", seen, 10)
		return n + len(events), err
	})
	return func() {
		e.t.Helper()
		e.fails(name+": an input", kit.FailureOf(k, kit.Begin(k, started, right), kagzi.StatusFailed))
		waits := kit.Begin(k, outer, "message", sent.With(right))
		aside := ""
		await.True(e.t, "the message is set aside", func() bool {
			got, err := admin.New(k.Client).Messages.List(e.ctx, waits, admin.MessageFilter{})
			if err != nil || len(got) != 1 {
				e.t.Fatalf("%s: messages %v, %v", name, got, err)
			}
			aside = got[0].SetAside
			return aside != ""
		})
		e.fails(name+": a message", errors.New(aside))
		if err := admin.New(k.Client).Runs.Terminate(e.ctx, waits); err != nil {
			e.t.Error(err)
		}
		for _, how := range []string{"child", "step"} {
			retried := kagzi.Define[string, int](outer.Name(), kit.Soon)
			re := kit.FailureOf(k, kit.Begin(k, retried, how, sent.With(right)), kagzi.StatusFailed)
			if re.Kind != kind.Nondeterminism {
				e.t.Errorf("%s, %s: %v", name, how, re)
			}
			e.fails(name+": a "+how, re)
		}
		_, err := kit.Find(e.t, k.Client, kagzi.Define[int, Wrong](inner.Name()), kit.Begin(k, inner, 1)).Result(e.ctx)
		e.fails(name+": a result", err)
		if err := topic.New(k.Client).Publish(e.ctx, published.With(right)); err != nil {
			e.t.Error(err)
		}
		for _, err := range topic.Events(e.ctx, k.Client, seen, 0) {
			e.fails(name+": an event", err)
		}
		await.True(e.t, "the consumer fails", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = $1 AND status = 'FAILED'`,
				consumer.Name()) > 0
		})
	}
}

// loud is a value that encodes and does not decode, and quotes itself in the error.
type loud struct{ Text string }

func (l *loud) UnmarshalJSON(data []byte) error { return fmt.Errorf("no %s", data) }

// refusing is a JSON codec that refuses values, and a Sealer that does so, too. Their errors have no values.
type refusing struct{ encode, decode, seal, open bool }

var errRefused = errors.New("refused by the test")

func (r *refusing) Encode(v any) ([]byte, error) {
	if r.encode {
		return nil, errRefused
	}
	return json.Marshal(v)
}

func (r *refusing) Decode(data []byte, v any) error {
	if r.decode {
		return errRefused
	}
	return json.Unmarshal(data, v)
}

func (r *refusing) Seal(data []byte) ([]byte, error) {
	if r.seal {
		return nil, errRefused
	}
	return data, nil
}

func (r *refusing) Open(data []byte) ([]byte, error) {
	if r.open {
		return nil, errRefused
	}
	return data, nil
}

func (*refusing) HashKey() []byte { return nil }

// Values that cannot be stored: too large, or refused by the codec, by the sealer, or by their own type.
func TestWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	e := collect(t, db, false)
	kit.Begin(&kit.Kit{T: t, Ctx: e.ctx, Pool: db.Pool, Client: e.client(db.Pool, kagzi.ClientConfig{})}, child,
		newSecret("stored"))
	for name, cfg := range map[string]kagzi.ClientConfig{
		"too large":    {MaxPayload: 10},
		"encode":       {Codec: &refusing{encode: true}},
		"decode":       {Codec: &refusing{decode: true}},
		"seal":         {Sealer: &refusing{seal: true}},
		"open":         {Sealer: &refusing{open: true}},
		"its own type": {},
	} {
		var v any = newSecret(name)
		if name == "its own type" {
			v = loud{word}
		}
		unstorable(e, name, e.client(db.Pool, cfg), v)
	}
	e.says("too large", "the limit (ClientConfig.MaxPayload) is 10")
	e.says("encode", "refused by the test")
	e.says("its own type", "may quote the value")
}

// unstorable makes each call of a client that brings a value.
func unstorable(e *evidence, name string, c *kagzi.Client, v any) {
	e.t.Helper()
	as := func(v any) kagzi.Call { // with the type of v
		if l, ok := v.(loud); ok {
			return kagzi.Define[loud, int]("w").With(l)
		}
		return kagzi.Define[secret, int]("w").With(v.(secret))
	}
	_, err := c.StartMany(e.ctx, []kagzi.Call{as(v)})
	e.fails(name+": an input", err)
	_, err = c.StartMany(e.ctx, []kagzi.Call{as(v)}, kagzi.ID("x"))
	e.fails(name+": an input of a run with an ID", err)
	err = c.Schedule(e.ctx, kagzi.Schedule{Name: "s", Cron: "0 0 * * *", Run: as(v)})
	e.fails(name+": an input of a schedule", err)
	message, event := kagzi.DefineSignal[secret]("s").With(newSecret("")),
		topic.Define[secret]("t").With(newSecret(""))
	if l, ok := v.(loud); ok {
		message, event = kagzi.DefineSignal[loud]("s").With(l), topic.Define[loud]("t").With(l)
	}
	e.fails(name+": a message", c.Signal(e.ctx, kagzi.ID("x"), message))
	e.fails(name+": an event", topic.New(c).Publish(e.ctx, event))
}

// A value that a step or a run returns and that cannot be stored.
func TestResultsThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]kagzi.ClientConfig{
		"too large": {MaxPayload: 60}, "its own type": {},
		"codec": {Codec: &picky{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Database(t)
			e := collect(t, db, false)
			k := &kit.Kit{T: t, Ctx: e.ctx, Pool: db.Pool, Client: e.client(db.Pool, cfg)}
			kit.Begin(k, kagzi.Define[string, int]("stored"), word, kagzi.Queue("other"))
			wf := kagzi.Define[string, any]("wf", kit.NoRetry)
			v := func() any {
				if name == "its own type" {
					return loud{word}
				}
				return newSecret(strings.Repeat("x", 60))
			}
			w := kit.NewWorker(t, k.Client, kit.Quick)
			kagzi.Handle(w, kagzi.Define[string, loud]("loud", kit.NoRetry),
				func(ctx kagzi.Context, _ string) (loud, error) { return loud{word}, nil })
			kagzi.Handle(w, wf, func(ctx kagzi.Context, where string) (any, error) {
				switch where {
				case "step":
					if name == "its own type" {
						return kagzi.Step(ctx, "s", func(context.Context) (loud, error) { return loud{word}, nil },
							kit.NoRetry)
					}
					return kagzi.Step(ctx, "s", func(context.Context) (any, error) { return v(), nil }, kit.NoRetry)
				case "event":
					if name == "its own type" {
						return 0, topic.Publish(ctx, "p", topic.Define[loud]("t").With(loud{word}))
					}
					return 0, topic.Publish(ctx, "p", topic.Define[any]("t").With(v()))
				case "child":
					_, err := kagzi.RunChild(ctx, "c", kagzi.Define[loud, int]("none"),
						loud{word + strings.Repeat("x", 60)})
					return 0, err
				}
				return v(), nil
			})
			kit.StartWorker(t, w)
			for _, where := range []string{"step", "event", "child", "run"} {
				if name == "its own type" && where == "run" { // as any it decodes
					e.fails(where, kit.FailureOf(k, kit.Begin(k, kagzi.Define[string, loud]("loud", kit.NoRetry), ""),
						kagzi.StatusFailed))
					continue
				}
				e.fails(where, kit.FailureOf(k, kit.Begin(k, wf, where), kagzi.StatusFailed))
			}
			e.look(k.Client)
		})
	}
}

// picky is a codec that does not encode values with a mark and a filling.
type picky struct{ refusing }

func (p *picky) Encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if strings.Contains(string(data), word) && strings.Contains(string(data), "xxx") {
		return nil, errRefused
	}
	return data, err
}
