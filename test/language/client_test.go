package language_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestGetByIDIsTheActiveRunElseTheNewest(t *testing.T) {
	k := kit.New(t)
	stop := kit.Serve(k, kit.Noop, kit.Odd)
	first := kit.Begin(k, kit.Noop, 1, kagzi.ID("x"))
	kit.ResultOf(k, first)
	second := kit.Begin(k, kit.Noop, 2, kagzi.ID("x"))
	kit.FailureOf(k, second, kagzi.StatusFailed)
	if info, err := k.Client.Get(k.Ctx, kagzi.ID("x")); err != nil || info.ID != second.ID() {
		t.Errorf("the newest is not %s: %+v, %v", second.ID(), info, err)
	}
	stop()
	k.Resume(second.ID())
	if info, _ := k.Client.Get(k.Ctx, kagzi.ID("x")); info.ID != second.ID() || info.Status != kagzi.StatusPending {
		t.Errorf("got %+v", info)
	}
	k.Cancel(kagzi.ID("x"))
	third := kit.Begin(k, kit.Noop, 3, kagzi.ID("x"))
	if info, _ := k.Client.Get(k.Ctx, kagzi.ID("x")); info.ID != third.ID() || info.ExternalID != "x" ||
		string(info.Input) != "3" {
		t.Errorf("the active one is not %s: %+v", third.ID(), info)
	}
}

func TestReferencesThatLeadNowhere(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kit.Noop, 1, kagzi.ID("x"))
	other := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Namespace: "other"})
	for name, tt := range map[string]struct {
		c   *kagzi.Client
		ref kagzi.Ref
	}{
		"UnknownRunID": {k.Client, kagzi.RunID("01a1fc0c-3282-7191-bf09-a6e3b3ce1eaa")},
		"NotARunID":    {k.Client, kagzi.RunID("order-42")},
		"UnknownID":    {k.Client, kagzi.ID("y")}, "IDOfAnotherNamespace": {other, kagzi.ID("x")},
		"RunIDOfAnotherNamespace": {other, run.ID()}, "CaseMatters": {k.Client, kagzi.ID("X")},
	} {
		t.Run(name, func(t *testing.T) {
			_, get := tt.c.Get(k.Ctx, tt.ref)
			_, steps := tt.c.Steps(k.Ctx, tt.ref)
			_, find := kagzi.Find(k.Ctx, tt.c, kit.Noop, tt.ref)
			_, events := admin.New(tt.c).Runs.Log(k.Ctx, tt.ref)
			_, restart := admin.New(tt.c).Runs.Restart(k.Ctx, tt.ref)
			_, fork := admin.New(tt.c).Runs.Fork(k.Ctx, tt.ref, "step")
			for op, err := range map[string]error{
				"Get": get, "Steps": steps, "Find": find, "Cancel": tt.c.Cancel(k.Ctx, tt.ref),
				"Resume": admin.New(tt.c).Runs.Resume(k.Ctx, tt.ref),
				"Events": events, "Restart": restart, "Fork": fork,
			} {
				if !errors.Is(err, kagzi.ErrNotFound) {
					t.Errorf("%s: %v", op, err)
				}
			}
		})
	}
	_, err := k.Client.Get(k.Ctx, nil)
	kit.MustContain(t, err, "reference is nil")
	_, err = k.Client.Get(k.Ctx, kagzi.ID(""))
	kit.MustContain(t, err, "ID is empty")
	_, err = k.Client.Get(k.Ctx, kagzi.RunID(""))
	kit.MustContain(t, err, "run ID is empty")
	_, err = kagzi.Find(k.Ctx, k.Client, kagzi.Define[int, int]("another"), run.ID())
	kit.MustContain(t, err, `"noop"`, `"another"`)
	found, err := kagzi.Find(k.Ctx, k.Client, kit.Noop, kagzi.ID("x"))
	if err != nil || found.ID() != run.ID() || !found.Existed() {
		t.Errorf("Find: %+v, %v", found, err)
	}
	if info, _ := run.Info(k.Ctx); info.Status != kagzi.StatusPending {
		t.Errorf("somebody changed the run: %+v", info)
	}
}

