package dbtest

import (
	"testing"
)

// The changes of one run, each a statement and so a transaction of its own.
const (
	auditedStart = `INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status,
		available_at)
		VALUES ('00000000-0000-0000-0000-000000000001', 'ns', 'q', 'w', 'PENDING', now())`
	auditedClaim = `UPDATE kagzi.workflow_runs SET status = 'RUNNING', locked_by = gen_random_uuid(),
		lease = '20000000-0000-0000-0000-000000000001'`
	auditedReclaim = `UPDATE kagzi.workflow_runs SET status = 'RUNNING', lease = '20000000-0000-0000-0000-000000000002'`
	auditedStep    = `INSERT INTO kagzi.step_runs (run_id, namespace_id, step_id, attempt_number, status, step_kind,
		run_attempt, first_attempt)
		VALUES ('00000000-0000-0000-0000-000000000001', 'ns', 's', 1, 'RUNNING', 'FUNCTION', 1, 1)`
	auditedRecord  = `UPDATE kagzi.step_runs SET status = 'COMPLETED', output = 'one', finished_at = now()`
	auditedRelease = `UPDATE kagzi.workflow_runs SET status = 'PENDING', locked_by = NULL`
	auditedSleep   = `UPDATE kagzi.workflow_runs SET status = 'SLEEPING', available_at = 'infinity'`
	auditedFinish  = `UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL, finished_at = now()`
	auditedFail    = `UPDATE kagzi.workflow_runs SET status = 'FAILED', available_at = NULL, error_kind = 'error',
		finished_at = now()`
	auditedLate = `UPDATE kagzi.workflow_runs SET status = 'FAILED', available_at = NULL, error_kind = 'deadline',
		deadline_at = now(), finished_at = now()`
	auditedCancel = `UPDATE kagzi.workflow_runs SET status = 'CANCELLED', available_at = NULL, finished_at = now()`
	auditedResume = `UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now(), error_kind = NULL,
		finished_at = NULL, lease = NULL`
	auditedPrune = `WITH r AS (DELETE FROM kagzi.workflow_runs RETURNING run_id)
		DELETE FROM kagzi.step_runs USING r WHERE step_runs.run_id = r.run_id`
	auditedMark  = `UPDATE kagzi.workflow_runs SET waiting_on = '[{"kind": "deletion"}]'`
	auditedChild = `INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status,
		finished_at, parent_run_id, error_kind)
		VALUES ('00000000-0000-0000-0000-000000000002', 'ns', 'q', 'w', 'PENDING', NULL,
			'00000000-0000-0000-0000-000000000001', 'x');
		UPDATE kagzi.workflow_runs SET status = 'CANCELLED', finished_at = now() WHERE parent_run_id IS NOT NULL`
	auditedChildGone = `DELETE FROM kagzi.workflow_runs WHERE parent_run_id IS NOT NULL`
)

