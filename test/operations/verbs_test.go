package operations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
)

// ended starts a run of noop and brings it to the status.
func ended(k *kit.Kit, status kagzi.Status, opts ...kagzi.StartOption) kagzi.RunID {
	k.T.Helper()
	run := kit.Begin(k, kit.Noop, map[kagzi.Status]int{
		kagzi.StatusCompleted: 1, kagzi.StatusFailed: 2,
		kagzi.StatusCancelled: 3,
	}[status], opts...)
	if status == kagzi.StatusCancelled {
		k.Cancel(run.ID())
		return run.ID()
	}
	w := kit.NewWorker(k.T, k.Client, kagzi.WorkerConfig{Queue: k.InfoOf(run.ID()).Queue})
	kagzi.Handle(w, kit.Noop, kit.Odd)
	stop := kit.StartWorker(k.T, w)
	k.WaitStatus(run.ID(), status)
	if err := stop(); err != nil {
		k.T.Fatal(err)
	}
	return run.ID()
}

// terminal are the final statuses.
var terminal = []kagzi.Status{kagzi.StatusCompleted, kagzi.StatusFailed, kagzi.StatusCancelled}

func TestRestartOfEachStatus(t *testing.T) {
	k := kit.New(t)
	for _, status := range terminal {
		id := kagzi.ID(fmt.Sprint("x-", status))
		old := ended(k, status, id, kagzi.Queue("q"), kagzi.Priority(1), kagzi.Metadata{"a": "b"},
			kagzi.Timeout(time.Hour), kagzi.RetryPolicy{MaxAttempts: 1, Backoff: time.Minute})
		before := k.InfoOf(old)
		as, err := admin.New(k.Client).Runs.Restart(k.Ctx, id, kagzi.Reason("once\x00more"))
		if err != nil {
			t.Fatalf("%s: %v", status, err)
		}
		after, got := k.InfoOf(old), k.InfoOf(as)
		if after.Status != before.Status || after.EndedAt != before.EndedAt || after.Attempts != before.Attempts {
			t.Errorf("%s: the old run was changed: %+v", status, after)
		}
		if got.Origin != old || got.ExternalID != id || got.Queue != "q" || got.Priority != 1 ||
			got.Metadata["a"] != "b" || got.Version != before.Version ||
			got.Status != kagzi.StatusPending || got.Attempts != 0 || string(got.Input) != string(before.Input) ||
			got.Workflow != "noop" || got.Kind != "" || !got.StartedAt.IsZero() {
			t.Errorf("%s: %+v", status, got)
		}
		if left := got.DeadlineAt.Sub(got.CreatedAt); left != time.Hour {
			t.Errorf("%s: the timeout is %v", status, left)
		}
		same := k.Count(`SELECT count(*) FROM kagzi.workflow_runs a JOIN kagzi.workflow_runs b
			ON a.retry_policy = b.retry_policy AND a.input_hash = b.input_hash
			WHERE a.run_id = $1 AND b.run_id = $2`, string(old), string(as))
		if same != 1 {
			t.Errorf("%s: another policy or hash", status)
		}
		events := []admin.LogEntry{{Event: "RESTARTED", Other: as, Reason: "once\uFFFDmore"}}
		if status == kagzi.StatusCancelled {
			events = slices.Insert(events, 0, admin.LogEntry{Event: "CANCELLED"})
		}
		k.WantEvents(old, events...)
		k.WantEvents(as, admin.LogEntry{Event: "RESTARTED", Other: old, Reason: "once\uFFFDmore"})

		// Another run has its ID now. The restart succeeds under another ID.
		if _, err := admin.New(k.Client).Runs.Restart(k.Ctx, old); !errors.Is(err, kagzi.ErrIDConflict) ||
			!strings.Contains(err.Error(), string(as)) {
			t.Errorf("%s: a taken ID: %v", status, err)
		}
		if _, err := admin.New(k.Client).Runs.Restart(k.Ctx, as); !errors.Is(err, kagzi.ErrRunActive) {
			t.Errorf("%s: an active run: %v", status, err)
		}
		second, err := admin.New(k.Client).Runs.Restart(k.Ctx, old, kagzi.ID(id+"-2"), admin.NewInput(7),
			kagzi.Version(3))
		if err != nil {
			t.Fatal(err)
		}
		if got := k.InfoOf(second); got.ExternalID != id+"-2" || string(got.Input) != "7" || got.Version != 3 {
			t.Errorf("%s: %+v", status, got)
		}
		// A start that is the same as the restart finds it.
		if run := kit.Begin(k, kit.Noop, 7, kagzi.ID(id+"-2")); !run.Existed() || run.ID() != second {
			t.Errorf("%s: the restart is not found by its input's hash", status)
		}
	}
}