func TestList(t *testing.T) {
	k := kit.New(t)
	stop := kit.Serve(k, kit.Noop, kit.Odd)
	var ids []kagzi.RunID // newest first
	start := func(wf kagzi.Workflow[int, int], n int, opts ...kagzi.StartOption) kagzi.RunID {
		run := kit.Begin(k, wf, n, opts...)
		ids = slices.Insert(ids, 0, run.ID())
		return run.ID()
	}
	done := start(kit.Noop, 1, kagzi.Metadata{"tenant": "a", "kind": "x"})
	failed := start(kit.Noop, 2, kagzi.Metadata{"tenant": "b"})
	k.WaitStatus(done, kagzi.StatusCompleted)
	k.WaitStatus(failed, kagzi.StatusFailed)
	stop()
	pending := start(kit.Noop, 3, kagzi.ID("order-1"), kagzi.Metadata{"tenant": "a"})
	other := start(kagzi.Define[int, int]("other"), 4, kagzi.Queue("q"))
	cut := k.InfoOf(pending)
	for name, tt := range map[string]struct {
		f    kagzi.RunFilter
		want []kagzi.RunID
	}{
		"All": {kagzi.RunFilter{}, ids}, "Limit": {kagzi.RunFilter{Limit: 2}, ids[:2]},
		"After": {kagzi.RunFilter{After: ids[1], Limit: 2}, ids[2:]},
		"Status": {
			kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusCompleted, kagzi.StatusFailed}},
			[]kagzi.RunID{failed, done},
		}, "Workflow": {kagzi.RunFilter{Workflow: "other"}, []kagzi.RunID{other}},
		"Queue":    {kagzi.RunFilter{Queue: "q"}, []kagzi.RunID{other}},
		"ID":       {kagzi.RunFilter{ID: "order-1"}, []kagzi.RunID{pending}},
		"Metadata": {kagzi.RunFilter{Metadata: kagzi.Metadata{"tenant": "a"}}, []kagzi.RunID{pending, done}},
		"TwoTags":  {kagzi.RunFilter{Metadata: kagzi.Metadata{"tenant": "a", "kind": "x"}}, []kagzi.RunID{done}},
		"Since":    {kagzi.RunFilter{Since: cut.CreatedAt}, ids[:2]},
		"Until":    {kagzi.RunFilter{Until: cut.CreatedAt}, ids[2:]},
		"And": {kagzi.RunFilter{
			Metadata: kagzi.Metadata{"tenant": "a"},
			Status:   []kagzi.Status{kagzi.StatusPending},
		}, []kagzi.RunID{pending}},
		"None":   {kagzi.RunFilter{Workflow: "nobody"}, nil},
		"Parent": {kagzi.RunFilter{Parent: done}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			runs, err := k.Client.List(k.Ctx, tt.f)
			if err != nil {
				t.Fatal(err)
			}
			var got []kagzi.RunID
			for _, r := range runs {
				got = append(got, r.ID)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	for says, f := range map[string]kagzi.RunFilter{
		"Limit is -1": {Limit: -1}, `no status "DONE": use kagzi.StatusFailed`: {Status: []kagzi.Status{"DONE"}},
		"Parent": {Parent: "x"}, "After": {After: "x"},
		"workflow name": {Workflow: "\x00"}, "queue": {Queue: "\xff"}, "ID": {ID: "\n"},
		"Metadata": {Metadata: kagzi.Metadata{"": ""}},
	} {
		_, err := k.Client.List(k.Ctx, f)
		kit.MustContain(t, err, "list", says)
		if kagzi.KindOf(err) != kind.BadRequest {
			t.Errorf("%v is of kind %s", err, kagzi.KindOf(err))
		}
	}
}

func TestSteps(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		_, err := kagzi.Step(ctx, "good", func(context.Context) (map[string]int, error) {
			return map[string]int{"a": 1}, nil
		})
		if err != nil {
			return 0, err
		}
		return 0, kagzi.Do(ctx, "bad", func(context.Context) error { return kind.Network },
			kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	})
	run := kit.Begin(k, wf, 1, kagzi.ID("x"))
	kit.FailureOf(k, run, kagzi.StatusFailed)
	steps, err := k.Client.Steps(k.Ctx, kagzi.ID("x"))
	if err != nil || len(steps) != 3 {
		t.Fatalf("got %+v, %v", steps, err)
	}
	good, bad := steps[0], steps[2]
	if good.Step != "good" || good.Status != kagzi.StatusCompleted || string(good.Output) != `{"a":1}` ||
		good.EndedAt.Before(good.StartedAt) {
		t.Errorf("got %+v", good)
	}
	if bad.Step != "bad" || bad.Attempt != 2 || bad.Status != kagzi.StatusFailed || bad.Kind != kind.Network ||
		bad.Error != "network" || !bad.WakeAt.IsZero() {
		t.Errorf("got %+v", bad)
	}
}

