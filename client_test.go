package kagzi

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
)

func TestGetByIDIsTheActiveRunElseTheNewest(t *testing.T) {
	k := newKit(t)
	stop := serve(k, noop, odd)
	first := begin(k, noop, 1, ID("x"))
	resultOf(k, first)
	second := begin(k, noop, 2, ID("x"))
	failureOf(k, second, StatusFailed)
	if info, err := k.c.Get(k.ctx, ID("x")); err != nil || info.ID != second.ID() {
		t.Errorf("the newest is not %s: %+v, %v", second.ID(), info, err)
	}
	stop()
	k.resume(second.ID())
	if info, _ := k.c.Get(k.ctx, ID("x")); info.ID != second.ID() || info.Status != StatusPending {
		t.Errorf("got %+v", info)
	}
	k.cancel(ID("x"))
	third := begin(k, noop, 3, ID("x"))
	if info, _ := k.c.Get(k.ctx, ID("x")); info.ID != third.ID() || info.ExternalID != "x" || string(info.Input) != "3" {
		t.Errorf("the active one is not %s: %+v", third.ID(), info)
	}
}

func TestReferencesThatLeadNowhere(t *testing.T) {
	k := newKit(t)
	run := begin(k, noop, 1, ID("x"))
	other := clientWith(t, k.pool, ClientConfig{Namespace: "other"})
	for name, tt := range map[string]struct {
		c   *Client
		ref Ref
	}{
		"UnknownRunID": {k.c, RunID("01a1fc0c-3282-7191-bf09-a6e3b3ce1eaa")}, "NotARunID": {k.c, RunID("order-42")},
		"UnknownID": {k.c, ID("y")}, "IDOfAnotherNamespace": {other, ID("x")}, "RunIDOfAnotherNamespace": {other, run.ID()}, "CaseMatters": {k.c, ID("X")},
	} {
		t.Run(name, func(t *testing.T) {
			_, get := tt.c.Get(k.ctx, tt.ref)
			_, steps := tt.c.Steps(k.ctx, tt.ref)
			_, find := Find(k.ctx, tt.c, noop, tt.ref)
			_, events := tt.c.Events(k.ctx, tt.ref)
			_, restart := tt.c.Restart(k.ctx, tt.ref)
			_, fork := tt.c.Fork(k.ctx, tt.ref, "step")
			for op, err := range map[string]error{
				"Get": get, "Steps": steps, "Find": find, "Cancel": tt.c.Cancel(k.ctx, tt.ref), "Resume": tt.c.Resume(k.ctx, tt.ref),
				"Events": events, "Restart": restart, "Fork": fork,
			} {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("%s: %v", op, err)
				}
			}
		})
	}
	_, err := k.c.Get(k.ctx, nil)
	mustContain(t, err, "reference is nil")
	_, err = k.c.Get(k.ctx, ID(""))
	mustContain(t, err, "ID is empty")
	_, err = k.c.Get(k.ctx, RunID(""))
	mustContain(t, err, "run ID is empty")
	_, err = Find(k.ctx, k.c, Define[int, int]("another"), run.ID())
	mustContain(t, err, `"noop"`, `"another"`)
	found, err := Find(k.ctx, k.c, noop, ID("x"))
	if err != nil || found.ID() != run.ID() || !found.Existed() {
		t.Errorf("Find: %+v, %v", found, err)
	}
	if info, _ := run.Info(k.ctx); info.Status != StatusPending {
		t.Errorf("somebody changed the run: %+v", info)
	}
}

