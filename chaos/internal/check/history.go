package check

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/kagzi/kagzi/chaos/internal/evidence"
)

// A row has those columns of a run or a step that the checks read. The fields of the other table are zero.
type row struct {
	Status    string `json:"status"`
	Lease     string `json:"lease"`
	Output    string `json:"output"` // a hash
	Finished  moment `json:"finished_at"`
	ErrorKind string `json:"error_kind"`

	// Of a run.
	Namespace  string `json:"namespace_id"`
	ExternalID string `json:"external_id"`
	Workflow   string `json:"workflow_type"`
	Holder     string `json:"locked_by"`
	Available  moment `json:"available_at"`
	Cancelled  moment `json:"cancel_requested_at"`
	Parent     string `json:"parent_run_id"`
	Schedule   string `json:"schedule_name"`
	FireAt     moment `json:"fire_at"`
	Origin     string `json:"origin_run_id"`
	Slot       int    `json:"slot"` // of a limit that it holds
	Paused     moment `json:"paused_at"`
	Priority   int    `json:"priority"`
	Attempts   int    `json:"attempts"` // that have failed

	// Of a step.
	Kind       string `json:"step_kind"`
	RunAttempt int    `json:"run_attempt"`
	WakeAt     moment `json:"wake_at"`
	Position   int64  `json:"position"`
}

// epoch returns how often the run of a step has continued before: see store.FirstPosition.
func (r *row) epoch() int64 { return r.Position >> 32 }

// A moment is a time of the database; zero if there is none, and infinite if it never comes.
type moment struct{ time.Time }

var infinite = time.Unix(1<<40, 0)

// UnmarshalJSON reads what to_jsonb makes of a timestamptz.
func (m *moment) UnmarshalJSON(text []byte) error {
	if string(text) == `"infinity"` {
		m.Time = infinite
		return nil
	}
	return m.Time.UnmarshalJSON(text)
}

// A change is a change with the rows before and after it.
type change struct {
	*evidence.Change
	old, new *row // nil: there is none
}

func (c *change) ofRun() bool { return c.Table == "workflow_runs" }

// A lease is the right to change a run, from the claim on.
type lease struct {
	id        string
	run       string
	by        string // who claimed it: the name of a worker process; empty if it has none
	claim     *change
	cancelled bool    // the run's cancel was requested before
	ended     *change // the run left RUNNING, or another lease began; nil: never
}

type stepKey struct{ run, step string }

type leaseKey struct{ run, lease string }

type attemptKey struct {
	stepKey
	attempt int
}

// A history is the evidence, indexed.
type history struct {
	e       *evidence.Evidence
	clock   clock
	changes []*change
	ofRun   map[string][]*change    // of the run's row
	leases  map[leaseKey]*lease     // a claim gives all of its runs the same ID
	claims  map[string][]*lease     // of a run
	final   map[string]evidence.Run // runs by ID
	below   map[string][]string     // the children of a run, deleted ones too
	parent  map[string]string
	result  map[stepKey]*change    // the first change to COMPLETED
	over    map[attemptKey]*change // the first change of an attempt to COMPLETED or FAILED
	// of each change of a step, the run's lease at that moment; nil: no worker held the run
	holder map[int64]*lease
	lines  map[stepKey][]evidence.Line // BEGIN, END and FAIL of a step, by time
	steps  map[stepKey][]evidence.Step // the final table
	table  map[string][]evidence.Step  // the same by run, in their order
	verbs  map[string][]evidence.Verb  // by run
}

