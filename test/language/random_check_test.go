package language_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/kind"
)

// A runRecord is a run of a trial, as the tables have it.
type runRecord struct {
	ID, Parent, ParentStep, Origin kagzi.RunID
	Workflow                       string
	Status                         kagzi.Status
	Kind                           kind.Kind
	Error                          string
	Quarantined, Compensates       bool
	steps                          []stepRecord
}

// A stepRecord is a record of a run's step.
type stepRecord struct {
	Run              kagzi.RunID
	ID, Kind, Status string
	Attempt          int
	Copied           bool // by a fork, from the run that has its compensation
	Position         int64
	Called           bool
	Input, Output    []byte
	Child            kagzi.RunID
	what             effect
}

const (
	selectRuns = `
		WITH RECURSIVE f AS (
			SELECT r.* FROM kagzi.workflow_runs r WHERE r.run_id = $1
			UNION
			SELECT r.* FROM f JOIN kagzi.workflow_runs r ON r.parent_run_id = f.run_id OR r.origin_run_id = f.run_id)
		SELECT run_id::text, coalesce(parent_run_id::text, ''), coalesce(parent_step_id, ''),
			coalesce(origin_run_id::text, ''), workflow_type, status,
			coalesce(error_kind, ''), coalesce(error, ''), quarantined, outcome IS NOT NULL
		FROM f ORDER BY run_id`
	selectSteps = `
		SELECT run_id::text, step_id, step_kind, status, attempt_number, run_attempt = 0, position, call IS NOT NULL,
			input, output, coalesce(child_run_id::text, '')
		FROM kagzi.step_runs WHERE run_id = ANY ($1::uuid[]) ORDER BY position, attempt_number`
)

// runs reads the root run, its descendants and its forks.
func (tr *trial) runs(ctx context.Context, root kagzi.RunID) (map[kagzi.RunID]*runRecord, error) {
	runs := map[kagzi.RunID]*runRecord{}
	var ids []string
	var r runRecord
	rows, _ := tr.k.Pool.Query(ctx, selectRuns, string(root))
	_, err := pgx.ForEachRow(rows, []any{
		&r.ID, &r.Parent, &r.ParentStep, &r.Origin, &r.Workflow, &r.Status, &r.Kind,
		&r.Error, &r.Quarantined, &r.Compensates,
	}, func() error {
		c := r
		runs[r.ID] = &c
		ids = append(ids, string(r.ID))
		return nil
	})
	if err != nil {
		return nil, err
	}
	var rec stepRecord
	rows, _ = tr.k.Pool.Query(ctx, selectSteps, ids)
	_, err = pgx.ForEachRow(rows, []any{
		&rec.Run, &rec.ID, &rec.Kind, &rec.Status, &rec.Attempt, &rec.Copied,
		&rec.Position, &rec.Called, &rec.Input, &rec.Output, &rec.Child,
	}, func() error {
		c := rec
		c.Input, c.Output = slices.Clone(rec.Input), slices.Clone(rec.Output)
		data := c.Output
		if c.Kind == "COMPENSATION" {
			data = c.Input
		}
		c.what = effect{}
		if data != nil {
			_ = json.Unmarshal(data, &c.what) // other data leaves it zero
		}
		runs[rec.Run].steps = append(runs[rec.Run].steps, c)
		return nil
	})
	return runs, err
}

// check compares the effects with the tables.
func (tr *trial) check(ctx context.Context, root kagzi.RunID) error {
	var runs map[kagzi.RunID]*runRecord
	var err error
	// children that are cancelled with their parent may end after it
	all := await.BecomesTrue(await.Patience, func() bool {
		runs, err = tr.runs(ctx, root)
		return err != nil || !slices.ContainsFunc(slices.Collect(maps.Values(runs)), func(r *runRecord) bool {
			return !r.Status.Ended()
		})
	})
	if err != nil {
		return err
	}
	if !all {
		return fmt.Errorf("not all of the %d runs end", len(runs))
	}
	w := tr.world
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, s := range w.wrong {
		errs = append(errs, errors.New(s))
	}
	errs = append(errs, w.checkExecutions(runs)...)
	errs = append(errs, w.checkObservations()...)
	for _, r := range runs {
		if r.Workflow != "undo-effect" {
			errs = append(errs, w.checkEnd(r)...)
			errs = append(errs, w.checkCompensations(r, runs)...)
		}
	}
	return errors.Join(append(errs, tr.checkEffects(ctx, runs), tr.checkEvents(ctx, runs))...)
}

