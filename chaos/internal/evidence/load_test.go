package evidence_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/chaos/internal/evidence"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// What a real worker does is in the evidence.
func TestLoad(t *testing.T) {
	t.Parallel()
	pool := dbtest.OpenPool(t, dbtest.Database(t).DSN, dbtest.Setting("application_name", "3.2"))
	k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool, Client: kit.NewClient(t, pool)}
	ctx := k.Ctx
	if err := dbtest.InstallAudit(ctx, pool); err != nil {
		t.Fatal(err)
	}
	if err := evidence.CreateTables(ctx, pool); err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, pool, `INSERT INTO chaos.accounts VALUES ('a', 3), ('b', 4)`)
	dbtest.Exec(t, pool, `INSERT INTO chaos.effects (run_id, step_id, from_account, to_account, amount)
		VALUES ('r', 's', 'a', 'b', 1)`)
	run := work(k)

	e, err := evidence.Load(ctx, pool, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Runs) != 1 || e.Runs[0].ID != run || e.Runs[0].Status != "COMPLETED" || e.Runs[0].Input != `"é"` ||
		e.Runs[0].Output != `"é!"` {
		t.Errorf("runs: %+v", e.Runs)
	}
	if len(e.Steps) != 2 || e.Steps[0].Step != "greet" || e.Steps[0].Output != `"é!"` ||
		e.Steps[0].Hash != e.Runs[0].Hash || e.Steps[1].Kind != "SIGNAL" {
		t.Errorf("steps: %+v", e.Steps)
	}
	if len(e.Messages) != 1 || e.Messages[0].ConsumedBy != e.Steps[1].Step || e.Messages[0].Payload != "7" {
		t.Errorf("messages: %+v", e.Messages)
	}
	if first := e.Changes[0]; first.Operation != "INSERT" || first.By != "3.2" || string(first.Old) != "null" {
		t.Errorf("first change: %s %s by %q, old %s", first.Operation, first.Table, first.By, first.Old)
	}
	last := e.Changes[len(e.Changes)-1]
	if last.Table != "workflow_runs" || last.NewStatus != "COMPLETED" || last.Run != run || last.TxID == 0 ||
		!strings.Contains(string(last.New), e.Runs[0].Hash) {
		t.Errorf("last change: %+v", last)
	}
	if len(e.Workers) != 1 || e.Workers[0].Status != "OFFLINE" || e.Workers[0].PID != os.Getpid() {
		t.Errorf("workers: %+v", e.Workers)
	}
	if e.Accounts["b"] != 4 || len(e.Effects) != 1 || e.Effects[0].To != "b" {
		t.Errorf("accounts: %v, effects: %v", e.Accounts, e.Effects)
	}
}

// work executes a run with a step and a message, and returns its ID.
func work(k *kit.Kit) string {
	k.T.Helper()
	greet := kagzi.Define[string, string]("greet")
	number := kagzi.DefineSignal[int]("number")
	run := kit.Begin(k, greet, "é")
	if err := k.Client.Signal(k.Ctx, run, number.With(7)); err != nil {
		k.T.Fatal(err)
	}
	stop := kit.Serve(k, greet, func(ctx kagzi.Context, name string) (string, error) {
		greeting, err := kagzi.Step(ctx, "greet", func(context.Context) (string, error) { return name + "!", nil })
		if err == nil {
			_, err = kagzi.WaitSignal(ctx, number)
		}
		return greeting, err
	})
	kit.ResultOf(k, run)
	if err := stop(); err != nil {
		k.T.Fatal(err)
	}
	return string(run.ID())
}

// A line comes back as it was written, whatever is in it, and a line that was cut does not come back.
func TestLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "worker-3.2.ledger")
	l, err := evidence.OpenLedger(path, "3.2")
	if err != nil {
		t.Fatal(err)
	}
	want := evidence.Line{
		Event: evidence.End, Run: uuid.NewString(), Step: "a/0/b", Attempt: 2, Lease: uuid.NewString(),
		Detail: "\\n\ttab\nline\\\r",
	}
	before := evidence.Now()
	l.Write(want)
	l.Write(evidence.Line{Event: evidence.Stopped, Detail: strings.Repeat("x", 1<<20)})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("17\t3.2\tBEG"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	lines, err := evidence.ReadLedgers(dir)
	if err != nil || len(lines) != 2 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	if lines[0].At < before || lines[0].At > evidence.Now() {
		t.Errorf("written at %v", lines[0].At)
	}
	want.At, want.Worker = lines[0].At, "3.2"
	if lines[0] != want {
		t.Errorf("got %+v, want %+v", lines[0], want)
	}
	if got := lines[1].Detail; got != evidence.Digest(strings.Repeat("x", 1<<20)) || len(got) > 200 {
		t.Errorf("a long text became %.300q", got)
	}
}
