package store

// Statuses of a run.
const (
	Pending   = "PENDING"
	Running   = "RUNNING"
	Sleeping  = "SLEEPING"
	Completed = "COMPLETED"
	Failed    = "FAILED"
	Cancelled = "CANCELLED"
)

// Kinds of steps.
const (
	KindFunction     = "FUNCTION"
	KindBranch       = "BRANCH"
	KindSleep        = "SLEEP"
	KindSignal       = "SIGNAL"
	KindChild        = "CHILD_WORKFLOW"
	KindMarker       = "MARKER"
	KindCompensation = "COMPENSATION"
	KindPeek         = "PEEK"
	KindReserve      = "RESERVE"
	KindPublish      = "PUBLISH"
	KindMetadata     = "METADATA"
)