// checkEvents compares the events of the runs with their records. The records that a fork has copied are older than it.
func (tr *trial) checkEvents(ctx context.Context, runs map[kagzi.RunID]*runRecord) error {
	rows, _ := tr.k.Pool.Query(ctx, `
		SELECT concat_ws(' ', what, coalesce(s.n, 0), 'records', coalesce(e.n, 0), 'events')
		FROM (
			SELECT s.run_id || ' ' || regexp_replace(s.step_id, '^.*/|#.*$', '', 'g') AS what, count(*) AS n
			FROM kagzi.step_runs s JOIN kagzi.workflow_runs r USING (run_id)
			WHERE s.step_kind = 'PUBLISH' AND s.finished_at >= r.created_at AND s.run_id = ANY ($1::uuid[])
			GROUP BY 1
		) s
		FULL JOIN (
			SELECT convert_from(e.payload, 'UTF8')::json #>> '{}' AS what, count(*) AS n
			FROM kagzi.events e
			WHERE left(convert_from(e.payload, 'UTF8')::json #>> '{}', 36) = ANY ($1::text[])
			GROUP BY 1
		) e USING (what)
		WHERE s.n IS DISTINCT FROM e.n`, slices.Collect(maps.Keys(runs)))
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(wrong) > 0 {
		err = fmt.Errorf("events of %q", wrong)
	}
	return err
}

// checkEnd reports a run that has not ended, or not as its code can end it.
func (w *world) checkEnd(r *runRecord) (errs []error) {
	say := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("run %s: %s %s (%s): %s", r.ID, r.Status, r.Kind, r.Error,
			fmt.Sprintf(format, args...)))
	}
	switch {
	case r.Quarantined:
		say("is quarantined")
	case !r.Status.Ended():
		say("is not over")
	case r.Status == kagzi.StatusFailed && r.Kind != kind.Unknown && r.Kind != kind.Timeout:
		say("no code returns that")
	}
	return errs
}

// checkExecutions reports steps that were executed although their result was known.
func (w *world) checkExecutions(runs map[kagzi.RunID]*runRecord) (errs []error) {
	type of struct {
		run  kagzi.RunID
		step string
	}
	known := map[of]int{} // the first host that must not execute the step
	result := map[of]int{}
	for _, e := range w.log {
		key := of{e.run, e.effect.Step}
		since, ok := known[key]
		switch e.what {
		case "executes":
			if ok && e.host >= since {
				errs = append(errs, fmt.Errorf("executed although it is recorded: %v", e))
			}
		case "returns", "recorded":
			if !ok || e.host < since {
				known[key] = e.host
			}
		}
		if e.what == "returns" {
			if n, ok := result[key]; ok && n != e.effect.N {
				errs = append(errs, fmt.Errorf("returned %d before: %v", n, e))
			}
			result[key] = e.effect.N
		}
	}
	for _, r := range runs {
		for _, rec := range r.steps {
			if rec.Kind != "FUNCTION" || rec.Status != "COMPLETED" || rec.what.N == 0 {
				continue
			}
			if n, ok := result[of{r.ID, rec.ID}]; ok && n != rec.what.N {
				errs = append(errs, fmt.Errorf("returned %d, and %v is recorded", n, rec.what))
			}
			if rec.what.Run != r.ID && r.Origin == "" || rec.what.Step != rec.ID {
				errs = append(errs, fmt.Errorf("recorded under %s of %s: %v", rec.ID, r.ID, rec.what))
			}
		}
	}
	return errs
}

// checkObservations compares what the executions of a branch saw in the same attempt of the run.
func (w *world) checkObservations() (errs []error) {
	for key, all := range w.observations {
		for i, a := range all {
			for _, b := range all[:i] {
				n := min(a.recorded, b.recorded)
				if !slices.Equal(a.lines[:n], b.lines[:n]) {
					errs = append(errs, fmt.Errorf("%s: host %d saw %q, and host %d %q", key, b.host, b.lines,
						a.host, a.lines))
				}
			}
		}
	}
	return errs
}

