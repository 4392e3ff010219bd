package language_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// failingSealer is a Sealer that for some time cannot seal, or open, what has a word in it.
type failingSealer struct{ seals, opens *atomic.Bool }

var errAway = errors.New("the keys are away")

func (s failingSealer) Seal(data []byte) ([]byte, error) {
	if s.seals.Load() && bytes.Contains(data, []byte("limit")) {
		return nil, errAway
	}
	return append([]byte("sealed "), data...), nil
}

func (s failingSealer) Open(sealed []byte) ([]byte, error) {
	data, ok := bytes.CutPrefix(sealed, []byte("sealed "))
	if !ok || s.opens.Load() && bytes.Contains(data, []byte("limit")) {
		return nil, errAway
	}
	return data, nil
}

func (failingSealer) HashKey() []byte { return nil }

// A workflow that depends on details, which a replay cannot open or decode, does not take another path: the run is
// quarantined, as if a result did not decode.
func TestDetailsThatAReplayCannotRead(t *testing.T) {
	for _, name := range []string{"NotOpened", "OfAnotherType"} {
		t.Run(name, func(t *testing.T) {
			away := failingSealer{new(atomic.Bool), new(atomic.Bool)}
			k := kit.NewWith(t, kagzi.ClientConfig{Sealer: away})
			wf := kagzi.Define[int, string]("wf", kit.NoRetry)
			var changed atomic.Bool
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (string, error) {
				_, err := kagzi.Step(ctx, "pay", func(context.Context) (int, error) { return refusing() })
				_, ok := kind.Details[decline](err)
				if changed.Load() {
					_, ok = kind.Details[[]int](err)
				}
				if ok {
					return "in parts", kagzi.Sleep(ctx, "nap", time.Hour)
				}
				return "not at all", nil
			})
			run := kit.Begin(k, wf, 1)
			k.WaitStatus(run, kagzi.StatusSleeping, "timer nap")
			away.opens.Store(name == "NotOpened")
			changed.Store(name == "OfAnotherType")
			k.Forward(run.ID())
			kit.MustContain(t, kit.FailureOf(k, run, kagzi.StatusFailed), `"pay"`, "do not decode")
			away.opens.Store(false)
			changed.Store(false)
			k.Resume(run.ID())
			if got := kit.ResultOf(k, run); got != "in parts" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// An error of a run of another client has details that this client seals anew.
func TestDetailsOfAnotherClient(t *testing.T) {
	t.Parallel()
	pool := dbtest.Pool(t)
	away := failingSealer{new(atomic.Bool), new(atomic.Bool)}
	sealed, plain := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool}, &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool}
	sealed.Client = kit.NewClientWith(t, pool, kagzi.ClientConfig{Sealer: away, Namespace: "sealed"})
	plain.Client = kit.NewClientWith(t, pool, kagzi.ClientConfig{Namespace: "plain"})
	far, wf := kagzi.Define[int, int]("far", kit.NoRetry), kagzi.Define[int, int]("wf", kit.NoRetry)
	kit.Serve(plain, far, func(kagzi.Context, int) (int, error) { return refusing() })
	kit.Serve(sealed, wf, func(ctx kagzi.Context, n int) (int, error) {
		return kagzi.Step(ctx, "ask", func(ctx context.Context) (int, error) {
			run, err := kagzi.Start(ctx, plain.Client, far, n)
			if err != nil {
				return 0, err
			}
			n, err := run.Result(ctx)
			return n, kagzi.Permanent(err)
		})
	})
	err := kit.FailureOf(sealed, kit.Begin(sealed, wf, 1), kagzi.StatusFailed)
	if got := declineIn(err); got != "limit 5" {
		t.Errorf("the details are %s: %v", got, err)
	}
	if n := sealed.Count(`SELECT count(*) FROM kagzi.step_runs WHERE namespace_id = 'sealed'
		AND encode(output, 'escape') NOT LIKE 'sealed %'`); n > 0 {
		t.Errorf("%d steps have details that are not sealed", n)
	}
}

// emptyCodec encodes the zero decline as nothing, as protobuf does.
type emptyCodec struct{}

func (emptyCodec) Encode(v any) ([]byte, error) {
	if v == (decline{}) {
		return []byte{}, nil
	}
	return json.Marshal(v)
}

func (emptyCodec) Decode(data []byte, v any) error {
	if len(data) == 0 {
		return nil
	}
	return json.Unmarshal(data, v)
}

func TestEmptyDetails(t *testing.T) {
	k := kit.NewWith(t, kagzi.ClientConfig{Codec: emptyCodec{}})
	parent, child := kagzi.Define[int, int]("parent", kit.NoRetry), kagzi.Define[int, int]("child", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, parent, func(ctx kagzi.Context, n int) (int, error) {
		_, err := kagzi.RunChild(ctx, "child", child, n)
		if _, ok := kind.Details[decline](err); !ok {
			return 0, fmt.Errorf("the child has none: %w", err)
		}
		return 0, err
	})
	kagzi.Handle(w, child, func(kagzi.Context, int) (int, error) {
		return 0, kind.WithDetails(kagzi.Permanent(declined), decline{})
	})
	kit.StartWorker(t, w)
	err := kit.FailureOf(k, kit.Begin(k, parent, 1), kagzi.StatusFailed)
	if d, ok := kind.Details[decline](err); d != (decline{}) || !ok || strings.Contains(err.Message, "none") {
		t.Errorf("the details are %v, %t: %v", d, ok, err)
	}
}

// A run that is terminated while its compensations run has no details: they would explain another end.
func TestTerminatedWhileCompensating(t *testing.T) {
	k := kit.New(t)
	parent, child := kagzi.Define[int, int]("parent", kit.NoRetry), kagzi.Define[int, int]("child", kit.NoRetry)
	undo := kagzi.Define[int, int]("undo", kit.NoRetry)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	of, compensates := make(chan kagzi.RunID, 1), make(chan struct{}, 1)
	kagzi.Handle(w, parent, func(ctx kagzi.Context, n int) (int, error) {
		return kagzi.RunChild(ctx, "child", child, n)
	})
	kagzi.Handle(w, child, func(ctx kagzi.Context, n int) (int, error) {
		kagzi.Compensate(ctx, "undo", undo.With(n))
		of <- ctx.RunID()
		return refusing()
	})
	kagzi.Handle(w, undo, func(ctx kagzi.Context, _ int) (int, error) {
		compensates <- struct{}{}
		return 0, kagzi.Sleep(ctx, "long", time.Hour)
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, parent, 1)
	await.Receive(t, compensates)
	if err := admin.New(k.Client).Runs.Terminate(k.Ctx, run); err != nil {
		t.Fatal(err)
	}
	if info := k.WaitStatus(await.Receive(t, of), kagzi.StatusCancelled); info.Output != nil {
		t.Errorf("the terminated run has the details %s", info.Output)
	}
}

// The record of a child whose start was refused has no status of a child.
func TestRefusedChildIsShownAsFailed(t *testing.T) {
	k := kit.NewWith(t, kagzi.ClientConfig{MaxPayload: 1000})
	wf, child := kagzi.Define[int, int]("wf", kit.NoRetry), kagzi.Define[string, int]("child")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		return kagzi.RunChild(ctx, "c", child, strings.Repeat("x", 5000))
	})
	run := kit.Begin(k, wf, 1)
	kit.FailureOf(k, run, kagzi.StatusFailed)
	if s := k.Steps(run)["c"][0]; s.Status != kagzi.StatusFailed || s.Output != nil {
		t.Errorf("the step is shown as %s with %s", s.Status, s.Output)
	}
}

// A replay says which details differ. It does not compare those that could not be stored.
func TestReplayOfDetails(t *testing.T) {
	away := failingSealer{new(atomic.Bool), new(atomic.Bool)}
	k := kit.NewWith(t, kagzi.ClientConfig{Sealer: away})
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	var left atomic.Int32
	fn := func(kagzi.Context, int) (int, error) {
		return 0, kind.WithDetails(kagzi.Permanent(declined), decline{"limit", int(left.Load())})
	}
	kit.Serve(k, wf, fn)
	replayer := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(replayer, wf, fn)
	left.Store(5)
	stored := kit.Begin(k, wf, 1)
	kit.FailureOf(k, stored, kagzi.StatusFailed)
	away.seals.Store(true)
	lost := kit.Begin(k, wf, 2)
	kit.MustContain(t, kit.FailureOf(k, lost, kagzi.StatusFailed), "without its details")
	away.seals.Store(false)
	for _, run := range []*kagzi.Run[int]{stored, lost} {
		if err := replayer.Replay(k.Ctx, run); err != nil {
			t.Errorf("the same code: %v", err)
		}
	}
	left.Store(6)
	kit.MustContain(t, replayer.Replay(k.Ctx, stored), `"left":5`, `"left":6`)
}
