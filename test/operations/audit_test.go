package operations_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/topic"
)

// An audited is a change, and the entries that it has in the audit log: the newest first, without ID, time, actor and
// reason.
type audited struct {
	name  string
	do    func(opts ...kagzi.ChangeOption) error
	want  []admin.AuditEntry
	again bool // another call of it is another change
}

// wantAudit compares the entries of an actor.
func wantAudit(t *testing.T, k *kit.Kit, actor, reason string, want ...admin.AuditEntry) {
	t.Helper()
	got, err := admin.New(k.Client).Audit(k.Ctx, admin.AuditFilter{Actor: actor})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range got {
		if e.ID == "" || time.Since(e.At).Abs() > time.Hour || e.Actor != actor || e.Reason != reason {
			t.Errorf("entry %+v", e)
		}
		got[i].ID, got[i].At, got[i].Actor, got[i].Reason = "", time.Time{}, "", ""
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: entries\n%+v\nwant\n%+v", actor, got, want)
	}
}

func changes(texts ...string) (out []admin.LogChange) {
	for i := 0; i < len(texts); i += 3 {
		out = append(out, admin.LogChange{Field: texts[i], From: texts[i+1], To: texts[i+2]})
	}
	return out
}

// Each change of limits, pauses and schedules is in the audit log once, with what it changed. A call that changes
// nothing is not.
func TestAuditOfDeclarations(t *testing.T) {
	k := kit.New(t)
	c := k.Client
	wf := kagzi.Define[map[string]any, int]("report")
	schedule := func(cron string, in map[string]any) func(...kagzi.ChangeOption) error {
		return func(opts ...kagzi.ChangeOption) error {
			return c.Schedule(k.Ctx, kagzi.Schedule{
				Name: "nightly", Cron: cron,
				Run: wf.With(in, kagzi.Metadata{"b": "2", "a": "1"}, kagzi.Timeout(time.Hour)),
			}, opts...)
		}
	}
	target := admin.Target{Queue: "q"}
	for i, tt := range []audited{
		{name: "Queues.Set", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Queues.Set(k.Ctx, admin.QueueLimits{Queue: "q", MaxRunning: 5, Rate: admin.Rate{
				Starts: 10,
				Per:    time.Second, Burst: 3,
			}, EachKey: admin.KeyLimits{MaxRunning: 2}}, opts...)
		}, want: []admin.AuditEntry{{Action: "UPDATED", Kind: "queue", Name: "q", Changes: changes("max_running", "",
			"5", "rate", "", "every 100ms, burst 3", "key_max_running", "", "2")}}},
		{name: "SetQueueAgain", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Queues.Set(k.Ctx, admin.QueueLimits{
				Queue: "q", MaxRunning: 6,
				EachKey: admin.KeyLimits{MaxRunning: 2}, Hold: true,
			}, opts...)
		}, want: []admin.AuditEntry{{
			Action: "UPDATED", Kind: "queue", Name: "q",
			Changes: changes("max_running", "5", "6", "rate", "every 100ms, burst 3", "", "hold", "", "true"),
		}}},
		{name: "Keys.Set", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Keys.Set(k.Ctx, "q", "acme", admin.KeyLimits{Weight: 3, MaxRunning: 1}, opts...)
		}, want: []admin.AuditEntry{{
			Action: "UPDATED", Kind: "key", Name: "acme", Queue: "q",
			Changes: changes("max_running", "", "1", "weight", "", "3"),
		}}},
		{name: "Limits.Set", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Limits.Set(k.Ctx, admin.StepLimit{Name: "api", MaxRunning: 3, HonorRetryAfter: true},
				opts...)
		}, want: []admin.AuditEntry{{
			Action: "CREATED", Kind: "limit", Name: "api",
			Changes: changes("max_running", "", "3", "honor_retry_after", "", "true"),
		}}},
		{name: "SetLimitAgain", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Limits.Set(k.Ctx, admin.StepLimit{
				Name: "api", MaxRunning: 3,
				Rate: admin.Rate{Starts: 1, Per: time.Minute}, HonorRetryAfter: true,
			}, opts...)
		}, want: []admin.AuditEntry{{
			Action: "UPDATED", Kind: "limit", Name: "api",
			Changes: changes("rate", "", "every 1m0s"),
		}}},
		{name: "Limits.Delete", do: func(opts ...kagzi.ChangeOption) error {
			return unless(admin.New(c).Limits.Delete(k.Ctx, "api", opts...), kagzi.ErrNotFound)
		}, want: []admin.AuditEntry{{Action: "DELETED", Kind: "limit", Name: "api"}}},
		{name: "Pauses.Set", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Pauses.Set(k.Ctx, target, append(opts, admin.Park())...)
		}, want: []admin.AuditEntry{{
			Action: "PAUSED", Kind: "queue", Name: "q",
			Changes: changes("park", "", "true"),
		}}},
		{name: "Pauses.End", do: func(opts ...kagzi.ChangeOption) error {
			return unless(admin.New(c).Pauses.End(k.Ctx, target, opts...), kagzi.ErrNotFound)
		}, want: []admin.AuditEntry{{Action: "UNPAUSED", Kind: "queue", Name: "q"}}},
		{name: "PauseKey", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Pauses.Set(k.Ctx, admin.Target{Queue: "q", Key: "acme"}, opts...)
		}, want: []admin.AuditEntry{{Action: "PAUSED", Kind: "key", Name: "acme", Queue: "q"}}},
		{name: "PauseGroup", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Pauses.Set(k.Ctx, admin.Target{Group: "g"}, opts...)
		}, want: []admin.AuditEntry{{Action: "PAUSED", Kind: "group", Name: "g"}}},
		{name: "PauseWorkflow", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Pauses.Set(k.Ctx, admin.Target{Queue: "q", Workflow: "report"}, opts...)
		}, want: []admin.AuditEntry{{Action: "PAUSED", Kind: "workflow", Name: "report", Queue: "q"}}},
		{name: "PauseAll", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Pauses.Set(k.Ctx, admin.Target{All: true}, opts...)
		}, want: []admin.AuditEntry{{Action: "PAUSED", Kind: "all"}}},
		{
			name: "Schedule", do: schedule("@daily", map[string]any{"n": 1}),
			want: []admin.AuditEntry{{Action: "CREATED", Kind: "schedule", Name: "nightly", Changes: changes(
				"workflow", "", "report", "queue", "", "default", "priority", "", "3", "metadata", "",
				`{"a":"1","b":"2"}`, "input", "", "7 bytes", "cron", "", "@daily", "catch_up", "", "100", "timeout",
				"", "1h0m0s",
			)}},
		},
		{
			name: "ChangeSchedule", do: schedule("@hourly", map[string]any{"n": 2}),
			want: []admin.AuditEntry{{Action: "UPDATED", Kind: "schedule", Name: "nightly", Changes: changes(
				"input", "7 bytes", "other 7 bytes", "cron", "@daily", "@hourly",
			)}},
		},
		{name: "Schedules.Pause", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Schedules.Pause(k.Ctx, "nightly", opts...)
		}, want: []admin.AuditEntry{{Action: "PAUSED", Kind: "schedule", Name: "nightly"}}},
		{name: "Schedules.Resume", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Schedules.Resume(k.Ctx, "nightly", opts...)
		}, want: []admin.AuditEntry{{Action: "RESUMED", Kind: "schedule", Name: "nightly"}}},
		{name: "DeleteSchedule", do: func(opts ...kagzi.ChangeOption) error {
			return unless(c.DeleteSchedule(k.Ctx, "nightly", opts...), kagzi.ErrNotFound)
		}, want: []admin.AuditEntry{{Action: "DELETED", Kind: "schedule", Name: "nightly"}}},
	} {
		for range 2 {
			if err := tt.do(kagzi.Actor(tt.name), kagzi.Reason("because")); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			wantAudit(t, k, tt.name, "because", tt.want...)
		}
		if n := k.Count(`SELECT count(*) FROM kagzi.audit_log`); n != i+1 {
			t.Fatalf("%s: %d entries, want %d", tt.name, n, i+1)
		}
	}
}

