package inspect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/plans"
	"github.com/kagzi/kagzi/waits"
)

func TestEveryViewIsPlanned(t *testing.T) {
	t.Parallel()
	plans.WantAll(t, statementsIn(t, "."), plannedViews(newBoth(nil, "test"), []uuid.UUID{uuid.New(), uuid.New()}),
		"latencies",
		"movingRuns")
}

// Every call works in the exec modes that poolers and their users need.
func TestExecModes(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			t.Parallel()
			if mode == pgx.QueryExecModeSimpleProtocol {
				dbtest.NotOnCitus(t, "in the simple protocol a lock there is waited for until the statement's timeout")
			}
			db := dbtest.Database(t)
			s := newBoth(poolWith(t, db.DSN, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }),
				"test")
			life(t, s, db.Pool)
		})
	}
}

// life makes every call of the store about runs.
func life(t *testing.T, s *both, plain pg.DB) {
	t.Helper()
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	ok("check rights", s.CheckRights(t.Context()))
	w := worker()
	w.Handlers = []string{"type/1", "it's \\ \"odd\", {x}, é, NULL/7"}
	ok("register", s.Workers.Register(t.Context(), s.pool, w))
	_, err := s.Workers.Heartbeat(t.Context(), s.pool, store.Heartbeat{
		Number: 1, Worker: w.ID, Queues: w.Queues, Active: 1,
		Counts: store.Counts{Completed: 2, Failed: 3},
	})
	ok("heartbeat", err)

	odd := "it's \\ \"odd\", {x}, é, NULL"
	runs := []store.NewRun{
		newRun(withID(odd), withTimeout(time.Hour), func(r *store.NewRun) {
			r.Input, r.InputHash, r.Metadata, r.RetryPolicy = []byte{0, 0xff, '\\', '"', ','}, []byte{0, 1, 0xff},
				[]byte(`{"k": "it's"}`), []byte(`{"a": [1]}`)
		}),
		newRun(ofVersion(1), withDelay(time.Nanosecond)),
		newRun(func(r *store.NewRun) { r.At = time.Now().Add(-time.Minute) }), newRun(withPriority(1)),
	}
	runs = append(runs, newRun(withParent(runs[3].RunID)))
	started, err := s.Starts.Start(t.Context(), nil, runs)
	ok("start", err)
	again, err := s.Starts.Start(t.Context(), nil,
		[]store.NewRun{newRun(withID(odd), func(r *store.NewRun) { r.InputHash = []byte{0, 1, 0xff} }), runs[1]})
	ok("start again", err)
	if len(again) != 2 || again[0] != (store.StartedRun{RunID: runs[0].RunID, Existed: true}) ||
		again[1].RunID != runs[1].RunID {
		t.Fatalf("started again %+v, before %+v", again, started)
	}
	for range 2 {
		_, err = s.Messages.Send(t.Context(), nil, store.Message{
			RunID: runs[1].RunID, Name: odd, ID: odd,
			Payload: []byte{0, 0xff, '\\'},
		})
		ok("signal", err)
	}
	withMessage := newRun(withID(odd), func(r *store.NewRun) {
		r.InputHash, r.Messages = []byte{0, 1, 0xff}, []store.Message{{Name: odd, ID: "1", Payload: []byte{}}}
	})
	again, err = s.Starts.Start(t.Context(), nil, []store.NewRun{withMessage})
	ok("signal with start", err)
	if len(again) != 1 || !again[0].Existed || again[0].Signalled == nil {
		t.Errorf("signalled with start: %+v", again)
	}
	inbox, err := s.Messages.Inbox(t.Context(), []uuid.UUID{runs[0].RunID, runs[1].RunID})
	ok("inbox", err)
	if n := inbox[runs[1].RunID]; n.Wakeups != 1 || len(n.Signals) != 1 || n.Signals[0].Name != odd ||
		string(n.Signals[0].Payload) != "\x00\xff\\" {
		t.Errorf("inbox %+v", n)
	}
	id, err := s.Runs.Find(t.Context(), nil, odd)
	ok("find", err)
	if id != runs[0].RunID {
		t.Errorf("found %v", id)
	}

	req := request(10, func(r *store.ClaimRequest) {
		r.Worker, r.Types = w.ID, []store.WorkflowVersions{
			{Type: "none"},
			{Type: "type", Versions: []int{1, 2}, Default: 2},
			{Type: odd, Versions: []int{7}, Default: 7},
		}
	})
	c, err := s.Claims.Claim(t.Context(), req)
	ok("claim", err)
	under, err := s.Claims.Resolve(t.Context(), req)
	ok("claimed under", err)
	if len(c.Runs) != 5 || len(under.Runs) != 5 {
		t.Fatalf("claimed %d, found %d of 5", len(c.Runs), len(under.Runs))
	}
	by := map[uuid.UUID]*store.ClaimedRun{}
	for _, r := range c.Runs {
		by[r.RunID] = r
	}
	r := func(i int) *store.ClaimedRun { return by[runs[i].RunID] }
	if string(r(0).Input) != string(runs[0].Input) || r(0).ExternalID != odd || r(0).Version != 2 ||
		r(1).Version != 1 || r(0).DeadlineAt.IsZero() {
		t.Errorf("claimed %+v", r(0))
	}
	ok("reset recoveries", s.Leases.ResetRecoveries(t.Context(), held(r(0))))
	states, terms := extend(t, s, time.Hour, r(0), r(1))
	if len(states) != 2 || !states[0].Holds || len(terms) != 2 {
		t.Errorf("states %+v, terms %v", states, terms)
	}

	rec := record(r(0), odd, "\x00\xff,{}\"\\NULL")
	failed := record(r(1), "step", "")
	failed.Status, failed.Output, failed.ErrorKind, failed.Error, failed.Wake, failed.Permanent = store.Failed, nil,
		"kind",
		odd, time.Millisecond, true
	empty := record(r(1), "empty", "")
	f := &store.Flush{
		Records: []*store.Record{rec, failed, empty},
		Suspensions: []*store.Suspension{{
			RunID: r(2).RunID, Lease: r(2).Lease, Status: store.Pending, Wake: 0,
			Failed:    &store.FailedAttempt{ErrorKind: "kind", Error: odd},
			WaitingOn: waits.List{{Kind: waits.Signal, Name: odd}},
		}, {
			RunID: r(3).RunID, Lease: r(3).Lease, Status: store.Sleeping,
			Wake: -1, WakeAt: time.Now().Add(time.Hour), Need: 1,
		}},
		Finishes: []*store.Finish{
			{RunID: r(1).RunID, Lease: r(1).Lease, Status: store.Failed, ErrorKind: "kind", Error: odd}, finish(r(4)),
		},
	}
	for i := range 2 { // the second time as after a lost answer
		ok("flush", s.Records.Flush(t.Context(), f))
		for _, x := range f.Suspensions {
			wantOutcome(t, fmt.Sprint("suspend ", i), x.Outcome, store.Done)
		}
		for _, x := range f.Finishes {
			wantOutcome(t, fmt.Sprint("finish ", i), x.Outcome, store.Done)
		}
	}
	wantOutcome(t, "record", rec.Outcome, store.Done)
	if row := readRow(t, plain, r(3).RunID); row.Wakeups != 1 || !row.Due {
		t.Errorf("the parent %+v", row)
	}
	h, err := s.Histories.Latest(t.Context(), []uuid.UUID{r(0).RunID, r(1).RunID})
	ok("history", err)
	loaded, err := s.Histories.Load(t.Context(), store.LoadRequest{
		Runs: []uuid.UUID{runs[0].RunID}, Woken: []uuid.UUID{runs[1].RunID},
		Most: 1 << 20, Timeout: time.Minute,
	})
	ok("load", err)
	if len(loaded.Steps[runs[0].RunID]) == 0 || len(loaded.More) > 0 {
		t.Errorf("loaded %+v", loaded)
	}
	_, err = s.Histories.Size(t.Context(), runs[0].RunID, time.Minute)
	ok("load size", err)
	evidence, err := s.Histories.CrashLoopEvidence(t.Context(), runs[0].RunID, time.Now().Add(-time.Hour), time.Minute)
	ok("evidence", err)
	if !evidence.Progress || evidence.Children {
		t.Errorf("evidence %+v", evidence)
	}
	_, err = s.UnreadRuns(t.Context(), s.pool, 10)
	ok("unread runs", err)
	_, err = s.FullInboxes(t.Context(), s.pool, 10)
	ok("full inboxes", err)
	_, _, err = s.InboxOf(t.Context(), &store.Run{RunID: runs[0].RunID, InboxFullAt: time.Now()}, true)
	ok("inbox", err)
	_, err = s.Suspects(t.Context(), s.pool, 10)
	ok("suspects", err)
	_, err = s.DueKeys(t.Context(), s.pool)
	ok("due keys", err)
	_, err = s.IdleSlots(t.Context(), s.pool, odd)
	ok("idle slots", err)
	_, err = s.StuckLimits(t.Context(), s.pool, time.Minute)
	ok("stuck limits", err)
	_, err = s.Obstacle(t.Context(), runs[0].RunID)
	ok("obstacle", err)
	_, err = s.ActiveWork(t.Context())
	ok("active work", err)
	_, err = s.DueWork(t.Context(), s.pool)
	ok("due work", err)
	if len(h[r(0).RunID]) != 1 || string(h[r(0).RunID][0].Output) != "\x00\xff,{}\"\\NULL" ||
		h[r(0).RunID][0].StepID != odd || len(h[r(1).RunID]) != 2 {
		t.Errorf("history %+v", h)
	}
	steps, err := s.Histories.Attempts(t.Context(), &store.Run{RunID: r(1).RunID}, store.StepPayloads{All: true})
	ok("steps", err)
	for _, st := range steps {
		if st.StepID == "step" && (st.Error != odd || st.WakeAt.IsZero() || st.Output != nil || !st.Permanent) ||
			st.StepID == "empty" && st.Output == nil {
			t.Errorf("step %+v", st)
		}
	}
	tx := begin(t, s)
	ok("lock timeout", func() error { _, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = 0`); return err }())
	made, err := s.Records.WriteIn(t.Context(), tx, nil, record(r(0), "tx", "x"))
	ok("record in", err)
	commit(t, tx)
	row, holds, err := s.Records.StepResult(t.Context(), held(r(0)), "tx", 1)
	ok("step result", err)
	if !made.Written || row == nil || !holds {
		t.Errorf("written %t, %+v, %t", made.Written, row, holds)
	}

	// These statements are for a flush that meets another's lock.
	tx, err = plain.Begin(t.Context())
	ok("begin", err)
	lockRow(t, tx, r(0).RunID)
	f = &store.Flush{Records: []*store.Record{record(r(0), "busy", "x")}}
	ok("flush", s.Records.Flush(t.Context(), f))
	wantOutcome(t, "record", f.Records[0].Outcome, store.Busy)
	ok("rollback", tx.Rollback(t.Context()))

	ok("cancel", cancelled(s.Runs.Cancel(t.Context(), nil, r(0).RunID, store.Why{}, 0)))
	resumed, err := s.Runs.Resume(t.Context(), nil, r(0).RunID, store.Why{})
	ok("resume", err)
	if resumed != (store.Resumed{Queue: "queue"}) {
		t.Errorf("resumed %+v", resumed)
	}
	verbs(t, s, r(0).RunID, odd)
	ended, missing, err := s.Runs.Ended(t.Context(), []uuid.UUID{r(1).RunID, uuid.New()}, 0)
	ok("ended", err)
	if len(ended) != 1 || ended[0].Error != odd || len(missing) != 1 {
		t.Errorf("ended %+v, missing %v", ended, missing)
	}
	got, err := s.Runs.Get(t.Context(), r(2).RunID)
	ok("run", err)
	if len(got.WaitingOn) != 1 || got.WaitingOn[0].Name != odd || got.Error != odd {
		t.Errorf("run %+v", got)
	}
	list, err := s.List(t.Context(), nil, Filter{
		Status: []string{store.Pending}, Type: "type", Queue: "queue", ExternalID: odd,
		Metadata: []byte(`{"k": "it's"}`), Created: Span{
			From:  time.Now().Add(-time.Hour),
			Until: time.Now().Add(time.Hour),
		},
		Page: Page{After: uuid.Max, Limit: 5},
	})
	ok("list", err)
	if len(list) != 1 || list[0].RunID != r(0).RunID {
		t.Errorf("listed %v", list)
	}
	active, err := s.ActiveWork(t.Context())
	ok("active work", err)
	if len(active) == 0 || active[0].Queue != "queue" || active[0].Count == 0 || active[0].Oldest.IsZero() {
		t.Errorf("active %+v", active)
	}
	live, err := s.LiveWorkers(t.Context(), s.pool, 10)
	ok("live workers", err)
	if len(live) != 1 || len(live[0].Handlers) != 2 || live[0].Handlers[1] != odd+"/7" {
		t.Errorf("live %+v", live)
	}
	_, err = s.DueWork(t.Context(), s.pool)
	ok("due work", err)
	ranges, _, err := s.Deletions.RetentionRanges(t.Context(), 0)
	ok("begin walk", err)
	_, _, err = s.Deletions.KeyStatistics(t.Context())
	ok("key statistics", err)
	keep := store.Retention{
		Completed: time.Microsecond, Failed: time.Microsecond,
		Workflows: map[string]time.Duration{odd: time.Hour},
	}
	over, _, err := s.Deletions.Expired(t.Context(), keep, store.Range{After: ranges[0].After, End: uuid.Max}, 100,
		time.Minute)
	ok("old", err)
	pruned, err := s.Deletions.Prune(t.Context(), keep, over, 2)
	ok("prune", err)
	if len(over) != 2 || len(pruned.Long) != 1 {
		t.Fatalf("old %v, pruned %+v", over, pruned)
	}
	gone, err := s.Deletions.PruneSteps(t.Context(), pruned.Long[0], 2)
	ok("prune steps", err)
	rest, err := s.Deletions.Prune(t.Context(), keep, over, 2)
	ok("prune", err)
	if gone != 3 || rest.Deleted != 1 { // two steps and a message
		t.Errorf("%d steps gone, pruned %+v", gone, rest)
	}
	ok("drain", s.Workers.Draining(t.Context(), s.pool, w.ID))
	if _, err := plain.Exec(t.Context(),
		`UPDATE kagzi.workers SET heartbeat_at = now() - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	lost, err := s.ReleaseLost(t.Context())
	ok("release", err)
	if len(lost) != 1 || lost[0].Types[0] != "type" || lost[0].LeaseTimeout != time.Minute {
		t.Errorf("lost %+v", lost)
	}
	ok("stop", s.Workers.Stopped(t.Context(), s.pool, w.ID, store.Counts{}))
	registry(t, s, odd)
	_, err = s.Starts.Start(t.Context(), nil,
		[]store.NewRun{newRun(withID(odd+"policy"), ifEnded(store.StartIfFailed))})
	ok("start if failed", err)
	out, err := s.Starts.Start(t.Context(), nil,
		[]store.NewRun{newRun(withID(odd+"policy"), ifActive(store.ReplaceActive), ifEnded(store.RejectEnded))})
	if got := outcome(out, err); got != "replaced" {
		t.Errorf("replace: %s", got)
	}
	ok("cancel", cancelled(s.Runs.Cancel(t.Context(), nil, out[0].RunID, store.Why{}, 0)))
	if got := outcome(s.Starts.Start(t.Context(), nil, []store.NewRun{newRun(withID(odd+"policy"),
		ifEnded(store.RejectEnded))})); got !=
		"taken" {
		t.Errorf("reject: %s", got)
	}
}

// verbs restarts and forks an active run with a step named odd, and deletes the new runs.
func verbs(t *testing.T, s *both, id uuid.UUID, odd string) {
	t.Helper()
	tx := begin(t, s)
	if err := cancelled(s.Runs.Cancel(t.Context(), tx, id, store.Why{}, 0)); err != nil {
		t.Error(err)
	}
	input := []byte{0, 0xff, '\\', '"', ','}
	fork, restart := uuid.Must(uuid.NewV7()), uuid.Must(uuid.NewV7())
	for _, r := range []store.Restart{{
		Run: id, New: fork, Step: odd, ExternalID: "fork " + odd, Version: 7, Replace: true,
		Input: input, Why: store.Why{Reason: odd},
	}, {Run: id, New: restart, Why: store.Why{Reason: odd}}} {
		if work, err := s.Runs.Restart(t.Context(), tx, r); err != nil || work.Queue != "queue" || work.Type != "type" {
			t.Errorf("%+v, error %v", work, err)
		}
	}
	if got := one[[]byte](t, tx, `SELECT input FROM kagzi.workflow_runs WHERE run_id = $1`,
		fork); string(got) != string(input) {
		t.Errorf("input %q", got)
	}
	all := store.RunUpdate{
		Queue: odd, Priority: 1, SetDue: true, At: time.Now().Add(time.Hour), SetVersion: true, Version: 3,
		SetMetadata: true, Metadata: []byte(`{"k": "it's"}`),
	}
	if due, err := s.Runs.Update(t.Context(), tx, fork, all, store.Why{Reason: odd, Actor: odd}); err != nil ||
		due[0].Queue != odd {
		t.Errorf("%+v, error %v", due, err)
	}
	if ids, err := s.Deletions.Delete(t.Context(), tx, id, store.Why{Reason: odd, Actor: odd}, true); err != nil ||
		ids[0] != id {
		t.Errorf("%v, error %v", ids, err)
	}
	if got := one[[]byte](t, tx, `SELECT input FROM kagzi.workflow_runs WHERE run_id = $1`,
		restart); string(got) != string(input) {
		t.Errorf("input %q", got)
	}
	for name, f := range map[string]Filter{"ID": {ExternalID: "fork " + odd}, "parts": {Type: "type"}} {
		f.Limit = 5
		chosen, err := s.List(t.Context(), tx, f)
		if err != nil ||
			!slices.ContainsFunc(chosen, func(r *store.Run) bool {
				return r.RunID == fork &&
					r.ExternalID == "fork "+odd
			}) {
			t.Errorf("listed by %s %+v, error %v", name, chosen, err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	events, err := s.Runs.Events(t.Context(), id)
	if err != nil || len(events) != 2 || events[0].Event != store.EventCancelled ||
		events[1].Event != store.EventResumed {
		t.Errorf("events %+v, error %v", events, err)
	}
}

// registry makes every call of the store about workers.
func registry(t *testing.T, s *both, odd string) {
	t.Helper()
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	w, v := worker(), worker()
	w.Queues, w.Types, w.Labels = []string{odd}, []string{odd, "type"}, []byte(`{"k": "it's"}`)
	w.Backend = store.Backend{
		PID: 1 << 30, Start: time.Now(),
		Server: one[time.Time](t, s.pool, `SELECT pg_postmaster_start_time()`),
	}
	ok("register", s.Workers.Register(t.Context(), s.pool, w))
	ok("register", s.Workers.Register(t.Context(), s.pool, v))
	fleet, err := s.Workers.CheckFleet(t.Context())
	ok("gone", err)
	if gone := fleet.Disconnected; len(gone) != 1 || gone[0].ID != w.ID || fleet.Watched != 1 || fleet.Workers != 2 {
		t.Errorf("fleet %+v", fleet)
	}
	ok("drain", s.Workers.Drain(t.Context(), nil, w.ID, store.Why{}))
	f := WorkerFilter{
		Status: []string{store.Draining}, Queue: odd, Type: odd, Labels: []byte(`{"k": "it's"}`), Limit: 5,
	}
	page, total, err := s.View.Workers(t.Context(), f)
	ok("workers", err)
	if len(page) != 1 || page[0].ID != w.ID || page[0].Types[0] != odd || total != 1 {
		t.Errorf("%+v, %d in all", page, total)
	}
	f.After = w.ID
	page, total, err = s.View.Workers(t.Context(), f)
	ok("workers", err)
	if len(page) != 0 || total != 1 {
		t.Errorf("%+v, %d in all", page, total)
	}
	asked, err := s.Workers.DrainQueue(t.Context(), nil, v.Queues[0], store.Why{})
	ok("drain queue", err)
	if len(asked) != 1 || asked[0] != v.ID {
		t.Errorf("asked %v", asked)
	}
	lost, err := s.Workers.ReleaseUnresponsive(t.Context(), fleet.Disconnected, odd)
	ok("release", err)
	if len(lost) != 1 || !slices.Equal(lost[0].Queues, w.Queues) {
		t.Errorf("lost %+v", lost)
	}
	_, err = s.Workers.ForceOffline(t.Context(), nil, v.ID, odd, store.Why{})
	ok("force offline", err)
	row, err := s.Worker(t.Context(), v.ID)
	ok("worker", err)
	log, err := s.WorkerEvents(t.Context(), v.ID)
	ok("events", err)
	if row.Status != store.Offline || row.StoppedAt.IsZero() || len(log) != 3 || log[2].Detail != odd {
		t.Errorf("%+v, %+v", row, log)
	}
	_, err = s.Workers.Prune(t.Context(), time.Hour, 10)
	ok("prune", err)
}
