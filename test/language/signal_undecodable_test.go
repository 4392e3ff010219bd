package language_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// anyApproved sends what the readers of kit.Approved do not decode.
var anyApproved = kagzi.DefineSignal[json.RawMessage]("approved")

// wrong is a message that does not decode into a string.
func wrong(id kagzi.ID) kagzi.Message { return anyApproved.With(json.RawMessage("42")).WithID(id) }

const setAside = `SELECT count(*) FROM kagzi.signals WHERE set_aside_at IS NOT NULL`

// onlyMessage returns the one message that the run has not read.
func onlyMessage(k *kit.Kit, run kagzi.Ref) admin.MessageInfo {
	k.T.Helper()
	got, err := admin.New(k.Client).Messages.List(k.Ctx, run, admin.MessageFilter{Unread: true})
	if err != nil || len(got) != 1 {
		k.T.Fatalf("unread messages %v, %v", got, err)
	}
	return got[0]
}

// A message that does not decode is set aside: the run goes on waiting as if it had not come.
func TestUndecodableMessage(t *testing.T) {
	t.Parallel()
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	const waits = "signal approved; 1 message that does not decode"
	t.Run("TheNextIsRead", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, wf, struct{}{})
		k.Signal(run.ID(), wrong("bad"))
		k.Signal(run.ID(), kit.Approved.With("a"))
		kit.Serve(k, wf, reading(1, kit.Approved))
		if got := kit.ResultOf(k, run); got != "a" {
			t.Errorf("got %q", got)
		}
		m := onlyMessage(k, run)
		if m.ID != "bad" || !strings.Contains(m.SetAside, "does not decode into string") || m.SetAsideAt.IsZero() ||
			m.ReadBy != "" {
			t.Errorf("message %+v", m)
		}
	})
	t.Run("Logged", func(t *testing.T) {
		k := kit.New(t)
		c, logged := kit.LoggedClient(t, k.Pool)
		k.Client = c
		kit.Serve(k, wf, reading(1, kit.Approved))
		run := kit.Begin(k, wf, struct{}{})
		k.Signal(run.ID(), wrong("bad"))
		logged.WantLine(t, "is set aside", "run="+string(run.ID()), "signal=approved", "message_id=bad")
	})
	t.Run("WhileSuspended", func(t *testing.T) {
		k := kit.New(t)
		kit.ServeWith(k, kit.NotifiedOnly, wf, reading(2, kit.Approved))
		run := kit.Begin(k, wf, struct{}{})
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal approved")
		k.Signal(run.ID(), wrong("bad"))
		await.True(t, "it is set aside", func() bool { return k.Count(setAside) == 1 })
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, waits)
		if n := k.Count(`SELECT wakeups_awaited - wakeups FROM kagzi.workflow_runs`); n != 1 {
			t.Errorf("the run waits for %d more messages", n)
		}
		k.Signal(run.ID(), kit.Approved.With("a"))
		await.True(t, "the right one is read", func() bool { return k.Count(unread) == 1 })
		k.Signal(run.ID(), kit.Approved.With("b"))
		if got := kit.ResultOf(k, run); got != "a b" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("Timeout", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, wf, struct{}{}, wrong("bad"))
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			_, err := kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(100*time.Millisecond))
			if !errors.Is(err, kind.Timeout) {
				return "", errors.New("no timeout")
			}
			return "timed out", nil
		})
		if got := kit.ResultOf(k, run); got != "timed out" || k.Count(setAside) != 1 {
			t.Errorf("got %q", got)
		}
	})
	t.Run("DroppedAndSentAgain", func(t *testing.T) {
		k := kit.New(t)
		kit.Serve(k, wf, reading(1, kit.Approved))
		run := kit.Begin(k, wf, struct{}{})
		k.Signal(run.ID(), wrong("m"))
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, waits)
		if err := admin.New(k.Client).Messages.Drop(k.Ctx, run, "m", kagzi.Actor("ada"),
			kagzi.Reason("wrong type")); err != nil {
			t.Fatal(err)
		}
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal approved")
		k.WantEvents(run, admin.LogEntry{
			Event: "MESSAGE_DROPPED", Actor: "ada", Reason: "wrong type",
			Changes: []admin.LogChange{{Field: "signal", From: "approved"}, {Field: "message", From: "m"}},
		})
		audit, err := admin.New(k.Client).Audit(k.Ctx, admin.AuditFilter{Action: "message_dropped"})
		if err != nil || len(audit) != 1 || audit[0].Name != string(run.ID()) || audit[0].Actor != "ada" {
			t.Errorf("audit log %+v, %v", audit, err)
		}
		if err := admin.New(k.Client).Messages.Drop(k.Ctx, run, "m"); !errors.Is(err, kagzi.ErrNotFound) {
			t.Errorf("dropped twice: %v", err)
		}
		k.Signal(run.ID(), kit.Approved.With("right").WithID("m"))
		if got := kit.ResultOf(k, run); got != "right" {
			t.Errorf("got %q", got)
		}
		if err := admin.New(k.Client).Messages.Drop(k.Ctx, run, "m"); kagzi.KindOf(err) != kind.BadRequest ||
			!strings.Contains(err.Error(), `has read it in "approved"`) {
			t.Errorf("dropped after the read: %v", err)
		}
	})
	t.Run("RedeliveredAfterADeploy", func(t *testing.T) {
		k := kit.New(t)
		stop := kit.Serve(k, wf, reading(1, kit.Approved))
		run := kit.Begin(k, wf, struct{}{})
		k.Signal(run.ID(), wrong("m"))
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, waits)
		if err := admin.New(k.Client).Messages.Redeliver(k.Ctx, run, "m"); err != nil { // before the deploy
			t.Fatal(err)
		}
		await.True(t, "it is set aside again", func() bool { return k.Count(setAside) == 1 })
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, waits)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			raw, err := kagzi.WaitSignal(ctx, anyApproved)
			return string(raw), err
		})
		tx := k.CallersTx()
		if err := admin.New(k.Client).Messages.Redeliver(k.Ctx, run, "m", kagzi.InTx(tx),
			kagzi.Actor("ada")); err != nil {
			t.Fatal(err)
		}
		if m := onlyMessage(k, run); m.SetAside == "" {
			t.Error("it is given back before the commit")
		}
		kit.CommitTx(t, tx)
		if got := kit.ResultOf(k, run); got != "42" {
			t.Errorf("got %q", got)
		}
		if err := admin.New(k.Client).Messages.Redeliver(k.Ctx, run, "m"); !errors.Is(err, kagzi.ErrRunFinished) {
			t.Errorf("to a run that is over: %v", err)
		}
	})
	// A message of another name may be read at any time while a worker executes the run.
	t.Run("DropUnread", func(t *testing.T) {
		k := kit.New(t)
		misspelt := kagzi.DefineSignal[string]("aproved")
		run := kit.Begin(k, wf, struct{}{}, misspelt.With("x").WithID("m"))
		entered, leave := make(chan struct{}), make(chan struct{})
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			err := kagzi.Do(ctx, "step", func(context.Context) error {
				close(entered)
				<-leave
				return nil
			})
			if err != nil {
				return "", err
			}
			return kagzi.WaitSignal(ctx, kit.Approved)
		})
		await.Receive(t, entered)
		if err := admin.New(k.Client).Messages.Drop(k.Ctx, run, "m"); !errors.Is(err, admin.ErrNotWaiting) {
			t.Errorf("while a worker executes the run: %v", err)
		}
		if err := admin.New(k.Client).Messages.Redeliver(k.Ctx, run, "m"); kagzi.KindOf(err) != kind.BadRequest {
			t.Errorf("redelivered although it was not set aside: %v", err)
		}
		close(leave)
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal approved")
		if err := admin.New(k.Client).Messages.Drop(k.Ctx, run, "m"); err != nil {
			t.Fatal(err)
		}
		k.Signal(run.ID(), kit.Approved.With("a"))
		if got := kit.ResultOf(k, run); got != "a" {
			t.Errorf("got %q", got)
		}
	})
	// The worker dies before the mark is written: the next one sets the message aside.
	t.Run("WorkerDies", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, wf, struct{}{}, wrong("bad"))
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
		kagzi.Handle(w, wf, reading(1, kit.Approved))
		var died atomic.Bool
		kit.Failpoint(t, w, func(point string, id uuid.UUID) {
			if point == "suspend" && died.CompareAndSwap(false, true) {
				k.TakeAway(kagzi.RunID(id.String()))
			}
		})
		kit.StartWorker(t, w)
		kit.Rescue(k, wf, reading(1, kit.Approved))
		await.True(t, "the first execution is gone", died.Load)
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, waits)
		k.Signal(run.ID(), kit.Approved.With("a"))
		if got := kit.ResultOf(k, run); got != "a" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("InARace", func(t *testing.T) {
		k := kit.New(t)
		run := kit.Begin(k, wf, struct{}{}, wrong("bad"))
		k.Signal(run.ID(), kit.Approved.With("a"))
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			_, got, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
				"wait": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, kit.Approved) },
				"never": func(ctx kagzi.Context) (string, error) {
					return kagzi.WaitSignal(ctx, kit.Approved.For("x"))
				},
			})
			return got, err
		})
		if got := kit.ResultOf(k, run); got != "a" || k.Count(setAside) != 1 {
			t.Errorf("got %q", got)
		}
	})
	t.Run("DecoderPanics", func(t *testing.T) {
		k := kit.New(t)
		s := kagzi.DefineSignal[panicking]("approved")
		run := kit.Begin(k, wf, struct{}{}, wrong("bad"))
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
			_, err := kagzi.WaitSignal(ctx, s)
			return "", err
		})
		k.WaitStatus(run.ID(), kagzi.StatusSleeping, waits)
		if m := onlyMessage(k, run); !strings.Contains(m.SetAside, "panicked") || strings.Contains(m.SetAside, "42") {
			t.Errorf("set aside: %q", m.SetAside)
		}
	})
}

