package inspect

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/pg"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/internal/plans"
)

const day = 24 * time.Hour

// text returns the outcome as "completed failed cancelled active".
func (o Outcome) text() string {
	var out []string
	for _, t := range []Tally{o.Completed, o.Failed, o.Cancelled, o.Active} {
		text := fmt.Sprint(t.Runs)
		if t.More {
			text += "+"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func readOutcomes(t *testing.T, s *both, length time.Duration, n int) Outcomes {
	t.Helper()
	out, err := s.Outcomes(t.Context(), length, n)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Parts) != n {
		t.Fatalf("%d parts, not %d", len(out.Parts), n)
	}
	return out
}

// The outcomes are those that a count of all runs finds, whatever their status, for days and for hours.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	s, _, _ := filled(t, 20_000)
	for _, s := range []*both{s, newBoth(s.pool, "other"), newBoth(s.pool, "empty")} {
		for length, n := range map[time.Duration]int{day: 14, time.Hour: 24, 40 * day: 2} {
			out := readOutcomes(t, s, length, n)
			sum := 0
			for i, part := range out.Parts {
				until := part.From.Add(length)
				if i == n-1 {
					until = until.Add(day) // of clocks that are ahead
				}
				want := one[string](t, s.pool, `SELECT concat_ws(' ', count(*) FILTER (WHERE status = 'COMPLETED'),
					count(*) FILTER (WHERE status = 'FAILED'), count(*) FILTER (WHERE status = 'CANCELLED'),
					count(*) FILTER (WHERE finished_at IS NULL))
					FROM kagzi.workflow_runs WHERE namespace_id = $1 AND created_at >= $2 AND created_at < $3`,
					s.namespace, part.From, until)
				if got := part.text(); got != want {
					t.Errorf("%s, %v from %v: %s, not %s", s.namespace, length, part.From, got, want)
				}
				sum += part.Completed.Runs + part.Active.Runs
			}
			if last := out.Parts[n-1].From; out.At.Before(last) || !out.At.Before(last.Add(length)) {
				t.Errorf("%v is not in the last interval, which begins at %v", out.At, last)
			}
			if (sum == 0) != (s.namespace == "empty") {
				t.Errorf("%s, %v: %d runs", s.namespace, length, sum)
			}
		}
	}
	for name, c := range map[string]struct {
		s    *both
		want time.Time
	}{
		"test": {s, one[time.Time](t, s.pool, `SELECT min(finished_at) FROM kagzi.workflow_runs
			WHERE namespace_id = 'test' AND status = 'COMPLETED'`)},
		"empty": {newBoth(s.pool, "empty"), time.Time{}},
	} {
		if got := readOutcomes(t, c.s, day, 14).KeptSince; !got.Equal(c.want) {
			t.Errorf("%s: kept since %v, not %v", name, got, c.want)
		}
	}
}

// A run that was started before all intervals and ended in them says less about the retention than one that ended
// before them.
func TestOutcomesAreKeptSince(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	s := newBoth(db.Pool, "test")
	if since := readOutcomes(t, s, day, 14).KeptSince; !since.IsZero() {
		t.Errorf("without runs, they are kept since %v", since)
	}
	ended := func(ago time.Duration) time.Time {
		t.Helper()
		loadCompleted(t, s, "test", "queue", fmt.Sprint(ago), ago, 1)
		return one[time.Time](t, s.pool, `SELECT finished_at FROM kagzi.workflow_runs WHERE workflow_type = $1`,
			fmt.Sprint(ago))
	}
	for _, ago := range []time.Duration{time.Minute, 3 * day, 40 * day} {
		want := ended(ago)
		if got := readOutcomes(t, s, day, 14).KeptSince; !got.Equal(want) {
			t.Errorf("after an end %v ago, they are kept since %v, not %v", ago, got, want)
		}
	}
}

// With many runs a bounded number of rows is read, by the indexes of lists, whatever statistics the planner has.
func TestOutcomesOfManyRuns(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t, dbtest.Unchecked())
	s := newBoth(db.Pool, "test")
	exec(t, s.pool, `ALTER TABLE kagzi.workflow_runs SET (autovacuum_enabled = off)`)
	for i := range 4 {
		loadCompleted(t, s, "test", fmt.Sprint("queue-", i%2), fmt.Sprint("type-", i), 4*day, 15_000)
	}
	exec(t, s.pool, `INSERT INTO kagzi.workflow_runs (run_id, namespace_id, task_queue, workflow_type, status,
			available_at)
		SELECT ($1::text || substr(md5(g::text), 1, 3) || '8' || substr(md5(g::text), 4, 15))::uuid, 'test', 'queue-0',
			'type-0', 'PENDING', now() - interval '1 minute'
		FROM generate_series(1, $2::int) g`, strings.ReplaceAll(pg.IDAt(time.Now()).String()[:13], "-", "")+"7",
		mostOfOutcome+5)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, s.pool, `VACUUM ANALYZE kagzi.workflow_runs`)
		}
		out := readOutcomes(t, s, 10*day, 2)
		counts := out.Parts[0].Completed.Runs + out.Parts[1].Completed.Runs
		if counts < mostOfOutcome || counts > 2*mostOfOutcome ||
			!out.Parts[0].Completed.More && !out.Parts[1].Completed.More {
			t.Errorf("analyzed %t: %s and %s", analyzed, out.Parts[0].text(), out.Parts[1].text())
		}
		if a := out.Parts[1].Active; a.Runs != mostOfOutcome || !a.More {
			t.Errorf("analyzed %t: active %+v", analyzed, a)
		}
		for _, p := range outcomeStatements(s, &out) {
			got := plans.Explain(t, s.pool, "EXPLAIN (ANALYZE, FORMAT JSON)", p.SQL, p.Args...)
			if wrong := got.Wrong(p); len(wrong) > 0 {
				t.Errorf("analyzed %t, %s: %s\n%s", analyzed, p.Name, strings.Join(wrong, "; "), got.Text)
			}
			if rows := got.MaxRows("workflow_runs"); rows > mostOfOutcome {
				t.Errorf("analyzed %t, %s: a scan reads %v rows\n%s", analyzed, p.Name, rows, got.Text)
			}
		}
	}
}