func TestAuditChecks(t *testing.T) {
	t.Parallel()
	begun := []string{auditedStart, auditedClaim, auditedStep, auditedRecord}
	after := func(more ...string) []string { return append(begun[:len(begun):len(begun)], more...) }
	tests := []struct {
		name      string
		invariant string // of the check that reports it; "" for none
		changes   []string
	}{
		{"Finished", "", after(auditedFinish)},
		{"Slept", "", after(auditedSleep, auditedReclaim, auditedFinish)},
		{"Crashed", "", after(auditedReclaim, auditedFinish)},
		{"Released", "", after(auditedRelease, auditedReclaim, auditedFinish)},
		{"Resumed", "", after(auditedFail, auditedResume, auditedReclaim, auditedFinish)},
		{"CancelledAndResumed", "", after(auditedCancel, auditedResume, auditedReclaim, auditedFinish)},
		{"Pruned", "", after(auditedFinish, auditedPrune)},
		{"PrunedInSlices", "", after(auditedFinish, auditedMark, `DELETE FROM kagzi.step_runs`, auditedPrune)},
		{"PrunedAfterTheParent", "", after(auditedFinish, auditedChild, `WITH s AS (DELETE FROM kagzi.step_runs)
			DELETE FROM kagzi.workflow_runs WHERE parent_run_id IS NULL`, auditedChildGone)},
		{"DeletedWithItsParent", "", after(auditedFinish, auditedChild, "BEGIN; "+auditedChildGone+
			"; DELETE FROM kagzi.step_runs; DELETE FROM kagzi.workflow_runs; COMMIT")},
		{"RecordedWithTheFinish", "", []string{
			auditedStart, auditedClaim, auditedStep,
			"BEGIN; " + auditedFinish + "; " + auditedRecord + "; COMMIT",
		}},

		{"OverItsDeadline", "", []string{auditedStart, auditedLate}},
		{"OverItsDeadlineInItsSleep", "", after(auditedSleep, auditedLate)},
		{
			"FailedUnclaimed", "a run that nobody executes fails only at its deadline, or once its compensations " +
				"have run",
			[]string{auditedStart, auditedFail},
		},
		{"FailedBeforeItsDeadline", "a run that nobody executes fails only at its deadline, or once its " +
			"compensations have run", after(auditedSleep, `UPDATE kagzi.workflow_runs
			SET status = 'FAILED', available_at = NULL, error_kind = 'deadline',
				deadline_at = now() + interval '1 hour', finished_at = now()`)},

		{"CompletedAgain", "a run's status changes along a legal edge", after(auditedFinish, auditedFail)},
		{"CompletedAndResumed", "a run's status changes along a legal edge", after(auditedFinish,
			`UPDATE kagzi.workflow_runs SET status = 'PENDING', available_at = now(), finished_at = NULL`)},
		{"FailedThenCancelled", "a run's status changes along a legal edge", after(auditedFail, auditedCancel)},
		{"FinishedInItsSleep", "a run's status changes along a legal edge", after(auditedSleep, auditedFinish)},
		{"FinishedUnclaimed", "a run's status changes along a legal edge", []string{auditedStart, auditedFinish}},
		{"BornCancelled", "a run's status changes along a legal edge", []string{
			`INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status, finished_at)
			VALUES (gen_random_uuid(), 'ns', 'q', 'w', 'CANCELLED', now())`,
		}},

		{"LeaseOfTheDeadChanged", "a run that is over does not change", after(auditedFinish, `UPDATE kagzi.workflow_runs
			SET lease = NULL`)},
		{
			"OutputOfTheDeadChanged", "a run that is over does not change",
			after(auditedFinish, `UPDATE kagzi.workflow_runs SET output = 'other'`),
		},
		{"EndMoved", "a run that is over does not change", after(auditedFinish, `UPDATE kagzi.workflow_runs
			SET finished_at = now()`)},

		{"Moved", "a run stays in its namespace", after(
			`WITH s AS (UPDATE kagzi.step_runs SET namespace_id = 'other')
			UPDATE kagzi.workflow_runs SET namespace_id = 'other'`,
		)},

		{"LeaseFromNowhere", "a lease begins with a claim", []string{auditedStart, `UPDATE kagzi.workflow_runs
			SET lease = gen_random_uuid()`}},
		{"LeaseCameBack", "a lease that ended does not come back", after(auditedReclaim,
			`UPDATE kagzi.workflow_runs SET lease = '20000000-0000-0000-0000-000000000001'`)},

		{"StepOfASleeper", "a step is written only while its run runs, but for the compensations of one that has an " +
			"outcome", []string{auditedStart, auditedClaim, auditedSleep, auditedStep}},
		{"ResultAfterTheEnd", "a step is written only while its run runs, but for the compensations of one that has " +
			"an outcome", []string{
			auditedStart, auditedClaim, auditedStep, auditedFinish,
			`UPDATE kagzi.step_runs SET status = 'COMPLETED'`,
		}},

		{"OtherOutput", "a recorded result never changes", after(`UPDATE kagzi.step_runs SET output = 'two'`)},
		{"OutputLost", "a recorded result never changes", after(`UPDATE kagzi.step_runs SET output = NULL`)},
		{"ResultTakenBack", "a recorded result never changes", after(`UPDATE kagzi.step_runs SET status = 'RUNNING'`)},
		{"FailureTakenBack", "a recorded result never changes", []string{
			auditedStart, auditedClaim, auditedStep,
			`UPDATE kagzi.step_runs SET status = 'FAILED'`, auditedRecord,
		}},

		{"ResultDeleted", "a recorded result goes only with its run", after(`DELETE FROM kagzi.step_runs`)},
		{
			"ResumedWhileBeingDeleted", "a run that is being deleted stays over",
			after(auditedFail, auditedMark, auditedResume),
		},
		{
			"DeletedBeforeTheParent", "a run is deleted after its parent",
			after(auditedFinish, auditedChild, auditedChildGone),
		},
		{
			"ActiveRunDeleted", "only a run that is over is deleted",
			[]string{auditedStart, `DELETE FROM kagzi.workflow_runs`},
		},
	}
	broken := map[string]bool{}
	for _, tt := range tests {
		broken[tt.invariant] = true
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := Pool(t, Unchecked())
			Audit(t, pool)
			for _, sql := range tt.changes {
				exec(t, pool, sql)
			}
			found, err := violations(t.Context(), pool, true)
			if err != nil {
				t.Fatal(err)
			}
			checkFound(t, found, tt.invariant)
		})
	}
	for _, c := range auditChecks {
		if !broken[c.invariant] {
			t.Errorf("no test breaks %q", c.invariant)
		}
	}
}

// The next test can use a database that was audited.
func TestAuditIsRemoved(t *testing.T) {
	t.Parallel()
	r := &recorder{TB: t}
	db := Database(r)
	Audit(t, db.Pool)
	exec(t, db.Pool, pendingRun)
	if n := count(t, db, "SELECT count(*) FROM kagzi_audit.changes"); n != 1 {
		t.Errorf("%d changes recorded, want 1", n)
	}
	CheckInvariants(t, db.Pool)
	db.Pool.Close()
	s, err := shared.Get()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.reset(t.Context(), &cleaner{Conn: Connect(t, db.DSN)}); err != nil || !again {
		t.Errorf("can be used again: %v, %v", again, err)
	}
	if got := r.finish(); len(got) > 0 {
		t.Error(got)
	}
}