// unless returns err, or nil if it is another one.
func unless(err, other error) error {
	if errors.Is(err, other) {
		return nil
	}
	return err
}

// Each change of runs, workers, consumers and what a schedule starts is in the audit log.
func TestAuditOfChanges(t *testing.T) {
	k := kit.New(t)
	c := k.Client
	mails := topic.Define[int]("mails")
	reader := topic.DefineConsumer("reader", topic.ConsumerConfig{Topics: []topic.AnyTopic{mails}})
	w := kit.NewWorker(t, c, kagzi.WorkerConfig{Queue: "mail"})
	topic.Consume(w, reader, func(kagzi.Context, int) (int, error) { return 0, nil })
	kit.StartWorker(t, w)
	if err := topic.New(c).Publish(k.Ctx, mails.With(7).WithID("mail-1")); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the worker registers, and its consumer", func() bool {
		return k.Count(`SELECT (SELECT count(*) FROM kagzi.workers) + (SELECT count(*) FROM kagzi.consumers)`) == 2
	})
	worker, _, err := admin.New(c).Workers.List(k.Ctx, admin.WorkerFilter{})
	if err != nil || len(worker) != 1 {
		t.Fatalf("INVALID: %v, %v", worker, err)
	}
	wf := kagzi.Define[int, int]("order")
	run := kit.Begin(k, wf, 1, kagzi.ID("order-42")).ID()
	if err := c.Schedule(k.Ctx, kagzi.Schedule{Name: "nightly", Every: time.Hour, Run: wf.With(1)}); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(-time.Hour).Truncate(time.Hour).UTC()
	from := until.Add(-2 * time.Hour)
	var fired, restarted kagzi.RunID
	of := func(action string, changes ...admin.LogChange) []admin.AuditEntry {
		return []admin.AuditEntry{{
			Action: action, Kind: "run", Name: string(run), Workflow: "order",
			ExternalID: "order-42", Changes: changes,
		}}
	}
	for _, tt := range []audited{
		{name: "Consumers.Skip", do: func(opts ...kagzi.ChangeOption) error {
			return admin.New(c).Consumers.Skip(k.Ctx, reader, mails, "mail-1", opts...)
		}, want: []admin.AuditEntry{{
			Action: "SKIPPED", Kind: "consumer", Name: "reader",
			Changes: changes("topic", "mails", "", "event", "mail-1", ""),
		}}},
		{name: "Trigger", again: true, do: func(opts ...kagzi.ChangeOption) error {
			return topic.New(c).Trigger(k.Ctx, reader, opts...)
		}, want: []admin.AuditEntry{{Action: "TRIGGERED", Kind: "consumer", Name: "reader"}}},
		{name: "Schedules.Trigger", again: true, do: func(opts ...kagzi.ChangeOption) (err error) {
			fired, err = admin.New(c).Schedules.Trigger(k.Ctx, "nightly", opts...)
			return err
		}, want: []admin.AuditEntry{{Action: "TRIGGERED", Kind: "schedule", Name: "nightly", Other: "fired"}}},
		{name: "Backfill", do: func(opts ...kagzi.ChangeOption) error {
			_, err := admin.New(c).Schedules.Backfill(k.Ctx, "nightly", from, until, opts...)
			return err
		}, want: []admin.AuditEntry{{Action: "BACKFILLED", Kind: "schedule", Name: "nightly", Changes: changes("from",
			"", from.Format(time.RFC3339), "until", "", until.Format(time.RFC3339), "runs", "", "3")}}},
		{name: "Signal", do: func(opts ...kagzi.ChangeOption) error {
			return c.Signal(k.Ctx, run, kagzi.DefineSignal[int]("approved").With(1).WithID("once"), opts...)
		}, want: of("SIGNALLED", changes("signal", "", "approved")...)},
		{
			name: "Runs.Pause", do: func(opts ...kagzi.ChangeOption) error {
				return admin.New(c).Runs.Pause(k.Ctx, run, opts...)
			},
			want: of("PAUSED"),
		},
		{
			name: "Cancel", do: func(opts ...kagzi.ChangeOption) error { return c.Cancel(k.Ctx, run, opts...) },
			want: of("CANCELLED"),
		},
		{
			name: "Workers.Drain", do: func(opts ...kagzi.ChangeOption) error {
				return admin.New(c).Workers.Drain(k.Ctx, worker[0].ID, opts...)
			},
			want: []admin.AuditEntry{{Action: "DRAINED", Kind: "worker", Name: worker[0].ID}},
		},
		{name: "Consumers.Delete", do: func(opts ...kagzi.ChangeOption) error {
			return unless(admin.New(c).Consumers.Delete(k.Ctx, reader, opts...), kagzi.ErrNotFound)
		}, want: []admin.AuditEntry{{Action: "DELETED", Kind: "consumer", Name: "reader"}}},
	} {
		if err := tt.do(kagzi.Actor(tt.name), kagzi.Reason("because")); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		for i := range tt.want {
			if tt.want[i].Other == "fired" {
				tt.want[i].Other = fired
			}
		}
		if !tt.again {
			if err := tt.do(kagzi.Actor(tt.name), kagzi.Reason("because")); err != nil {
				t.Fatalf("%s again: %v", tt.name, err)
			}
		}
		wantAudit(t, k, tt.name, "because", tt.want...)
	}
	k.WantEvents(run,
		admin.LogEntry{
			Event: "SIGNALLED", Actor: "Signal", Reason: "because",
			Changes: changes("signal", "", "approved"),
		},
		admin.LogEntry{Event: "PAUSED", Actor: "Runs.Pause", Reason: "because"},
		admin.LogEntry{Event: "CANCELLED", Actor: "Cancel", Reason: "because"})
	again, err := admin.New(c).Runs.Restart(k.Ctx, run, kagzi.Actor("Restart"), kagzi.Reason("because"))
	if restarted = again; err != nil {
		t.Fatal(err)
	}
	entry := of("RESTARTED")[0]
	entry.Other = restarted
	wantAudit(t, k, "Restart", "because", entry)
	if err := admin.New(c).Runs.Delete(k.Ctx, run, kagzi.Actor("Delete"), kagzi.Reason("because")); err != nil {
		t.Fatal(err)
	}
	wantAudit(t, k, "Delete", "because",
		of("DELETED", changes("workflow", "order", "", "status", "CANCELLED", "", "id", "order-42", "")...)...)
	// What was done with the run stays when it goes, by its ID, too.
	entries, err := admin.New(c).Audit(k.Ctx, admin.AuditFilter{Kind: admin.AuditRun, Name: "order-42"})
	var actions []string
	for _, e := range entries {
		actions = append(actions, e.Action)
	}
	if got := strings.Join(actions, " "); err != nil || got != "DELETED RESTARTED CANCELLED PAUSED SIGNALLED" {
		t.Errorf("entries %q, %v", got, err)
	}
}

