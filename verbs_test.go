package kagzi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// ended starts a run of noop and brings it to the status.
func (k *kit) ended(status Status, opts ...StartOption) RunID {
	k.t.Helper()
	run := begin(k, noop, map[Status]int{StatusCompleted: 1, StatusFailed: 2, StatusCancelled: 3}[status], opts...)
	if status == StatusCancelled {
		k.cancel(run.ID())
		return run.ID()
	}
	w := newTestWorker(k.t, k.c, WorkerConfig{Queue: k.infoOf(run.ID()).Queue})
	Handle(w, noop, odd)
	stop := startWorker(k.t, w)
	k.waitStatus(run.ID(), status)
	if err := stop(); err != nil {
		k.t.Fatal(err)
	}
	return run.ID()
}

// terminal are the statuses of runs that are over.
var terminal = []Status{StatusCompleted, StatusFailed, StatusCancelled}

func TestRestartOfEachStatus(t *testing.T) {
	k := newKit(t)
	for _, status := range terminal {
		id := ID(fmt.Sprint("x-", status))
		old := k.ended(status, id, Queue("q"), Priority(1), Metadata{"a": "b"}, Timeout(time.Hour), RetryPolicy{MaxAttempts: 1, Backoff: time.Minute})
		before := k.infoOf(old)
		as, err := k.c.Restart(k.ctx, id, Reason("once\x00more"))
		if err != nil {
			t.Fatalf("%s: %v", status, err)
		}
		after, got := k.infoOf(old), k.infoOf(as)
		if after.Status != before.Status || after.EndedAt != before.EndedAt || after.Attempts != before.Attempts {
			t.Errorf("%s: the old run was changed: %+v", status, after)
		}
		if got.Origin != old || got.ExternalID != id || got.Queue != "q" || got.Priority != 1 || got.Metadata["a"] != "b" || got.Version != before.Version ||
			got.Status != StatusPending || got.Attempts != 0 || string(got.Input) != string(before.Input) || got.Workflow != "noop" || got.Kind != "" || !got.StartedAt.IsZero() {
			t.Errorf("%s: %+v", status, got)
		}
		if left := got.DeadlineAt.Sub(got.CreatedAt); left != time.Hour {
			t.Errorf("%s: the timeout is %v", status, left)
		}
		same := k.count(`SELECT count(*) FROM kagzi.workflow_runs a JOIN kagzi.workflow_runs b ON a.retry_policy = b.retry_policy AND a.input_hash = b.input_hash
			WHERE a.run_id = $1 AND b.run_id = $2`, string(old), string(as))
		if same != 1 {
			t.Errorf("%s: another policy or hash", status)
		}
		events := []Event{{Event: "RESTARTED", Other: as, Reason: "once\uFFFDmore"}}
		if status == StatusCancelled {
			events = slices.Insert(events, 0, Event{Event: "CANCELLED"})
		}
		k.wantEvents(old, events...)
		k.wantEvents(as, Event{Event: "RESTARTED", Other: old, Reason: "once\uFFFDmore"})

		// Its ID is taken now. Under another one it goes.
		if _, err := k.c.Restart(k.ctx, old); !errors.Is(err, ErrIDConflict) || !strings.Contains(err.Error(), string(as)) {
			t.Errorf("%s: a taken ID: %v", status, err)
		}
		if _, err := k.c.Restart(k.ctx, as); !errors.Is(err, ErrRunActive) {
			t.Errorf("%s: an active run: %v", status, err)
		}
		second, err := k.c.Restart(k.ctx, old, ID(id+"-2"), NewInput(7), Version(3))
		if err != nil {
			t.Fatal(err)
		}
		if got := k.infoOf(second); got.ExternalID != id+"-2" || string(got.Input) != "7" || got.Version != 3 {
			t.Errorf("%s: %+v", status, got)
		}
		// A start that is the same as the restart finds it.
		if run := begin(k, noop, 7, ID(id+"-2")); !run.Existed() || run.ID() != second {
			t.Errorf("%s: the restart is not found by its input's hash", status)
		}
	}
}

