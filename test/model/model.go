// Package model has a small model of the store: the runs of one namespace in memory, and what each verb does to them. A
// verb is a call of the store, such as claim, finish or cancel. The test of the package, `go test .`, sends random
// verbs to the store and to the model, and compares.
//
// The model knows no SQL, no locks and no clock. When a run is due is one of five words, and the test moves the times
// in the tables by SQL. Of an order in time, such as that of a key's runs, the test reads the times and gives them to
// the model.
//
// Not part of it are topics and consumers, windows and batches of starts, limits on steps, weights of keys, several
// queues, and retention.
package model

import (
	"bytes"
	"maps"
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
	Percent    int    // from which percentage on a pause lets it pass: a hash, which the test has read
	released   int    // when its pause was ended last, by Model.now; zero: never
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
	Begun    int // by Model.now
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

// A Model holds the runs of a namespace.
type Model struct {
	Runs      map[uuid.UUID]*Run
	Order     []uuid.UUID // of their starts, with those that were deleted
	Offline   map[uuid.UUID]bool
	Pauses    map[Work]Pause
	Queue     Queue
	Keys      map[store.Key]KeyLimit
	Schedules map[string]Schedule
	Hour      int    // the last tick that has come
	bucket    Bucket // of the queue
	buckets   map[store.Key]Bucket

	// StartedFor returns the run that the store has started for the compensation of a run with this position.
	StartedFor func(run uuid.UUID, position int64) uuid.UUID

	now int // orders the begins and ends of steps
}

// New returns an empty model.
func New() *Model {
	return &Model{
		Runs: map[uuid.UUID]*Run{}, Offline: map[uuid.UUID]bool{}, Pauses: map[Work]Pause{},
		Schedules: map[string]Schedule{}, Hour: 1, Keys: map[store.Key]KeyLimit{}, buckets: map[store.Key]Bucket{},
	}
}

// Clone returns a copy that shares nothing with m.
func (m *Model) Clone() *Model {
	c := *m
	c.Runs, c.Order, c.Offline, c.Pauses, c.Schedules, c.Keys, c.buckets = map[uuid.UUID]*Run{}, slices.Clone(m.Order),
		maps.Clone(m.Offline), maps.Clone(m.Pauses), maps.Clone(m.Schedules), maps.Clone(m.Keys), maps.Clone(m.buckets)
	for id, r := range m.Runs {
		q := *r
		q.Messages, q.Steps = slices.Clone(r.Messages), map[string][]Attempt{}
		for step, attempts := range r.Steps {
			q.Steps[step] = slices.Clone(attempts)
		}
		c.Runs[id] = &q
	}
	return &c
}

// tick returns a later time than all before.
func (m *Model) tick() int {
	m.now++
	return m.now
}

func (m *Model) add(r *Run) {
	if r.Steps == nil {
		r.Steps = map[string][]Attempt{}
	}
	if r.Deadline == "" {
		r.Deadline = None
	}
	if r.Awaited == 0 {
		r.Awaited = math.MaxInt64
	}
	m.Runs[r.ID] = r
	m.Order = append(m.Order, r.ID)
}

// all returns the runs that exist, by their starts.
func (m *Model) all() (runs []*Run) {
	for _, id := range m.Order {
		if r := m.Runs[id]; r != nil {
			runs = append(runs, r)
		}
	}
	return runs
}

// active returns the active run with the external ID; nil if there is none, or the ID is empty.
func (m *Model) active(external string) *Run {
	for _, r := range m.all() {
		if external != "" && r.External == external && r.Active() {
			return r
		}
	}
	return nil
}

// lastEnded returns the youngest run with the external ID that is over; nil if there is none.
func (m *Model) lastEnded(external string) (last *Run) {
	for _, r := range m.all() {
		if r.External == external && !r.Active() && (last == nil || bytes.Compare(r.ID[:], last.ID[:]) > 0) {
			last = r
		}
	}
	return last
}

// Pass lets the time come for which a run waits: the end of its lease, its wake-up or its backoff.
func (m *Model) Pass(r *Run) {
	r.At = Due
	for _, attempts := range r.Steps {
		if a := &attempts[len(attempts)-1]; a.Kind == store.KindSleep && a.Status == store.Running {
			a.Passed = m.tick()
		}
	}
}

// Age lets a lease come past half of its timeout.
func (m *Model) Age(r *Run) { r.At = Soon }