func TestOneActiveRunForAnID(t *testing.T) {
	k := kit.New(t)
	const n = 20
	runs := make([]*kagzi.Run[int], n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var err error
			if runs[i], err = kagzi.Start(k.Ctx, k.Client, kit.Noop, 1, kagzi.ID("x")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	made := 0
	for _, r := range runs {
		if r == nil || r.ID() != runs[0].ID() {
			t.Fatalf("got %+v and %+v", r, runs[0])
		}
		if !r.Existed() {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d starts say that they made the run", made)
	}
	if _, err := kagzi.Start(k.Ctx, k.Client, kit.Noop, 2, kagzi.ID("x")); !errors.Is(err, kagzi.ErrIDConflict) {
		t.Errorf("another input: %v", err)
	}
	other := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Namespace: "other"})
	if run, err := kagzi.Start(k.Ctx, other, kit.Noop, 2, kagzi.ID("x")); err != nil || run.Existed() {
		t.Errorf("another namespace: %+v, %v", run, err)
	}
}

func TestStartMany(t *testing.T) {
	k := kit.New(t)
	if started, err := k.Client.StartMany(k.Ctx, nil); err != nil || len(started) != 0 {
		t.Errorf("of none: %v, %v", started, err)
	}
	calls := make([]kagzi.Call, 10_000)
	for i := range calls {
		calls[i] = kit.Noop.With(i)
	}
	calls[1] = kit.Noop.With(1, kagzi.ID("x"))
	started, err := k.Client.StartMany(k.Ctx, calls)
	if err != nil || len(started) != len(calls) {
		t.Fatalf("%d of %d: %v", len(started), len(calls), err)
	}
	for i, n := range []int{0, 1, 9_999} {
		if info, err := k.Client.Get(k.Ctx, started[n].ID); err != nil || string(info.Input) != fmt.Sprint(n) {
			t.Errorf("%d: run %d has input %s, %v", i, n, info.Input, err)
		}
	}
	again, err := k.Client.StartMany(k.Ctx, []kagzi.Call{kit.Noop.With(5), kit.Noop.With(1, kagzi.ID("x"))})
	if err != nil || again[0].Existed || !again[1].Existed || again[1].ID != started[1].ID {
		t.Errorf("got %+v, %v", again, err)
	}
	before := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`)
	if _, err := k.Client.StartMany(k.Ctx, []kagzi.Call{
		kit.Noop.With(1), kit.Noop.With(2, kagzi.ID("x")),
		kit.Noop.With(3, kagzi.ID("y")),
	}); !errors.Is(err, kagzi.ErrIDConflict) {
		t.Errorf("got %v", err)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != before {
		t.Errorf("%d runs were started by a call that was refused", n-before)
	}
}

func TestStartInTx(t *testing.T) {
	k := kit.New(t)
	listener := kit.NewClient(t, k.Pool)
	// another client: it learns by NOTIFY alone
	w := kit.NewWorker(t, listener, kagzi.WorkerConfig{PollInterval: time.Hour})
	kagzi.Handle(w, kit.Noop, kit.Odd)
	kit.StartWorker(t, w)
	kit.WaitListening(t, k.Pool, 1)

	tx := k.CallersTx()
	lost := kit.Begin(k, kit.Noop, 1, kagzi.ID("x"), kagzi.InTx(tx))
	if _, err := k.Client.StartMany(k.Ctx, []kagzi.Call{kit.Noop.With(1), kit.Noop.With(3)},
		kagzi.InTx(tx)); err != nil {
		t.Fatal(err)
	}
	if _, err := kagzi.Start(k.Ctx, k.Client, kit.Noop, 2, kagzi.ID("x"), kagzi.InTx(tx)); !errors.Is(err,
		kagzi.ErrIDConflict) {
		t.Errorf("a conflict within the transaction: %v", err)
	}
	if same := kit.Begin(k, kit.Noop, 1, kagzi.ID("x"), kagzi.InTx(tx)); !same.Existed() || same.ID() != lost.ID() {
		t.Errorf("got %+v", same)
	}
	if _, err := lost.Info(k.Ctx); !errors.Is(err, kagzi.ErrNotFound) {
		t.Errorf("visible before the commit: %v", err)
	}
	kit.RollbackTx(t, tx)
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 0 {
		t.Errorf("a rollback leaves %d rows", n)
	}

	var run *kagzi.Run[int]
	err := pgx.BeginFunc(k.Ctx, k.Pool, func(tx pgx.Tx) (err error) {
		run, err = kagzi.Start(k.Ctx, k.Client, kit.Noop, 1, kagzi.ID("x"), kagzi.InTx(tx))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(k.Ctx, await.Patience) // long before the worker polls
	defer cancel()
	if got, err := run.Result(ctx); err != nil || got != 1 {
		t.Errorf("got %v, %v", got, err)
	}

	_, err = k.Client.StartMany(k.Ctx, []kagzi.Call{
		kit.Noop.With(1, kagzi.InTx(k.CallersTx())),
		kit.Noop.With(1, kagzi.InTx(k.CallersTx())),
	})
	kit.MustContain(t, err, "different transactions")
}

func TestResult(t *testing.T) {
	t.Parallel()
	t.Run("EndsWithItsContext", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, kit.Noop, 1)
		ctx, cancel := context.WithCancel(k.Ctx)
		cancel()
		if _, err := run.Result(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, ok := errors.AsType[*kagzi.RunError](func() error { _, err := run.Result(ctx); return err }()); ok {
			t.Error("that waiting ended is taken for the end of the run")
		}
	})
	t.Run("ForManyThatWait", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, kit.Noop, 7)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if got, err := run.Result(k.Ctx); err != nil || got != 7 {
					t.Errorf("got %v, %v", got, err)
				}
			})
		}
		kit.Serve(k, kit.Noop, kit.Odd)
		all.Wait()
		if got := kit.ResultOf(k, run); got != 7 {
			t.Errorf("after the end: %v", got)
		}
	})
	t.Run("OfAnotherType", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, kit.Noop, kit.Odd)
		run := kit.Begin(k, kit.Noop, 7)
		kit.ResultOf(k, run)
		found, err := kagzi.Find(k.Ctx, k.Client, kagzi.Define[int, []string]("noop"), run.ID())
		if err != nil {
			t.Fatal(err)
		}
		_, err = found.Result(k.Ctx)
		kit.MustContain(t, err, "decode", "[]string")
	})
}

func TestHostileNamesThatAreLegal(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"'; DROP TABLE kagzi.workflow_runs; --", `a"b\c`, "a:b/c#d", " ", "%s%d", "日本語 🦊", "\u202eabc", "{a,b}", "NULL",
		"e\u0301", "é", "infinity",
		strings.Repeat("x", 255), "$1", "a,b\"\\", "\u200b",
	} {
		t.Run(fmt.Sprintf("%.20q", name), func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[string, string](name, kit.NoRetry)
			step := strings.NewReplacer("/", "-", "#", "-").Replace(name)
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{
				Queue: name, Build: name,
				Labels: map[string]string{name: name},
			})
			kagzi.Handle(w, wf, func(ctx kagzi.Context, in string) (string, error) {
				out, err := kagzi.Go(ctx, step, func(ctx kagzi.Context) (string, error) {
					return kagzi.Step(ctx, step, func(context.Context) (string, error) { return in, nil })
				}).Result(ctx)
				if err == nil {
					err = kagzi.Sleep(ctx, step, 250*time.Millisecond)
				}
				return out, err
			})
			kit.StartWorker(t, w)
			run := kit.Begin(k, wf, name, kagzi.ID(name), kagzi.Queue(name), kagzi.Metadata{name: name})
			if got := kit.ResultOf(k, run); got != name {
				t.Errorf("got %q", got)
			}
			info, err := k.Client.Get(k.Ctx, kagzi.ID(name))
			if err != nil || info.Workflow != name || info.Queue != name || info.ExternalID != kagzi.ID(name) ||
				!reflect.DeepEqual(info.Metadata, kagzi.Metadata{name: name}) {
				t.Errorf("got %+v, %v", info, err)
			}
			if list, err := k.Client.List(k.Ctx, kagzi.RunFilter{
				Workflow: name, Queue: name, ID: kagzi.ID(name),
				Metadata: kagzi.Metadata{name: name},
			}); err != nil || len(list) != 1 {
				t.Errorf("List: %+v, %v", list, err)
			}
			if s := k.Steps(run.ID())[step+"/"+step]; len(s) != 1 {
				t.Errorf("steps: %+v", k.Steps(run.ID()))
			}
		})
	}
}