// outcomeStatements are the statements of Outcomes with the intervals of o.
func outcomeStatements(s *both, o *Outcomes) []plans.Statement {
	c := o.cells(0)
	of := func(name, sql, index string, statuses ...string) plans.Statement {
		return plans.Of(name, sql, []any{
			s.namespace, mostOutcomeRoutes, statuses, c.first, c.last, c.most, c.each,
		}, map[string][]string{index: {"namespace_id"}})
	}
	return []plans.Statement{
		of("outcomesCompleted", outcomesCompleted, "workflow_runs_completed", store.Completed),
		of("outcomesStopped", outcomesStopped, "workflow_runs_stopped", store.Failed, store.Cancelled),
		of("outcomesWaiting", outcomesWaiting, "workflow_runs_waiting", store.Pending, store.Running, store.Sleeping),
		plans.Of("outcomesMoving", outcomesMoving, []any{
			s.namespace, []string{"queue-0", "queue-1"}, []string{"type-0", "type-1"}, c.first, c.last, mostOfOutcome,
		}, map[string][]string{
			plans.ClaimIndex: {"task_queue", "namespace_id", "workflow_type", "priority", "available_at"},
			"workers_pkey":   {"namespace_id"}, "workers_live": {"namespace_id"},
		}),
	}
}

// A count that stopped at its limit, or that knows not all workflows, is the least that it can be.
func TestOutcomesAddUp(t *testing.T) {
	t.Parallel()
	o := Outcomes{At: time.Date(2026, 3, 4, 15, 30, 0, 0, time.UTC)}
	o.begin(day, 3)
	if o.Parts[0].From != time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) || o.Parts[2].From.Day() != 4 {
		t.Errorf("the days are %+v", o.Parts)
	}
	c := o.cells(time.Hour)
	if len(c.first) != 4 || c.first[0] != uuid.Nil || c.last[3] != uuid.Max || c.last[0] != c.first[1] ||
		c.first[1] != pg.IDAt(time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)) {
		t.Errorf("the cells are %+v", c)
	}
}
