package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// refuseEnds makes the server answer with the SQLSTATE if a run with such an external ID fails.
func refuseEnds(t *testing.T, s *Store, like, code string) {
	t.Helper()
	exec(t, s.pool,
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one' USING ERRCODE = '`+
			code+`'; END $$`)
	exec(t, s.pool,
		`CREATE TRIGGER refuse BEFORE UPDATE ON kagzi.workflow_runs FOR EACH ROW WHEN (new.status = 'FAILED' AND `+
			`new.external_id LIKE '`+like+`') EXECUTE FUNCTION refuse()`)
}

// A run that cannot be ended is reported, whatever the reason, and does not keep the others from ending.
func TestOverdueRunThatCannotEnd(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"P0001", "40001", "53100", "58030", "XX001"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			refuseEnds(t, s, "bad", code)
			ids := start(t, s,
				append(many(40, withTimeout(time.Hour)), newRun(withTimeout(time.Hour), withID("bad")))...)
			bad := ids[40]
			pass(t, s, 2*grace, ids...)
			var ended []uuid.UUID
			var failures []error
			o := overdue()
			for more := true; more; {
				out, again, err := s.Ends.EndOverdue(t.Context(), o)
				if err != nil {
					failures = append(failures, err)
				}
				more, ended = again, append(ended, out.Ended...)
			}
			wantIDs(t, "ended", ended, ids[:40]...)
			if len(failures) != 1 || !strings.Contains(failures[0].Error(), code) ||
				!strings.Contains(failures[0].Error(), bad.String()) {
				t.Errorf("errors %v", failures)
			}
		})
	}
}

// If no run can be ended, as on a full disk, a pass stops after a few runs, and later ones reach the others.
func TestOverdueRunsThatCannotEnd(t *testing.T) {
	t.Parallel()
	s := open(t)
	refuseEnds(t, s, "bad%", "53100")
	runs := many(3*maxFailuresInRow, withTimeout(time.Hour))
	for i := range runs {
		withID(fmt.Sprint("bad", i))(&runs[i])
	}
	pass(t, s, 3*grace, start(t, s, runs...)...)
	others := start(t, s, many(5, withTimeout(time.Hour))...)
	pass(t, s, 2*grace, others...)
	var ended []uuid.UUID
	passes, o := 0, overdue()
	for {
		calls, failed, more := 0, 0, true
		for more {
			out, again, err := s.Ends.EndOverdue(t.Context(), o)
			if calls++; err != nil {
				failed++
			}
			more, ended = again, append(ended, out.Ended...)
		}
		if passes++; failed > maxFailuresInRow || calls > maxFailuresInRow+10 {
			t.Errorf("pass %d: %d calls, %d runs failed", passes, calls, failed)
		}
		if failed < maxFailuresInRow {
			break
		}
	}
	wantIDs(t, "ended", ended, others...)
	if passes != 4 {
		t.Errorf("%d passes, want 4", passes)
	}
}
