package language_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/request"
	"github.com/kagzi/kagzi/value"
)

// gcm is a Sealer with random nonces.
type gcm struct {
	aead cipher.AEAD
	key  []byte // of hashes
}

func newGCM(t *testing.T, key, hashKey string) gcm {
	t.Helper()
	sum := sha256.Sum256([]byte(key))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return gcm{aead, []byte(hashKey)}
}

func (g gcm) Seal(data []byte) ([]byte, error) {
	nonce := make([]byte, g.aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	return g.aead.Seal(nonce, nonce, data, nil), nil
}

func (g gcm) Open(sealed []byte) ([]byte, error) {
	if len(sealed) < g.aead.NonceSize() {
		return nil, errors.New("too short")
	}
	return g.aead.Open(nil, sealed[:g.aead.NonceSize()], sealed[g.aead.NonceSize():], nil)
}

func (g gcm) HashKey() []byte {
	if len(g.key) == 0 {
		return nil
	}
	return g.key
}

func newSealedKit(t *testing.T) *kit.Kit {
	t.Helper()
	t.Parallel()
	return kit.NewWith(t, kagzi.ClientConfig{Sealer: newGCM(t, "key", "hash key")})
}

// The sealed form of a value differs each time. Values are compared in their unsealed form.
func TestSealedIdentity(t *testing.T) {
	k := newSealedKit(t)
	wf := kagzi.Define[string, string]("wf")
	first := kit.Begin(k, wf, "secret", kagzi.ID("x"))
	if again := kit.Begin(k, wf, "secret", kagzi.ID("x")); !again.Existed() || again.ID() != first.ID() {
		t.Errorf("started %v, want %v", again.ID(), first.ID())
	}
	if _, err := kagzi.Start(k.Ctx, k.Client, wf, "other", kagzi.ID("x")); !errors.Is(err, kagzi.ErrIDConflict) {
		t.Errorf("another input: %v", err)
	}
	plain := sha256.Sum256([]byte(`"secret"`))
	keyed := hmac.New(sha256.New, []byte("hash key"))
	keyed.Write([]byte(`"secret"`))
	hash := dbtest.QueryOne[[]byte](t, k.Pool, `SELECT input_hash FROM kagzi.workflow_runs`)
	if bytes.Equal(hash, plain[:16]) || !bytes.Equal(hash, keyed.Sum(nil)[:16]) {
		t.Errorf("hash %x is not made with the key", hash)
	}
	unkeyed := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Sealer: newGCM(t, "key", "")})
	if _, err := kagzi.Start(k.Ctx, unkeyed, wf, "secret", kagzi.ID("y")); err != nil {
		t.Fatal(err)
	}
	if got := dbtest.QueryOne[[]byte](t, k.Pool, `SELECT input_hash FROM kagzi.workflow_runs
		WHERE external_id = 'y'`); !bytes.Equal(got, plain[:16]) {
		t.Errorf("hash without a key: %x", got)
	}
}

// A restart's input is known again, too: a new one, the old one, and that of a run that had no ID to compare it for.
func TestSealedRestart(t *testing.T) {
	k := newSealedKit(t)
	wf := kagzi.Define[string, string]("wf")
	old := kit.Begin(k, wf, "a")
	k.Cancel(old.ID())
	known := func(as kagzi.RunID, id kagzi.ID, input string) {
		t.Helper()
		if run := kit.Begin(k, wf, input, id); run.ID() != as || !run.Existed() {
			t.Errorf("a start with ID %q and input %q made %v, want %v", id, input, run.ID(), as)
		}
		if got := string(k.InfoOf(as).Input); got != `"`+input+`"` {
			t.Errorf("input %s", got)
		}
	}
	restart := func(ref kagzi.Ref, opts ...admin.RestartOption) kagzi.RunID {
		t.Helper()
		id, err := admin.New(k.Client).Runs.Restart(k.Ctx, ref, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	withID := restart(old.ID(), kagzi.ID("x"))
	known(withID, "x", "a")
	k.Cancel(withID)
	same := restart(withID)
	known(same, "x", "a")
	k.Cancel(same)
	changed := restart(same, admin.NewInput("b"))
	known(changed, "x", "b")
	known(restart(old.ID(), kagzi.ID("y"), admin.NewInput("c")), "y", "c")

	blind := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Sealer: newGCM(t, "another key", "")})
	_, err := admin.New(blind).Runs.Restart(k.Ctx, old.ID(), kagzi.ID("z"))
	kit.MustContain(t, err, "cannot be opened")
}