// A run that was resumed has no deadline any more, and its restart has its Timeout; so have restarts of restarts.
func TestRestartKeepsTheTimeout(t *testing.T) {
	k := newKit(t)
	restarted := func(id RunID) RunInfo {
		t.Helper()
		as, err := k.c.Restart(k.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return k.infoOf(as)
	}
	old := begin(k, noop, 1, Timeout(time.Hour), Delay(time.Minute)).ID()
	for _, err := range []error{k.c.Cancel(k.ctx, old), k.c.Resume(k.ctx, old), k.c.Cancel(k.ctx, old)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	first := restarted(old)
	k.cancel(first.ID)
	for _, got := range []RunInfo{first, restarted(first.ID)} {
		if left := got.DeadlineAt.Sub(got.CreatedAt); left != time.Hour {
			t.Errorf("the timeout is %v", left)
		}
	}
	plain := k.ended(StatusCancelled)
	if got := restarted(plain); !got.DeadlineAt.IsZero() || got.Schedule != "" {
		t.Errorf("%+v", got)
	}
}

// A restarted run of a schedule stands for the same tick, and is none of the schedule's.
func TestRestartOfAScheduledRun(t *testing.T) {
	k := newKit(t)
	k.schedule(Schedule{Name: "nightly", Run: noop.With(1, Timeout(time.Hour)), Every: time.Hour})
	k.missed("nightly", 90*time.Minute)
	k.pass(k.coordinator())
	runs := k.fired("nightly")
	if len(runs) == 0 {
		t.Fatal("nothing was fired")
	}
	k.cancel(runs[0].ID)
	as, err := k.c.Restart(k.ctx, runs[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if got := k.infoOf(as); got.FireTime != runs[0].FireTime || got.Schedule != "nightly" || got.DeadlineAt.Sub(got.CreatedAt) != time.Hour {
		t.Errorf("%+v", got)
	}
	if n := len(k.fired("nightly")); n != len(runs) {
		t.Errorf("the schedule has %d runs, want %d", n, len(runs))
	}
}

// In a caller's transaction each verb takes place with its commit, and no refusal breaks it.
func TestVerbsInTx(t *testing.T) {
	k := newKit(t)
	failedRun, done, free := k.ended(StatusFailed, ID("x")), k.ended(StatusCompleted), k.ended(StatusCancelled)
	waiting := begin(k, noop, 1, Delay(time.Hour)).ID()
	all := func(tx pgx.Tx) (runs []RunID) {
		t.Helper()
		in := InTx(tx)
		if err := k.c.Resume(k.ctx, failedRun, in, Reason("a")); err != nil {
			t.Error(err)
		}
		for what, refused := range map[string]error{
			"resume an active run":    k.c.Resume(k.ctx, failedRun, in),
			"resume a completed run":  k.c.Resume(k.ctx, done, in),
			"resume an unknown run":   k.c.Resume(k.ctx, ID("y"), in),
			"restart an active run":   func() error { _, err := k.c.Restart(k.ctx, waiting, in); return err }(),
			"restart with a taken ID": func() error { _, err := k.c.Restart(k.ctx, done, ID("x"), in); return err }(),
			"fork from no step":       func() error { _, err := k.c.Fork(k.ctx, done, "pay", in); return err }(),
		} {
			if refused == nil {
				t.Errorf("%s: no error", what)
			}
		}
		for _, id := range []RunID{done, free} {
			as, err := k.c.Restart(k.ctx, id, in)
			if err != nil {
				t.Error(err)
			}
			runs = append(runs, as)
		}
		return runs
	}
	tx := k.callersTx()
	for _, id := range all(tx) {
		if _, err := k.c.Get(k.ctx, id); !errors.Is(err, ErrNotFound) {
			t.Errorf("visible before the commit: %v", err)
		}
	}
	rollbackTx(t, tx)
	if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs`) + k.count(`SELECT count(*) FROM kagzi.run_events`); n != 5 { // one is of a cancel
		t.Errorf("a rollback leaves %d rows", n)
	}
	if info := k.infoOf(failedRun); info.Status != StatusFailed {
		t.Errorf("%+v", info)
	}

	// A worker of another client learns of the commit by its notifications.
	other := newTestClient(t, k.pool)
	w := newTestWorker(t, other, WorkerConfig{PollInterval: 25 * time.Second})
	Handle(w, noop, odd)
	startWorker(t, w)
	waitListening(t, k.pool, 1)
	tx = k.callersTx()
	runs := all(tx)
	commitTx(t, tx)
	k.waitStatus(runs[0], StatusCompleted)
	k.waitStatus(runs[1], StatusCompleted)
	k.wantEvents(failedRun, Event{Event: "RESUMED", Reason: "a"})
}

func TestReasons(t *testing.T) {
	k := newKit(t)
	id := k.ended(StatusCancelled)
	k.resume(id, Reason(strings.Repeat("é", 1000)+"\xff"))
	k.cancel(id, Reason("why not"))
	events, err := k.c.Events(k.ctx, id)
	if err != nil || len(events) != 3 || len(events[1].Reason) > 1<<10 || !strings.Contains(events[1].Reason, "truncated, 2001 bytes") || events[2].Reason != "why not" {
		t.Errorf("%+v, %v", events, err)
	}
	for _, err := range []error{k.c.Resume(k.ctx, id, nil), k.c.Resume(k.ctx, id, InTx(nil)), k.c.Cancel(k.ctx, id, nil)} {
		if err == nil {
			t.Error("no error")
		}
	}
	for says, opt := range map[string]RestartOption{
		"nil option": nil, "InTx(nil)": InTx(nil), "Version is 0": Version(0), "ID is empty": ID(""), "cannot be encoded": NewInput(func() {}), "NewInput(nil)": NewInput(nil),
	} {
		_, err := k.c.Restart(k.ctx, id, opt)
		mustContain(t, err, "restart "+string(id), says)
	}
	err = k.c.Resume(k.ctx, k.ended(StatusCompleted))
	if !errors.Is(err, ErrRunFinished) {
		t.Errorf("resumed a run that completed: %v", err)
	}
	mustContain(t, err, "the run completed", "Restart starts another")
	if _, err := k.c.Restart(k.ctx, id, NewInput(strings.Repeat("x", 5<<20))); !errors.Is(err, ErrPayloadTooLarge) {
		t.Errorf("%v", err)
	}
	if _, err := k.c.Events(k.ctx, ID("nobody")); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// ---- bulk ----

func TestBulkInPages(t *testing.T) {
	k := newKit(t)
	const page = 100 // runs that one statement of a bulk verb looks for
	const n = page + 10
	calls := make([]Call, n)
	for i := range calls {
		calls[i] = noop.With(i, Metadata{"batch": "a"})
	}
	started, err := k.c.StartMany(k.ctx, calls)
	if err != nil {
		t.Fatal(err)
	}
	other := clientWith(t, k.pool, ClientConfig{Namespace: "other"})
	theirs, err := other.StartMany(k.ctx, calls[:3])
	if err != nil {
		t.Fatal(err)
	}
	kept := begin(k, noop, 1).ID()
	want := make([]RunID, n) // newest first
	for i, s := range started {
		want[n-1-i] = s.ID
	}
	batch := RunFilter{Metadata: Metadata{"batch": "a"}}
	check := func(what string, b BulkResult, err error, runs []RunID) {
		t.Helper()
		if err != nil || b.Matched != len(runs) || !slices.Equal(b.Changed, runs) || len(b.Skipped) > 0 {
			t.Fatalf("%s: %d matched, %d changed, %d skipped, %v; want %d", what, b.Matched, len(b.Changed), len(b.Skipped), err, len(runs))
		}
	}
	statuses := func(status Status) int {
		return k.count(`SELECT count(*) FROM kagzi.workflow_runs WHERE namespace_id = 'default' AND status = $1`, string(status))
	}
	b, err := k.c.CancelAll(k.ctx, batch, DryRun())
	check("dry run of cancel", b, err, want)
	if got := statuses(StatusPending); got != n+1 {
		t.Fatalf("a dry run left %d of %d runs pending", got, n+1)
	}
	b, err = k.c.CancelAll(k.ctx, RunFilter{Metadata: batch.Metadata, Limit: page + 5})
	check("cancel with a limit", b, err, want[:page+5])
	b, err = k.c.CancelAll(k.ctx, batch)
	check("cancel the rest", b, err, want[page+5:])
	b, err = k.c.ResumeAll(k.ctx, batch, Reason("sorry"), DryRun())
	check("dry run of resume", b, err, want)
	b, err = k.c.ResumeAll(k.ctx, RunFilter{Metadata: batch.Metadata, Limit: page}, Reason("sorry"))
	check("resume", b, err, want[:page])
	k.wantEvents(want[1], Event{Event: "CANCELLED"}, Event{Event: "RESUMED", Reason: "sorry"})
	b, err = k.c.RestartAll(k.ctx, batch, Version(2))
	check("restart the rest", b, err, want[page:])
	for _, old := range b.Changed {
		if info := k.infoOf(b.New[old]); info.Origin != old || info.Version != 2 {
			t.Errorf("%+v", info)
		}
	}
	if got := statuses(StatusPending); got != n+1 || k.infoOf(kept).Status != StatusPending {
		t.Errorf("%d runs are pending, want %d", got, n+1)
	}
	for _, s := range theirs {
		if info, err := other.Get(k.ctx, s.ID); err != nil || info.Status != StatusPending {
			t.Errorf("the other namespace's: %+v, %v", info, err)
		}
	}
}

// What a verb does not apply to is skipped, the dry run knows it before, and the rest is done.
func TestBulkSkips(t *testing.T) {
	k := newKit(t)
	older, newer := k.ended(StatusFailed, ID("x")), k.ended(StatusFailed, ID("x"))
	done := k.ended(StatusCompleted)
	y := &tally{}
	stop := serve(k, journeyWf, y.journey)
	forked := begin(k, journeyWf, "in").ID()
	k.waitStatus(forked, StatusCompleted)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	check := func(what string, b BulkResult, err error, runs []RunID, skipped map[RunID]error) {
		t.Helper()
		if err != nil || !slices.Equal(b.Changed, runs) || len(b.Skipped) != len(skipped) || b.Matched != len(runs)+len(skipped) {
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
	same := RunFilter{Workflow: "noop", Status: terminal}
	verdict := map[RunID]error{older: ErrIDConflict, done: ErrRunFinished}
	b, err := k.c.ResumeAll(k.ctx, same, DryRun())
	check("dry run", b, err, []RunID{newer}, verdict)
	mustContain(t, b.Skipped[older], "a newer run of its ID comes first, and has the ID then")
	b, err = k.c.ResumeAll(k.ctx, same)
	check("resume", b, err, []RunID{newer}, verdict)
	b, err = k.c.CancelAll(k.ctx, RunFilter{Workflow: "noop", Status: append([]Status{StatusPending, StatusRunning, StatusSleeping}, terminal...)}, DryRun())
	check("cancel", b, err, []RunID{newer}, map[RunID]error{older: ErrRunFinished, done: ErrRunFinished})
	b, err = k.c.ForkAll(k.ctx, RunFilter{Until: time.Now().Add(time.Hour)}, "last", DryRun())
	check("fork", b, err, []RunID{forked}, map[RunID]error{older: ErrNotFound, done: ErrNotFound})
	if n := k.count(`SELECT count(*) FROM kagzi.workflow_runs`); n != 4 {
		t.Errorf("a dry run left %d runs, want 4", n)
	}
	b, err = k.c.ForkAll(k.ctx, RunFilter{Workflow: "journey"}, "last")
	if err != nil || !slices.Equal(b.Changed, []RunID{forked}) || len(b.New) != 1 || len(b.Skipped) > 0 {
		t.Fatalf("fork: %+v, %v", b, err)
	}
	serve(k, journeyWf, y.journey)
	k.waitStatus(b.New[forked], StatusCompleted)
	if got := y.of(b.New[forked]); !slices.Equal(got, []string{"last", "last#2"}) {
		t.Errorf("executed %q", got)
	}
}

func TestBulkInTx(t *testing.T) {
	k := newKit(t)
	a, b := k.ended(StatusFailed), k.ended(StatusFailed, ID("x"))
	k.ended(StatusCompleted)
	filter := RunFilter{Workflow: "noop", Status: []Status{StatusFailed, StatusCompleted}}
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Rollback(k.ctx) }, func(tx pgx.Tx) error { return tx.Commit(k.ctx) },
	} {
		tx := k.callersTx()
		mine := begin(k, noop, 1, ID("y"), InTx(tx)).ID() // only the transaction sees it
		for _, opts := range [][]ChangeOption{{InTx(tx), DryRun()}, {InTx(tx)}} {
			got, err := k.c.ResumeAll(k.ctx, filter, opts...)
			if err != nil || !slices.Equal(got.Changed, []RunID{b, a}) || len(got.Skipped) != 1 {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if got, err := k.c.CancelAll(k.ctx, RunFilter{ID: "y"}, InTx(tx)); err != nil || !slices.Equal(got.Changed, []RunID{mine}) {
			t.Errorf("%+v, %v", got, err)
		}
		if info := k.infoOf(a); info.Status != StatusFailed {
			t.Errorf("visible before the end: %+v", info)
		}
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
	}
	if k.infoOf(a).Status != StatusPending || k.infoOf(b).Status != StatusPending || k.infoOf(ID("y")).Status != StatusCancelled {
		t.Error("the commit did not take place")
	}
}

func TestBulkStops(t *testing.T) {
	k := newKit(t)
	for range 3 {
		k.ended(StatusCancelled)
	}
	cancelled := RunFilter{Status: []Status{StatusCancelled}}
	for says, call := range map[string]func() (BulkResult, error){
		"the filter is empty":     func() (BulkResult, error) { return k.c.CancelAll(k.ctx, RunFilter{}) },
		"only has After or Limit": func() (BulkResult, error) { return k.c.ResumeAll(k.ctx, RunFilter{Limit: 5, After: "x"}) },
		"Limit is -1":             func() (BulkResult, error) { return k.c.RestartAll(k.ctx, RunFilter{Limit: -1, Workflow: "noop"}) },
		"the step is empty":       func() (BulkResult, error) { return k.c.ForkAll(k.ctx, cancelled, "") },
		"Version is -1":           func() (BulkResult, error) { return k.c.ForkAll(k.ctx, cancelled, "pay", Version(-1)) },
		"nil option":              func() (BulkResult, error) { return k.c.CancelAll(k.ctx, cancelled, nil) },
		"InTx(nil)":               func() (BulkResult, error) { return k.c.CancelAll(k.ctx, cancelled, InTx(nil)) },
		context.Canceled.Error(): func() (BulkResult, error) {
			ctx, cancel := context.WithCancel(k.ctx)
			cancel()
			return k.c.ResumeAll(ctx, cancelled)
		},
	} {
		b, err := call()
		mustContain(t, err, "kagzi: ", says)
		if len(b.Changed) > 0 {
			t.Errorf("%s: %+v", says, b)
		}
	}
	// The database refuses the second: the first is done, and said so.
	k.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF (SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'PENDING') > 0 THEN RAISE 'enough'; END IF; RETURN NEW; END $$`)
	k.exec(`CREATE TRIGGER refuse BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	defer k.exec(`DROP FUNCTION refuse CASCADE`)
	b, err := k.c.ResumeAll(k.ctx, cancelled)
	mustContain(t, err, "resume all", "enough")
	if len(b.Changed) != 1 || len(b.Skipped) != 0 || b.Matched != 2 {
		t.Errorf("%+v", b)
	}
	// In a caller's transaction, that goes on.
	tx := k.callersTx()
	defer func() { _ = tx.Rollback(k.ctx) }()
	_, err = k.c.ResumeAll(k.ctx, cancelled, InTx(tx))
	mustContain(t, err, "enough")
	if _, err := tx.Exec(k.ctx, `SELECT 1`); err != nil {
		t.Errorf("the caller's transaction is aborted: %v", err)
	}
}