// checkCompensations compares the registered compensations with those that ran.
func (w *world) checkCompensations(r *runRecord, runs map[kagzi.RunID]*runRecord) (errs []error) {
	say := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("run %s (%s): %s", r.ID, r.Status, fmt.Sprintf(format, args...)))
	}
	last := map[string]stepRecord{}
	for _, rec := range r.steps {
		if rec.Kind == "COMPENSATION" && rec.Called && rec.Attempt >= last[rec.ID].Attempt {
			last[rec.ID] = rec
		}
	}
	w.checkRegistrations(r, last, say)
	undone := map[kagzi.RunID]int{} // where in the log each compensation ended
	times := map[kagzi.RunID]int{}
	for i, e := range w.log {
		if e.what == "undone" {
			undone[e.run] = i
			times[e.run]++
		}
	}
	bad := r.Status == kagzi.StatusFailed || r.Status == kagzi.StatusCancelled
	first, place := len(w.log), len(w.log)
	for _, rec := range slices.SortedFunc(maps.Values(last), func(a, b stepRecord) int {
		return int(a.Position - b.Position)
	}) {
		switch {
		case !bad && rec.Child != "":
			say("%s is compensated", rec.ID)
		case !bad:
		case times[rec.Child] != 1:
			say("%s is compensated %d times, by %s", rec.ID, times[rec.Child], rec.Child)
		case w.log[undone[rec.Child]].effect != rec.what:
			say("%s is compensated as %v, and registered as %v", rec.ID, w.log[undone[rec.Child]].effect, rec.what)
		case undone[rec.Child] > place:
			say("%s is compensated after what was registered before it", rec.ID)
		}
		place = undone[rec.Child]
		first = min(first, place)
	}
	ran := 0
	for _, c := range runs {
		switch {
		case c.Parent != r.ID:
		case c.Workflow == "undo-effect":
			ran++
		case bad:
			for _, rec := range c.steps {
				if at, ok := undone[rec.Child]; ok && rec.Kind == "COMPENSATION" && at > first {
					say("%s of child %s is compensated too late", rec.ID, c.ID)
				}
			}
		}
	}
	if bad && ran != len(last) {
		say("%d compensations have run, of %d", ran, len(last))
	}
	return errs
}

// checkRegistrations compares what the run has registered with the tables, given the last registrations there.
func (w *world) checkRegistrations(r *runRecord, last map[string]stepRecord, say func(string, ...any)) {
	most := map[string]int{}
	for _, e := range w.log {
		if e.run == r.ID && e.what == "registered" && (e.effect.Run == r.ID || e.effect.Run == "") {
			most[e.effect.Step] = max(most[e.effect.Step], e.effect.N)
		}
	}
	for _, rec := range r.steps {
		if _, ok := last[rec.ID+"#compensation"]; ok && rec.Copied && !w.executed(r.ID, rec.ID) {
			say("has a compensation of %s, which it has from another run", rec.ID)
		}
	}
	for step, n := range most {
		rec, ok := last[step+"#compensation"]
		switch {
		case !ok && r.Origin != "" && !w.executed(r.ID, step): // a fork leaves it with the other run
		case !ok:
			say("no compensation of %s is registered", step)
		case rec.what.N < n:
			say("the compensation of %s is registered with %v, and not with %d: %v", step, rec.what, n,
				r.registrations(step))
		}
	}
}

// registrations lists all records of the step's compensation, for an error.
func (r *runRecord) registrations(step string) (all []string) {
	for _, rec := range r.steps {
		if rec.ID == step+"#compensation" {
			all = append(all, fmt.Sprintf("attempt %d position %d called %v %v hashes %x", rec.Attempt, rec.Position,
				rec.Called, rec.what, rec.Output))
		}
	}
	return all
}

func (w *world) executed(run kagzi.RunID, step string) bool {
	return slices.ContainsFunc(w.log, func(e entry) bool {
		return e.what == "executes" && e.run == run && e.effect.Step == step
	})
}

// checkEffects compares the effects of transactional steps with their records.
func (tr *trial) checkEffects(ctx context.Context, runs map[kagzi.RunID]*runRecord) (err error) {
	did := map[string]int{}
	var run, step string
	var n int
	rows, _ := tr.k.Pool.Query(ctx, `SELECT run_id::text, step, count(*) FROM public.effects GROUP BY 1, 2`)
	if _, err := pgx.ForEachRow(rows, []any{&run, &step, &n}, func() error {
		did[run+"/"+step] = n
		return nil
	}); err != nil {
		return err
	}
	for _, r := range runs {
		for _, rec := range r.steps {
			if rec.Kind != "FUNCTION" || !strings.HasPrefix(rec.ID[strings.LastIndexByte(rec.ID, '/')+1:], "steptx") {
				continue
			}
			want := 0
			if rec.Status == "COMPLETED" && rec.what.Run == r.ID {
				want = 1
			}
			if got := did[string(r.ID)+"/"+rec.ID]; got != want && (rec.Status == "COMPLETED" || got > 1) {
				err = errors.Join(err, fmt.Errorf("run %s: %s is %s, and has %d effects", r.ID, rec.ID,
					rec.Status, got))
			}
		}
	}
	return err
}
