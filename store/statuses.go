package store

// Statuses of a run.
const (
	Pending   = "PENDING"
	Running   = "RUNNING"
	Sleeping  = "SLEEPING"
	Completed = "COMPLETED"
	Failed    = "FAILED"
	Cancelled = "CANCELLED"
	InDoubt   = "IN_DOUBT" // of an attempt of a step, as people see it
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
	KindRequest      = "REQUEST" // a request that was read
	KindReply        = "REPLY"
	KindAsk          = "ASK" // an answer that was read
	KindValue        = "VALUE"
	KindEvent        = "EVENT" // an event of a topic that a run has waited for
	KindCheckpoint   = "CHECKPOINT"
)

// IsWait reports whether a step of the kind waits for a message.
func IsWait(kind string) bool {
	return kind == KindSignal || kind == KindRequest || kind == KindAsk || kind == KindEvent
}
