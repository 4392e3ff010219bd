package kagzi

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/epochs"
)

// An option that has no meaning for a call does not compile there, or the call refuses it before it does anything.
type (
	// A StartOption goes to [Start], [StartChild], [RunChild], [Workflow.With], [Client.StartMany] and [Define]. There
	// are [ID], [IfActive], [IfEnded], [OncePer], [Debounce], [Batch], [WhenFull], [Queue], [Delay], [At], [Priority],
	// [Version], [Metadata], [Headers], [Timeout], [ExecutionTimeout], [StartWithin], [RetryPolicy], [Key], [Group],
	// [Message], [InTx], and for a child [Detached] and [InheritMetadata].
	StartOption interface{ start(*startConfig) }
	// A StepOption goes to [Step], [StepTx], [Do] and [DoTx]: [Timeout], [RetryPolicy], [Limit] and [Input]; to [Step]
	// and [StepTx] also [UndoneBy], to [Step] and [Do] [Repeatable], [AtMostOnce] and [Reconcile], and to [StepTx] and
	// [DoTx] [Isolation].
	StepOption interface{ step(*stepConfig) }
	// A BranchOption goes to [Parallel], [Map] and [Race]: [Timeout], [Concurrency] and [CollectErrors].
	BranchOption interface{ branch(*branchConfig) }
	// A HandleOption says which code executes a run. [Handle] takes [Version] and [DefaultVersion]; [Worker.Replay],
	// and Replay of package kagzitest, take [Version] and [AllowAdditions].
	HandleOption interface{ Handle(*core.HandleConfig) }
	// A ContinueOption goes to [Continue]: [Timeout] and [Version].
	ContinueOption interface{ next(*epochs.End) }
	// A ChangeOption goes to the methods that change runs, schedules, consumers, workers and limits. All of them take
	// [Reason] and [Actor], which the audit log records, and all but those of limits take [InTx]; topic.Client.Publish
	// takes InTx alone. [Client.Cancel] also takes [Grace]. Packages admin and topic say which options their methods
	// take. Its method is for these packages.
	ChangeOption interface{ Change(*core.ChangeConfig) }
)

type (
	// Queue is the queue in which the run waits: only workers with this [WorkerConfig] Queue claim it. Without it, the
	// run waits in "default", a child in its parent's queue.
	Queue string
	// Delay is how long after the start, by the database's clock, the run becomes due. Of Delay and At the last one
	// given wins.
	Delay time.Duration
	// At is when the run becomes due, at once if that time is past. The zero time and a time after the year 9999 are
	// refused. Of Delay and At the last one given wins.
	At time.Time
	// Priority is 1 (first) to 4 (last). Without it, it is 3, and a child has its parent's.
	Priority int
	// Version is a version of a workflow's code: the version of a handler, or the one that a run requires. A run that
	// names none takes the highest version of the worker that executes it first, or that worker's [DefaultVersion], and
	// keeps it.
	Version int
	// Metadata are the run's searchable tags: at most 64, and 16 KiB of keys and values together.
	Metadata map[string]string
	// Timeout limits how long something takes. Of a step: each attempt. Of a run: from when it is first due to its end,
	// sleeps included. Of a group: all its branches. Of a wait: for a message, a request, an answer or an event. A
	// Timeout under 1 µs is refused, because Timeout(30) is 30 ns.
	//
	// A run's Timeout passes even if no worker takes the run: a [Coordinator] ends it, within ten seconds by default.
	Timeout time.Duration
	// ExecutionTimeout limits the duration of a run from when a worker first takes it to its end, sleeps and retries
	// included. Unlike Temporal's, it does not count the time for which the run waits for a worker. The run ends as
	// with [Timeout]. A run that is resumed has neither any more.
	ExecutionTimeout time.Duration
	// StartWithin ends a run, as failed with [kind.Deadline], if no worker has taken it that long after it was due. It
	// is for work that is worth nothing later. A pause does not stop the time.
	StartWithin time.Duration
	// Isolation is the level of a [StepTx]'s transaction: Isolation(pgx.RepeatableRead) or Isolation(pgx.Serializable).
	// Without it the level is READ COMMITTED, whatever the default of the database or role. Only StepTx and [DoTx] take
	// it: on another step, or at a level that Postgres does not have (READ UNCOMMITTED included), the run fails with
	// [kind.BadRequest].
	//
	// A stricter transaction may end with a serialization failure, which is a failed attempt of [kind.Database]: give a
	// [RetryPolicy] with enough attempts. The same failure occurs if a signal reaches the run meanwhile, another branch
	// calls [SetMetadata], or the lease is extended (after half of LeaseTimeout).
	Isolation pgx.TxIsoLevel
	// Grace is how long [Client.Cancel] waits for steps under way, whose contexts have ended, before the compensations
	// run, or the run gives up its slot: at least a millisecond; without it one minute. The compensations may begin a
	// second later. Grace applies to the run and its children. A run without registered compensations and without a
	// slot ends at once. [UndoneBy] does not undo a step that returns after the Grace. The Grace of [CoordinatorConfig]
	// is another one: it is about workers.
	Grace time.Duration
	// Concurrency is how many branches of a [Map], [Parallel] or [Race] are under way at once. Without it, all are. In
	// a Race the next branch begins when one has failed.
	Concurrency int
)