// A resumed run has no deadline any more, but its restart has the Timeout again, and so do restarts of restarts.
func TestRestartKeepsTheTimeout(t *testing.T) {
	k := kit.New(t)
	restarted := func(id kagzi.RunID) kagzi.RunInfo {
		t.Helper()
		as, err := admin.New(k.Client).Runs.Restart(k.Ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return k.InfoOf(as)
	}
	old := kit.Begin(k, kit.Noop, 1, kagzi.Timeout(time.Hour), kagzi.Delay(time.Minute)).ID()
	for _, err := range []error{
		k.Client.Cancel(k.Ctx, old), admin.New(k.Client).Runs.Resume(k.Ctx, old),
		k.Client.Cancel(k.Ctx, old),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	first := restarted(old)
	k.Cancel(first.ID)
	for _, got := range []kagzi.RunInfo{first, restarted(first.ID)} {
		if left := got.DeadlineAt.Sub(got.CreatedAt); left != time.Hour {
			t.Errorf("the timeout is %v", left)
		}
	}
	plain := ended(k, kagzi.StatusCancelled)
	if got := restarted(plain); !got.DeadlineAt.IsZero() || got.Schedule != "" {
		t.Errorf("%+v", got)
	}
}

// The restart of a schedule's run has the same tick, but does not belong to the schedule.
func TestRestartOfAScheduledRun(t *testing.T) {
	k := kit.New(t)
	k.Schedule(kagzi.Schedule{Name: "nightly", Run: kit.Noop.With(1, kagzi.Timeout(time.Hour)), Every: time.Hour})
	k.Missed("nightly", 90*time.Minute)
	k.Pass(k.Coordinator())
	runs := k.Fired("nightly")
	if len(runs) == 0 {
		t.Fatal("nothing was fired")
	}
	k.Cancel(runs[0].ID)
	as, err := admin.New(k.Client).Runs.Restart(k.Ctx, runs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := k.InfoOf(as); got.FireTime != runs[0].FireTime || got.Schedule != "nightly" ||
		got.DeadlineAt.Sub(got.CreatedAt) != time.Hour {
		t.Errorf("%+v", got)
	}
	if n := len(k.Fired("nightly")); n != len(runs) {
		t.Errorf("the schedule has %d runs, want %d", n, len(runs))
	}
}

// In a caller's transaction each verb takes effect with its commit, and a refused verb does not abort it.
func TestVerbsInTx(t *testing.T) {
	k := kit.New(t)
	failedRun, done, free := ended(k, kagzi.StatusFailed, kagzi.ID("x")), ended(k, kagzi.StatusCompleted),
		ended(k, kagzi.StatusCancelled)
	waiting := kit.Begin(k, kit.Noop, 1, kagzi.Delay(time.Hour)).ID()
	all := func(tx pgx.Tx) (runs []kagzi.RunID) {
		t.Helper()
		in := kagzi.InTx(tx)
		if err := admin.New(k.Client).Runs.Resume(k.Ctx, failedRun, in, kagzi.Reason("a")); err != nil {
			t.Error(err)
		}
		for what, refused := range map[string]error{
			"resume an active run":   admin.New(k.Client).Runs.Resume(k.Ctx, failedRun, in),
			"resume a completed run": admin.New(k.Client).Runs.Resume(k.Ctx, done, in),
			"resume an unknown run":  admin.New(k.Client).Runs.Resume(k.Ctx, kagzi.ID("y"), in),
			"restart an active run": func() error {
				_, err := admin.New(k.Client).Runs.Restart(k.Ctx, waiting, in)
				return err
			}(),
			"restart with a taken ID": func() error {
				_, err := admin.New(k.Client).Runs.Restart(k.Ctx, done, kagzi.ID("x"), in)
				return err
			}(),
			"fork from no step": func() error {
				_, err := admin.New(k.Client).Runs.Fork(k.Ctx, done, "pay", in)
				return err
			}(),
		} {
			if refused == nil {
				t.Errorf("%s: no error", what)
			}
		}
		for _, id := range []kagzi.RunID{done, free} {
			as, err := admin.New(k.Client).Runs.Restart(k.Ctx, id, in)
			if err != nil {
				t.Error(err)
			}
			runs = append(runs, as)
		}
		return runs
	}
	tx := k.CallersTx()
	for _, id := range all(tx) {
		if _, err := k.Client.Get(k.Ctx, id); !errors.Is(err, kagzi.ErrNotFound) {
			t.Errorf("visible before the commit: %v", err)
		}
	}
	kit.RollbackTx(t, tx)
	// one is of a cancel
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`) +
		k.Count(`SELECT count(*) FROM kagzi.run_events`); n != 5 {
		t.Errorf("a rollback leaves %d rows", n)
	}
	if info := k.InfoOf(failedRun); info.Status != kagzi.StatusFailed {
		t.Errorf("%+v", info)
	}

	// The notifications of the commit reach a worker of another client.
	other := kit.NewClient(t, k.Pool)
	w := kit.NewWorker(t, other, kagzi.WorkerConfig{PollInterval: time.Hour})
	kagzi.Handle(w, kit.Noop, kit.Odd)
	kit.StartWorker(t, w)
	kit.WaitListening(t, k.Pool, 1)
	tx = k.CallersTx()
	runs := all(tx)
	kit.CommitTx(t, tx)
	k.WaitStatus(runs[0], kagzi.StatusCompleted)
	k.WaitStatus(runs[1], kagzi.StatusCompleted)
	k.WantEvents(failedRun, admin.LogEntry{Event: "RESUMED", Reason: "a"})
}

func TestReasons(t *testing.T) {
	k := kit.New(t)
	id := ended(k, kagzi.StatusCancelled)
	k.Resume(id, kagzi.Reason(strings.Repeat("é", 1000)+"\xff"))
	k.Cancel(id, kagzi.Reason("why not"))
	events, err := admin.New(k.Client).Runs.Log(k.Ctx, id)
	if err != nil || len(events) != 3 || len(events[1].Reason) > 1<<10 ||
		!strings.Contains(events[1].Reason, "truncated, 2001 bytes") || events[2].Reason != "why not" {
		t.Errorf("%+v, %v", events, err)
	}
	for _, err := range []error{
		admin.New(k.Client).Runs.Resume(k.Ctx, id, nil), admin.New(k.Client).Runs.Resume(k.Ctx, id, kagzi.InTx(nil)),
		k.Client.Cancel(k.Ctx, id, nil),
	} {
		if err == nil {
			t.Error("no error")
		}
	}
	for says, opt := range map[string]admin.RestartOption{
		"nil option": nil, "InTx(nil)": kagzi.InTx(nil), "Version is 0": kagzi.Version(0), "ID is empty": kagzi.ID(""),
		"cannot be encoded": admin.NewInput(func() {}), "NewInput(nil)": admin.NewInput(nil),
	} {
		_, err := admin.New(k.Client).Runs.Restart(k.Ctx, id, opt)
		kit.MustContain(t, err, "restart "+string(id), says)
	}
	err = admin.New(k.Client).Runs.Resume(k.Ctx, ended(k, kagzi.StatusCompleted))
	if !errors.Is(err, kagzi.ErrRunFinished) {
		t.Errorf("resumed a run that completed: %v", err)
	}
	kit.MustContain(t, err, "the run completed", "Restart starts another")
	if _, err := admin.New(k.Client).Runs.Restart(k.Ctx, id,
		admin.NewInput(strings.Repeat("x", 5<<20))); !errors.Is(err,
		kagzi.ErrPayloadTooLarge) {
		t.Errorf("%v", err)
	}
	if _, err := admin.New(k.Client).Runs.Log(k.Ctx, kagzi.ID("nobody")); !errors.Is(err, kagzi.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// ---- bulk ----

func TestBulkInPages(t *testing.T) {
	k := kit.New(t)
	const page = 100 // runs that one statement of a bulk verb looks for
	const n = page + 10
	calls := make([]kagzi.Call, n)
	for i := range calls {
		calls[i] = kit.Noop.With(i, kagzi.Metadata{"batch": "a"})
	}
	started, err := k.Client.StartMany(k.Ctx, calls)
	if err != nil {
		t.Fatal(err)
	}
	other := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Namespace: "other"})
	theirs, err := other.StartMany(k.Ctx, calls[:3])
	if err != nil {
		t.Fatal(err)
	}
	kept := kit.Begin(k, kit.Noop, 1).ID()
	want := make([]kagzi.RunID, n) // newest first
	for i, s := range started {
		want[n-1-i] = s.ID
	}
	batch := kagzi.RunFilter{Metadata: kagzi.Metadata{"batch": "a"}}
	check := func(what string, b admin.BulkResult, err error, runs []kagzi.RunID) {
		t.Helper()
		if err != nil || b.Matched != len(runs) || !slices.Equal(b.Changed, runs) || len(b.Skipped) > 0 {
			t.Fatalf("%s: %d matched, %d changed, %d skipped, %v; want %d", what, b.Matched, len(b.Changed),
				len(b.Skipped), err, len(runs))
		}
	}
	statuses := func(status kagzi.Status) int {
		return k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE namespace_id = 'default' AND status = $1`,
			string(status))
	}
	b, err := admin.New(k.Client).Runs.CancelAll(k.Ctx, batch, admin.DryRun())
	check("dry run of cancel", b, err, want)
	if got := statuses(kagzi.StatusPending); got != n+1 {
		t.Fatalf("a dry run left %d of %d runs pending", got, n+1)
	}
	b, err = admin.New(k.Client).Runs.CancelAll(k.Ctx, kagzi.RunFilter{Metadata: batch.Metadata, Limit: page + 5})
	check("cancel with a limit", b, err, want[:page+5])
	b, err = admin.New(k.Client).Runs.CancelAll(k.Ctx, batch)
	check("cancel the rest", b, err, want[page+5:])
	b, err = admin.New(k.Client).Runs.ResumeAll(k.Ctx, batch, kagzi.Reason("sorry"), admin.DryRun())
	check("dry run of resume", b, err, want)
	b, err = admin.New(k.Client).Runs.ResumeAll(k.Ctx, kagzi.RunFilter{Metadata: batch.Metadata, Limit: page},
		kagzi.Reason("sorry"))
	check("resume", b, err, want[:page])
	k.WantEvents(want[1], admin.LogEntry{Event: "CANCELLED"}, admin.LogEntry{Event: "RESUMED", Reason: "sorry"})
	b, err = admin.New(k.Client).Runs.RestartAll(k.Ctx, batch, kagzi.Version(2))
	check("restart the rest", b, err, want[page:])
	for _, old := range b.Changed {
		if info := k.InfoOf(b.New[old]); info.Origin != old || info.Version != 2 {
			t.Errorf("%+v", info)
		}
	}
	if got := statuses(kagzi.StatusPending); got != n+1 || k.InfoOf(kept).Status != kagzi.StatusPending {
		t.Errorf("%d runs are pending, want %d", got, n+1)
	}
	for _, s := range theirs {
		if info, err := other.Get(k.Ctx, s.ID); err != nil || info.Status != kagzi.StatusPending {
			t.Errorf("the other namespace's: %+v, %v", info, err)
		}
	}
}

// A bulk verb skips the runs to which it does not apply, as its dry run says, and changes the others.
func TestBulkSkips(t *testing.T) {
	k := kit.New(t)
	older, newer := ended(k, kagzi.StatusFailed, kagzi.ID("x")), ended(k, kagzi.StatusFailed, kagzi.ID("x"))
	done := ended(k, kagzi.StatusCompleted)
	y := &tally{}
	stop := kit.Serve(k, journeyWf, y.journey)
	forked := kit.Begin(k, journeyWf, "in").ID()
	k.WaitStatus(forked, kagzi.StatusCompleted)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	check := func(what string, b admin.BulkResult, err error, runs []kagzi.RunID, skipped map[kagzi.RunID]error) {
		t.Helper()
		if err != nil || !slices.Equal(b.Changed, runs) || len(b.Skipped) != len(skipped) || b.Matched != len(runs)+
			len(skipped) {
			t.Errorf("%s: %+v, %v; want %v, skipped %v", what, b, err, runs, skipped)
		}
		for run, reason := range b.Skipped {
			if want := skipped[run]; want == nil || !errors.Is(reason, want) {
				t.Errorf("%s: %s was skipped: %v, want %v", what, run, reason, want)
			}
		}
		if len(b.New) > 0 {
			t.Errorf("%s: new runs %v of a dry run, or of a verb that makes none", what, b.New)
		}
	}
	same := kagzi.RunFilter{Workflow: "noop", Status: terminal}
	refused := map[kagzi.RunID]error{older: kagzi.ErrIDConflict, done: kagzi.ErrRunFinished}
	b, err := admin.New(k.Client).Runs.ResumeAll(k.Ctx, same, admin.DryRun())
	check("dry run", b, err, []kagzi.RunID{newer}, refused)
	kit.MustContain(t, b.Skipped[older], "a newer run with the same ID is changed first, and then holds the ID")
	b, err = admin.New(k.Client).Runs.ResumeAll(k.Ctx, same)
	check("resume", b, err, []kagzi.RunID{newer}, refused)
	b, err = admin.New(k.Client).Runs.CancelAll(k.Ctx,
		kagzi.RunFilter{Workflow: "noop", Status: append([]kagzi.Status{
			kagzi.StatusPending, kagzi.StatusRunning,
			kagzi.StatusSleeping,
		}, terminal...)}, admin.DryRun())
	check("cancel", b, err, []kagzi.RunID{newer}, map[kagzi.RunID]error{
		older: kagzi.ErrRunFinished,
		done:  kagzi.ErrRunFinished,
	})
	b, err = admin.New(k.Client).Runs.ForkAll(k.Ctx, kagzi.RunFilter{Until: time.Now().Add(time.Hour)}, "last",
		admin.DryRun())
	check("fork", b, err, []kagzi.RunID{forked}, map[kagzi.RunID]error{
		older: kagzi.ErrNotFound,
		done:  kagzi.ErrNotFound,
	})
	if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 4 {
		t.Errorf("a dry run left %d runs, want 4", n)
	}
	b, err = admin.New(k.Client).Runs.ForkAll(k.Ctx, kagzi.RunFilter{Workflow: "journey"}, "last")
	if err != nil || !slices.Equal(b.Changed, []kagzi.RunID{forked}) || len(b.New) != 1 || len(b.Skipped) > 0 {
		t.Fatalf("fork: %+v, %v", b, err)
	}
	kit.Serve(k, journeyWf, y.journey)
	k.WaitStatus(b.New[forked], kagzi.StatusCompleted)
	if got := y.of(b.New[forked]); !slices.Equal(got, []string{"last", "last#2"}) {
		t.Errorf("executed %q", got)
	}
}

func TestBulkInTx(t *testing.T) {
	k := kit.New(t)
	a, b := ended(k, kagzi.StatusFailed), ended(k, kagzi.StatusFailed, kagzi.ID("x"))
	ended(k, kagzi.StatusCompleted)
	filter := kagzi.RunFilter{Workflow: "noop", Status: []kagzi.Status{kagzi.StatusFailed, kagzi.StatusCompleted}}
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Rollback(k.Ctx) }, func(tx pgx.Tx) error { return tx.Commit(k.Ctx) },
	} {
		tx := k.CallersTx()
		mine := kit.Begin(k, kit.Noop, 1, kagzi.ID("y"), kagzi.InTx(tx)).ID() // only the transaction sees it
		for _, opts := range [][]kagzi.ChangeOption{{kagzi.InTx(tx), admin.DryRun()}, {kagzi.InTx(tx)}} {
			got, err := admin.New(k.Client).Runs.ResumeAll(k.Ctx, filter, opts...)
			if err != nil || !slices.Equal(got.Changed, []kagzi.RunID{b, a}) || len(got.Skipped) != 1 {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if got, err := admin.New(k.Client).Runs.CancelAll(k.Ctx, kagzi.RunFilter{ID: "y"},
			kagzi.InTx(tx)); err != nil ||
			!slices.Equal(got.Changed, []kagzi.RunID{mine}) {
			t.Errorf("%+v, %v", got, err)
		}
		if info := k.InfoOf(a); info.Status != kagzi.StatusFailed {
			t.Errorf("visible before the end: %+v", info)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	if k.InfoOf(a).Status != kagzi.StatusPending || k.InfoOf(b).Status != kagzi.StatusPending ||
		k.InfoOf(kagzi.ID("y")).Status != kagzi.StatusCancelled {
		t.Error("the commit did not take place")
	}
}

func TestBulkStops(t *testing.T) {
	k := kit.New(t)
	for range 3 {
		ended(k, kagzi.StatusCancelled)
	}
	cancelled := kagzi.RunFilter{Status: []kagzi.Status{kagzi.StatusCancelled}}
	for says, call := range map[string]func() (admin.BulkResult, error){
		"the filter is empty": func() (admin.BulkResult, error) {
			return admin.New(k.Client).Runs.CancelAll(k.Ctx, kagzi.RunFilter{})
		},
		"only has After or Limit": func() (admin.BulkResult, error) {
			return admin.New(k.Client).Runs.ResumeAll(k.Ctx, kagzi.RunFilter{Limit: 5, After: "x"})
		},
		"Limit is -1": func() (admin.BulkResult, error) {
			return admin.New(k.Client).Runs.RestartAll(k.Ctx, kagzi.RunFilter{Limit: -1, Workflow: "noop"})
		},
		"the step is empty": func() (admin.BulkResult, error) {
			return admin.New(k.Client).Runs.ForkAll(k.Ctx, cancelled, "")
		},
		"Version is -1": func() (admin.BulkResult, error) {
			return admin.New(k.Client).Runs.ForkAll(k.Ctx, cancelled, "pay", kagzi.Version(-1))
		},
		"nil option": func() (admin.BulkResult, error) {
			return admin.New(k.Client).Runs.CancelAll(k.Ctx, cancelled, nil)
		},
		"InTx(nil)": func() (admin.BulkResult, error) {
			return admin.New(k.Client).Runs.CancelAll(k.Ctx, cancelled, kagzi.InTx(nil))
		},
		context.Canceled.Error(): func() (admin.BulkResult, error) {
			ctx, cancel := context.WithCancel(k.Ctx)
			cancel()
			return admin.New(k.Client).Runs.ResumeAll(ctx, cancelled)
		},
	} {
		b, err := call()
		kit.MustContain(t, err, "kagzi: ", says)
		if len(b.Changed) > 0 {
			t.Errorf("%s: %+v", says, b)
		}
	}
	// The database refuses the second change: the first is made and reported.
	k.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF (SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'PENDING') > 0
			THEN RAISE 'enough'; END IF; RETURN NEW; END $$`)
	k.Exec(`CREATE TRIGGER refuse BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	defer k.Exec(`DROP FUNCTION refuse CASCADE`)
	b, err := admin.New(k.Client).Runs.ResumeAll(k.Ctx, cancelled)
	kit.MustContain(t, err, "resume all", "enough")
	if len(b.Changed) != 1 || len(b.Skipped) != 0 || b.Matched != 2 {
		t.Errorf("%+v", b)
	}
	// A caller's transaction can continue.
	tx := k.CallersTx()
	defer func() { _ = tx.Rollback(k.Ctx) }()
	_, err = admin.New(k.Client).Runs.ResumeAll(k.Ctx, cancelled, kagzi.InTx(tx))
	kit.MustContain(t, err, "enough")
	if _, err := tx.Exec(k.Ctx, `SELECT 1`); err != nil {
		t.Errorf("the caller's transaction is aborted: %v", err)
	}
}
