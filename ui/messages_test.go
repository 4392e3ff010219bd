package ui

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// The page of a run shows a message that does not decode, and gives it back or drops it; the log says who did.
func TestMessagesThatDoNotDecode(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{Authorize: everybody})
	approved := kagzi.DefineSignal[string]("approved")
	wf := kagzi.Define[string, string]("approval")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ string) (string, error) { return kagzi.WaitSignal(ctx, approved) })
	run := kit.Begin(k, wf, "")
	path := runPath(run)
	const waits = "signal approved; 1 message that does not decode"
	k.Signal(run, kagzi.DefineSignal[int]("approved").With(42).WithID("m1"))
	k.WaitStatus(run, kagzi.StatusSleeping, waits)
	page := s.mustGet(strings.TrimSuffix(path, "/"))
	for _, want := range []string{"<strong>set aside</strong>", "does not decode into string", path +
		"redeliver-message?message=m1", path + "drop-message?message=m1"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if form := s.mustGet(path + "redeliver-message?message=m1"); !strings.Contains(form, `value="m1"`) {
		t.Errorf("the form does not name the message:\n%s", notice(form))
	}
	s.mustPost(path+"redeliver-message", "message", "m1", "form", "f1")
	s.logged(run, "MESSAGE_REDELIVERED")
	await.True(t, "it is set aside again", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.signals WHERE set_aside_at IS NOT NULL`) == 1
	})
	s.refused(http.StatusNotFound, "no message with that ID", path+"drop-message", "message", "other", "form", "f2")
	s.mustPost(path+"drop-message", "message", "m1", "form", "f3")
	s.logged(run, "MESSAGE_DROPPED")
	k.WaitStatus(run, kagzi.StatusSleeping, "signal approved")
	s.mustPost(path+"signal", "name", "approved", "payload", `"yes"`, "form", "f4")
	if got := kit.ResultOf(k, run); got != "yes" {
		t.Errorf("the run got %q", got)
	}
	s.refused(http.StatusConflict, "is over", path+"redeliver-message", "message", "m1", "form", "f5")
}

// The overview and the page of a run name one that takes no more messages.
func TestFullInbox(t *testing.T) {
	k := kit.New(t)
	s := newSite(k, Config{})
	run := kit.Begin(k, kagzi.Define[string, string]("approval"), "")
	k.Exec(`INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id)
		SELECT run_id, 'aproved', n, namespace_id, 'm' || n FROM kagzi.workflow_runs, generate_series(1, 10000) n`)
	k.Exec(`UPDATE kagzi.workflow_runs SET wakeups = 10000`)
	err := k.Client.Signal(k.Ctx, run, kagzi.DefineSignal[string]("approved").With("yes"))
	if !errors.Is(err, kagzi.ErrInboxFull) {
		t.Fatal(err)
	}
	if page := s.mustGet("/"); !strings.Contains(page, "Runs that take no messages") {
		t.Error("the overview does not name the check")
	}
	if page := s.mustGet(strings.TrimSuffix(runPath(run), "/")); !strings.Contains(page, "It takes no more messages") {
		t.Error("the page does not say it")
	}
}

// A flipping is a Sealer whose sealed bytes are no JSON.
type flipping struct{}

func (flipping) Seal(data []byte) ([]byte, error) { return append([]byte{0xff}, data...), nil }

func (flipping) Open(sealed []byte) ([]byte, error) {
	if !bytes.HasPrefix(sealed, []byte{0xff}) {
		return nil, errors.New("not sealed")
	}
	return sealed[1:], nil
}

func (flipping) HashKey() []byte { return nil }

// Without the Sealer of a namespace's workers, the dashboard sends nothing into it, and shows that payloads are sealed.
func TestASealedNamespace(t *testing.T) {
	k := kit.New(t)
	sealed := &kit.Kit{
		T: t, Ctx: k.Ctx, Pool: k.Pool,
		Client: kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Sealer: flipping{}}),
	}
	s := newSite(k, Config{Authorize: everybody})
	approved := kagzi.DefineSignal[string]("approved")
	wf := kagzi.Define[string, string]("approval")
	kit.Serve(sealed, wf, func(ctx kagzi.Context, _ string) (string, error) { return kagzi.WaitSignal(ctx, approved) })
	run := kit.Begin(sealed, wf, "input")
	k.WaitStatus(run, kagzi.StatusSleeping, "signal approved")
	path := runPath(run)
	if form := s.mustGet(path + "signal"); !strings.Contains(form, "are sealed") {
		t.Errorf("the form does not refuse:\n%s", notice(form))
	}
	s.refused(http.StatusBadRequest, "are sealed", path+"signal", "name", "approved", "payload", `"yes"`, "form", "f1")
	if n := k.Count(`SELECT count(*) FROM kagzi.signals`); n != 0 {
		t.Errorf("%d messages", n)
	}
	page := s.mustGet(strings.TrimSuffix(path, "/"))
	for _, want := range []string{
		"it is sealed with a key that this program lacks", "send one with a program that has",
	} {
		if !strings.Contains(page, want) || strings.Contains(page, "\xff") {
			t.Errorf("the page does not say %q", want)
		}
	}
	sealed.Signal(run, approved.With("yes"))
	kit.ResultOf(sealed, run)
	s.refused(http.StatusBadRequest, "are sealed", path+"restart", "input", `"other"`, "form", "f2")
	s.mustPost(path+"restart", "input", "", "form", "f3") // the same input
}