// InTx makes the change in the caller's transaction: it takes effect when tx commits, or never. Until then no other
// transaction sees it, so wait for a run that was started in tx only after the commit.
//
// tx must be READ COMMITTED, Postgres's default; a stricter one is refused. [Client.Signal], and starts without
// [ReplaceActive], [RejectEnded], [StartIfFailed], [OncePer], [Debounce] and [Batch], accept any level.
func InTx(tx pgx.Tx) interface {
	StartOption
	ChangeOption
	core.RestartOption
	core.UpdateOption
} {
	return inTx{tx}
}

// Input records the input of a step beside its result, for people: [Client.Steps] shows it as StepAttempt.Input. The
// client's Codec and Sealer encode v before each series of attempts in this process. The step's function does not
// receive v, and a replay does not read it, so v may change with the code.
//
// If v cannot be encoded, or is larger than ClientConfig.MaxPayload, the call is wrong, and the run fails with
// [kind.BadRequest]. If the Sealer fails, only the attempt fails.
func Input(v any) StepOption { return stepInput{v} }

// Repeatable is for a step that only reads or computes: not for a write, even an idempotent one. It does not wait until
// the results before it are committed, as other steps do. Its own result is written with the run's next write.
//
// If the worker dies before that, the step is executed again, and may return something else. By then only other
// repeatable steps and the workflow function have used the first result: all effects outside of the run wait for the
// record.
//
// On a branch of a [Race] without a winner, and with a [Limit], Repeatable has no effect. With [StepTx], [DoTx],
// [UndoneBy] or [AtMostOnce] the call is wrong, and the run fails with [kind.BadRequest]. See docs/steps.md.
func Repeatable() StepOption { return repeatable{} }

// AtMostOnce is for a step whose effect must not happen twice, and whose service does not recognize a repeated request.
// If the worker dies during the call, or the function panics or returns an error, the step is in doubt: the effect may
// have happened.
//
// Two errors say that nothing has happened: [Permanent] fails the step, and [RetryAfter] lets it be called again,
// according to its [RetryPolicy].
//
// A run in doubt waits, and holds nothing, until admin.Runs.Resolve or the step's [Reconcile] says what has happened.
//
// An intent is committed before the call. With [StepTx], [DoTx] and [Repeatable] the call is wrong, and the run fails
// with [kind.BadRequest]. See docs/doubt.md.
func AtMostOnce() StepOption { return atMostOnce{} }

// Reconcile finds out what a call of a step with [AtMostOnce] has done that is in doubt. fn asks the service. If the
// call has sent the Key of [CurrentStep] along, fn may look for it: all attempts of the step have the same.
//
//   - happened and a result: it is the step's.
//   - not happened: the function is called again, according to the step's [RetryPolicy].
//   - an error: it is not known. fn is asked again, after pauses that grow to an hour, unless admin.Runs.Resolve is
//     called.
//
// T is the type that the step returns; of a [Do] it is any.
func Reconcile[T any](fn func(context.Context) (result T, happened bool, err error)) StepOption {
	r := &reconcile{result: reflect.TypeFor[T]()}
	if fn != nil {
		r.call = func(ctx context.Context) (any, bool, error) { return fn(ctx) }
	}
	return r
}

// CollectErrors lets every branch finish, and returns the failures as [BranchErrors]. Without it the first error
// cancels the other branches, and a failed [Map] returns only zero values.
func CollectErrors() BranchOption { return collectErrors{} }

// DefaultVersion makes the handler the one for runs that name no [Version] and are executed for the first time. Without
// it they go to the worker's handler of the highest version. With it a worker can have a new version for the runs that
// ask for it, before all new runs take it.
//
// As an option of Update (package admin), it takes the run's version away.
func DefaultVersion() interface {
	HandleOption
	core.UpdateOption
} {
	return defaultVersion{}
}

// Detached leaves a child running when its parent ends or is cancelled. Only [StartChild] and [RunChild] take it.
func Detached() StartOption { return detached{} }

// A Reason says why something is changed. The audit log, the log of a run and a pause record it: see package admin.
// Control characters are replaced, and a text over 1 KiB is truncated.
type Reason string

// An Actor says who makes a change. It is recorded where a [Reason] is, and by the same rules.
type Actor string

type (
	inTx           struct{ tx pgx.Tx }
	collectErrors  struct{}
	defaultVersion struct{}
	detached       struct{}
	stepInput      struct{ v any }
	repeatable     struct{}
	atMostOnce     struct{}
	reconcile      struct {
		result reflect.Type
		call   func(context.Context) (any, bool, error)
	}
)

var errNilTx = errors.New("kagzi: InTx(nil): begin a transaction first")
