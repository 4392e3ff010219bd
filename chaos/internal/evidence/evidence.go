// Package evidence is what a round of chaos leaves behind: what the clients called, what the workers executed, what the
// database recorded, and what the faults did. The checker is a function of it.
package evidence

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Evidence is all that is known of one round. Times of the machine are those of its monotonic clock, which all
// processes share; times of the database are its clock's.
type Evidence struct {
	Clock  []Stamp // what the database's clock showed, now and then
	Calls  []Call  // of each client in its order
	Ledger []Line  // of each worker process in its order
	// of runs and steps, in the order of ChangeID; those of one run are in the order in which they happened
	Changes []Change
	Tables
	Ticks    []Tick        // what the schedules had to do
	Exits    []Exit        // of worker processes
	Samples  []Sample      // of liveness
	Injected []Injected    // the faults
	Healed   time.Duration // when the last fault was over
	Over     time.Duration // when the driver stopped waiting
}

// Tables are what the database has at the end.
type Tables struct {
	Runs     []Run
	Steps    []Step
	Messages []Message
	Events   []Event
	Awaited  []Awaited        // published events of which the runs that wait for them are not told yet
	Readers  []Reader         // the subscriptions
	Verbs    []Verb           // what operators and clients did to runs, as the database recorded it
	Workers  []Worker         // the registry
	Plans    []Plan           // the schedules
	Effects  []Effect         // what transactional steps wrote into the application's table
	Items    []Item           // of batches, which a transactional step has dealt with
	Accounts map[string]int64 // the application's accounts, which transactional steps and transactions of starts change
}

// Now returns the machine's monotonic clock. It is the same in all processes.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // never: the clock exists
	}
	return time.Duration(t.Nano())
}

// A Stamp says that the database's clock showed DB when the machine's showed a time between Asked and Answered.
type Stamp struct {
	Asked, Answered time.Duration
	DB              time.Time
}

// An Outcome is what a client knows of its call.
type Outcome string

// The outcomes. Unknown is that of a call whose answer was lost, or that gave up waiting: it may have had its effect or
// not, and may have it later.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"
	Unknown Outcome = "unknown"
)

// A Call is one call of a client of the driver.
type Call struct {
	Client int
	Began  time.Duration
	Ended  time.Duration
	// "start", "signal", "ask", "publish", "await", "cancel", "terminate", "resume", "restart", "fork", "pause",
	// "unpause", "result", …
	Verb       string
	Program    int    // of a start: the number of the program that the run executes
	ExternalID string // of a start: empty if it gave none
	Run        string // the run that it was about, or that a start made or found; empty if unknown
	New        string // of a restart or a fork: the new run
	Message    string // of a signal or a question: the message's ID; of an event: its ID
	Priority   int    // of an update: the one that the run gets
	Name       string // of a signal: its name; of a question: its text; of an event: its topic; of others: any
	Output     string // of a result: what the run returned; of a question: the answer; of a wait: the event's payload
	RolledBack bool   // the call was in a transaction that was rolled back
	Outcome    Outcome
	Error      string
}

// A Line is one line of a worker's ledger. It was written before the process did anything else.
type Line struct {
	At      time.Duration
	Worker  string // "3.2" is the second process in place 3
	Event   string
	Run     string
	Step    string
	Attempt int
	Lease   string
	Detail  string // of END the result; of POINT the point; of REFUSED the statement; of UNDO the undone step
}

// The events of a ledger.
const (
	Started = "STARTED" // the process is there
	Online  = "ONLINE"  // the worker is registered: Detail is its ID in the database
	Begin   = "BEGIN"   // the function of a step begins
	End     = "END"     // … and returns a result
	Fail    = "FAIL"    // … or an error
	Point   = "POINT"   // the process is about to kill or freeze itself at a point of the code
	Refused = "REFUSED" // a fenced write changed nothing
	Undo    = "UNDO"    // a compensation had its effect
	Consume = "CONSUME" // a consumer looked at an event
	Stopped = "STOPPED" // Worker.Run returned: Detail is "goroutines: 0", the number that were left, or "error: …"
)

// Stop returns what a line of the event Stopped says: the number of goroutines that were left, or the error of
// Worker.Run.
func (l Line) Stop() (goroutines int, err string) {
	if text, failed := strings.CutPrefix(l.Detail, "error: "); failed {
		return 0, text
	}
	n, bad := strconv.Atoi(strings.TrimPrefix(l.Detail, "goroutines: "))
	if bad != nil {
		return 0, fmt.Sprintf("cannot read %q", l.Detail)
	}
	return n, ""
}

// A Change is a change of a row of kagzi.workflow_runs or kagzi.step_runs, recorded by a trigger in the same
// transaction. Payloads are left out, and of outputs there is a hash.
type Change struct {
	ChangeID  int64
	At        time.Time // by the database's clock, when the statement changed the row
	TxID      uint64
	Table     string // "workflow_runs" or "step_runs"
	Operation string // "INSERT", "UPDATE", "DELETE"
	Run       string
	Step      string
	Attempt   int
	OldStatus string
	NewStatus string
	OldLease  string
	NewLease  string
	Old       json.RawMessage // of a DELETE, the row; null otherwise: then it is the New of the row's change before
	New       json.RawMessage // the row, without the columns that are null; null if there is none
	By        string          // the application_name of the connection: a worker process gives its name, such as "3.2"
}