// A queue that is drained is in the log, and each of its workers. A worker that was forced offline is there as that.
func TestAuditOfWorkers(t *testing.T) {
	k := kit.New(t)
	ids := map[string]string{}
	for _, queue := range []string{"drained", "dead"} {
		w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{Queue: queue})
		kagzi.Handle(w, kit.Noop, func(_ kagzi.Context, n int) (int, error) { return n, nil })
		kit.StartLocal(t, w)
		await.True(t, "the worker registers", func() bool {
			return k.Count(`SELECT count(*) FROM kagzi.workers WHERE $1 = ANY (task_queues)`, queue) == 1
		})
		ids[queue] = kit.Only(t, k.Client, admin.WorkerFilter{Queue: queue}).ID
	}
	for range 2 { // the second call changes nothing
		if _, err := admin.New(k.Client).Workers.DrainQueue(k.Ctx, "drained", kagzi.Actor("DrainQueue"),
			kagzi.Reason("because")); err != nil {
			t.Fatal(err)
		}
		wantAudit(t, k, "DrainQueue", "because", admin.AuditEntry{
			Action: "DRAINED", Kind: "worker",
			Name: ids["drained"], Queue: "drained",
		},
			admin.AuditEntry{Action: "DRAINED", Kind: "queue", Name: "drained", Changes: changes("workers", "", "1")})
		if err := admin.New(k.Client).Workers.ForceOffline(k.Ctx, ids["dead"], kagzi.Actor("ForceOffline"),
			kagzi.Reason("because")); err != nil {
			t.Fatal(err)
		}
		wantAudit(t, k, "ForceOffline", "because", admin.AuditEntry{
			Action: "FORCED_OFFLINE", Kind: "worker",
			Name: ids["dead"],
		})
	}
}

