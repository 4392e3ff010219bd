package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// A message that does not decode is shown with its reason, and given back or dropped; the audit log says by whom.
func TestMessagesThatDoNotDecode(t *testing.T) {
	k, s := newShell(t)
	kit.Serve(k, approve, func(ctx kagzi.Context, _ int) (string, error) { return kagzi.WaitSignal(ctx, approved) })
	run := kit.Begin(k, approve, 1, kagzi.ID("order-42"))
	const waits = "signal approved; 1 message that does not decode"
	s.run("runs signal order-42 approved --message-id m1 --payload 42").ok()
	k.WaitStatus(run, kagzi.StatusSleeping, waits)
	s.run("runs messages order-42").ok().prints("m1", "set aside: it does not decode into string")
	s.run("runs get order-42").ok().prints(
		`It has set aside message "m1"`, "does not decode into string", "kagzi runs redeliver-message order-42 m1",
		"kagzi runs drop-message order-42 m1",
	).omits("misspelt")
	s.run("runs redeliver order-42 m1").exits(2)
	s.run("runs redeliver-message order-42 m1 --actor ada --reason early").ok().
		prints("redelivered message m1 of order-42")
	await.True(t, "it is set aside again", func() bool {
		return k.Count(`SELECT count(*) FROM kagzi.signals WHERE set_aside_at IS NOT NULL`) == 1
	})
	k.WaitStatus(run, kagzi.StatusSleeping, waits)
	s.run("runs drop-message order-42 m1 --actor ada --reason typo").ok().prints("dropped message m1 of order-42")
	s.run("runs drop-message order-42 m1").exits(3).says("no message with that ID")
	s.run("runs drop-message order-42").exits(2)
	s.run("audit").ok().prints("MESSAGE_REDELIVERED", "MESSAGE_DROPPED", "ada", "typo")
	s.run("runs signal order-42 approved --payload", `"yes"`).ok()
	s.run("runs wait order-42").ok().prints(`"yes"`)
	s.run("runs redeliver-message order-42 m1").exits(1).says("is over")
}

// A run that takes no more messages is named, with what to do.
func TestFullInbox(t *testing.T) {
	k, s := newShell(t)
	kit.Begin(k, approve, 1, kagzi.ID("order-42"))
	k.Exec(`INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id)
		SELECT run_id, 'aproved', n, namespace_id, 'm' || n FROM kagzi.workflow_runs, generate_series(1, 10000) n`)
	k.Exec(`UPDATE kagzi.workflow_runs SET wakeups = 10000`)
	s.run("runs signal order-42 approved").exits(1).says("kagzi runs drop-message removes the others")
	s.run("runs get order-42").ok().prints("It takes no more messages since ",
		"because it has 10000 that it has not read: kagzi runs messages order-42 --unread lists them, "+
			"kagzi runs drop-message order-42 MESSAGE-ID removes one.")
	for _, command := range []string{"health", "stuck"} {
		s.run(command).exits(4).prints("inboxes", "kagzi runs drop-message")
	}
	s.run("runs drop-message order-42 m1").ok()
	s.run("runs get order-42").ok().omits("takes no more messages")
}

// A signal may be called like what is said of a message that does not decode.
func TestGetExplainsAWaitForAnOddSignal(t *testing.T) {
	k, s := newShell(t)
	kit.Serve(k, approve, func(ctx kagzi.Context, _ int) (string, error) {
		return kagzi.WaitSignal(ctx, kagzi.DefineSignal[string]("why not decode"))
	})
	run := kit.Begin(k, approve, 1, kagzi.ID("x"))
	k.WaitStatus(run, kagzi.StatusSleeping)
	s.run("runs get x").ok().prints(`It waits for a message of the signal "why not decode"`)
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

// Without the Sealer of a namespace's workers, the command line sends nothing into it, and shows that payloads are
// sealed.
func TestASealedNamespace(t *testing.T) {
	k, s := newShell(t)
	sealed := &kit.Kit{
		T: t, Ctx: k.Ctx, Pool: k.Pool,
		Client: kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Sealer: flipping{}}),
	}
	kit.Serve(sealed, approve, func(ctx kagzi.Context, _ int) (string, error) {
		return kagzi.WaitSignal(ctx, approved)
	})
	run := kit.Begin(sealed, approve, 7, kagzi.ID("x"))
	k.WaitStatus(run, kagzi.StatusSleeping, "signal approved")
	s.run("runs get x").ok().prints(
		"The payloads of the namespace are sealed: send one with a program that has the Sealer of the workers.",
	).omits("kagzi runs signal")
	const refused = `the payloads of namespace "default" are sealed, and this program has no Sealer`
	for _, command := range []string{
		"runs signal x approved --payload 1", "runs start approve --input 1",
		"runs start approve",
	} {
		s.run(command).exits(2).says(refused)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.signals`) +
		k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 1 {
		t.Errorf("%d messages and runs", n)
	}
	sealed.Signal(run, approved.With("secret"))
	kit.ResultOf(sealed, run)
	s.run("runs get x").ok().prints("sealed or no JSON, 2 bytes").omits("secret", "\xff")
	s.run("runs messages x").ok().prints("sealed or no JSON, 9 bytes").omits("secret")
	s.run("runs wait x").ok().says("Its result is sealed or no JSON, 9 bytes").omits("\xff")
	s.run("runs restart x --input 1").exits(2).says(refused)
	s.run("runs fork x --step approved --input 1").exits(2).says(refused)
	s.run("runs restart x").ok() // the same input

	// With it, the command line reads and sends as the application does.
	s.sealer = flipping{}
	s.run("runs messages x").exits(0)
	second := jsonOf[kagzi.RunInfo](s.run("runs start approve --json --id y --input 8").ok())
	k.WaitStatus(second.ID, kagzi.StatusSleeping, "signal approved")
	s.run("runs get y").ok().prints("kagzi runs signal y approved --payload JSON sends one")
	s.run("runs signal y approved --payload", `"secret"`).ok()
	s.run("runs wait y").ok().prints(`"secret"`)
	info, err := sealed.Client.Get(k.Ctx, kagzi.ID("y"))
	if err != nil || !bytes.Equal(info.Input, json.RawMessage("8")) {
		t.Errorf("input %s, %v", info.Input, err)
	}
}