// A panicking panics with what it is to decode.
type panicking struct{}

func (*panicking) UnmarshalJSON(data []byte) error { panic(string(data)) }

// Messages of a client without the namespace's Sealer do not open. They are set aside.
func TestMessageThatIsNotSealed(t *testing.T) {
	k := newSealedKit(t)
	plain := kit.NewClient(t, k.Pool)
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	kit.Serve(k, wf, reading(1, kit.Approved))
	run := kit.Begin(k, wf, struct{}{})
	if err := plain.Signal(k.Ctx, run, kit.Approved.With("a").WithID("m")); err != nil {
		t.Fatal(err)
	}
	k.WaitStatus(run.ID(), kagzi.StatusSleeping, "signal approved; 1 message that does not decode")
	if m := onlyMessage(k, run); !strings.Contains(m.SetAside, "cannot be opened") {
		t.Errorf("set aside: %q", m.SetAside)
	}
	k.Signal(run.ID(), kit.Approved.With("b"))
	if got := kit.ResultOf(k, run); got != "b" {
		t.Errorf("got %q", got)
	}
}

// The list says that a message was read soon after, although the next step goes on for long.
func TestReadMessageIsListedDuringTheNextStep(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("a"))
	leave := make(chan struct{})
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		got, err := kagzi.WaitSignal(ctx, kit.Approved)
		if err != nil {
			return "", err
		}
		return got, kagzi.Do(ctx, "long", func(context.Context) error {
			<-leave
			return nil
		})
	})
	await.True(t, "the message is listed as read", func() bool { return k.Count(unread) == 0 })
	close(leave)
	kit.ResultOf(k, run)
}
