package kagziotel

import (
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
)

// Attributes. Those without kagzi's prefix are of the semantic conventions.
const (
	attrMessagingSystem    = attribute.Key("messaging.system")
	attrMessagingOperation = attribute.Key("messaging.operation.name")
	attrMessagingType      = attribute.Key("messaging.operation.type")
	attrDestination        = attribute.Key("messaging.destination.name")
	attrMessageID          = attribute.Key("messaging.message.id")
	attrMessages           = attribute.Key("messaging.batch.message_count")
	attrErrorType          = attribute.Key("error.type")
	attrExceptionType      = attribute.Key("exception.type")
	attrExceptionMessage   = attribute.Key("exception.message")
	attrExceptionStack     = attribute.Key("exception.stacktrace")

	attrWorkflow   = attribute.Key("kagzi.workflow.name")
	attrVersion    = attribute.Key("kagzi.workflow.version")
	attrQueue      = attribute.Key("kagzi.queue.name")
	attrRun        = attribute.Key("kagzi.run.id")
	attrExternalID = attribute.Key("kagzi.run.external_id")
	attrParent     = attribute.Key("kagzi.run.parent_id")
	attrParentStep = attribute.Key("kagzi.run.parent_step")
	attrOriginRun  = attribute.Key("kagzi.run.origin_id")
	attrExisted    = attribute.Key("kagzi.run.existed")
	attrAttempt    = attribute.Key("kagzi.run.attempt")
	attrStatus     = attribute.Key("kagzi.run.status")
	attrAge        = attribute.Key("kagzi.run.age")
	attrWaited     = attribute.Key("kagzi.execution.delay")
	attrResumed    = attribute.Key("kagzi.execution.resumed")
	attrOutcome    = attribute.Key("kagzi.outcome")
	attrReason     = attribute.Key("kagzi.reason")
	attrOrigin     = attribute.Key("kagzi.start.origin")
	attrSchedule   = attribute.Key("kagzi.schedule.name")
	attrStep       = attribute.Key("kagzi.step.name")
	attrStepTry    = attribute.Key("kagzi.step.attempt")
	attrSignal     = attribute.Key("kagzi.signal.name")
	attrSlot       = attribute.Key("kagzi.slot.state")
	attrLink       = attribute.Key("kagzi.link")
)

// Outcomes of executions and attempts of steps.
const (
	completed = "completed"
	failed    = "failed"
	retried   = "retried"   // this attempt of the run has failed, and another follows
	cancelled = "cancelled" // the run was cancelled
	suspended = "suspended" // the run waits for long
	returned  = "returned"  // the worker stops, and has given the run back
	lost      = "lost"      // another worker may have the run
	abandoned = "abandoned" // the run, or a branch of it, ended meanwhile: the attempt has no outcome
)

// An instrument is the name of a metric, its unit and its form. docs/monitoring.md shows what Prometheus calls it.
type instrument struct {
	name, unit string
	form       form
}

// A form says what the values of a metric do.
type form int

const (
	counter   form = iota // they only grow
	histogram             // they are spread over buckets
	gauge                 // they rise and fall
)

// The metrics. The README lists them; the board and the rules for alerts are made of them.
var (
	runStarts         = instrument{"kagzi.run.starts", "{run}", counter}
	runDuration       = instrument{"kagzi.run.duration", "s", histogram}
	executionDelay    = instrument{"kagzi.execution.delay", "s", histogram}
	executionDuration = instrument{"kagzi.execution.duration", "s", histogram}
	stepDuration      = instrument{"kagzi.step.duration", "s", histogram}
	signalsSent       = instrument{"kagzi.signals", "{message}", counter}
	flushDuration     = instrument{"kagzi.flush.duration", "s", histogram}
	flushWrites       = instrument{"kagzi.flush.writes", "{write}", histogram}
	workerSlots       = instrument{"kagzi.worker.slots", "{slot}", gauge}
	queueDue          = instrument{"kagzi.queue.due", "{run}", gauge}
	queueDueAge       = instrument{"kagzi.queue.due_age", "s", gauge}
	queueSleeping     = instrument{"kagzi.queue.sleeping", "{run}", gauge}
	queuePaused       = instrument{"kagzi.queue.paused", "{run}", gauge}
)

// other stands for all names beyond Config.MaxNames, as in the semantic conventions.
const other = "_OTHER"

// names are the first names of one sort.
type names struct {
	most  int64
	count atomic.Int64
	known sync.Map // of the names
}

// bounded returns name, or other if there were too many before it.
func (n *names) bounded(name string) string {
	if _, ok := n.known.Load(name); ok {
		return name
	}
	if n.count.Load() >= n.most {
		return other
	}
	if n.count.Add(1) > n.most {
		n.count.Add(-1)
		return other
	}
	if _, loaded := n.known.LoadOrStore(name, true); loaded { // another goroutine was faster
		n.count.Add(-1)
	}
	return name
}

// general returns a step's name without what makes it one of many: the counts of repetitions ("pay#2") and the indices
// of Map ("ship/0/pack" is "ship/*/pack").
func general(step string) string {
	if !strings.ContainsAny(step, "#/") {
		return step
	}
	parts := strings.Split(step, "/")
	for i, p := range parts {
		p, _, _ = strings.Cut(p, "#")
		if strings.Trim(p, "0123456789") == "" {
			p = "*"
		}
		parts[i] = p
	}
	return strings.Join(parts, "/")
}

// signalName returns a signal's name without its key.
func signalName(signal string) string {
	name, _, _ := strings.Cut(signal, "/")
	return name
}
