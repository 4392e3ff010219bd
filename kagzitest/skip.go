package kagzitest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/waits"
)

// Skip is Advance for as long as the run sleeps: it moves the clock to each moment at which the run, or a child that it
// has started, becomes due, until the run has ended or waits for something other than time. It returns the time that it
// skipped.
//
// A [kagzi.WaitSignal] with a [kagzi.Timeout] waits for time, too: Skip moves past its timeout. To send the message
// before that, use [Env.SkipTo] or Advance(0). A run that polls for ever never ends: use Advance for it. Skip fails the
// test after 10,000 moves of the clock.
func (e *Env) Skip(ref kagzi.Ref) time.Duration {
	e.t.Helper()
	return e.skip(ref, func(*member) bool { return false })
}

// SkipTo is [Env.Skip] until the run sleeps and its [kagzi.RunInfo].WaitingOn is waitingOn, or has it among others:
// "signal approved/7", "timer cooling-off", "child ship". The test fails if the run ends first, or waits for something
// other than time.
func (e *Env) SkipTo(ref kagzi.Ref, waitingOn string) time.Duration {
	e.t.Helper()
	there := false
	var seen []string
	skipped := e.skip(ref, func(run *member) bool {
		there = run.Active && waitsOn(run.WaitingOn, waitingOn)
		if w := strconv.Quote(run.WaitingOn.String()); run.WaitingOn != nil && !slices.Contains(seen, w) {
			seen = append(seen, w)
		}
		return there
	})
	if !there {
		f := e.family(ref)
		if f[0].Active {
			e.t.Fatalf("kagzitest: run %s did not come to wait for %q: %s", f[0].ID, waitingOn, e.describe(f))
		}
		before := "waited for nothing"
		if len(seen) > 0 {
			before = "waited for " + strings.Join(seen, ", ")
		}
		e.t.Fatalf("kagzitest: run %s did not come to wait for %q: it is %s, and %s before", f[0].ID, waitingOn,
			f[0].Status, before)
	}
	return skipped
}

// waitsOn reports whether text is that of the list, or of one of its waits.
func waitsOn(l waits.List, text string) bool {
	return l.String() == text || slices.ContainsFunc(l, func(w waits.Wait) bool { return w.String() == text })
}

// skip moves the clock until enough returns true for the run, or until the run waits for something other than time.
func (e *Env) skip(ref kagzi.Ref, enough func(run *member) bool) time.Duration {
	e.t.Helper()
	e.StartWorker()
	var begun time.Time
	for moved := 0; ; {
		v := e.settle()
		if begun.IsZero() {
			begun = v.now
		}
		f := e.family(ref)
		if !f[0].Active || enough(&f[0]) {
			return v.now.Sub(begun)
		}
		due, continued := e.dueOf(f, v)
		switch {
		case continued:
			continue
		case due.IsZero():
			return v.now.Sub(begun)
		case !v.next.IsZero() && v.next.Before(due):
			due = v.next
		}
		if moved++; moved > e.moves {
			e.t.Fatalf("kagzitest: run %s has not ended after %d moves of the clock and %v, %s: if it polls for "+
				"ever, use Advance", f[0].ID, e.moves, v.now.Sub(begun), e.describe(f))
		}
		e.move(due)
	}
}

