package language_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// number is the signal of kit.Approved as a program has it whose type is wrong.
var number = kagzi.DefineSignal[int]("approved")

// A hookedCodec calls decoding before it decodes something into an int.
type hookedCodec struct{ decoding func() }

func (hookedCodec) Encode(v any) ([]byte, error) { return json.Marshal(v) }

func (c hookedCodec) Decode(data []byte, v any) error {
	if _, ok := v.(*int); ok {
		c.decoding()
	}
	return json.Unmarshal(data, v)
}

// makeDue ends the delays of all runs.
func makeDue(k *kit.Kit) {
	k.T.Helper()
	k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() WHERE status = 'PENDING'`)
	kit.WakeWorkers(k.T, k.Pool)
}

// A race and messages that do not decode: what a loser makes of a message does not count.
func TestUndecodableMessageInARace(t *testing.T) {
	t.Parallel()
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	// A branch loses while it decodes.
	t.Run("Loser", func(t *testing.T) {
		decoding, lost := make(chan struct{}), make(chan struct{})
		k := kit.NewWith(t, kagzi.ClientConfig{Codec: hookedCodec{func() {
			close(decoding)
			await.Opened(t, lost)
		}}})
		run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("a"))
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
		kagzi.Handle(w, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
				"loser": func(ctx kagzi.Context) (int, error) { return kagzi.WaitSignal(ctx, number) },
				"winner": func(ctx kagzi.Context) (int, error) {
					return 0,
						kagzi.Do(ctx, "step", func(context.Context) error { await.Opened(t, decoding); return nil })
				},
			})
			if err != nil {
				return "", err
			}
			return kagzi.WaitSignal(ctx, kit.Approved)
		})
		kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
			if point == "losers stopped" {
				close(lost)
			}
		})
		kit.StartWorker(t, w)
		if got := kit.ResultOf(k, run); got != "a" || k.Count(setAside) != 0 {
			t.Errorf("got %q", got)
		}
	})
	// Two branches wait for one name. One message that does not decode is set aside once, and each gets one of the
	// others.
	t.Run("OneName", func(t *testing.T) {
		k := kit.New(t)
		for i, suspended := range []bool{true, false} {
			run := kit.Begin(k, wf, struct{}{}, kagzi.Delay(time.Hour))
			if !suspended {
				k.Signal(run, wrong("bad"))
			}
			makeDue(k)
			kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
				_, first, err := kagzi.Race(ctx, "race",
					map[string]func(kagzi.Context) (string, error){"a": waits(kit.Approved), "b": waits(kit.Approved)})
				if err != nil {
					return "", err
				}
				second, err := kagzi.WaitSignal(ctx, kit.Approved)
				return first + " " + second, err
			})
			if suspended {
				k.WaitStatus(run, kagzi.StatusSleeping)
				k.Signal(run, wrong("bad"))
			}
			k.WaitStatus(run, kagzi.StatusSleeping, "signal approved; 1 message that does not decode")
			k.Signal(run, kit.Approved.With("1"))
			await.True(t, "the first is read", func() bool { return k.Count(unread) == i+1 })
			k.Signal(run, kit.Approved.With("2"))
			if got := kit.ResultOf(k, run); got != "1 2" || k.Count(setAside) != i+1 {
				t.Errorf("got %q, %d set aside", got, k.Count(setAside))
			}
		}
	})
}

// WaitingOn names three waits. A wait for a message may be among the others.
func TestWaitingOnWithManyWaits(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	run := kit.Begin(k, wf, struct{}{}, wrong("bad"))
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		for i := range 3 {
			kagzi.Go(ctx, fmt.Sprint("b", i), func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Sleep(ctx, "nap", time.Hour)
			})
		}
		return kagzi.WaitSignal(ctx, kit.Approved)
	})
	info := k.WaitStatus(run, kagzi.StatusSleeping)
	if !strings.HasSuffix(info.WaitingOn.String(), "; 1 more; 1 message that does not decode") {
		t.Errorf("it waits on %q", info.WaitingOn)
	}
}

// What becomes of a message that was set aside when its run is changed.
func TestUndecodableMessageAndChanges(t *testing.T) {
	t.Parallel()
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	const waitsFor = "signal approved; 1 message that does not decode"
	// begin returns a run that has set a message aside behind a step.
	begin := func(k *kit.Kit) (run *kagzi.Run[string], stop func() error) {
		stop = kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			if err := kagzi.Do(ctx, "step", func(context.Context) error { return nil }); err != nil {
				return "", err
			}
			got, err := kagzi.WaitSignal(ctx, kit.Approved)
			if got == "fail" {
				err = errors.New("told to")
			}
			return got, err
		})
		run = kit.Begin(k, wf, struct{}{})
		k.Signal(run, wrong("bad"))
		k.WaitStatus(run, kagzi.StatusSleeping, waitsFor)
		return run, stop
	}
	t.Run("Resume", func(t *testing.T) {
		k := kit.New(t)
		run, _ := begin(k)
		k.Signal(run, kit.Rejected.With("x").WithID("other"))
		k.Signal(run, kit.Approved.With("fail"))
		kit.FailureOf(k, run, kagzi.StatusFailed)
		if err := admin.New(k.Client).Messages.Drop(k.Ctx, run, "other"); err != nil { // of a run that is over
			t.Error(err)
		}
		if m := onlyMessage(k, run); m.SetAside == "" {
			t.Errorf("message %+v", m)
		}
		k.Resume(run)
		kit.FailureOf(k, run, kagzi.StatusFailed) // it has read "fail"
		if err := admin.New(k.Client).Messages.Drop(k.Ctx, run, "bad"); err != nil {
			t.Error(err)
		}
	})
	t.Run("Restart", func(t *testing.T) {
		k := kit.New(t)
		run, _ := begin(k)
		k.Cancel(run)
		id, err := admin.New(k.Client).Runs.Restart(k.Ctx, run)
		if err != nil {
			t.Fatal(err)
		}
		k.WaitStatus(id, kagzi.StatusSleeping, "signal approved")
	})
	// The fork decides for itself, and a program with another type reads the message.
	t.Run("Fork", func(t *testing.T) {
		k := kit.New(t)
		run, stop := begin(k)
		k.Cancel(run)
		same, err := admin.New(k.Client).Runs.Fork(k.Ctx, run, "step")
		if err != nil {
			t.Fatal(err)
		}
		k.WaitStatus(same, kagzi.StatusSleeping, waitsFor)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			raw, err := kagzi.WaitSignal(ctx, anyApproved)
			return string(raw), err
		})
		id, err := admin.New(k.Client).Runs.Fork(k.Ctx, run, "step")
		if err != nil {
			t.Fatal(err)
		}
		if got := kit.ResultOf(k, kit.Find(t, k.Client, wf, id)); got != "42" {
			t.Errorf("got %q", got)
		}
		if m := onlyMessage(k, run); m.SetAside == "" {
			t.Errorf("the source's message %+v", m)
		}
	})
	t.Run("Delete", func(t *testing.T) {
		k := kit.New(t)
		run, _ := begin(k)
		k.Cancel(run)
		if err := admin.New(k.Client).Runs.Delete(k.Ctx, run); err != nil {
			t.Fatal(err)
		}
		if n := k.Count(`SELECT count(*) FROM kagzi.signals`); n > 0 {
			t.Errorf("%d messages are left", n)
		}
	})
	t.Run("Cancelled", func(t *testing.T) {
		k := kit.New(t)
		run, _ := begin(k)
		k.Cancel(run)
		if info := k.InfoOf(run); info.WaitingOn != nil {
			t.Errorf("it waits on %q", info.WaitingOn)
		}
		if err := admin.New(k.Client).Messages.Redeliver(k.Ctx, run, "bad"); !errors.Is(err, kagzi.ErrRunFinished) {
			t.Errorf("redelivered: %v", err)
		}
	})
	t.Run("DroppedTwiceAtOnce", func(t *testing.T) {
		k := kit.New(t)
		run, _ := begin(k)
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- admin.New(k.Client).Messages.Drop(k.Ctx, run, "bad", kagzi.Actor("ada")) }()
		}
		if err := errors.Join(await.Receive(t, errs), await.Receive(t, errs)); !errors.Is(err, kagzi.ErrNotFound) {
			t.Errorf("error %v, want one of the calls to find nothing", err)
		}
		k.WantEvents(run, admin.LogEntry{
			Event: "MESSAGE_DROPPED", Actor: "ada",
			Changes: []admin.LogChange{{Field: "signal", From: "approved"}, {Field: "message", From: "bad"}},
		})
	})
}

// A message is given back to a run that a live worker has in memory: the run reads it behind the others.
func TestRedeliverWhileBusy(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	run := kit.Begin(k, wf, struct{}{}, wrong("bad"))
	begun, read := make(chan struct{}), make(chan struct{})
	kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		f := kagzi.Go(ctx, "busy", func(ctx kagzi.Context) (string, error) {
			return "", kagzi.Do(ctx, "s", func(context.Context) error {
				close(begun)
				await.Opened(t, read)
				return nil
			})
		})
		got, err := kagzi.WaitSignal(ctx, kit.Approved)
		if err == nil {
			var raw json.RawMessage
			raw, err = kagzi.WaitSignal(ctx, anyApproved)
			got += " " + string(raw)
		}
		close(read)
		return got, errors.Join(err, kit.Second(f.Result(ctx)))
	})
	await.Receive(t, begun)
	if err := admin.New(k.Client).Messages.Redeliver(k.Ctx, run, "bad"); err != nil &&
		kagzi.KindOf(err) != kind.BadRequest {
		t.Errorf("before the mark, or after it: %v", err)
	}
	await.True(t, "it is set aside", func() bool { return k.Count(setAside) == 1 })
	k.Signal(run, kit.Approved.With("a"))
	await.True(t, "the right one is read", func() bool { return k.Count(unread) == 1 })
	if err := admin.New(k.Client).Messages.Redeliver(k.Ctx, run, "bad"); err != nil {
		t.Fatal(err)
	}
	if got := kit.ResultOf(k, run); got != "a 42" {
		t.Errorf("got %q", got)
	}
}

// Messages of several names are more than a page each. What a loser took goes back to its place.
func TestPagesOfSeveralNames(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	run := kit.Begin(k, wf, struct{}{}, kagzi.Delay(time.Hour))
	for i := range 4 {
		for _, s := range []kagzi.Signal[string]{kit.Approved, kit.Rejected} {
			k.Signal(run, s.With(fmt.Sprint(i)+strings.Repeat("x", 400<<10)))
		}
	}
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		order := ""
		read := func(ctx kagzi.Context, s kagzi.Signal[string]) error {
			v, err := kagzi.WaitSignal(ctx, s)
			if err == nil {
				order += v[:1]
			}
			return err
		}
		took := make(chan struct{})
		_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (int, error){
			"loser": func(ctx kagzi.Context) (int, error) {
				for range 3 { // of more than one page
					if _, err := kagzi.WaitSignal(ctx, kit.Rejected); err != nil {
						return 0, err
					}
				}
				close(took)
				_, err := kagzi.WaitSignal(ctx, kit.Approved.For("never"))
				return 0, err
			},
			"winner": func(kagzi.Context) (int, error) { <-took; return 0, nil },
		})
		for range 4 {
			err = errors.Join(err, read(ctx, kit.Rejected), read(ctx, kit.Approved))
		}
		return order, err
	})
	makeDue(k)
	if got := kit.ResultOf(k, run); got != "00112233" {
		t.Errorf("got %q", got)
	}
}
