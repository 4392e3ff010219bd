package kagzi

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// gcm is a Sealer with a random nonce.
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

func newSealedKit(t *testing.T) *kit {
	t.Helper()
	t.Parallel()
	return newKitWith(t, ClientConfig{Sealer: newGCM(t, "key", "hash key")})
}

// What is stored differs each time; values are compared by what they were before.
func TestSealedIdentity(t *testing.T) {
	k := newSealedKit(t)
	wf := Define[string, string]("wf")
	first := begin(k, wf, "secret", ID("x"))
	if again := begin(k, wf, "secret", ID("x")); !again.Existed() || again.ID() != first.ID() {
		t.Errorf("started %v, want %v", again.ID(), first.ID())
	}
	if _, err := Start(k.ctx, k.c, wf, "other", ID("x")); !errors.Is(err, ErrIDConflict) {
		t.Errorf("another input: %v", err)
	}
	plain := sha256.Sum256([]byte(`"secret"`))
	keyed := hmac.New(sha256.New, []byte("hash key"))
	keyed.Write([]byte(`"secret"`))
	hash := queryOne[[]byte](t, k.pool, `SELECT input_hash FROM kagzi.workflow_runs`)
	if bytes.Equal(hash, plain[:16]) || !bytes.Equal(hash, keyed.Sum(nil)[:16]) {
		t.Errorf("hash %x is not made with the key", hash)
	}
	unkeyed := clientWith(t, k.pool, ClientConfig{Sealer: newGCM(t, "key", "")})
	if _, err := Start(k.ctx, unkeyed, wf, "secret", ID("y")); err != nil {
		t.Fatal(err)
	}
	if got := queryOne[[]byte](t, k.pool, `SELECT input_hash FROM kagzi.workflow_runs WHERE external_id = 'y'`); !bytes.Equal(got, plain[:16]) {
		t.Errorf("hash without a key: %x", got)
	}
}