// With a Sealer each call stores other bytes for the same input. A schedule that is saved again as it was is not in the
// log again.
func TestAuditOfASealedSchedule(t *testing.T) {
	k := kit.New(t)
	c := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Sealer: salting{}})
	wf := kagzi.Define[string, int]("report")
	for i, in := range []string{"a", "a", "b"} {
		if err := c.Schedule(k.Ctx, kagzi.Schedule{Name: "nightly", Every: time.Hour, Run: wf.With(in)},
			kagzi.Actor("ada")); err != nil {
			t.Fatal(err)
		}
		if n, want := k.Count(`SELECT count(*) FROM kagzi.audit_log`), []int{1, 1, 2}[i]; n != want {
			t.Errorf("%d entries after saving %q, not %d", n, in, want)
		}
	}
}

// A message without an actor and a reason, and a change whose transaction is rolled back, are not in the log.
func TestNotAudited(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kit.Noop, 1)
	approved := kagzi.DefineSignal[int]("approved")
	if err := k.Client.Signal(k.Ctx, run, approved.With(1)); err != nil {
		t.Fatal(err)
	}
	rolledBack := errors.New("rolled back")
	err := pgx.BeginFunc(k.Ctx, k.Pool, func(tx pgx.Tx) error {
		err := errors.Join(
			k.Client.Signal(k.Ctx, run, approved.With(2), kagzi.Actor("ann"), kagzi.InTx(tx)),
			admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{All: true}, kagzi.InTx(tx)),
			k.Client.Cancel(k.Ctx, run, kagzi.InTx(tx)))
		var n int
		if e := tx.QueryRow(k.Ctx, `SELECT count(*) FROM kagzi.audit_log`).Scan(&n); e != nil || n != 3 {
			t.Errorf("%d entries in the transaction, %v", n, e)
		}
		return errors.Join(err, rolledBack)
	})
	if !errors.Is(err, rolledBack) || strings.Contains(err.Error(), "\n") {
		t.Fatal(err)
	}
	if n := k.Count(`SELECT count(*) FROM kagzi.audit_log`); n != 0 {
		t.Errorf("%d entries", n)
	}
	for name, err := range map[string]error{
		"InTx is not for limits": admin.New(k.Client).Limits.Set(k.Ctx, admin.StepLimit{Name: "api"}, kagzi.InTx(nil)),
		"takes no Actor": topic.New(k.Client).Publish(k.Ctx, topic.Define[int]("t").With(1),
			kagzi.Actor("ann")),
	} {
		kit.MustContain(t, err, name)
	}
}