// dueOf returns when the first of the runs becomes due by time alone; zero if none does. continued says that a run has
// continued since v was read.
func (e *Env) dueOf(family []member, v view) (next time.Time, continued bool) {
	for _, m := range family {
		t := m.AvailableAt
		switch {
		case m.HeldUp != "" && m.HeldUp != pause: // whatever becomes due may give it a slot
			t = v.next
		case !t.After(v.now): // no worker has code for it, or it is paused, or it waits for no time
			t = m.DeadlineAt
		}
		if m.Status == string(kagzi.StatusRunning) {
			i := slices.IndexFunc(v.running, func(r runningRun) bool { return r.ID == m.ID })
			if i < 0 {
				return next, true
			}
			t = e.session.Activity(m.ID, v.running[i].Wakeups, v.running[i].Cancelling).Next
		}
		if m.Active && t.After(v.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next, false
}

// A member of a run's family is the run, its child, a child of that, and so on.
type member struct {
	ID          uuid.UUID
	Workflow    string
	Version     int
	Queue       string
	Status      string
	Active      bool
	AvailableAt time.Time // zero if it does not become due by time alone
	DeadlineAt  time.Time // when the coordinator ends it; zero: never
	WaitingOn   waits.List
	HeldUp      string // the reason why no claim takes the run, although it is due
}

// pause is the reason that holds up a paused run.
const pause = "pause"

const familyOf = `
WITH RECURSIVE tree AS (
	SELECT r.run_id, r.namespace_id, r.workflow_type, r.version, r.task_queue, r.status,
		` + goesOnAt + ` AS available_at, LEAST(r.deadline_at, CASE WHEN r.status = 'PENDING'
			AND r.started_at IS NULL THEN r.start_by END) AS deadline_at,
		r.waiting_on, 0 AS depth
	FROM kagzi.workflow_runs r WHERE r.run_id = $1 AND r.namespace_id = $2
	UNION ALL
	SELECT r.run_id, r.namespace_id, r.workflow_type, r.version, r.task_queue, r.status, ` + goesOnAt + `,
		LEAST(r.deadline_at, CASE WHEN r.status = 'PENDING' AND r.started_at IS NULL THEN r.start_by END),
		r.waiting_on, t.depth + 1
	FROM kagzi.workflow_runs r JOIN tree t ON r.parent_run_id = t.run_id AND r.namespace_id = t.namespace_id
)
SELECT t.run_id, t.workflow_type, coalesce(t.version, 0), t.task_queue, t.status, t.status IN ('PENDING', 'RUNNING',
	'SLEEPING'),
	coalesce(CASE WHEN t.available_at < 'infinity' THEN t.available_at END, '0001-01-01 00:00:00+00'),
	coalesce(CASE WHEN t.deadline_at < 'infinity' AND t.namespace_id = $3 THEN t.deadline_at END,
		'0001-01-01 00:00:00+00'), t.waiting_on, coalesce(kagzitest.held_up(r), '')
FROM tree t
JOIN kagzi.workflow_runs r ON r.run_id = t.run_id AND r.namespace_id = t.namespace_id
WHERE t.depth = 0 OR t.status IN ('PENDING', 'RUNNING', 'SLEEPING')
ORDER BY t.depth, t.run_id`

// family returns the run, and after it its children, and theirs, that have not ended.
func (e *Env) family(ref kagzi.Ref) []member {
	e.t.Helper()
	info, err := e.Client.Get(e.ctx, ref)
	if err != nil {
		e.t.Fatalf("kagzitest: %v", err)
	}
	rows, _ := e.Pool.Query(e.ctx, familyOf, string(info.ID), e.namespace, e.coordinated())
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[member])
	if err != nil {
		e.t.Fatalf("kagzitest: read run %s: %v", info.ID, err)
	}
	if len(out) == 0 {
		e.t.Fatalf("kagzitest: run %s was deleted", info.ID)
	}
	return out
}

// describe says what each active run waits for. It calls the first run "it".
func (e *Env) describe(family []member) string {
	var out []string
	for i, m := range family {
		who := "it is"
		if i > 0 {
			who = fmt.Sprintf("run %s of %s is", m.ID, m.Workflow)
		}
		switch {
		case m.HeldUp == pause:
			out = append(out, fmt.Sprintf("%s %s and paused", who, m.Status))
		case m.HeldUp != "":
			out = append(out, fmt.Sprintf("%s %s and waits for the %s", who, m.Status, m.HeldUp))
		case m.WaitingOn != nil:
			out = append(out, fmt.Sprintf("%s %s and waits for %q", who, m.Status, m.WaitingOn.String()))
		case m.Status == string(kagzi.StatusPending):
			code := fmt.Sprintf("workflow %q", m.Workflow)
			if m.Version != 0 { // the start or another worker chose the version
				code = fmt.Sprintf("version %d of %s", m.Version, code)
			}
			advice := "give it to env.Worker with kagzi.Handle"
			own := slices.Sorted(maps.Keys(e.cfg.Worker.Queues))
			if len(own) == 0 {
				own = []string{cmp.Or(e.cfg.Worker.Queue, "default")}
			}
			if !slices.Contains(own, m.Queue) {
				advice = fmt.Sprintf("env.Worker serves queue %s; set Config.Worker.Queue, or run a worker of the "+
					"other queue, too, made with kagzi.NewWorker of env.Client",
					strings.Trim(fmt.Sprintf("%q", own), "[]"))
			}
			out = append(out, fmt.Sprintf("%s PENDING and no worker on queue %q has code for %s: %s", who, m.Queue,
				code, advice))
		default:
			out = append(out, who+" "+m.Status)
		}
	}
	return strings.Join(out, "; ")
}

// Result skips the time until the run has ended, like [Env.Skip], and returns its result. It waits for running
// functions of steps until the -timeout of go test is near. The test fails if the run waits for something other than
// time for some 10 seconds.
func Result[Out any](e *Env, run *kagzi.Run[Out]) (Out, error) {
	e.t.Helper()
	e.finish(run.ID())
	return run.Result(e.ctx)
}

// finish skips the time until the run has ended. It waits while functions of steps are running; otherwise a run that
// makes no progress fails the test.
func (e *Env) finish(ref kagzi.Ref) {
	e.t.Helper()
	const brief = 10 * time.Millisecond
	var last string
	var stood time.Duration // without progress, and without the time that Skip takes
	for {
		e.Skip(ref)
		f := e.family(ref)
		if !f[0].Active {
			return
		}
		steps := e.runningSteps(f)
		if now := e.describe(f); now != last || steps != nil {
			last, stood = now, 0
		}
		if !e.until.IsZero() && time.Now().After(e.until) {
			e.t.Fatalf("kagzitest: run %s has not ended, and the test's time is nearly over: %s; running steps: %s",
				f[0].ID, last, strings.Join(steps, ", "))
		}
		if stood > e.stuck {
			advice := ""
			switch has := func(k waits.Kind) bool {
				return slices.ContainsFunc(f, func(m member) bool { return m.WaitingOn.Has(k) })
			}; {
			case has(waits.Signal):
				advice = "; send it the message"
			case has(waits.Doubt):
				advice = "; say with admin.Runs.Resolve what the call has done"
			}
			e.t.Fatalf("kagzitest: run %s makes no progress: %s%s", f[0].ID, last, advice)
		}
		time.Sleep(brief)
		stood += brief
	}
}

// runningSteps returns the steps of the runs whose functions are running.
func (e *Env) runningSteps(family []member) (steps []string) {
	for _, m := range family {
		steps = append(steps, e.functions.running(m.ID)...)
	}
	return steps
}
