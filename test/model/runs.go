package model

import (
	"bytes"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi/store"
)

// A When says how a run's available_at relates to the time.
type When string

// The values of When. Of a RUNNING run it is the end of the lease.
const (
	Due   When = "due"
	Soon  When = "soon" // a lease past half of its timeout; the end of a short grace
	Later When = "later"
	Never When = "never"
	None  When = "none" // NULL
)

// A Run is a row of workflow_runs, as far as the model knows it.
type Run struct {
	ID         uuid.UUID
	Type       string
	External   string
	Hash       string
	Priority   int
	Parent     uuid.UUID
	ParentStep string
	Detached   bool
	Key        store.Key
	Schedule   string
	Tick       int // of its schedule

	Status     string
	At         When
	DueAt      time.Time // since when it is due, as the test has read it; zero: since later than all others
	Slot       int       // 1: counts while the run is RUNNING; 2: until it ends
	Lease      uuid.UUID
	Worker     uuid.UUID
	Wakeups    int64
	Awaited    int64 // wakeups_awaited
	Attempts   int
	Recoveries int
	Suspect    uuid.UUID // the lease under which it began as a crash-loop suspect
	Version    int
	Started    bool
	Cancelling bool
	Paused     bool
	Queued     bool   // it waits for the previous run of its schedule
	Outcome    string // how it ends when its compensations have run
	Deadline   When   // None, Soon, Later or Due
	Timeout    bool   // a restart gets a deadline, too

	Steps    map[string][]Attempt
	Messages []Message
}

// An Attempt is a row of step_runs.
type Attempt struct {
	Kind     string
	Status   string
	Output   string
	Final    bool // a FAILED attempt that no other one follows
	Child    uuid.UUID
	Sequence int64
	Begun    int // by table.now
	Ended    int // zero: it has not
	Passed   int // of a SLEEP: when its time had passed; zero: it has not

	// Of a COMPENSATION, whose run is Child.
	Calls    bool // what to start is known
	Position int64
	step     string
}

// A Message is a row of signals.
type Message struct {
	ID       string
	Sequence int64
	ReadBy   string // the step
}

// Active reports whether the run is not over.
func (r *Run) Active() bool {
	return r.Status == store.Pending || r.Status == store.Running || r.Status == store.Sleeping
}

// Holds reports whether the lease is that of the run's execution.
func (r *Run) Holds(lease uuid.UUID) bool {
	return r != nil && r.Status == store.Running && r.Lease == lease
}

// Unread returns the first message that no step has read; nil if there is none.
func (r *Run) Unread() *Message {
	i := slices.IndexFunc(r.Messages, func(m Message) bool { return m.ReadBy == "" })
	if i < 0 {
		return nil
	}
	return &r.Messages[i]
}

// wake counts n wake-ups. They make a sleeping run due if it awaits no more.
func (r *Run) wake(n int) {
	r.Wakeups += int64(n)
	if r.Status == store.Sleeping && r.Wakeups >= r.Awaited {
		r.due()
	}
}

// due makes the run due now.
func (r *Run) due() {
	if r.At != Due {
		r.At, r.DueAt = Due, time.Time{}
	}
}

// end ends the run under the lease that stays in its row.
func (r *Run) end(status string, lease uuid.UUID) {
	if status == store.Failed && r.Outcome == "" {
		r.Attempts++
	}
	r.Status, r.At, r.Lease, r.Worker, r.Paused, r.Queued = status, None, lease, uuid.Nil, false, false
}

// executes reports whether the worker has the code of the run.
func executes(req store.ClaimRequest, r *Run) bool {
	i := slices.IndexFunc(req.Types, func(t store.WorkflowVersions) bool { return t.Type == r.Type })
	return i >= 0 && r.Outcome == "" && (r.Version == 0 || slices.Contains(req.Types[i].Versions, r.Version)) &&
		(req.Suspects.Below == 0 || r.Recoveries < req.Suspects.Below ||
			store.GroupOf(r.ID, r.Recoveries) == req.Suspects.Joins)
}

// A table has the runs of a namespace.
type table struct {
	Runs    map[uuid.UUID]*Run
	Order   []uuid.UUID // of their starts, with those that were deleted
	Offline map[uuid.UUID]bool

	now int // orders the begins and ends of steps
}

// tick returns a later time than all before.
func (t *table) tick() int {
	t.now++
	return t.now
}

func (t *table) add(r *Run) {
	if r.Steps == nil {
		r.Steps = map[string][]Attempt{}
	}
	if r.Deadline == "" {
		r.Deadline = None
	}
	if r.Awaited == 0 {
		r.Awaited = math.MaxInt64
	}
	t.Runs[r.ID] = r
	t.Order = append(t.Order, r.ID)
}

// all returns the runs that exist, by their starts.
func (t *table) all() (runs []*Run) {
	for _, id := range t.Order {
		if r := t.Runs[id]; r != nil {
			runs = append(runs, r)
		}
	}
	return runs
}

// active returns the active run with the external ID; nil if there is none, or the ID is empty.
func (t *table) active(external string) *Run {
	for _, r := range t.all() {
		if external != "" && r.External == external && r.Active() {
			return r
		}
	}
	return nil
}

// lastEnded returns the youngest run with the external ID that is over; nil if there is none.
func (t *table) lastEnded(external string) (last *Run) {
	for _, r := range t.all() {
		if r.External == external && !r.Active() && (last == nil || bytes.Compare(r.ID[:], last.ID[:]) > 0) {
			last = r
		}
	}
	return last
}

// Pass lets the time come for which a run waits: the end of its lease, its wake-up or its backoff.
func (t *table) Pass(r *Run) {
	r.At = Due
	for _, attempts := range r.Steps {
		if a := &attempts[len(attempts)-1]; a.Kind == store.KindSleep && a.Status == store.Running {
			a.Passed = t.tick()
		}
	}
}

// Age lets a lease come past half of its timeout.
func (t *table) Age(r *Run) { r.At = Soon }
