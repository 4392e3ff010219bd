package kagzi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// A lot is a run of a gamble, as the tables have it.
type lot struct {
	ID, Parent, ParentStep, Origin RunID
	Workflow                       string
	Status                         Status
	Kind                           Kind
	Error                          string
	Quarantined, Compensates       bool
	steps                          []draw
}

// A draw is a record of a lot.
type draw struct {
	Run              RunID
	ID, Kind, Status string
	Attempt          int
	Position         int64
	Called           bool
	Input, Output    []byte
	Child            RunID
	what             effect
}

const (
	lotsOf = `
		WITH RECURSIVE f AS (
			SELECT r.* FROM kagzi.workflow_runs r WHERE r.run_id = $1
			UNION
			SELECT r.* FROM f JOIN kagzi.workflow_runs r ON r.parent_run_id = f.run_id OR r.origin_run_id = f.run_id)
		SELECT run_id::text, coalesce(parent_run_id::text, ''), coalesce(parent_step_id, ''), coalesce(origin_run_id::text, ''), workflow_type, status,
			coalesce(error_kind, ''), coalesce(error, ''), quarantined, outcome IS NOT NULL
		FROM f ORDER BY run_id`
	drawsOf = `
		SELECT run_id::text, step_id, step_kind, status, attempt_number, position, call IS NOT NULL, input, output, coalesce(child_run_id::text, '')
		FROM kagzi.step_runs WHERE run_id = ANY ($1::uuid[]) ORDER BY position, attempt_number`
)

// lots reads the run and all that came of it.
func (g *gamble) lots(ctx context.Context, root RunID) (map[RunID]*lot, error) {
	lots := map[RunID]*lot{}
	var ids []string
	var l lot
	rows, _ := g.k.pool.Query(ctx, lotsOf, string(root))
	_, err := pgx.ForEachRow(rows, []any{&l.ID, &l.Parent, &l.ParentStep, &l.Origin, &l.Workflow, &l.Status, &l.Kind, &l.Error, &l.Quarantined, &l.Compensates}, func() error {
		c := l
		lots[l.ID] = &c
		ids = append(ids, string(l.ID))
		return nil
	})
	if err != nil {
		return nil, err
	}
	var d draw
	rows, _ = g.k.pool.Query(ctx, drawsOf, ids)
	_, err = pgx.ForEachRow(rows, []any{&d.Run, &d.ID, &d.Kind, &d.Status, &d.Attempt, &d.Position, &d.Called, &d.Input, &d.Output, &d.Child}, func() error {
		c := d
		c.Input, c.Output = slices.Clone(d.Input), slices.Clone(d.Output)
		data := c.Output
		if c.Kind == "COMPENSATION" {
			data = c.Input
		}
		c.what = effect{}
		if data != nil {
			_ = json.Unmarshal(data, &c.what) // of what is no effect there is none
		}
		lots[d.Run].steps = append(lots[d.Run].steps, c)
		return nil
	})
	return lots, err
}

// check compares what happened with what the tables say of it.
func (g *gamble) check(ctx context.Context, root RunID) error {
	var lots map[RunID]*lot
	var err error
	comesTrue(patience, func() bool { // children that are cancelled with their parent may end after it
		lots, err = g.lots(ctx, root)
		return err != nil || !slices.ContainsFunc(slices.Collect(maps.Values(lots)), func(l *lot) bool { return !l.Status.Ended() })
	})
	if err != nil {
		return err
	}
	w := g.world
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, s := range w.wrong {
		errs = append(errs, errors.New(s))
	}
	errs = append(errs, w.checkExecutions(lots)...)
	errs = append(errs, w.checkSights()...)
	for _, l := range lots {
		if l.Workflow != "unmake" {
			errs = append(errs, w.checkEnd(l)...)
			errs = append(errs, w.checkCompensations(l, lots)...)
		}
	}
	return errors.Join(append(errs, g.checkEffects(ctx, lots))...)
}

// checkEnd looks at how the run ended.
func (w *world) checkEnd(l *lot) (errs []error) {
	say := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("run %s: %s %s (%s): %s", l.ID, l.Status, l.Kind, l.Error, fmt.Sprintf(format, args...)))
	}
	switch {
	case l.Quarantined:
		say("is quarantined")
	case !l.Status.Ended():
		say("is not over")
	case l.Status == StatusFailed && l.Kind != KindUnknown && l.Kind != KindTimeout:
		say("no code returns that")
	}
	return errs
}

