package store

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

func TestRecord(t *testing.T) {
	t.Parallel()

	t.Run("TheFirstResultCounts", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		flush(t, s, &Flush{Records: []*Record{record(r, "step", "first")}})
		second := record(r, "step", "second")
		flush(t, s, &Flush{Records: []*Record{second}})
		wantOutcome(t, "second", second.Outcome, Done)
		if string(second.Output) != "first" || second.FinishedAt.IsZero() {
			t.Errorf("the second record gets %q", second.Output)
		}
		later := record(r, "step", "other") // of the attempt before the one that succeeded
		exec(t, s.pool, `UPDATE kagzi.step_runs SET attempt_number = 2`)
		flush(t, s, &Flush{Records: []*Record{record(r, "other", "x")}})
		exec(t, s.pool, `INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind,
			run_attempt, first_attempt)
			SELECT run_id, step_id, 1, namespace_id, 'FAILED', step_kind, 1, 1 FROM kagzi.step_runs
				WHERE step_id = 'step'`)
		flush(t, s, &Flush{Records: []*Record{later}})
		if later.Outcome != Done || string(later.Output) != "first" || later.Attempt != 2 {
			t.Errorf("the record of an older attempt gets %+v", later.StepRow)
		}
	})

	t.Run("ARunningRowIsOverwrittenAFailedOneNot", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		shown := record(r, "step", "")
		shown.Status, shown.Output, shown.Elapsed = Running, nil, 5*time.Second
		flush(t, s, &Flush{Records: []*Record{shown}})
		wantOutcome(t, "shown", shown.Outcome, Done)
		if !shown.FinishedAt.IsZero() {
			t.Error("a running step has ended")
		}
		shown.Outcome = Undecided
		flush(t, s, &Flush{Records: []*Record{shown}})
		wantOutcome(t, "shown again", shown.Outcome, Done)
		failed := record(r, "step", "")
		failed.Status, failed.Output, failed.ErrorKind, failed.Error, failed.Wake = Failed, nil, "kind", "text",
			time.Minute
		flush(t, s, &Flush{Records: []*Record{failed}})
		wantOutcome(t, "failed", failed.Outcome, Done)
		if d := failed.WakeAt.Sub(failed.FinishedAt); d < time.Minute-time.Second || d > time.Minute {
			t.Errorf("the next attempt is due %v after the end of this one, want a minute by the database's clock", d)
		}
		if d := failed.FinishedAt.Sub(failed.StartedAt); d < 5*time.Second {
			t.Errorf("took %v, want at least 5 s: the start is the shown row's", d)
		}
		late := record(r, "step", "late")
		flush(t, s, &Flush{Records: []*Record{late}})
		if late.Outcome != Done || late.Status != Failed || late.ErrorKind != "kind" || late.Error != "text" ||
			!late.WakeAt.Equal(failed.WakeAt) {
			t.Errorf("a success after the failure: %+v", late)
		}
		exec(t, s.pool, `UPDATE kagzi.step_runs SET wake_at = now(), finished_at = now()`)
		second := record(r, "step", "good")
		second.Attempt, second.RunAttempt = 2, 1
		flush(t, s, &Flush{Records: []*Record{second}})
		wantOutcome(t, "second attempt", second.Outcome, Done)
		h, err := s.Histories.Latest(t.Context(), []uuid.UUID{r.RunID})
		if err != nil || len(h[r.RunID]) != 1 || h[r.RunID][0].Attempt != 2 || string(h[r.RunID][0].Output) != "good" {
			t.Errorf("history %+v, error %v: want the latest attempt", h, err)
		}
		all, err := s.Histories.Attempts(t.Context(), &Run{RunID: r.RunID}, StepPayloads{All: true})
		if err != nil || len(all) != 2 || all[0].Status != Failed || all[1].Status != Completed {
			t.Errorf("attempts %+v, error %v", all, err)
		}
	})

	t.Run("WakeAtStays", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		begun := record(r, "sleep", "")
		begun.Kind, begun.Status, begun.Output, begun.Wake = KindSleep, Running, nil, time.Hour
		flush(t, s, &Flush{Records: []*Record{begun}})
		again := record(r, "sleep", "")
		again.Kind, again.Status, again.Output, again.Wake = KindSleep, Running, nil, 2*time.Hour
		flush(t, s, &Flush{Records: []*Record{again}})
		if !again.WakeAt.Equal(begun.WakeAt) || begun.WakeAt.IsZero() {
			t.Errorf("a sleep until %v moved to %v", begun.WakeAt, again.WakeAt)
		}
		// A suspension takes the time as it was given.
		p := sleep(r, -1)
		p.WakeAt = begun.WakeAt
		flush(t, s, &Flush{Suspensions: []*Suspension{p}})
		if !p.AvailableAt.Equal(begun.WakeAt) {
			t.Errorf("available at %v, want %v", p.AvailableAt, begun.WakeAt)
		}
	})

	t.Run("ManyInAnyOrder", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		rs := running(t, s, 20)
		f := &Flush{}
		for i := len(rs) - 1; i >= 0; i-- {
			for _, step := range []string{"b", "a", "a/2", "é"} {
				f.Records = append(f.Records, record(rs[i], step, step))
			}
		}
		exec(t, s.pool, `UPDATE kagzi.workflow_runs SET lease = gen_random_uuid() WHERE run_id = $1`, rs[7].RunID)
		flush(t, s, f)
		for _, r := range f.Records {
			want := Done
			if r.RunID == rs[7].RunID {
				want = Lost
			}
			wantOutcome(t, r.StepID, r.Outcome, want)
		}
		if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.step_runs
			WHERE output = convert_to(step_id, 'UTF8')`); n != 76 {
			t.Errorf("%d steps, want 76", n)
		}
	})
}

// recordIn records in tx and reports whether it was written.
func recordIn(t *testing.T, s *Store, tx pgx.Tx, r *Record) bool {
	t.Helper()
	c, err := s.Records.WriteIn(t.Context(), tx, nil, r)
	if err != nil {
		t.Fatal(err)
	}
	return c.Written
}

func TestRecordIn(t *testing.T) {
	t.Parallel()

	t.Run("CommitsWithTheCallersTransaction", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		tx := begin(t, s)
		if !recordIn(t, s, tx, record(r, "step", "rolled back")) {
			t.Error("not written")
		}
		rollback(t, tx)
		row, holds, err := s.Records.StepResult(t.Context(), held(r), "step", 1)
		if row != nil || !holds || err != nil {
			t.Errorf("after a rollback: %+v, %t, %v", row, holds, err)
		}
		tx = begin(t, s)
		rec := record(r, "step", "x")
		if !recordIn(t, s, tx, rec) || rec.FinishedAt.IsZero() {
			t.Errorf("not written: %+v", rec)
		}
		commit(t, tx)
		if row, holds, err = s.Records.StepResult(t.Context(), held(r), "step", 1); row == nil ||
			string(row.Output) != "x" ||
			!holds || err != nil {
			t.Errorf("after the commit: %+v, %t, %v", row, holds, err)
		}
		tx = begin(t, s)
		if recordIn(t, s, tx, record(r, "step", "second")) {
			t.Error("a second result was written")
		}
		commit(t, tx)
	})

	t.Run("NotUnderALostLease", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		supersede(t, s, r)
		tx := begin(t, s)
		if recordIn(t, s, tx, record(r, "step", "x")) {
			t.Error("written")
		}
		commit(t, tx)
		if _, holds, err := s.Records.StepResult(t.Context(), held(r), "step", 1); holds || err != nil {
			t.Errorf("holds %t, error %v", holds, err)
		}
	})

	t.Run("LeavesTheCallersSettings", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := running(t, s, 1)[0]
		tx := begin(t, s)
		exec(t, tx, `SET LOCAL cpu_index_tuple_cost = 0.25`)
		exec(t, tx, `SET LOCAL DateStyle = 'SQL, DMY'`)
		exec(t, tx, `SET LOCAL bytea_output = 'escape'`)
		settings := func() string {
			return one[string](t, tx, `SELECT concat_ws(' ', current_setting('enable_seqscan'),
				current_setting('cpu_index_tuple_cost'), current_setting('jit'),
				current_setting('plan_cache_mode'), current_setting('DateStyle'), current_setting('bytea_output'),
					current_setting('lock_timeout'), current_setting('statement_timeout'),
					current_setting('synchronous_commit'))`)
		}
		before := settings()
		recordIn(t, s, tx, record(r, "step", "x"))
		exec(t, tx, `SET LOCAL lock_timeout = 0`) // these two are the record's, because it is the last statement
		exec(t, tx, `SET LOCAL statement_timeout = 0`)
		if _, err := s.Starts.Start(t.Context(), tx, many(2, withID("same"))); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Runs.Find(t.Context(), tx, "same"); err != nil {
			t.Fatal(err)
		}
		if err := cancelled(s.Runs.Cancel(t.Context(), tx, r.RunID, Why{}, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Runs.Resume(t.Context(), tx, r.RunID, Why{}); err != nil {
			t.Fatal(err)
		}
		if after := settings(); after != before {
			t.Errorf("settings %q, were %q", after, before)
		}
	})
}

// A zombie has written its record, but not committed. Until it does, no worker may claim the run: the next holder would
// read a history without that record, which then appears.
func TestAZombiesRecordKeepsTheNextClaimOut(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := running(t, s, 1)[0]
	expire(t, s, r.RunID)
	tx := begin(t, s)
	if !recordIn(t, s, tx, record(r, "step", "zombie")) {
		t.Fatal("not written")
	}
	if got := claim(t, s, request(1)); len(got.Runs) > 0 {
		t.Fatal("claimed while a record of the run is about to be committed")
	}
	commit(t, tx)
	next := claim(t, s, request(1))
	if len(next.Runs) != 1 {
		t.Fatal("not claimed once the record is there")
	}
	h, err := s.Histories.Latest(t.Context(), []uuid.UUID{r.RunID})
	if err != nil || len(h[r.RunID]) != 1 {
		t.Errorf("history %v, error %v: want the zombie's record", h, err)
	}
}

// The zombie's record waits for a claim that is under way, and is refused when that commits.
func TestAZombiesRecordMeetsAClaim(t *testing.T) {
	t.Parallel()
	s := open(t)
	r := running(t, s, 1)[0]
	lease := uuid.New()
	claiming := begin(t, s) // as the claim does it, but open
	exec(t, claiming, `UPDATE kagzi.workflow_runs SET lease = $2, locked_by = $2,
		available_at = now() + interval '1 minute' WHERE run_id = $1`, r.RunID, lease)
	tx := begin(t, s)
	var c StepCommit
	var err error
	meetsLock(t, s, func(ctx context.Context) {
		c, err = s.Records.WriteIn(ctx, tx, nil, record(r, "step", "zombie"))
	}, func() { commit(t, claiming) })
	if c.Written || err != nil {
		t.Errorf("written %t, error %v: the lease was lost while the record waited", c.Written, err)
	}
	commit(t, tx)
	if n := one[int](t, s.pool, `SELECT count(*) FROM kagzi.step_runs`); n > 0 {
		t.Error("the record is there")
	}
}
