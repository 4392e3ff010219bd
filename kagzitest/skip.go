package kagzitest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
)

// Skip is Advance for as long as the run sleeps: it moves from one moment at which the run, or one that it has started as
// its child, becomes due to the next, until the run is over or waits for something else than time. It returns how much
// time that was.
//
// A [kagzi.WaitSignal] with a [kagzi.Timeout] waits for time, too: Skip goes through it, and it times out. To send the
// message before that, use [Env.SkipTo], or Advance(0). A run that polls for ever is never over: use Advance; after 10,000
// such moments Skip fails the test.
func (e *Env) Skip(ref kagzi.Ref) time.Duration {
	e.t.Helper()
	return e.skip(ref, func(*member) bool { return false })
}

// SkipTo is [Env.Skip] until the run sleeps, and [kagzi.RunInfo].WaitingOn is waitingOn: "signal approved/7", "timer
// cooling-off", "child ship". A run that is over before, or waits for something else than time, fails the test.
func (e *Env) SkipTo(ref kagzi.Ref, waitingOn string) time.Duration {
	e.t.Helper()
	there := false
	var waits []string
	skipped := e.skip(ref, func(run *member) bool {
		there = run.Active && run.WaitingOn == waitingOn
		if w := strconv.Quote(run.WaitingOn); run.WaitingOn != "" && !slices.Contains(waits, w) {
			waits = append(waits, w)
		}
		return there
	})
	if !there {
		f := e.family(ref)
		if f[0].Active {
			e.t.Fatalf("kagzitest: run %s did not come to wait for %q: %s", f[0].ID, waitingOn, e.describe(f))
		}
		before := "waited for nothing"
		if len(waits) > 0 {
			before = "waited for " + strings.Join(waits, ", ")
		}
		e.t.Fatalf("kagzitest: run %s did not come to wait for %q: it is %s, and %s before", f[0].ID, waitingOn, f[0].Status, before)
	}
	return skipped
}

// skip moves the clock until enough says so of the run, or time does not help.
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
		due, wentOn := e.dueOf(f, v)
		switch {
		case wentOn:
			continue
		case due.IsZero():
			return v.now.Sub(begun)
		case !v.next.IsZero() && v.next.Before(due):
			due = v.next
		}
		if moved++; moved > e.moves {
			e.t.Fatalf("kagzitest: run %s is not over after %d moves of the clock and %v, %s: if it polls for ever, use Advance", f[0].ID, e.moves, v.now.Sub(begun), e.describe(f))
		}
		e.move(due)
	}
}