// checkExecutions looks whether a step was executed whose result was known.
func (w *world) checkExecutions(lots map[RunID]*lot) (errs []error) {
	type of struct {
		run  RunID
		step string
	}
	known := map[of]int{} // the host from which on nobody executes the step any more
	result := map[of]int{}
	for _, e := range w.line {
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
	for _, l := range lots {
		for _, d := range l.steps {
			if d.Kind != "FUNCTION" || d.Status != "COMPLETED" || d.what.N == 0 {
				continue
			}
			if n, ok := result[of{l.ID, d.ID}]; ok && n != d.what.N {
				errs = append(errs, fmt.Errorf("returned %d, and %v is recorded", n, d.what))
			}
			if d.what.Run != l.ID && l.Origin == "" || d.what.Step != d.ID {
				errs = append(errs, fmt.Errorf("recorded under %s of %s: %v", d.ID, l.ID, d.what))
			}
		}
	}
	return errs
}

// checkSights compares what the executions of a branch saw in the same attempt of the run.
func (w *world) checkSights() (errs []error) {
	for key, all := range w.sights {
		for i, a := range all {
			for _, b := range all[:i] {
				n := min(a.firm, b.firm)
				if !slices.Equal(a.lines[:n], b.lines[:n]) {
					errs = append(errs, fmt.Errorf("%s: host %d saw %q, and host %d %q", key, b.host, b.lines, a.host, a.lines))
				}
			}
		}
	}
	return errs
}

// checkCompensations compares what was to be compensated with what was.
func (w *world) checkCompensations(l *lot, lots map[RunID]*lot) (errs []error) {
	say := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("run %s (%s): %s", l.ID, l.Status, fmt.Sprintf(format, args...)))
	}
	last := map[string]draw{}
	for _, d := range l.steps {
		if d.Kind == "COMPENSATION" && d.Called && d.Attempt >= last[d.ID].Attempt {
			last[d.ID] = d
		}
	}
	w.checkRegistrations(l, last, say)
	undone := map[RunID]int{} // the place of each compensation's end
	times := map[RunID]int{}
	for i, e := range w.line {
		if e.what == "undone" {
			undone[e.run] = i
			times[e.run]++
		}
	}
	bad := l.Status == StatusFailed || l.Status == StatusCancelled
	first, place := len(w.line), len(w.line)
	for _, d := range slices.SortedFunc(maps.Values(last), func(a, b draw) int { return int(a.Position - b.Position) }) {
		switch {
		case !bad && d.Child != "":
			say("%s is compensated", d.ID)
		case !bad:
		case times[d.Child] != 1:
			say("%s is compensated %d times, by %s", d.ID, times[d.Child], d.Child)
		case w.line[undone[d.Child]].effect != d.what:
			say("%s is compensated as %v, and registered as %v", d.ID, w.line[undone[d.Child]].effect, d.what)
		case undone[d.Child] > place:
			say("%s is compensated after what was registered before it", d.ID)
		}
		place = undone[d.Child]
		first = min(first, place)
	}
	runs := 0
	for _, c := range lots {
		switch {
		case c.Parent != l.ID:
		case c.Workflow == "unmake":
			runs++
		case bad:
			for _, d := range c.steps {
				if at, ok := undone[d.Child]; ok && d.Kind == "COMPENSATION" && at > first {
					say("%s of child %s is compensated too late", d.ID, c.ID)
				}
			}
		}
	}
	if bad && runs != len(last) {
		say("%d compensations have run, of %d", runs, len(last))
	}
	return errs
}

// checkRegistrations compares what the run has registered with the tables, given the last registrations there.
func (w *world) checkRegistrations(l *lot, last map[string]draw, say func(string, ...any)) {
	most := map[string]int{}
	for _, e := range w.line {
		if e.run == l.ID && e.what == "registered" && (e.effect.Run == l.ID || e.effect.Run == "") {
			most[e.effect.Step] = max(most[e.effect.Step], e.effect.N)
		}
	}
	void := map[string]bool{} // of a fork: the old run has it
	for _, d := range l.steps {
		void[d.ID] = void[d.ID] || d.Kind == "COMPENSATION" && !d.Called && l.Origin != ""
	}
	for step, n := range most {
		d, ok := last[step+"#compensation"]
		switch {
		case !ok && void[step+"#compensation"] && !w.executed(l.ID, step):
		case !ok:
			say("no compensation of %s is registered", step)
		case d.what.N < n:
			say("the compensation of %s is registered with %v, and not with %d: %v", step, d.what, n, l.registrations(step))
		}
	}
}

// registrations are all records of the step's compensation, for people.
func (l *lot) registrations(step string) (all []string) {
	for _, d := range l.steps {
		if d.ID == step+"#compensation" {
			all = append(all, fmt.Sprintf("attempt %d position %d called %v %v hashes %x", d.Attempt, d.Position, d.Called, d.what, d.Output))
		}
	}
	return all
}

func (w *world) executed(run RunID, step string) bool {
	return slices.ContainsFunc(w.line, func(e entry) bool { return e.what == "executes" && e.run == run && e.effect.Step == step })
}

// checkEffects compares the effects of transactional steps with their records.
func (g *gamble) checkEffects(ctx context.Context, lots map[RunID]*lot) (err error) {
	did := map[string]int{}
	var run, step string
	var n int
	rows, _ := g.k.pool.Query(ctx, `SELECT run_id::text, step, count(*) FROM public.effects GROUP BY 1, 2`)
	if _, err := pgx.ForEachRow(rows, []any{&run, &step, &n}, func() error { did[run+"/"+step] = n; return nil }); err != nil {
		return err
	}
	for _, l := range lots {
		for _, d := range l.steps {
			if d.Kind != "FUNCTION" || !strings.HasPrefix(d.ID[strings.LastIndexByte(d.ID, '/')+1:], "steptx") {
				continue
			}
			want := 0
			if d.Status == "COMPLETED" && d.what.Run == l.ID {
				want = 1
			}
			if got := did[string(l.ID)+"/"+d.ID]; got != want && (d.Status == "COMPLETED" || got > 1) {
				err = errors.Join(err, fmt.Errorf("run %s: %s is %s, and has %d effects", l.ID, d.ID, d.Status, got))
			}
		}
	}
	return err
}
