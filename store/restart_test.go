package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/internal/pgproxy"
	"github.com/kagzi/kagzi/store/internal/clause"
)

// over returns a run that has failed after its steps, which were recorded one after the other.
func over(t *testing.T, s *Store, steps []string, change ...func(*NewRun)) uuid.UUID {
	t.Helper()
	r := running(t, s, 1, change...)[0]
	for _, step := range steps {
		flush(t, s, &Flush{Records: []*Record{record(r, step, step)}})
	}
	flush(t, s, &Flush{Finishes: []*Finish{{RunID: r.RunID, Lease: r.Lease, Status: Failed, ErrorKind: "kind"}}})
	return r.RunID
}

// copied returns the steps of a run with their attempts and outputs, in order of their names.
func copied(t *testing.T, s *Store, id uuid.UUID) []string {
	t.Helper()
	return column[string](t, s.pool, `
		SELECT concat_ws(' ', step_id, attempt_number, left(status, 1), convert_from(output, 'UTF8'))
			FROM kagzi.step_runs
		WHERE run_id = $1 AND namespace_id = $2 AND run_attempt = CASE WHEN status = 'RUNNING' THEN 1 ELSE 0 END
			ORDER BY step_id, attempt_number`, id, s.namespace)
}

func restart(t *testing.T, s *Store, r Restart) uuid.UUID {
	t.Helper()
	r.New = newID()
	if _, err := s.Runs.Restart(t.Context(), nil, r); err != nil {
		t.Fatal(err)
	}
	return r.New
}