// The log is read by kind, name, queue, action, actor and time, in pages, by namespace.
func TestAuditPages(t *testing.T) {
	k := kit.New(t)
	other := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Namespace: "other"})
	if err := admin.New(other).Pauses.Set(k.Ctx, admin.Target{Queue: "q1"}, kagzi.Actor("ann")); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := admin.New(k.Client).Pauses.Set(k.Ctx, admin.Target{Queue: fmt.Sprint("q", i)},
			kagzi.Actor([]string{"ann", "bob"}[i%2])); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.New(k.Client).Keys.Set(k.Ctx, "q1", "q1", admin.KeyLimits{Weight: 2}); err != nil {
		t.Fatal(err)
	}
	names := func(f admin.AuditFilter) (names []string, last string) {
		t.Helper()
		entries, err := admin.New(k.Client).Audit(k.Ctx, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names, last = append(names, string(e.Kind)+" "+e.Name), e.ID
		}
		return names, last
	}
	all, _ := names(admin.AuditFilter{})
	want := []string{"key q1", "queue q4", "queue q3", "queue q2", "queue q1", "queue q0"}
	if !slices.Equal(all, want) {
		t.Fatalf("all: %q", all)
	}
	var paged []string
	for after := ""; ; {
		page, last := names(admin.AuditFilter{After: after, Limit: 4})
		if len(page) == 0 {
			break
		}
		paged, after = append(paged, page...), last
	}
	if !slices.Equal(paged, want) {
		t.Errorf("in pages: %q", paged)
	}
	begun, ends := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, tt := range []struct {
		f    admin.AuditFilter
		want []string
	}{
		{admin.AuditFilter{Kind: admin.AuditQueue, Limit: 1}, want[1:2]},
		{admin.AuditFilter{Name: "q1"}, []string{"key q1", "queue q1"}},
		{admin.AuditFilter{Kind: admin.AuditKey, Name: "q1", Queue: "q1"}, want[:1]},
		{admin.AuditFilter{Kind: admin.AuditKey, Name: "q1", Queue: "q2"}, nil},
		{admin.AuditFilter{Actor: "bob"}, []string{"queue q3", "queue q1"}},
		{admin.AuditFilter{Action: "updated"}, want[:1]},
		{admin.AuditFilter{Since: begun, Until: ends}, want},
		{admin.AuditFilter{Since: ends}, nil},
		{admin.AuditFilter{Until: begun}, nil},
	} {
		if got, _ := names(tt.f); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.f, got, tt.want)
		}
	}
	for name, f := range map[string]admin.AuditFilter{
		"no kind":            {Kind: "thing"},
		"Limit is -1":        {Limit: -1},
		"begin again":        {After: "00000000-0000-0000-0000-000000000001"},
		"not the ID":         {After: "x"},
		"control character":  {Name: "a\nb"},
		"control characters": {Actor: "a\x01b"},
	} {
		_, err := admin.New(k.Client).Audit(k.Ctx, f)
		kit.MustContain(t, err, name)
	}
	if _, err := admin.New(k.Client).Audit(k.Ctx,
		admin.AuditFilter{After: "00000000-0000-0000-0000-000000000001"}); !errors.Is(err, kagzi.ErrNotFound) {
		t.Error(err)
	}
}

// salting is a Sealer that puts random bytes before the data.
type salting struct{}

func (salting) Seal(data []byte) ([]byte, error) {
	salt := make([]byte, 16)
	_, err := rand.Read(salt)
	return append(salt, data...), err
}

func (salting) Open(sealed []byte) ([]byte, error) {
	if len(sealed) < 16 {
		return nil, errors.New("too short")
	}
	return sealed[16:], nil
}

func (salting) HashKey() []byte { return nil }
