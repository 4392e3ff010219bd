package model

import (
	"fmt"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/kagzi/kagzi/store"
)

// Two acts at once. The store promises that each takes effect at one moment, so both together do what they would do one
// after the other.

// paired are the verbs that are done at once with others.
var paired = []struct {
	weight int
	act    func(*world, *rapid.T) act
}{
	{2, (*world).starting},
	{3, (*world).claiming},
	{2, (*world).extending},
	{3, (*world).recordingStep},
	{2, (*world).recordingChild},
	{2, (*world).recordingChildEnd},
	{2, (*world).recordingRead},
	{1, (*world).recordingSleep},
	{4, (*world).suspending},
	{2, (*world).retrying},
	{2, (*world).releasing},
	{2, (*world).registering},
	{2, (*world).compensating},
	{2, (*world).firing},
	{2, (*world).releasingQueued},
	{5, (*world).finishing},
	{1, (*world).cancellingChildren},
	{4, (*world).signalling},
	{3, (*world).cancelling},
	{2, (*world).terminating},
	{2, (*world).resuming},
	{1, (*world).restarting},
	{1, (*world).forking},
	{1, (*world).pausing},
	{1, (*world).unpausing},
	{1, (*world).deleting},
}

// drawPaired draws an act for a pair, up to ten times if it has nothing to work on.
func (w *world) drawPaired(t *rapid.T) (a act) {
	var all []func(*world, *rapid.T) act
	for _, p := range paired {
		for range p.weight {
			all = append(all, p.act)
		}
	}
	for range 10 {
		draw := pick(t, "act", all)
		if unlessIdle(func() { a = draw(w, t) }) {
			return a
		}
	}
	panic(nothingToDo{})
}

// pair does two acts at once, over pools of their own, about one run and those next to it. Their answers and the tables
// must be those of one of the two orders. In most pairs, the test holds the locks of the runs until both acts wait for
// them or are done: then each statement has begun before it learns of the other act.
//
// One execution never sends two flushes at once, so two acts under the same lease are no pair.
func (w *world) pair(t *rapid.T) {
	w.focus = w.next(w.runWhich(t, func(*Run) bool { return true }))
	defer func() { w.focus = nil }()
	acts := [2]act{w.drawPaired(t), w.drawPaired(t)}
	if acts[0].lease != uuid.Nil && acts[0].lease == acts[1].lease {
		panic(nothingToDo{})
	}
	first := number(t, "store", len(w.stores))
	stores := [2]int{first, (first + 1 + number(t, "other store", len(w.stores)-1)) % len(w.stores)}
	t.Logf("%s, and at once %s", acts[0].name, acts[1].name)
	open := func() {}
	held := number(t, "held", 3) > 0
	if held {
		open = w.hold(t)
	}
	defer open()
	var calls [2]*call
	for i, a := range acts {
		calls[i] = a.begin(w.stores[stores[i]])
		for held && !calls[i].over() && !w.waits(t, stores[i]) {
		}
	}
	open()
	for _, c := range calls {
		<-c.done
	}
	w.judge(t, calls)
}

// next returns the run, its parent and its children.
func (w *world) next(r *Run) (ids []uuid.UUID) {
	for _, q := range w.all() {
		if q == r || q.ID == r.Parent || q.Parent == r.ID {
			ids = append(ids, q.ID)
		}
	}
	return ids
}

// hold locks the runs of the focus until the caller calls open.
func (w *world) hold(t *rapid.T) (open func()) {
	tx, err := w.pool.Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, `SELECT FROM kagzi.workflow_runs WHERE run_id = ANY ($1) ORDER BY run_id
			FOR UPDATE`, w.focus)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback(ctx) }
}

// waits reports whether a statement of the store waits for a lock.
func (w *world) waits(t *rapid.T, store int) (yes bool) {
	err := w.pool.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = $1
			AND wait_event_type = 'Lock'`, appName(store)).Scan(&yes)
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// A call is an act under way.
type call struct {
	act
	answer string
	err    error
	done   chan struct{}
}

func (a act) begin(s *store.Store) *call {
	c := &call{act: a, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.answer, c.err = a.send(s)
	}()
	return c
}

func (c *call) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// judge finds the order of the two calls that explains their answers and the tables.
func (w *world) judge(t *rapid.T, calls [2]*call) {
	got := w.tables(t)
	var reasons []string
	var errs [2]error
	for _, order := range [][2]*call{calls, {calls[1], calls[0]}} {
		m := w.Clone()
		var reason string
		for i, c := range order {
			want, wantErr := c.apply(m)
			errs[i] = wantErr
			if c.answer != want || !same(c.err, wantErr) {
				reason += fmt.Sprintf("  %s: %q and error %v, want %q and %v\n", c.name, c.answer, c.err, want, wantErr)
			}
		}
		if reason += differences(got, m.lines()); reason == "" {
			w.Model = m
			w.look()
			for i, c := range order {
				w.finished(c.act, c.answer, errs[i])
			}
			w.met["pair"]++
			return
		}
		reasons = append(reasons, fmt.Sprintf("%s before %s:\n%s", order[0].name, order[1].name, reason))
	}
	t.Fatalf("neither order explains the two acts\n%s%s", reasons[0], reasons[1])
}