// A verb whose answer or request was lost is done once, and its events are there once.
func TestLostVerbs(t *testing.T) {
	eachLoss(t, func(t *testing.T, lose func(*pgproxy.Proxy, string) *pgproxy.Drop, _ bool) {
		s, direct, proxy := losing(t)
		old := over(t, direct, []string{"a", "b"}, withID("id"))
		for i, part := range []string{
			"INSERT INTO kagzi.run_events", "bool_or(early.attempt_number",
			"$2::uuid AS origin_run_id", "commit", "FOR UPDATE",
		} {
			r := Restart{Run: old, New: newID(), Step: "b", ExternalID: fmt.Sprint("fork-", i), Why: Why{Reason: part}}
			drop := lose(proxy, part)
			work, err := s.Runs.Restart(t.Context(), nil, r)
			if err != nil || work.Queue != "queue" || work.Type != "type" {
				t.Fatalf("%s: %+v, error %v", part, work, err)
			}
			happened(t, drop)
			if got := copied(t, direct, r.New); !slices.Equal(got, []string{"a 1 C a"}) {
				t.Errorf("%s: copied %q", part, got)
			}
			if events, err := direct.Runs.Events(t.Context(), r.New); err != nil || len(events) != 1 ||
				events[0].Other != old || events[0].Reason != part {
				t.Errorf("%s: events %+v, error %v", part, events, err)
			}
			if events, err := direct.Runs.Events(t.Context(), old); err != nil || len(events) != i+1 ||
				events[i].Other != r.New || events[i].Step != "b" {
				t.Errorf("%s: events %+v, error %v", part, events, err)
			}
		}
		if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.workflow_runs`); n != 6 {
			t.Errorf("%d runs, want 6", n)
		}
		for i, part := range []string{
			"SET status = 'PENDING', slot = NULL, available_at", "commit",
			"INSERT INTO kagzi.run_events",
		} {
			drop := lose(proxy, part)
			if resumed, err := s.Runs.Resume(t.Context(), nil, old, Why{Reason: part}); err != nil ||
				resumed != (Resumed{Queue: "queue"}) {
				t.Fatalf("resumed %+v, error %v", resumed, err)
			}
			happened(t, drop)
			if n := one[int](t, direct.pool, `SELECT count(*) FROM kagzi.run_events WHERE run_id = $1
				AND event = 'RESUMED'`, old); n != i+1 {
				t.Errorf("%s: %d events of %d resumptions", part, n, i+1)
			}
			mustCancel(t, direct, old, "")
		}
	})
}

// An event is written once, in the transaction of what it tells of.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := over(t, s, nil)
	tx := begin(t, s)
	event := newEvent(id, EventResumed, Why{})
	if done, err := s.hasEvent(t.Context(), tx, event); done || err != nil {
		t.Errorf("the event exists before it was written: %v", err)
	}
	for range 2 {
		if err := s.writeEvents(t.Context(), tx, event); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := s.hasEvent(t.Context(), tx, event); !done || err != nil {
		t.Errorf("the event does not exist: %v", err)
	}
	commit(t, tx)
	if events, err := s.Runs.Events(t.Context(), id); err != nil || len(events) != 1 || events[0].At.IsZero() {
		t.Errorf("events %+v, error %v", events, err)
	}
	if events, err := New(s.pool, "other").Runs.Events(t.Context(), id); err != nil || len(events) != 0 {
		t.Errorf("events %+v of another namespace, error %v", events, err)
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()

	t.Run("Refuses", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		gone, template := over(t, s, nil), saveTemplate(t, s, "s").ID
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET waiting_on = '`+clause.BeingDeleted+`' WHERE run_id = $1`, gone)
		old := over(t, s, nil)
		for id, want := range map[uuid.UUID]error{
			gone: ErrRunNotFound, template: ErrRunNotFound,
			uuid.New(): ErrRunNotFound, running(t, s, 1)[0].RunID: ErrRunActive,
		} {
			_, err := s.Runs.Restart(t.Context(), nil, Restart{Run: id, New: newID()})
			wantError(t, err, want)
		}
		_, err := New(s.pool, "other").Runs.Restart(t.Context(), nil, Restart{Run: old, New: newID()})
		wantError(t, err, ErrRunNotFound)
	})

	// The ID is taken by a transaction that is not over when the restart comes to it.
	t.Run("AnIDTakenMeanwhile", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		old := over(t, s, nil, withID("id"))
		taking := begin(t, s)
		if _, err := s.Starts.Start(t.Context(), taking, []NewRun{newRun(withID("id"))}); err != nil {
			t.Fatal(err)
		}
		tx := begin(t, s)
		var err error
		meetsLock(t, s, func(ctx context.Context) {
			_, err = s.Runs.Restart(ctx, tx, Restart{Run: old, New: newID()})
		}, func() { commit(t, taking) })
		wantError(t, err, ErrIDConflict)
		if n := one[int](t, tx, `SELECT 1`); n != 1 {
			t.Error("the caller's transaction is aborted")
		}
	})

	// It decides by the row as it was committed while the restart waited for it.
	t.Run("MeetsAResume", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		old := over(t, s, nil)
		tx := begin(t, s)
		if _, err := s.Runs.Resume(t.Context(), tx, old, Why{}); err != nil {
			t.Fatal(err)
		}
		var err error
		meetsLock(t, s, func(ctx context.Context) {
			_, err = s.Runs.Restart(ctx, nil, Restart{Run: old, New: newID()})
		}, func() { commit(t, tx) })
		wantError(t, err, ErrRunActive)
	})

	t.Run("ManyAtOnce", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		dbtest.Audit(t, s.pool)
		old := over(t, s, []string{"a", "b"}, withID("id"))
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				r := Restart{Run: old, New: newID()}
				if i%2 == 0 {
					r.Step = "b"
				}
				_, errs[i] = s.Runs.Restart(t.Context(), nil, r)
			})
		}
		wg.Wait()
		started := 0
		for _, err := range errs {
			if err == nil {
				started++
			} else {
				wantError(t, err, ErrIDConflict)
			}
		}
		if started != 1 {
			t.Errorf("%d restarts have the ID", started)
		}
		wantNoDeadlocks(t, s)
	})

	t.Run("IsNotPrunedMeanwhile", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		old := withRows(t, s, old(t, s, Failed, 40*day), 2)
		tx := begin(t, s)
		if _, err := s.Runs.Restart(t.Context(), tx, Restart{Run: old, New: newID()}); err != nil {
			t.Fatal(err)
		}
		if got := prune(t, s, keepDays, 100, old); got.Deleted != 0 {
			t.Errorf("pruned %+v beside a restart", got)
		}
		commit(t, tx)
		if got := prune(t, s, keepDays, 100, old); got.Deleted != 1 || rowsOf(t, s, old) != "0 0 0 0" {
			t.Errorf("pruned %+v after it", got)
		}
	})
}