// A restart's input is known again, too: a new one, the old one, and that of a run that had no ID to compare it for.
func TestSealedRestart(t *testing.T) {
	k := newSealedKit(t)
	wf := Define[string, string]("wf")
	old := begin(k, wf, "a")
	k.cancel(old.ID())
	known := func(as RunID, id ID, input string) {
		t.Helper()
		if run := begin(k, wf, input, id); run.ID() != as || !run.Existed() {
			t.Errorf("a start with ID %q and input %q made %v, want %v", id, input, run.ID(), as)
		}
		if got := string(k.infoOf(as).Input); got != `"`+input+`"` {
			t.Errorf("input %s", got)
		}
	}
	restart := func(ref Ref, opts ...RestartOption) RunID {
		t.Helper()
		id, err := k.c.Restart(k.ctx, ref, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	withID := restart(old.ID(), ID("x"))
	known(withID, "x", "a")
	k.cancel(withID)
	same := restart(withID)
	known(same, "x", "a")
	k.cancel(same)
	changed := restart(same, NewInput("b"))
	known(changed, "x", "b")
	known(restart(old.ID(), ID("y"), NewInput("c")), "y", "c")

	blind := clientWith(t, k.pool, ClientConfig{Sealer: newGCM(t, "another key", "")})
	_, err := blind.Restart(k.ctx, old.ID(), ID("z"))
	mustContain(t, err, "cannot be opened")
}

// Nothing of what a workflow handles is readable in the tables, and all of it where it is used.
func TestSealedWorkflow(t *testing.T) {
	k := newSealedKit(t)
	child := Define[string, string]("child")
	wf := Define[string, string]("wf")
	message := DefineSignal[string]("message")
	w := newTestWorker(k.t, k.c, WorkerConfig{})
	Handle(w, child, func(ctx Context, in string) (string, error) { return in + "-child", nil })
	Handle(w, wf, func(ctx Context, in string) (string, error) {
		out, err := Map(ctx, "map", []string{"secret-item"}, func(ctx Context, item string) (string, error) {
			if err := Sleep(ctx, "long", 250*time.Millisecond); err != nil { // a new execution compares the items
				return "", err
			}
			return Step(ctx, "step", func(context.Context) (string, error) { return item + "-step", nil })
		})
		if err != nil {
			return "", err
		}
		got, err := WaitSignal(ctx, message)
		if err != nil {
			return "", err
		}
		ended, err := RunChild(ctx, "child", child, in)
		return strings.Join(append(out, got, ended), " "), err
	})
	startWorker(k.t, w)
	run := begin(k, wf, "secret-input", ID("x"), message.With("secret-message"))
	const want = "secret-item-step secret-message secret-input-child"
	if got := resultOf(k, run); got != want {
		t.Errorf("got %q", got)
	}
	for table, column := range map[string]string{"workflow_payloads": "input", "step_runs": "output", "signals": "payload"} {
		readable := k.count(`SELECT count(*) FROM kagzi.` + table + ` WHERE position(convert_to('secret', 'UTF8') IN ` + column + `) > 0`)
		if all := k.count(`SELECT count(` + column + `) FROM kagzi.` + table); readable != 0 || all == 0 {
			t.Errorf("%d of %d rows of %s are readable", readable, all, table)
		}
	}
	if n := k.count(`SELECT count(*) FROM kagzi.workflow_payloads WHERE position(convert_to('secret', 'UTF8') IN output) > 0`); n != 0 {
		t.Errorf("%d outputs are readable", n)
	}
	info := k.infoOf(run.ID())
	if string(info.Input) != `"secret-input"` || string(info.Output) != `"`+want+`"` {
		t.Errorf("info: input %s, output %s", info.Input, info.Output)
	}
	if got := string(k.steps(run.ID())["map/0/step"][0].Output); got != `"secret-item-step"` {
		t.Errorf("step's output %s", got)
	}
	if err := w.Replay(k.ctx, run.ID()); err != nil {
		t.Errorf("replay: %v", err)
	}
	other := clientWith(t, k.pool, ClientConfig{Sealer: newGCM(t, "another key", "")})
	stored := queryOne[string](t, k.pool, `SELECT encode(output, 'hex') FROM kagzi.workflow_payloads WHERE run_id = $1`, run.ID())
	if info, err := other.Get(k.ctx, run.ID()); err != nil || hex.EncodeToString(info.Output) != stored {
		t.Errorf("with another key: %x, %v", info.Output, err)
	}
	_, err := find(t, other, wf, run).Result(k.ctx)
	mustContain(t, err, "cannot be opened")
}

func TestInputThatDoesNotOpen(t *testing.T) {
	k := newSealedKit(t)
	wf := Define[string, string]("wf")
	other := clientWith(t, k.pool, ClientConfig{Sealer: newGCM(t, "another key", "")})
	run, err := Start(k.ctx, other, wf, "a")
	if err != nil {
		t.Fatal(err)
	}
	serve(k, wf, func(ctx Context, in string) (string, error) { return in, nil })
	_, err = run.Result(k.ctx)
	if !errors.Is(err, KindBadInput) {
		t.Errorf("got %v", err)
	}
	mustContain(t, err, "cannot be opened")
}

// brokenSealer does not seal.
type brokenSealer struct{ gcm }

func (brokenSealer) Seal([]byte) ([]byte, error) { return nil, errors.New("no key") }

func TestSealFails(t *testing.T) {
	k := newSealedKit(t)
	c := clientWith(t, k.pool, ClientConfig{Sealer: brokenSealer{newGCM(t, "key", "")}})
	_, err := Start(k.ctx, c, Define[string, string]("wf"), "a")
	mustContain(t, err, `input of workflow "wf" cannot be sealed: no key`)
	small := clientWith(t, k.pool, ClientConfig{Sealer: newGCM(t, "key", ""), MaxPayload: 10})
	if _, err = Start(k.ctx, small, Define[string, string]("wf"), "abc"); !errors.Is(err, ErrPayloadTooLarge) {
		t.Errorf("five bytes that are stored as 33: %v", err)
	}
}

// hiccup is a Sealer that fails once, for what has the text in it.
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
			k := newKitWith(t, ClientConfig{Sealer: sealer})
			wf := Define[struct{}, string]("wf", soon)
			serve(k, wf, func(ctx Context, _ struct{}) (string, error) {
				_, err := Step(ctx, "step", func(context.Context) (string, error) { return "result of the step", nil }, soon, Input("input of a step"))
				return "result of the run", err
			})
			if got := resultOf(k, begin(k, wf, struct{}{})); got != "result of the run" || sealer.left.Load() >= 0 {
				t.Errorf("got %q, failures left: %d", got, sealer.left.Load())
			}
		})
	}
}