func newHistory(e *evidence.Evidence) *history {
	h := &history{
		e: e, clock: newClock(e.Clock), ofRun: map[string][]*change{}, leases: map[leaseKey]*lease{},
		claims: map[string][]*lease{},
		final:  map[string]evidence.Run{}, below: map[string][]string{}, parent: map[string]string{},
		result: map[stepKey]*change{},
		over:   map[attemptKey]*change{}, holder: map[int64]*lease{}, lines: map[stepKey][]evidence.Line{},
		steps: map[stepKey][]evidence.Step{}, table: map[string][]evidence.Step{}, verbs: map[string][]evidence.Verb{},
	}
	last := map[attemptKey]*row{} // of a run under the empty step
	for i := range e.Changes {
		c := &change{Change: &e.Changes[i], new: parse(e.Changes[i].New)}
		key := attemptKey{stepKey{c.Run, c.Step}, c.Attempt}
		c.old = last[key]
		last[key] = c.new
		h.changes = append(h.changes, c)
		if c.ofRun() {
			h.addRun(c)
		} else {
			h.addStep(c, key)
		}
	}
	for _, r := range e.Runs {
		h.final[r.ID] = r
	}
	for _, s := range e.Steps {
		key := stepKey{s.Run, s.Step}
		h.steps[key] = append(h.steps[key], s)
		h.table[s.Run] = append(h.table[s.Run], s)
	}
	for _, v := range e.Verbs {
		h.verbs[v.Run] = append(h.verbs[v.Run], v)
	}
	for _, l := range e.Ledger {
		switch l.Event {
		case evidence.Begin, evidence.End, evidence.Fail:
			key := stepKey{l.Run, l.Step}
			h.lines[key] = append(h.lines[key], l)
		}
	}
	return h
}

func parse(text json.RawMessage) *row {
	if len(text) == 0 || string(text) == "null" {
		return nil
	}
	r := &row{}
	if err := json.Unmarshal(text, r); err != nil {
		panic(fmt.Sprintf("read a row of the audit: %v: %s", err, text)) // it comes from Postgres
	}
	return r
}

func (h *history) addRun(c *change) {
	h.ofRun[c.Run] = append(h.ofRun[c.Run], c)
	if c.Operation == "INSERT" && c.new.Parent != "" {
		h.below[c.new.Parent] = append(h.below[c.new.Parent], c.Run)
		h.parent[c.Run] = c.new.Parent
	}
	if l := h.current(c.Run); l != nil && (c.new == nil || c.new.Status != "RUNNING" || c.new.Lease != l.id) {
		l.ended = c
	}
	if c.new != nil && c.new.Status == "RUNNING" && c.new.Lease != "" && (c.old == nil || c.old.Lease != c.new.Lease) {
		l := &lease{id: c.new.Lease, run: c.Run, by: c.By, claim: c, cancelled: !c.new.Cancelled.IsZero()}
		h.leases[leaseKey{c.Run, l.id}] = l
		h.claims[c.Run] = append(h.claims[c.Run], l)
	}
}

// current returns the lease under which a run is RUNNING, nil if it is not, as of the changes that were added.
func (h *history) current(run string) *lease {
	all := h.claims[run]
	if len(all) == 0 || all[len(all)-1].ended != nil {
		return nil
	}
	return all[len(all)-1]
}

func (h *history) addStep(c *change, key attemptKey) {
	h.holder[c.ChangeID] = h.current(c.Run)
	if c.new == nil {
		return
	}
	if c.new.Status == "COMPLETED" && h.result[key.stepKey] == nil {
		h.result[key.stepKey] = c
	}
	if c.new.Status != "RUNNING" && h.over[key] == nil {
		h.over[key] = c
	}
}

// created returns the change that inserted a run, nil if there is none.
func (h *history) created(run string) *change {
	if all := h.ofRun[run]; len(all) > 0 && all[0].Operation == "INSERT" {
		return all[0]
	}
	return nil
}

// deleted returns the change that deleted a run, nil if there is none.
func (h *history) deleted(run string) *change {
	if all := h.ofRun[run]; len(all) > 0 && all[len(all)-1].Operation == "DELETE" {
		return all[len(all)-1]
	}
	return nil
}

func over(status string) bool {
	return status == "COMPLETED" || status == "FAILED" || status == "CANCELLED"
}

// had reports whether a verb was applied to a run.
func (h *history) had(run string, verbs ...string) bool {
	for _, v := range h.verbs[run] {
		for _, event := range verbs {
			if v.Event == event {
				return true
			}
		}
	}
	return false
}

// interfering are the verbs after which a run may end in another way than its program says.
var interfering = []string{"CANCELLED", "TERMINATED", "RESUMED", "DELETED"}

// interfered reports whether a client has interfered with a run, with one above it, or with one below it.
func (h *history) interfered(run string) bool {
	for above := run; above != ""; above = h.parent[above] {
		if h.had(above, interfering...) {
			return true
		}
	}
	return h.interferedBelow(run)
}

func (h *history) interferedBelow(run string) bool {
	for _, child := range h.below[run] {
		if h.had(child, interfering...) || h.interferedBelow(child) {
			return true
		}
	}
	return false
}