// gobCodec writes bytes that are no text.
type gobCodec struct{}

func (gobCodec) Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	if v == nil {
		return nil, nil
	}
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

func (gobCodec) Decode(data []byte, v any) error {
	if len(data) == 0 {
		return nil
	}
	return gob.NewDecoder(bytes.NewReader(data)).Decode(v)
}

func TestCodec(t *testing.T) {
	t.Parallel()
	k := kit.NewWith(t, kagzi.ClientConfig{Codec: gobCodec{}})
	wf := kagzi.Define[[]byte, []byte]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, in []byte) ([]byte, error) {
		if err := kagzi.Do(ctx, "nothing", func(context.Context) error { return nil }); err != nil {
			return nil, err
		}
		if err := kagzi.Sleep(ctx, "long", 250*time.Millisecond); err != nil {
			return nil, err
		}
		out, err := kagzi.Map(ctx, "m", []int{1}, func(ctx kagzi.Context, _ int) ([]byte, error) {
			return kagzi.Step(ctx, "s", func(context.Context) ([]byte, error) { return in, nil })
		})
		return out[0], err
	})
	if got := kit.ResultOf(k, kit.Begin(k, wf, []byte{0, 255, 1})); !bytes.Equal(got, []byte{0, 255, 1}) {
		t.Errorf("got %v", got)
	}
}
