package operations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func messagesOf(k *kit.Kit, run kagzi.Ref, f admin.MessageFilter) []admin.MessageInfo {
	k.T.Helper()
	out, err := admin.New(k.Client).Messages.List(k.Ctx, run, f)
	if err != nil {
		k.T.Fatal(err)
	}
	return out
}

// Who sent a message, who read it, and when.
func TestMessagesSayWhoSentAndReadThem(t *testing.T) {
	k := kit.New(t)
	reader, sender := kagzi.Define[int, string]("reader"), kagzi.Define[kagzi.RunID, int]("sender")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, reader, func(ctx kagzi.Context, _ int) (string, error) {
		if _, err := kagzi.WaitSignal(ctx, kit.Approved); err != nil {
			return "", err
		}
		return kagzi.Go(ctx, "branch", func(ctx kagzi.Context) (string, error) {
			return kagzi.WaitSignal(ctx, kit.Approved)
		}).Result(ctx)
	})
	kagzi.Handle(w, sender, func(ctx kagzi.Context, to kagzi.RunID) (int, error) {
		return 0, kagzi.Do(ctx, "send", func(ctx context.Context) error {
			return k.Client.Signal(ctx, to, kit.Approved.With("from a step"))
		})
	})
	kit.StartWorker(t, w)

	run := kit.Begin(k, reader, 1)
	if got := messagesOf(k, run, admin.MessageFilter{}); len(got) != 0 {
		t.Errorf("a run without messages has %+v", got)
	}
	if err := k.Client.Signal(k.Ctx, run, kit.Approved.With("by hand").WithID("click-1").
		WithHeaders(kagzi.Headers{"user": "ada"})); err != nil {
		t.Fatal(err)
	}
	send := kit.Begin(k, sender, run.ID())
	kit.ResultOf(k, send)
	if got := kit.ResultOf(k, run); got != "from a step" {
		t.Fatalf("the run returned %q", got)
	}
	got := messagesOf(k, run, admin.MessageFilter{})
	if len(got) != 2 {
		t.Fatalf("messages %+v", got)
	}
	for i, want := range []admin.MessageInfo{
		{
			Signal: "approved", ID: "click-1", Payload: []byte(`"by hand"`), Headers: kagzi.Headers{"user": "ada"},
			ReadBy: "approved",
		},
		{
			Signal: "approved", ID: got[1].ID, Payload: []byte(`"from a step"`), SentBy: string(send.ID()) + "/send",
			ReadBy: "branch/approved",
		},
	} {
		m := got[i]
		if m.ReceivedAt.IsZero() || m.ReadAt.Before(m.ReceivedAt) {
			t.Errorf("received at %v, read at %v", m.ReceivedAt, m.ReadAt)
		}
		m.ReceivedAt, m.ReadAt = time.Time{}, time.Time{}
		if fmt.Sprint(m) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", m, want)
		}
	}
	if got[1].ID == "" {
		t.Error("a message has no ID")
	}

	// A fork has the messages, and the waits for them come later in it.
	fork, err := admin.New(k.Client).Runs.Fork(k.Ctx, run, "branch/approved")
	if err != nil {
		t.Fatal(err)
	}
	kit.ResultOf(k, kit.Find(t, k.Client, reader, fork))
	again := messagesOf(k, fork, admin.MessageFilter{})
	if len(again) != 2 || again[0].ReadAt != got[0].ReadAt || !again[1].ReadAt.After(got[1].ReadAt) ||
		again[1].SentBy != got[1].SentBy {
		t.Errorf("the fork has %+v, the run %+v", again, got)
	}
}