// at gives a step of a run its times, in seconds from a moment h two hours before the run began.
func at(t *testing.T, s *Store, id uuid.UUID, step string, attempt int, begun, ended float64, set string) {
	t.Helper()
	exec(t, s.pool, `UPDATE kagzi.step_runs SET `+set+`started_at = h + $4::float8 * interval '1 s',
		finished_at = h + $5::float8 * interval '1 s'
		FROM (SELECT date_trunc('minute', created_at - interval '2 hours') AS h FROM kagzi.workflow_runs
			WHERE run_id = $1) x
		WHERE run_id = $1 AND step_id = $2 AND attempt_number = $3`, id, step, attempt, begun, ended)
}

// Which rows a fork has, by when they began and ended.
func TestForkCopies(t *testing.T) {
	t.Parallel()
	s := open(t)
	type row struct {
		step         string
		attempt      int
		begun, ended float64
		status, set  string
	}
	const marker = "step_kind = 'MARKER', "
	rows := []row{
		{"early", 1, 1, 2, Failed, "wake_at = now() - interval '1 day', "},
		{"early", 2, 3, 4, Completed, ""},
		{"just", 1, 9, 10, Completed, ""},
		{"late", 1, 9, 10.000001, Completed, ""},
		{"after", 1, 11, 12, Completed, "step_kind = 'SIGNAL', sequence = 4, "},
		{"given up", 1, 1, 2, Failed, ""},                    // the workflow went on
		{"forgotten", 1, 1, 2, Failed, "forgotten_by = 0, "}, // by the attempt of the run that came to the step
		{"given up, and forgotten later", 1, 1, 2, Failed, "forgotten_by = 1, "},
		{"retrying", 1, 1, 2, Failed, "wake_at = now() - interval '1 day', "},
		{"retrying", 2, 11, 12, Completed, ""},
		{"nap", 1, 1, 30, Completed, "step_kind = 'SLEEP', wake_at = h + interval '10 s', "},
		{"asleep", 1, 1, 30, Completed, "step_kind = 'SLEEP', wake_at = h + interval '11 s', "},
		{"approved", 1, 1, 2, Completed, "step_kind = 'SIGNAL', sequence = 3, "},
		{"undo", 1, 2, 2, Running, "step_kind = 'COMPENSATION', "},
		{"undo later", 1, 11, 11, Running, "step_kind = 'COMPENSATION', "},
		{"map", 1, 1, 20, Completed, marker},
		{"map/0/x", 1, 2, 3, Completed, ""},
		{"map/1/x", 1, 12, 13, Completed, ""},
		{"won", 1, 1, 5, Completed, marker},
		{"won/b/loser", 1, 8, 9, Completed, ""},
		{"lost", 1, 1, 5, Failed, marker + "forgotten_by = 0, "},
		{"lost", 2, 6, 20, Completed, marker},
		{"future", 1, 12, 13, Completed, marker},
		{"out", 1, 12, 20, Failed, marker + "wake_at = h + interval '25 s', "},
		{"out/a/step", 1, 10, 11, Failed, "wake_at = now() - interval '1 day', "},
		{"out/a/step", 2, 14, 15, Completed, ""},
		{"out/a/step/below", 1, 1, 2, Completed, ""},
		{"out/a/before", 1, 8, 9, Completed, ""},
		{"out/a", 1, 3, 4, Failed, "step_kind = 'BRANCH', "},
		{"out/b", 1, 3, 4, Failed, "step_kind = 'BRANCH', "},
		{"out/a/stepping", 1, 8, 9, Completed, ""},
	}
	output := func(step string) string {
		if step == "won" {
			return `{"winner":"w"}`
		}
		return `{"items":["i"],"winner":"w"}`
	}
	r := running(t, s, 1)[0]
	for _, row := range rows {
		rec := record(r, row.step, output(row.step))
		rec.Attempt, rec.Status = row.attempt, row.status
		flush(t, s, &Flush{Records: []*Record{rec}})
	}
	flush(t, s, &Flush{Finishes: []*Finish{finish(r)}})
	for _, row := range rows {
		at(t, s, r.RunID, row.step, row.attempt, row.begun, row.ended, row.set)
	}
	exec(t, s.pool, `UPDATE kagzi.step_runs SET position = extract(epoch FROM started_at) * 10`)
	exec(t, s.pool, `DELETE FROM kagzi.step_runs WHERE step_id = 'out/a/step/below'`)
	exec(t, s.pool, `UPDATE kagzi.workflow_runs SET wakeups = 7`)
	exec(t, s.pool, `INSERT INTO kagzi.signals (run_id, name, sequence, namespace_id, signal_id, payload, consumed_by)
		VALUES ($1, 'approved', 3, 'test', 'one', 'p', 'approved'), ($1, 'after', 4, 'test', 'two', 'q', 'after'),
			($1, 'other', 5, 'test', 'three', NULL, NULL)`, r.RunID)

	before := one[time.Time](t, s.pool, `SELECT clock_timestamp()`)
	id := restart(t, s, Restart{Run: r.RunID, Step: "out/a/step"})
	after := one[time.Time](t, s.pool, `SELECT clock_timestamp()`)
	const whole = ` {"items":["i"],"winner":"w"}`
	want := []string{
		"approved 1 C" + whole, "early 1 F" + whole, "early 2 C" + whole, "given up 1 F" + whole,
		"given up, and forgotten later 1 F" + whole, "just 1 C" + whole, `lost 1 R {"items":["i"]}`,
		`map 1 R {"items":["i"]}`, "map/0/x 1 C" + whole, "nap 1 C" + whole,
		`out 1 R {"items":["i"]}`, "out/a/before 1 C" + whole, "out/a/stepping 1 C" + whole, "out/b 1 F" + whole,
		`won 1 C {"winner":"w"}`, "won/b/loser 1 C" + whole,
	}
	if got := copied(t, s, id); !slices.Equal(got, want) {
		t.Errorf("copied\n%q, want\n%q", got, want)
	}
	// 15 s were left of the group's time.
	if left := one[float64](t, s.pool, `SELECT extract(epoch FROM wake_at - now())::float8 FROM kagzi.step_runs
		WHERE run_id = $1 AND step_id = 'out'`, id); left > 15 || left < -300 {
		t.Errorf("the group has %v seconds", left)
	}
	// They were left when the steps were copied.
	if at := one[time.Time](t, s.pool, `SELECT wake_at - interval '15 s' FROM kagzi.step_runs WHERE run_id = $1
		AND step_id = 'out'`, id); at.Before(before) || at.After(after) {
		t.Errorf("the group's 15 seconds began at %v, want between %v and %v", at, before, after)
	}
	if got := one[string](t, s.pool,
		`SELECT string_agg(concat_ws(' ', name, sequence, signal_id, convert_from(payload, 'UTF8'), 'by', consumed_by),
			', ' ORDER BY sequence) FROM kagzi.signals
			WHERE run_id = $1`, id); got != "approved 3 one p by approved, after 4 two q by, other 5 three by" {
		t.Errorf("signals %s", got)
	}
	if row := readRow(t, s.pool, id); row.Wakeups != 8 || row.Status != Pending || !row.Due {
		t.Errorf("row %+v", row)
	}
	if n := one[int](t, s.pool, `SELECT sequence FROM kagzi.step_runs WHERE run_id = $1 AND step_id = 'approved'`,
		id); n != 3 {
		t.Errorf("the step has taken message %d", n)
	}
	// A whole group, by its name.
	id = restart(t, s, Restart{Run: r.RunID, Step: "map"})
	if got := copied(t, s, id); !slices.Equal(got, []string{`lost 1 R {"items":["i"]}`}) {
		t.Errorf("copied %q", got)
	}
	// The branch of a race that was lost already: who won is forgotten.
	id = restart(t, s, Restart{Run: r.RunID, Step: "won/b/loser"})
	if got := copied(t, s, id); slices.ContainsFunc(got, func(row string) bool {
		return strings.HasPrefix(row, "won")
	}) {
		t.Errorf("copied %q", got)
	}
}