// No value of a workflow is readable in the tables, and every value is readable where it is used.
func TestSealedWorkflow(t *testing.T) {
	k := newSealedKit(t)
	child := kagzi.Define[string, string]("child")
	wf := kagzi.Define[string, string]("wf")
	message := kagzi.DefineSignal[string]("message")
	w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, child, func(ctx kagzi.Context, in string) (string, error) { return in + "-child", nil })
	kagzi.Handle(w, wf, func(ctx kagzi.Context, in string) (string, error) {
		out, err := kagzi.Map(ctx, "map", []string{"secret-item"},
			func(ctx kagzi.Context, item string) (string, error) {
				// a new execution compares the items
				if err := kagzi.Sleep(ctx, "long", 250*time.Millisecond); err != nil {
					return "", err
				}
				return kagzi.Step(ctx, "step", func(context.Context) (string, error) { return item + "-step", nil })
			})
		if err != nil {
			return "", err
		}
		got, err := kagzi.WaitSignal(ctx, message)
		if err != nil {
			return "", err
		}
		ended, err := kagzi.RunChild(ctx, "child", child, in)
		return strings.Join(append(out, got, ended), " "), err
	})
	kit.StartWorker(k.T, w)
	run := kit.Begin(k, wf, "secret-input", kagzi.ID("x"), message.With("secret-message"))
	const want = "secret-item-step secret-message secret-input-child"
	if got := kit.ResultOf(k, run); got != want {
		t.Errorf("got %q", got)
	}
	for table, column := range map[string]string{
		"workflow_runs": "input", "step_runs": "output",
		"signals": "payload",
	} {
		readable := k.Count(`SELECT count(*) FROM kagzi.` + table + ` WHERE position(convert_to('secret', 'UTF8') IN ` +
			column + `) > 0`)
		if all := k.Count(`SELECT count(` + column + `) FROM kagzi.` + table); readable != 0 || all == 0 {
			t.Errorf("%d of %d rows of %s are readable", readable, all, table)
		}
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs
		WHERE position(convert_to('secret', 'UTF8') IN output) > 0`); n != 0 {
		t.Errorf("%d outputs are readable", n)
	}
	info := k.InfoOf(run.ID())
	if string(info.Input) != `"secret-input"` || string(info.Output) != `"`+want+`"` {
		t.Errorf("info: input %s, output %s", info.Input, info.Output)
	}
	if got := string(k.Steps(run.ID())["map/0/step"][0].Output); got != `"secret-item-step"` {
		t.Errorf("step's output %s", got)
	}
	if err := w.Replay(k.Ctx, run.ID()); err != nil {
		t.Errorf("replay: %v", err)
	}
	other := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Sealer: newGCM(t, "another key", "")})
	stored := dbtest.QueryOne[string](t, k.Pool, `SELECT encode(output, 'hex') FROM kagzi.workflow_runs
		WHERE run_id = $1`, run.ID())
	if info, err := other.Get(k.Ctx, run.ID()); err != nil || hex.EncodeToString(info.Output) != stored {
		t.Errorf("with another key: %x, %v", info.Output, err)
	}
	_, err := kit.Find(t, other, wf, run).Result(k.Ctx)
	kit.MustContain(t, err, "cannot be opened")
}

func TestInputThatDoesNotOpen(t *testing.T) {
	k := newSealedKit(t)
	wf := kagzi.Define[string, string]("wf")
	other := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Sealer: newGCM(t, "another key", "")})
	run, err := kagzi.Start(k.Ctx, other, wf, "a")
	if err != nil {
		t.Fatal(err)
	}
	kit.Serve(k, wf, func(ctx kagzi.Context, in string) (string, error) { return in, nil })
	_, err = run.Result(k.Ctx)
	if !errors.Is(err, kind.BadInput) {
		t.Errorf("got %v", err)
	}
	kit.MustContain(t, err, "cannot be opened")
}

// brokenSealer is a Sealer that always fails.
type brokenSealer struct{ gcm }

func (brokenSealer) Seal([]byte) ([]byte, error) { return nil, errors.New("no key") }

func TestSealFails(t *testing.T) {
	k := newSealedKit(t)
	c := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Sealer: brokenSealer{newGCM(t, "key", "")}})
	_, err := kagzi.Start(k.Ctx, c, kagzi.Define[string, string]("wf"), "a")
	kit.MustContain(t, err, `input of workflow "wf" cannot be sealed: no key`)
	small := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Sealer: newGCM(t, "key", ""), MaxPayload: 10})
	if _, err = kagzi.Start(k.Ctx, small, kagzi.Define[string, string]("wf"), "abc"); !errors.Is(err,
		kagzi.ErrPayloadTooLarge) {
		t.Errorf("five bytes that are stored as 33: %v", err)
	}
}

// hiccup is a Sealer that fails once, for a value that contains a text.
type hiccup struct {
	gcm
	at   string
	left *atomic.Int32
}

func (h hiccup) Seal(data []byte) ([]byte, error) {
	if bytes.Contains(data, []byte(h.at)) && h.left.Add(-1) >= 0 {
		return nil, errors.New("the key server is away")
	}
	return h.gcm.Seal(data)
}

// A Sealer that fails fails the attempt of the step, or of the run, and not the run for good.
func TestSealFailsForAMoment(t *testing.T) {
	for _, at := range []string{"input of a step", "result of the step", "result of the run"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			sealer := hiccup{newGCM(t, "key", ""), at, &atomic.Int32{}}
			sealer.left.Store(1)
			k := kit.NewWith(t, kagzi.ClientConfig{Sealer: sealer})
			wf := kagzi.Define[struct{}, string]("wf", kit.Soon)
			kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
				_, err := kagzi.Step(ctx, "step", func(context.Context) (string, error) {
					return "result of the step", nil
				}, kit.Soon, kagzi.Input("input of a step"))
				return "result of the run", err
			})
			if got := kit.ResultOf(k, kit.Begin(k, wf, struct{}{})); got != "result of the run" ||
				sealer.left.Load() >= 0 {
				t.Errorf("got %q, failures left: %d", got, sealer.left.Load())
			}
		})
	}
}

// A Sealer that fails for a value that the run shows, or for its answer, puts the run off: the workflow function does
// not see the error, so it needs no retry policy.
func TestSealOfAValueOrAnAnswerFailsForAMoment(t *testing.T) {
	for _, at := range []string{"value of the run", "answer of the run"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			sealer := hiccup{newGCM(t, "key", ""), at, &atomic.Int32{}}
			sealer.left.Store(1)
			k := kit.NewWith(t, kagzi.ClientConfig{Sealer: sealer})
			wf, state := kagzi.Define[struct{}, string]("wf"), value.Define[string]("state")
			look := request.Define[int, string]("look")
			kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
				if err := value.Set(ctx, state, "value of the run"); err != nil {
					return "", err
				}
				asked, err := request.Wait(ctx, look)
				if err != nil {
					return "", err
				}
				return "done", asked.Reply(ctx, "answer of the run")
			})
			run := kit.Begin(k, wf, struct{}{})
			answer, err := request.Ask(k.Ctx, k.Client, run, look.With(1))
			if err != nil || answer != "answer of the run" {
				t.Errorf("the answer: %q, %v", answer, err)
			}
			if got := kit.ResultOf(k, run); got != "done" || sealer.left.Load() >= 0 {
				t.Errorf("got %q, failures left: %d", got, sealer.left.Load())
			}
			if got, err := value.Get(k.Ctx, k.Client, run, state); err != nil || got.Value != "value of the run" {
				t.Errorf("the value: %v, %v", got, err)
			}
		})
	}
}

// A value that its own type cannot decode is refused. The caller gets the error for an input or a message. A result
// fails its run, and the parent of a child gets that failure.
func TestValueThatDoesNotDecodeIsRefused(t *testing.T) {
	k := kit.New(t)
	type holder struct{ Err error }
	bad := holder{errors.New("x")}
	wf, child := kagzi.Define[int, holder]("wf"), kagzi.Define[holder, int]("child")
	asked := kagzi.DefineSignal[holder]("asked")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (holder, error) {
		if n == 0 {
			return kagzi.RunChild(ctx, "c", wf, 1)
		}
		return bad, nil
	})
	kit.StartWorker(t, w)
	re := kit.FailureOf(k, kit.Begin(k, wf, 0), kagzi.StatusFailed)
	kit.MustContain(t, re, `result of workflow "wf"`, ".holder", "a type that decodes what it encodes")
	if re.Kind != kind.Validation {
		t.Errorf("the result's failure: %v", re)
	}
	_, err := kagzi.Start(k.Ctx, k.Client, child, bad)
	kit.MustContain(t, err, `input of workflow "child"`, ".holder", "does not decode",
		"a type that decodes what it encodes")
	if kagzi.KindOf(err) != kind.BadRequest {
		t.Errorf("an input: %v", err)
	}
	err = k.Client.Signal(k.Ctx, kagzi.RunID("00000000-0000-0000-0000-000000000001"), asked.With(bad))
	kit.MustContain(t, err, `payload of signal "asked"`, ".holder", "does not decode")
	if kagzi.KindOf(err) != kind.BadRequest {
		t.Errorf("a message: %v", err)
	}
	_, err = kagzi.Start(k.Ctx, k.Client, kagzi.Define[error, int]("child"), error(&url.Error{Err: bytes.ErrTooLarge}))
	kit.MustContain(t, err, "error is an interface", "a concrete type")
}

// TestInputOfAStep has what a step was given in each of its attempts, sealed in the table and opened by Steps, and none
// for a step without the option.
func TestInputOfAStep(t *testing.T) {
	k := newSealedKit(t)
	wf := kagzi.Define[struct{}, int]("wf")
	var calls atomic.Int64
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		if err := kagzi.Do(ctx, "charge", failsOnce(&calls), kit.Soon,
			kagzi.Input(map[string]int{"cents": 1999})); err != nil {
			return 0, err
		}
		_, err := kagzi.StepTx(ctx, "book", func(context.Context, pgx.Tx) (int, error) { return 1, nil },
			kagzi.Input("LH1"))
		if err != nil {
			return 0, err
		}
		return 1, kagzi.Do(ctx, "mail", func(context.Context) error { return nil })
	})
	run := kit.Begin(k, wf, struct{}{})
	kit.ResultOf(k, run)
	steps := k.Steps(run.ID())
	for step, want := range map[string][]string{
		"charge": {`{"cents":1999}`, `{"cents":1999}`}, "book": {`"LH1"`},
		"mail": {""},
	} {
		var got []string
		for _, a := range steps[step] {
			got = append(got, string(a.Input))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has inputs %q, want %q", step, got, want)
		}
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.step_runs
		WHERE position('LH1' IN encode(input, 'escape')) > 0`); n != 0 {
		t.Error("an input is not sealed")
	}
}