// dueOf returns when the next of the runs becomes due, of their own accord; zero if none does. wentOn says that one has gone
// on since v was seen.
func (e *Env) dueOf(family []member, v view) (next time.Time, wentOn bool) {
	for _, m := range family {
		t := m.AvailableAt
		if !t.After(v.now) { // nobody has code for it
			t = m.DeadlineAt
		}
		if m.Status == string(kagzi.StatusRunning) {
			i := slices.IndexFunc(v.running, func(r running) bool { return r.ID == m.ID })
			if i < 0 {
				return next, true
			}
			t = e.session.Look(m.ID, v.running[i].Wakeups, v.running[i].Cancelling).Next
		}
		if m.Active && t.After(v.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	return next, false
}

// A member is a run, or one that it has started as its child, and so on.
type member struct {
	ID          uuid.UUID
	Workflow    string
	Version     int
	Queue       string
	Status      string
	Active      bool
	AvailableAt time.Time // zero if it does not become due of its own accord
	DeadlineAt  time.Time // when the coordinator ends it; zero if it does not
	WaitingOn   string
}

const familyOf = `
WITH RECURSIVE tree AS (
	SELECT r.run_id, r.namespace_id, r.workflow_type, r.version, r.task_queue, r.status, r.available_at, r.deadline_at, r.waiting_on, 0 AS depth
	FROM kagzi.workflow_runs r WHERE r.run_id = $1 AND r.namespace_id = $2
	UNION ALL
	SELECT c.run_id, c.namespace_id, c.workflow_type, c.version, c.task_queue, c.status, c.available_at, c.deadline_at, c.waiting_on, t.depth + 1
	FROM kagzi.workflow_runs c JOIN tree t ON c.parent_run_id = t.run_id AND c.namespace_id = t.namespace_id
)
SELECT t.run_id, t.workflow_type, coalesce(t.version, 0), t.task_queue, t.status, t.status IN ('PENDING', 'RUNNING', 'SLEEPING'),
	coalesce(CASE WHEN t.available_at < 'infinity' THEN t.available_at END, '0001-01-01 00:00:00+00'),
	coalesce(CASE WHEN t.deadline_at < 'infinity' AND t.namespace_id = $3 THEN t.deadline_at END, '0001-01-01 00:00:00+00'), coalesce(t.waiting_on, '')
FROM tree t
WHERE t.depth = 0 OR t.status IN ('PENDING', 'RUNNING', 'SLEEPING')
ORDER BY t.depth, t.run_id`

// family returns the run and after it those of its children, and theirs, that are not over.
func (e *Env) family(ref kagzi.Ref) []member {
	e.t.Helper()
	info, err := e.Client.Get(e.ctx, ref)
	if err != nil {
		e.t.Fatalf("kagzitest: %v", err)
	}
	rows, _ := e.Pool.Query(e.ctx, familyOf, string(info.ID), e.namespace, e.coordinated())
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[member])
	if err != nil {
		e.t.Fatalf("kagzitest: look at run %s: %v", info.ID, err)
	}
	if len(out) == 0 {
		e.t.Fatalf("kagzitest: run %s was deleted", info.ID)
	}
	return out
}

// describe says of each run that is not over what it waits for: of the first one as "it".
func (e *Env) describe(family []member) string {
	var out []string
	for i, m := range family {
		who := "it is"
		if i > 0 {
			who = fmt.Sprintf("run %s of %s is", m.ID, m.Workflow)
		}
		switch {
		case m.WaitingOn != "":
			out = append(out, fmt.Sprintf("%s %s and waits for %q", who, m.Status, m.WaitingOn))
		case m.Status == string(kagzi.StatusPending):
			code := fmt.Sprintf("workflow %q", m.Workflow)
			if m.Version != 0 { // that the start or another worker chose
				code = fmt.Sprintf("version %d of %s", m.Version, code)
			}
			advice := "give it to env.Worker with kagzi.Handle"
			if own := cmp.Or(e.cfg.Worker.Queue, "default"); m.Queue != own {
				advice = fmt.Sprintf("env.Worker serves queue %q; set Config.Worker.Queue, or run a worker of the other queue, too, made with kagzi.NewWorker of env.Client", own)
			}
			out = append(out, fmt.Sprintf("%s PENDING and no worker on queue %q has code for %s: %s", who, m.Queue, code, advice))
		default:
			out = append(out, who+" "+m.Status)
		}
	}
	return strings.Join(out, "; ")
}

// finish skips the time until the run is over. While functions of its steps are under way, it goes on; if nothing does,
// the test fails.
func (e *Env) finish(ref kagzi.Ref) {
	e.t.Helper()
	const pause = 10 * time.Millisecond
	var last string
	var stood time.Duration // without what Skip takes, in which a run goes on
	for {
		e.Skip(ref)
		f := e.family(ref)
		if !f[0].Active {
			return
		}
		steps := e.inStep(f)
		if now := e.describe(f); now != last || steps != nil {
			last, stood = now, 0
		}
		if !e.until.IsZero() && time.Now().After(e.until) {
			e.t.Fatalf("kagzitest: run %s is not over, and the test's time nearly is: %s; steps under way: %s", f[0].ID, last, strings.Join(steps, ", "))
		}
		if stood > e.stuck {
			advice := ""
			if slices.ContainsFunc(f, func(m member) bool { return strings.HasPrefix(m.WaitingOn, "signal ") }) {
				advice = "; send it what it waits for"
			}
			e.t.Fatalf("kagzitest: run %s does not go on: %s%s", f[0].ID, last, advice)
		}
		time.Sleep(pause)
		stood += pause
	}
}

// inStep returns the steps of the runs whose functions are under way.
func (e *Env) inStep(family []member) (steps []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range family {
		for c := range e.calls[m.ID] {
			steps = append(steps, c.step)
		}
	}
	return steps
}