// A run whose compensations ran cannot be forked; one that only registered them can, and takes them along if it is to.
func TestForkOfACompensatedRun(t *testing.T) {
	t.Parallel()
	s := open(t)
	registered := func() *ClaimedRun {
		r := running(t, s, 1)[0]
		for i, rec := range []*Record{
			record(r, "a", "x"), registering(r, "a", 1), record(r, "b", "x"),
			record(r, "c", "x"), registering(r, "c", 2),
		} {
			rec.Position = int64(i + 1)
			flush(t, s, &Flush{Records: []*Record{rec}})
		}
		return r
	}
	terminated := registered()
	if err := cancelled(s.Runs.Terminate(t.Context(), nil, terminated.RunID, Why{})); err != nil {
		t.Fatal(err)
	}
	for with, want := range map[bool][]string{true: {"a#compensation 1 RUNNING undo a"}, false: nil} {
		id := restart(t, s, Restart{Run: terminated.RunID, Step: "c", Compensations: with})
		if got := compensationsIn(t, s, id); !slices.Equal(got, want) {
			t.Errorf("with the compensations, %t: copied %q, want %q", with, got, want)
		}
	}

	r := registered()
	flush(t, s, &Flush{Finishes: []*Finish{failing(r)}})
	for range 2 { // before they run, and while they do
		_, err := s.Runs.Restart(t.Context(), nil, Restart{Run: r.RunID, New: newID(), Step: "c"})
		wantError(t, err, ErrRunActive)
		compensate(t, s, r.RunID)
	}
	runCompensations(t, s)
	wantEnded(t, s, r.RunID, "FAILED kind: broken")
	_, err := s.Runs.Restart(t.Context(), nil, Restart{Run: r.RunID, New: newID(), Step: "c"})
	wantError(t, err, ErrCompensated)
	restart(t, s, Restart{Run: r.RunID}) // from the start it can
}

// In a caller's transaction a failure of any kind leaves it as it was.
func TestSafely(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := over(t, s, nil)
	tx := begin(t, s)
	for name, part := range map[string]func(context.Context, pgx.Tx,
		func(context.Context, pgx.Tx) error) error{"InSavepoint": s.InSavepoint, "DryRun": s.DryRun} {
		if err := part(t.Context(), tx, func(ctx context.Context, tx pgx.Tx) error {
			exec(t, tx, `UPDATE kagzi.workflow_runs SET priority = 1`)
			_, err := tx.Exec(ctx, `SELECT 1 / 0`)
			return err
		}); !pg.Refused(err) {
			t.Errorf("%s: error %v", name, err)
		}
		if n := one[int](t, tx, `SELECT priority FROM kagzi.workflow_runs`); n != 3 {
			t.Errorf("%s: priority %d", name, n)
		}
	}
	for _, tx := range []pgx.Tx{tx, nil} {
		if err := s.DryRun(t.Context(), tx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := s.Runs.Resume(ctx, tx, id, Why{})
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	commit(t, tx)
	if row := readRow(t, s.pool, id); row.Status != Failed {
		t.Errorf("row %+v", row)
	}
}