// TestWhatDoesNotDecodeIsRefused gives values to store that their own type cannot decode: an input and a message are refused
// where they come from, and the result of a run is its failure, for a child's parent, too.
func TestWhatDoesNotDecodeIsRefused(t *testing.T) {
	k := newKit(t)
	type holder struct{ Err error }
	bad := holder{errors.New("x")}
	wf, child := Define[int, holder]("wf"), Define[holder, int]("child")
	asked := DefineSignal[holder]("asked")
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, wf, func(ctx Context, n int) (holder, error) {
		if n == 0 {
			return RunChild(ctx, "c", wf, 1)
		}
		return bad, nil
	})
	startWorker(t, w)
	re := failureOf(k, begin(k, wf, 0), StatusFailed)
	mustContain(t, re, `result of workflow "wf"`, ".holder", "a type that decodes what it encodes")
	if re.Kind != KindValidation {
		t.Errorf("the result's failure: %v", re)
	}
	_, err := Start(k.ctx, k.c, child, bad)
	mustContain(t, err, `input of workflow "child"`, ".holder", "does not decode", "a type that decodes what it encodes")
	if KindOf(err) != KindBadRequest {
		t.Errorf("an input: %v", err)
	}
	err = k.c.Signal(k.ctx, RunID("00000000-0000-0000-0000-000000000001"), asked.With(bad))
	mustContain(t, err, `payload of signal "asked"`, ".holder", "does not decode")
	if KindOf(err) != KindBadRequest {
		t.Errorf("a message: %v", err)
	}
	_, err = Start(k.ctx, k.c, Define[error, int]("child"), errors.New("x"))
	mustContain(t, err, "error is an interface", "a concrete type")
}

// TestInputOfAStep has what a step was given in each of its attempts, sealed in the table and opened by Steps, and none for a
// step without the option.
func TestInputOfAStep(t *testing.T) {
	k := newSealedKit(t)
	wf := Define[struct{}, int]("wf")
	var calls atomic.Int64
	serve(k, wf, func(ctx Context, _ struct{}) (int, error) {
		if err := Do(ctx, "charge", failsOnce(&calls), soon, Input(map[string]int{"cents": 1999})); err != nil {
			return 0, err
		}
		_, err := StepTx(ctx, "book", func(context.Context, pgx.Tx) (int, error) { return 1, nil }, Input("LH1"))
		if err != nil {
			return 0, err
		}
		return 1, Do(ctx, "mail", func(context.Context) error { return nil })
	})
	run := begin(k, wf, struct{}{})
	resultOf(k, run)
	steps := k.steps(run.ID())
	for step, want := range map[string][]string{"charge": {`{"cents":1999}`, `{"cents":1999}`}, "book": {`"LH1"`}, "mail": {""}} {
		var got []string
		for _, a := range steps[step] {
			got = append(got, string(a.Input))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has inputs %q, want %q", step, got, want)
		}
	}
	if n := k.count(`SELECT count(*) FROM kagzi.step_runs WHERE position('LH1' IN encode(input, 'escape')) > 0`); n != 0 {
		t.Error("an input is not sealed")
	}
}