func TestList(t *testing.T) {
	k := newKit(t)
	stop := serve(k, noop, odd)
	var ids []RunID // newest first
	start := func(wf Workflow[int, int], n int, opts ...StartOption) RunID {
		run := begin(k, wf, n, opts...)
		ids = slices.Insert(ids, 0, run.ID())
		return run.ID()
	}
	done := start(noop, 1, Metadata{"tenant": "a", "kind": "x"})
	failed := start(noop, 2, Metadata{"tenant": "b"})
	k.waitStatus(done, StatusCompleted)
	k.waitStatus(failed, StatusFailed)
	stop()
	pending := start(noop, 3, ID("order-1"), Metadata{"tenant": "a"})
	other := start(Define[int, int]("other"), 4, Queue("q"))
	cut := k.infoOf(pending)
	for name, tt := range map[string]struct {
		f    RunFilter
		want []RunID
	}{
		"All": {RunFilter{}, ids}, "Limit": {RunFilter{Limit: 2}, ids[:2]}, "After": {RunFilter{After: ids[1], Limit: 2}, ids[2:]},
		"Status": {RunFilter{Status: []Status{StatusCompleted, StatusFailed}}, []RunID{failed, done}}, "Workflow": {RunFilter{Workflow: "other"}, []RunID{other}},
		"Queue": {RunFilter{Queue: "q"}, []RunID{other}}, "ID": {RunFilter{ID: "order-1"}, []RunID{pending}},
		"Metadata": {RunFilter{Metadata: Metadata{"tenant": "a"}}, []RunID{pending, done}}, "TwoTags": {RunFilter{Metadata: Metadata{"tenant": "a", "kind": "x"}}, []RunID{done}},
		"Since": {RunFilter{Since: cut.CreatedAt}, ids[:2]}, "Until": {RunFilter{Until: cut.CreatedAt}, ids[2:]},
		"And": {RunFilter{Metadata: Metadata{"tenant": "a"}, Status: []Status{StatusPending}}, []RunID{pending}}, "None": {RunFilter{Workflow: "nobody"}, nil},
		"Parent": {RunFilter{Parent: done}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			runs, err := k.c.List(k.ctx, tt.f)
			if err != nil {
				t.Fatal(err)
			}
			var got []RunID
			for _, r := range runs {
				got = append(got, r.ID)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	for says, f := range map[string]RunFilter{
		"Limit is -1": {Limit: -1}, `no status "DONE": use kagzi.StatusFailed`: {Status: []Status{"DONE"}}, "Parent": {Parent: "x"}, "After": {After: "x"},
		"workflow name": {Workflow: "\x00"}, "queue": {Queue: "\xff"}, "ID": {ID: "\n"}, "Metadata": {Metadata: Metadata{"": ""}},
	} {
		_, err := k.c.List(k.ctx, f)
		mustContain(t, err, "list", says)
		if KindOf(err) != KindBadRequest {
			t.Errorf("%v is of kind %s", err, KindOf(err))
		}
	}
}

func TestSteps(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	serve(k, wf, func(ctx Context, _ int) (int, error) {
		_, err := Step(ctx, "good", func(context.Context) (map[string]int, error) { return map[string]int{"a": 1}, nil })
		if err != nil {
			return 0, err
		}
		return 0, Do(ctx, "bad", func(context.Context) error { return KindNetwork }, RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	})
	run := begin(k, wf, 1, ID("x"))
	failureOf(k, run, StatusFailed)
	steps, err := k.c.Steps(k.ctx, ID("x"))
	if err != nil || len(steps) != 3 {
		t.Fatalf("got %+v, %v", steps, err)
	}
	good, bad := steps[0], steps[2]
	if good.Step != "good" || good.Status != StatusCompleted || string(good.Output) != `{"a":1}` || good.EndedAt.Before(good.StartedAt) {
		t.Errorf("got %+v", good)
	}
	if bad.Step != "bad" || bad.Attempt != 2 || bad.Status != StatusFailed || bad.Kind != KindNetwork || bad.Error != "network" || !bad.WakeAt.IsZero() {
		t.Errorf("got %+v", bad)
	}
}

func TestOneActiveRunForAnID(t *testing.T) {
	k := newKit(t)
	const n = 20
	runs := make([]*Run[int], n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var err error
			if runs[i], err = Start(k.ctx, k.c, noop, 1, ID("x")); err != nil {
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
	if _, err := Start(k.ctx, k.c, noop, 2, ID("x")); !errors.Is(err, ErrIDConflict) {
		t.Errorf("another input: %v", err)
	}
	other := clientWith(t, k.pool, ClientConfig{Namespace: "other"})
	if run, err := Start(k.ctx, other, noop, 2, ID("x")); err != nil || run.Existed() {
		t.Errorf("another namespace: %+v, %v", run, err)
	}
}

func TestStartMany(t *testing.T) {
	k := newKit(t)
	if started, err := k.c.StartMany(k.ctx, nil); err != nil || len(started) != 0 {
		t.Errorf("of none: %v, %v", started, err)
	}
	calls := make([]Call, 10_000)
	for i := range calls {
		calls[i] = noop.With(i)
	}
	calls[1] = noop.With(1, ID("x"))
	started, err := k.c.StartMany(k.ctx, calls)
	if err != nil || len(started) != len(calls) {
		t.Fatalf("%d of %d: %v", len(started), len(calls), err)
	}
	for i, n := range []int{0, 1, 9_999} {
		if info, err := k.c.Get(k.ctx, started[n].ID); err != nil || string(info.Input) != fmt.Sprint(n) {
			t.Errorf("%d: run %d has input %s, %v", i, n, info.Input, err)
		}
	}
	again, err := k.c.StartMany(k.ctx, []Call{noop.With(5), noop.With(1, ID("x"))})
	if err != nil || again[0].Existed || !again[1].Existed || again[1].ID != started[1].ID {
		t.Errorf("got %+v, %v", again, err)
	}
	before := k.count(`SELECT count(*) FROM kagzi.workflow_runs`)
	if _, err := k.c.StartMany(k.ctx, []Call{noop.With(1), noop.With(2, ID("x")), noop.With(3, ID("y"))}); !errors.Is(err, ErrIDConflict) {
		t.Errorf("got %v", err)
	}
	if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs`); n != before {
		t.Errorf("%d runs were started by a call that was refused", n-before)
	}
}

func TestStartInTx(t *testing.T) {
	k := newKit(t)
	listener := newTestClient(t, k.pool)
	w := newTestWorker(t, listener, WorkerConfig{PollInterval: 25 * time.Second}) // another client: it learns by NOTIFY alone
	Handle(w, noop, odd)
	startWorker(t, w)
	waitListening(t, k.pool, 1)

	tx := k.callersTx()
	lost := begin(k, noop, 1, ID("x"), InTx(tx))
	if _, err := k.c.StartMany(k.ctx, []Call{noop.With(1), noop.With(3)}, InTx(tx)); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(k.ctx, k.c, noop, 2, ID("x"), InTx(tx)); !errors.Is(err, ErrIDConflict) {
		t.Errorf("a conflict within the transaction: %v", err)
	}
	if same := begin(k, noop, 1, ID("x"), InTx(tx)); !same.Existed() || same.ID() != lost.ID() {
		t.Errorf("got %+v", same)
	}
	if _, err := lost.Info(k.ctx); !errors.Is(err, ErrNotFound) {
		t.Errorf("visible before the commit: %v", err)
	}
	rollbackTx(t, tx)
	if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs`) + k.count(`SELECT count(*) FROM kagzi.workflow_payloads`); n != 0 {
		t.Errorf("a rollback leaves %d rows", n)
	}

	var run *Run[int]
	err := pgx.BeginFunc(k.ctx, k.pool, func(tx pgx.Tx) (err error) {
		run, err = Start(k.ctx, k.c, noop, 1, ID("x"), InTx(tx))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(k.ctx, 10*time.Second) // long before the worker looks by itself
	defer cancel()
	if got, err := run.Result(ctx); err != nil || got != 1 {
		t.Errorf("got %v, %v", got, err)
	}

	_, err = k.c.StartMany(k.ctx, []Call{noop.With(1, InTx(k.callersTx())), noop.With(1, InTx(k.callersTx()))})
	mustContain(t, err, "different transactions")
}

func TestResult(t *testing.T) {
	t.Parallel()
	t.Run("EndsWithItsContext", func(t *testing.T) {
		k := newKit(t)
		run := begin(k, noop, 1)
		ctx, cancel := context.WithCancel(k.ctx)
		cancel()
		if _, err := run.Result(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, ok := errors.AsType[*RunError](func() error { _, err := run.Result(ctx); return err }()); ok {
			t.Error("that waiting ended is taken for the end of the run")
		}
	})
	t.Run("ForManyThatWait", func(t *testing.T) {
		k := newKit(t)
		run := begin(k, noop, 7)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if got, err := run.Result(k.ctx); err != nil || got != 7 {
					t.Errorf("got %v, %v", got, err)
				}
			})
		}
		serve(k, noop, odd)
		all.Wait()
		if got := resultOf(k, run); got != 7 {
			t.Errorf("after the end: %v", got)
		}
	})
	t.Run("OfAnotherType", func(t *testing.T) {
		k := newKit(t)
		serve(k, noop, odd)
		run := begin(k, noop, 7)
		resultOf(k, run)
		found, err := Find(k.ctx, k.c, Define[int, []string]("noop"), run.ID())
		if err != nil {
			t.Fatal(err)
		}
		_, err = found.Result(k.ctx)
		mustContain(t, err, "decode", "[]string")
	})
}

func TestHostileNamesThatAreLegal(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"'; DROP TABLE kagzi.workflow_runs; --", `a"b\c`, "a:b/c#d", " ", "%s%d", "日本語 🦊", "\u202eabc", "{a,b}", "NULL", "e\u0301", "é", "infinity",
		strings.Repeat("x", 255), "$1", "a,b\"\\", "\u200b",
	} {
		t.Run(fmt.Sprintf("%.20q", name), func(t *testing.T) {
			k := newKit(t)
			wf := Define[string, string](name, noRetry)
			step := strings.NewReplacer("/", "-", "#", "-").Replace(name)
			w := newTestWorker(t, k.c, WorkerConfig{Queue: name, Build: name, Labels: map[string]string{name: name}})
			Handle(w, wf, func(ctx Context, in string) (string, error) {
				out, err := Go(ctx, step, func(ctx Context) (string, error) {
					return Step(ctx, step, func(context.Context) (string, error) { return in, nil })
				}).Result(ctx)
				if err == nil {
					err = Sleep(ctx, step, 250*time.Millisecond)
				}
				return out, err
			})
			startWorker(t, w)
			run := begin(k, wf, name, ID(name), Queue(name), Metadata{name: name})
			if got := resultOf(k, run); got != name {
				t.Errorf("got %q", got)
			}
			info, err := k.c.Get(k.ctx, ID(name))
			if err != nil || info.Workflow != name || info.Queue != name || info.ExternalID != ID(name) || !reflect.DeepEqual(info.Metadata, Metadata{name: name}) {
				t.Errorf("got %+v, %v", info, err)
			}
			if list, err := k.c.List(k.ctx, RunFilter{Workflow: name, Queue: name, ID: ID(name), Metadata: Metadata{name: name}}); err != nil || len(list) != 1 {
				t.Errorf("List: %+v, %v", list, err)
			}
			if s := k.steps(run.ID())[step+"/"+step]; len(s) != 1 {
				t.Errorf("steps: %+v", k.steps(run.ID()))
			}
		})
	}
}

// gobCodec writes what is no text.
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
	k := newKitWith(t, ClientConfig{Codec: gobCodec{}})
	wf := Define[[]byte, []byte]("wf")
	serve(k, wf, func(ctx Context, in []byte) ([]byte, error) {
		if err := Do(ctx, "nothing", func(context.Context) error { return nil }); err != nil {
			return nil, err
		}
		if err := Sleep(ctx, "long", 250*time.Millisecond); err != nil {
			return nil, err
		}
		out, err := Map(ctx, "m", []int{1}, func(ctx Context, _ int) ([]byte, error) {
			return Step(ctx, "s", func(context.Context) ([]byte, error) { return in, nil })
		})
		return out[0], err
	})
	if got := resultOf(k, begin(k, wf, []byte{0, 255, 1})); !bytes.Equal(got, []byte{0, 255, 1}) {
		t.Errorf("got %v", got)
	}
}