// Pages have every message once, in the order of the names and then of the arrivals, whatever is read meanwhile.
func TestMessagesInPages(t *testing.T) {
	k := kit.New(t, dbtest.Unchecked()) // it marks messages as read without a step
	wf := kagzi.Define[int, int]("wf")
	run := kit.Begin(k, wf, 1, kagzi.Delay(time.Hour))
	signals := []kagzi.Signal[int]{
		kagzi.DefineSignal[int]("item"), kagzi.DefineSignal[int]("item").For("a"),
		kagzi.DefineSignal[int]("Note"), kagzi.DefineSignal[int]("zeit"),
	}
	for i := range 20 {
		if err := k.Client.Signal(k.Ctx, run,
			signals[i%len(signals)].With(i).WithID(kagzi.ID(fmt.Sprint(100-i)))); err != nil {
			t.Fatal(err)
		}
	}
	paged := func(f admin.MessageFilter) (all []string) {
		for {
			page := messagesOf(k, run, f)
			if len(page) > f.Limit {
				t.Fatalf("a page has %d messages", len(page))
			}
			for _, m := range page {
				all = append(all, m.Signal+" "+string(m.Payload))
			}
			if len(page) == 0 {
				return all
			}
			f.After = page[len(page)-1].ID
		}
	}
	want := strings.Fields("Note_2 Note_6 Note_10 Note_14 Note_18 item_0 item_4 item_8 item_12 item_16 item/a_1 " +
		"item/a_5 item/a_9 item/a_13 item/a_17 zeit_3 zeit_7 zeit_11 zeit_15 zeit_19")
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "_", " ")
	}
	for _, limit := range []int{1, 3, 7, 20} {
		if got := paged(admin.MessageFilter{Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("pages of %d:\ngot  %q\nwant %q", limit, got, want)
		}
		if got := paged(admin.MessageFilter{Limit: limit, Signal: "item/a"}); !slices.Equal(got, want[10:15]) {
			t.Errorf("pages of %d of one signal: %q", limit, got)
		}
	}
	dbtest.Exec(t, k.Pool, `UPDATE kagzi.signals SET consumed_by = 'item', consumed_at = now() WHERE name LIKE 'item%'
		AND payload <> '9'`)
	if got := paged(admin.MessageFilter{Limit: 2, Unread: true}); !slices.Equal(got,
		slices.Concat(want[:5], want[12:13], want[15:])) {
		t.Errorf("unread: %q", got)
	}
	if got := paged(admin.MessageFilter{Limit: 2, Unread: true, Signal: "item/a"}); !slices.Equal(got, want[12:13]) {
		t.Errorf("unread of one signal: %q", got)
	}
	if got := paged(admin.MessageFilter{Limit: 2, Signal: "other"}); len(got) != 0 {
		t.Errorf("of a signal that nobody sent: %q", got)
	}
}

func TestMessagesRefusesWrongCalls(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf")
	run := kit.Begin(k, wf, 1, kagzi.Delay(time.Hour))
	other := kit.Begin(k, wf, 2, kagzi.Delay(time.Hour))
	if err := k.Client.Signal(k.Ctx, other, kit.Approved.With("").WithID("of another")); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		run  kagzi.Ref
		f    admin.MessageFilter
		says string
	}{
		"limit":                  {run, admin.MessageFilter{Limit: -1}, "Limit is -1"},
		"signal":                 {run, admin.MessageFilter{Signal: "a\x00"}, "signal"},
		"after":                  {run, admin.MessageFilter{After: "nothing"}, `After "nothing" is no message`},
		"after of another run":   {run, admin.MessageFilter{After: "of another"}, "is no message"},
		"after of another name":  {other, admin.MessageFilter{Signal: "x", After: "of another"}, "is no message"},
		"after that is too long": {run, admin.MessageFilter{After: kagzi.ID(strings.Repeat("x", 256))}, "message ID"},
	} {
		_, err := admin.New(k.Client).Messages.List(k.Ctx, tt.run, tt.f)
		if err == nil || !strings.Contains(err.Error(), tt.says) || kagzi.KindOf(err) != kind.BadRequest {
			t.Errorf("%s: %v of kind %s", name, err, kagzi.KindOf(err))
		}
	}
	elsewhere := admin.New(kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Namespace: "other"}))
	for _, f := range []admin.MessageFilter{{}, {After: "x"}, {Signal: "x"}} {
		if _, err := admin.New(k.Client).Messages.List(k.Ctx, kagzi.RunID(uuid.NewString()), f); !errors.Is(err,
			kagzi.ErrNotFound) {
			t.Errorf("%+v of no run: %v", f, err)
		}
		if _, err := elsewhere.Messages.List(k.Ctx, other.ID(), f); !errors.Is(err, kagzi.ErrNotFound) {
			t.Errorf("%+v in another namespace: %v", f, err)
		}
	}
}