// A Run is a row of kagzi.workflow_runs at the end.
type Run struct {
	ID, ExternalID, Workflow, Queue, Status, ErrorKind, Error string
	Parent, ParentStep, Origin                                string
	Schedule                                                  string // its name
	FireAt                                                    time.Time
	Input, Output                                             string
	Version, Attempts                                         int
	Created, Finished                                         time.Time
	CancelRequested                                           time.Time
	Lease                                                     string
	Quarantined                                               bool
	// of the output, as in Change; empty if there is none
	Hash        string
	Paused      bool
	WaitingOn   string // as JSON
	Compensated bool   // its compensations have begun
	Epoch       int    // how often it has continued
}

// A Step is a row of kagzi.step_runs at the end.
type Step struct {
	Run, Step, Status, Kind, Child, ErrorKind string
	Attempt                                   int
	Position, Sequence                        int64
	Output                                    string
	WakeAt, Started, Finished                 time.Time
	ForgottenBy                               int
	RunAttempt                                int
	Hash                                      string // of the output, as in Change; empty if there is none
	Called                                    bool   // of a compensation: there is a call to make
}

// A Message is a row of kagzi.signals at the end.
type Message struct {
	Run, Name, ID, Payload, ConsumedBy string
	Sequence                           int64
}

// An Event is a row of kagzi.events at the end.
type Event struct {
	Topic, ID, Payload string
	Position           int64
	Namespace          string
}

// An Awaited is a row of kagzi.awaited_events at the end.
type Awaited struct{ Topic, ID string }

// A Reader is a row of kagzi.subscriptions at the end.
type Reader struct {
	Topic, Consumer string
	Position        int64 // it has consumed all events up to this one
	LookedAt        int64
	Namespace       string
}

// A Verb is a row of kagzi.run_events at the end.
type Verb struct {
	// Event is CANCELLED, TERMINATED, RESUMED, RESTARTED, FORKED, PAUSED, UNPAUSED, UPDATED or DELETED
	Run, Event, Other, Reason string
	At                        time.Time
}

// A Worker is a row of kagzi.workers at the end.
type Worker struct {
	ID, Status         string
	PID                int
	Started, Heartbeat time.Time
	Stopped            time.Time
}

// A Plan is a row of kagzi.schedules at the end.
type Plan struct {
	Schedule        string
	Created, Cursor time.Time // every tick up to Cursor is decided
	Problem         string
}

// A Tick is a tick of a schedule that was due during the round, as another program than Kagzi computes it.
type Tick struct {
	Schedule string
	At       time.Time
	Overlap  string
	May      string // "fire": exactly one run; "fire or skip": at most one run
}

// An Effect is what a transactional step wrote into the application's own table, in the transaction of its record.
type Effect struct {
	Run, Step string
	From, To  string // accounts
	Amount    int64
}

// An Item is an item of a batch that a transactional step of the run has dealt with.
type Item struct{ Item, Run string }

// An Exit is the end of a worker process, as the driver saw it.
type Exit struct {
	At     time.Duration
	Worker string // its name, "3.2"
	Killed bool   // it did not end by itself with success: a signal ended it, or it exited in the middle of a run
}

// A Sample is what the driver saw at one moment, over a connection of its own.
type Sample struct {
	At       time.Duration
	Trouble  bool      // a fault is under way, or is over for less than the time that recovery may take
	Lapsed   int       // runs that are RUNNING although their lease is over
	Due      int       // runs that a live worker could have claimed, because they are due and it has free slots
	DueSince time.Time // when the oldest of these became due
	DueRun   string    // which that is
	// for queues and keys with limits that have room, the due run that is next, if a live worker has a free slot
	Next     map[string]string
	Untold   map[string]string // runs that sleep and wait for events which are published, each with one of them
	Now      time.Time         // the database's clock
	Running  map[string]string // runs that are RUNNING, with their lease
	Held     map[string]bool   // leases that a live worker process says that it holds
	Ended    int               // runs that have ended so far
	Runnable float64           // what Runnable returned
}

// Add adds what another database has. The first one is added to a sample without any.
func (s *Sample) Add(o Sample) {
	if s.Running == nil {
		s.Running, s.Next, s.Untold = map[string]string{}, map[string]string{}, map[string]string{}
	}
	maps.Copy(s.Running, o.Running)
	maps.Copy(s.Next, o.Next)
	maps.Copy(s.Untold, o.Untold)
	if s.Due == 0 || o.Due > 0 && o.DueSince.Before(s.DueSince) {
		s.DueSince, s.DueRun = o.DueSince, o.DueRun
	}
	s.Now, s.Lapsed, s.Due, s.Ended = o.Now, s.Lapsed+o.Lapsed, s.Due+o.Due, s.Ended+o.Ended
}

// An Injected is a fault that was injected.
type Injected struct {
	Fault  string // its name
	Began  time.Duration
	Ended  time.Duration
	Effect int    // how often it was seen to do something; zero makes the round INVALID
	Note   string // the effect as seen, for people
	Err    string // why it could not be injected
}
