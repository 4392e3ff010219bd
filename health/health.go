// Package health holds the report that Health of an admin.Client returns. Its handlers Readiness and Liveness answer
// with one, too.
package health

import "time"

// A Status says how well something is.
type Status string

// The statuses, from best to worst.
const (
	Healthy   Status = "healthy"
	Degraded  Status = "degraded"  // part of the work is stuck, or needs the attention of people
	Unhealthy Status = "unhealthy" // the client cannot work, or no work is done
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

// A Report is the result of admin.Client.Health for the client's namespace. As JSON it contains no address, user or
// password of the database.
type Report struct {
	// Status is the worst of the Checks' statuses.
	Status    Status `json:"status"`
	Namespace string `json:"namespace"`
	// At is the database's time; zero if it did not answer.
	At      time.Time `json:"at,omitzero"`
	Checks  []Check   `json:"checks"`
	Workers Workers   `json:"workers,omitzero"`
	// Queues counts the due runs by queue and workflow.
	Queues []Queue `json:"queues,omitempty"`
	// Failed counts the runs that failed within the last hour by workflow and kind, the most frequent first: at most
	// twenty pairs.
	Failed []Failed `json:"failed,omitempty"`
	// Quarantined has the IDs of the newest few runs that failed with kind.CrashLoop, kind.Nondeterminism,
	// kind.BadInput or kind.Unreadable: kagzi.RunID(id) is the Ref to one.
	Quarantined []string `json:"quarantined,omitempty"`
}

// Check returns the check of that name. If there is none, it returns a Healthy one without a Detail: a Report has no
// checks that need the database while that is away.
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
// Health of an admin.Client has the checks "database", "pool", "schema", "writable", "workers", "queues", "schedules",
// "failures" and "quarantined". Others are there only while they have something to say: "pauses", one for each pause;
// "limits", one for each queue or limit of steps that lets due work wait for long; "keys", one for each key or group
// that stands still; "strays", "consumers", "events", "hung", "nested", "compensations", "suspects", "histories",
// "messages", "inboxes", "doubts" and "work", which are not Healthy; and "topics", which is. docs/health.md says what
// each finds.
//
// Liveness has "process", or a "worker" for each worker that is stuck.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"` // the finding, and what to do about it
}

// Workers sums up the workers that are registered and not OFFLINE.
type Workers struct {
	Live     int `json:"live"`     // workers that send heartbeats and claim runs
	Draining int `json:"draining"` // workers that send heartbeats and claim no more runs
	Silent   int `json:"silent"`   // workers that have sent no heartbeat for longer than their StaleAfter
	// workflow functions that the live workers were executing at their last heartbeats
	Active int `json:"active"`
	Most   int `json:"most"`           // the sum of the live workers' MaxConcurrent
	Hung   int `json:"hung,omitempty"` // slots of the live workers that are held by runs whose code hangs
	// OldestHeartbeat is the oldest last heartbeat of a live or draining worker.
	OldestHeartbeat time.Time `json:"oldest_heartbeat,omitzero"`
}

// A Queue counts the runs of one workflow that are due in one queue. Paused runs do not count. Of the runs that wait
// for a slot of their key, only the first few of the keys that have a free slot, and are next, do.
type Queue struct {
	Queue    string    `json:"queue"`
	Workflow string    `json:"workflow"`
	Due      int       `json:"due"`            // runs that could be executed now; see More
	More     bool      `json:"more,omitempty"` // there are more than were counted
	Since    time.Time `json:"since"`          // when the first of them became due
	// of the counted runs; a run that has none yet gets its worker's default
	Versions []int `json:"versions,omitempty"`
	Workers  int   `json:"workers"`            // live workers of the queue that have a handler for the workflow
	Stranded []int `json:"stranded,omitempty"` // those of Versions that none of these workers has a handler for
}

// A Failed counts the runs of one workflow that failed with one kind.
type Failed struct {
	Workflow string `json:"workflow"`
	Kind     string `json:"kind"` // as in package kind
	Runs     int    `json:"runs"`
	// there may be more: of each kind the last thousand runs are counted, or fewer if there are many kinds
	More bool      `json:"more,omitempty"`
	Last time.Time `json:"last"` // when the last of them failed
}