// A panickyCodec is JSON whose Decode panics for texts with the mark.
type panickyCodec struct{}

const panics = "panics-7359182"

func (panickyCodec) Encode(v any) ([]byte, error) { return json.Marshal(v) }
func (panickyCodec) Decode(data []byte, v any) error {
	if bytes.Contains(data, []byte(panics)) {
		panic("cannot decode " + string(data))
	}
	return json.Unmarshal(data, v)
}

// A panickySealer is a Sealer whose Open panics for the same texts.
type panickySealer struct{}

func (panickySealer) Seal(data []byte) ([]byte, error) { return data, nil }
func (panickySealer) HashKey() []byte                  { return nil }
func (panickySealer) Open(data []byte) ([]byte, error) {
	if bytes.Contains(data, []byte(panics)) {
		panic("cannot open " + string(data))
	}
	return data, nil
}

// panicky is a type whose UnmarshalJSON panics for the same texts.
type panicky string

func (p *panicky) UnmarshalJSON(data []byte) error {
	if bytes.Contains(data, []byte(panics)) {
		panic("cannot unmarshal " + string(data))
	}
	return json.Unmarshal(data, (*string)(p))
}

// A decoder that panics is one that returns an error, for a run's input, a message, a result and the caller.
func TestDecodersThatPanic(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]kagzi.ClientConfig{
		"Codec":  {Codec: panickyCodec{}},
		"Sealer": {Sealer: panickySealer{}}, "UnmarshalJSON": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := kit.NewWith(t, cfg)
			raw := kagzi.Define[string, string]("wf", kit.NoRetry)
			wf := kagzi.Define[panicky, string]("wf", kit.NoRetry)
			worker := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(worker, wf, func(kagzi.Context, panicky) (string, error) { return panics, nil })
			writer := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{})
			run, err := kagzi.Start(k.Ctx, writer, raw, panics)
			if err != nil {
				t.Fatal(err)
			}
			good := kit.Begin(k, wf, "x")
			kit.StartLocal(t, worker)
			_, err = run.Result(k.Ctx)
			var failed *kagzi.RunError
			if !errors.As(err, &failed) || failed.Kind != kind.BadInput || strings.Contains(err.Error(), panics) ||
				!strings.Contains(err.Error(), "codec_test.go:") {
				t.Errorf("a run whose input does not decode: %v", err)
			}
			found, err := kagzi.Find(k.Ctx, k.Client, kagzi.Define[panicky, panicky]("wf"), good.ID())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := found.Result(k.Ctx); err == nil || strings.Contains(err.Error(), panics) ||
				errors.Is(err, kind.Panic) {
				t.Errorf("a result that does not decode: %v", err)
			}
		})
	}
}
