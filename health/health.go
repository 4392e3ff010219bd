// Package health has the report that Client.Health of package kagzi returns, and that the handlers of Client.Readiness and
// Client.Liveness answer with.
package health

import "time"

// A Status says how well something is.
type Status string

// The statuses, from best to worst.
const (
	Healthy   Status = "healthy"
	Degraded  Status = "degraded"  // part of the work does not go on, or somebody should look
	Unhealthy Status = "unhealthy" // the client cannot work, or no work goes on
)

// Worse reports whether s is worse than other.
func (s Status) Worse(other Status) bool { return s.rank() > other.rank() }

func (s Status) rank() int {
	switch s {
	case Healthy:
		return 0
	case Degraded:
		return 1
	default:
		return 2
	}
}

// A Report is what Client.Health found in the client's namespace. As JSON it contains no address, user or password of the
// database.
type Report struct {
	// Status is the worst of the Checks' statuses.
	Status    Status `json:"status"`
	Namespace string `json:"namespace"`
	// At is the database's time; zero if it did not answer.
	At      time.Time `json:"at,omitzero"`
	Checks  []Check   `json:"checks"`
	Workers Workers   `json:"workers,omitzero"`
	// Queues has the due runs, by queue and workflow.
	Queues []Queue `json:"queues,omitempty"`
	// Quarantined has the IDs of the newest few runs that failed with KindCrashLoop, KindNondeterminism, KindBadInput or
	// KindUnreadable: kagzi.RunID(id) is the Ref to one.
	Quarantined []string `json:"quarantined,omitempty"`
}

// Check returns the check of that name, or one that is Healthy and empty if there is none: checks that need the database
// are left out while it is away.
func (r Report) Check(name string) Check {
	for _, c := range r.Checks {
		if c.Name == name {
			return c
		}
	}
	return Check{Name: name, Status: Healthy}
}

// A Check is one part of a Report.
//
// Client.Health has "database", "pool", "schema", "writable", "workers", "queues", "schedules" and "quarantined". Only while
// there is something wrong it has "histories", about runs that wait because their histories cannot be read, and "work", about
// requests of workers of this process that the database refuses. Client.Liveness has "process", or a "worker" for
// each worker that is stuck.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"` // the finding, and what to do about it
}

// Workers sums up the workers that are registered and not OFFLINE.
type Workers struct {
	Live     int `json:"live"`     // heartbeats come, and runs are claimed
	Draining int `json:"draining"` // heartbeats come, and nothing is claimed any more
	Silent   int `json:"silent"`   // no heartbeat for longer than the worker's StaleAfter
	Active   int `json:"active"`   // workflow functions under way, as the last heartbeats of the live ones said
	Most     int `json:"most"`     // the sum of the live ones' MaxConcurrent
	// OldestHeartbeat is the oldest last heartbeat among those that are live or draining.
	OldestHeartbeat time.Time `json:"oldest_heartbeat,omitzero"`
}

// A Queue has the runs of one workflow that are due in one queue.
type Queue struct {
	Queue    string    `json:"queue"`
	Workflow string    `json:"workflow"`
	Due      int       `json:"due"`                // runs that could be executed now; see More
	More     bool      `json:"more,omitempty"`     // there are more than were counted
	Since    time.Time `json:"since"`              // when the first of them became due
	Versions []int     `json:"versions,omitempty"` // that the counted runs ask for; a run without any takes each
	Workers  int       `json:"workers"`            // live workers of the queue that have a handler for the workflow
	Stranded []int     `json:"stranded,omitempty"` // of Versions, those that none of these workers has a handler for
}
