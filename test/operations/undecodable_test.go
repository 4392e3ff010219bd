package operations_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/health"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

// Health names messages that do not decode, while their runs are not over.
func TestHealthOfMessages(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) { return kagzi.WaitSignal(ctx, kit.Approved) })
	check := func() (found *health.Check) {
		t.Helper()
		report, err := admin.New(k.Client).Health(k.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range report.Checks {
			if c.Name == "messages" {
				found = &c
			}
		}
		return found
	}
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run, kagzi.StatusSleeping)
	if c := check(); c != nil {
		t.Errorf("nothing was set aside: %+v", c)
	}
	k.Signal(run, kagzi.DefineSignal[int]("approved").With(42).WithID("click-7"))
	k.WaitStatus(run, kagzi.StatusSleeping, "signal approved; 1 message that does not decode")
	c := check()
	if c == nil || c.Status != health.Degraded {
		t.Fatalf("check %+v", c)
	}
	for _, part := range []string{`"click-7"`, `"approved"`, string(run.ID()), "(wf)", "redeliver them", "drop them"} {
		if !strings.Contains(c.Detail, part) {
			t.Errorf("the check lacks %s: %s", part, c.Detail)
		}
	}
	k.Cancel(run)
	if c := check(); c != nil {
		t.Errorf("the run is over: %+v", c)
	}
}

// Health and Get name a run that refuses messages, until it takes some again.
func TestFullInboxIsShown(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	run := kit.Begin(k, wf, struct{}{})
	send := func(id kagzi.ID) error { return k.Client.Signal(k.Ctx, run, kit.Approved.With("x").WithID(id)) }
	shown := func(want bool) {
		t.Helper()
		report, err := admin.New(k.Client).Health(k.Ctx)
		if err != nil {
			t.Fatal(err)
		}
		c := report.Check("inboxes")
		if want != (c.Status == health.Degraded) || want != strings.Contains(c.Detail, string(run.ID())) {
			t.Errorf("want it shown %t: %+v", want, c)
		}
		if info := k.InfoOf(run); want == info.InboxFullSince.IsZero() {
			t.Errorf("want it shown %t: full since %v", want, info.InboxFullSince)
		}
	}
	k.Exec(`INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id)
		SELECT run_id, 'aproved', n, namespace_id, 'm' || n FROM kagzi.workflow_runs, generate_series(1, 10000) n`)
	k.Exec(`UPDATE kagzi.workflow_runs SET wakeups = 10000`)
	shown(false) // it has refused none
	if err := send("late"); !errors.Is(err, kagzi.ErrInboxFull) {
		t.Fatalf("the inbox is not full: %v", err)
	}
	shown(true)
	if err := admin.New(k.Client).Messages.Drop(k.Ctx, run, "m1"); err != nil {
		t.Fatal(err)
	}
	shown(false)
	if err := send("late"); err != nil {
		t.Fatal(err)
	}
	shown(false) // it is full again, and has refused none since
	if err := send("later"); !errors.Is(err, kagzi.ErrInboxFull) {
		t.Fatalf("the inbox is not full: %v", err)
	}
	k.Cancel(run)
	report, err := admin.New(k.Client).Health(k.Ctx)
	if err != nil || report.Check("inboxes").Detail != "" || !k.InfoOf(run).InboxFullSince.IsZero() {
		t.Errorf("it is over: %+v, %v", report, err)
	}
}

// CheckSealer knows the Sealer of a namespace by its workers.
func TestCheckSealer(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	serve := func(k *kit.Kit) (stop func() error) {
		return kit.Serve(k, wf, func(kagzi.Context, struct{}) (string, error) { return "", nil })
	}
	serve(k)
	kit.ResultOf(k, kit.Begin(k, wf, struct{}{}))
	if err := k.Client.CheckSealer(k.Ctx); err != nil {
		t.Errorf("no worker has a Sealer: %v", err)
	}
	sealed := &kit.Kit{
		T: t, Ctx: k.Ctx, Pool: k.Pool,
		Client: kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Namespace: "sealed", Sealer: plainSealer{}}),
	}
	stop := serve(sealed)
	kit.ResultOf(sealed, kit.Begin(sealed, wf, struct{}{}))
	if err := stop(); err != nil { // it is remembered
		t.Fatal(err)
	}
	if err := k.Client.CheckSealer(k.Ctx); err != nil {
		t.Errorf("another namespace has a Sealer: %v", err)
	}
	without := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Namespace: "sealed"})
	if err := without.CheckSealer(k.Ctx); kagzi.KindOf(err) != kind.BadRequest ||
		!strings.Contains(err.Error(), "cli.Main") {
		t.Errorf("a client without the Sealer: %v", err)
	}
	if err := sealed.Client.CheckSealer(k.Ctx); err != nil {
		t.Errorf("a client with the Sealer: %v", err)
	}
}

type plainSealer struct{}

func (plainSealer) Seal(data []byte) ([]byte, error)   { return data, nil }
func (plainSealer) Open(sealed []byte) ([]byte, error) { return sealed, nil }
func (plainSealer) HashKey() []byte                    { return nil }
