package kagzi

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi/internal/text"
)

// An option that has no meaning for the call that it is given to does not compile, or the call refuses it before it does
// anything.
type (
	// A StartOption goes to [Start], [StartChild], [RunChild], [Workflow.With], [Client.StartMany] and [Define]. There
	// are [ID], [IfActive], [IfEnded], [Queue], [Delay], [At], [Priority], [Version], [Metadata], [Timeout],
	// [RetryPolicy], [Message], [InTx] and [Detached].
	StartOption interface{ startOption() }
	// A StepOption goes to [Step], [StepTx], [Do] and [DoTx]: [Timeout], [RetryPolicy] and [Input]; to [Step] and [StepTx] also [UndoneBy],
	// and to [StepTx] and [DoTx] [Isolation].
	StepOption interface{ stepOption() }
	// A BranchOption goes to [Parallel], [Map] and [Race]: [Timeout], [Concurrency] and [CollectErrors].
	BranchOption interface{ branchOption() }
	// A HandleOption says which code executes a run. To [Handle] go [Version] and [DefaultVersion]; to [Worker.Replay], and to
	// Replay of package kagzitest, [Version] and [AllowAdditions].
	HandleOption interface{ handleOption() }
	// A ChangeOption goes to what changes runs, schedules and workers: [InTx] to all of them, [Client.Signal] too, and [Reason] to all
	// but Signal; it is kept of changes of runs alone. To [Client.Cancel] and [Client.CancelAll] goes also [Grace], to
	// [Client.Resume] and [Client.ResumeAll] also [Forget], and to those with a [RunFilter] also [DryRun].
	ChangeOption interface{ changeOption() }
	// A RestartOption goes to [Client.Restart], [Client.Fork], [Client.RestartAll] and [Client.ForkAll]: [Version], [Reason] and [InTx].
	// To those for one run go also [ID] and [NewInput], to those with a [RunFilter] also [DryRun], and to Fork and ForkAll also
	// [InheritCompensations].
	RestartOption interface{ restartOption() }
)

type (
	// Queue is where the run waits for a worker: it must be the [WorkerConfig] Queue of one, else nobody claims
	// the run. Without it, "default"; for a child, its parent's.
	Queue string
	// Delay is how long after the start, by the database's clock, the run becomes due. Of Delay and At the last
	// given wins.
	Delay time.Duration
	// At is when the run becomes due: at once, if that is past. The zero time is refused, and one after the year 9999. Of Delay and At the last given wins.
	At time.Time
	// Priority is 1 (first) to 4; without it 3, for a child its parent's.
	Priority int
	// Version is a version of a workflow's code: of a handler, or the one a run must have. A run without it
	// takes the highest version of the worker that executes it first, or that worker's [DefaultVersion], and stays with it.
	Version int
	// Metadata are the run's searchable tags: at most 64, and 16 KiB of keys and values together.
	Metadata map[string]string
	// Timeout bounds what it is given to: each attempt of a step; a run from when it is first due to its
	// end, sleeps included; a group of branches; the wait for a signal. Without it there is no limit. Under 1 µs is
	// refused: Timeout(30) is 30 ns.
	//
	// A run's passes also while no worker takes the run: a [Coordinator] ends it, within ten seconds by default.
	Timeout time.Duration
	// Isolation is the level of a [StepTx]'s transaction: Isolation(pgx.RepeatableRead) or Isolation(pgx.Serializable).
	// Without it the level is READ COMMITTED, whatever the default of the database or role. It is for StepTx and [DoTx]
	// alone: on another step, and at a level that Postgres does not have (READ UNCOMMITTED too), the run fails with
	// [kind.BadRequest].
	//
	// A stricter transaction may end with a serialization failure, which is a failed attempt of [kind.Database]: give a
	// [RetryPolicy] with enough attempts. It fails in the same way if a signal reaches the run meanwhile, or its lease is
	// extended (after half of LeaseTimeout).
	Isolation pgx.TxIsoLevel
	// Grace is how long [Client.Cancel] waits for steps under way, whose contexts have ended, before the compensations run: at
	// least a millisecond, and one minute without it. They may begin a second later. It holds for the run and its children. A run
	// that has registered no compensation ends at once. [UndoneBy] does not undo a step that returns after it.
	// [CoordinatorConfig] has another Grace, of workers.
	Grace time.Duration
	// Concurrency is how many branches of a [Map], [Parallel] or [Race] are under way at once. Without it, all. In a Race the
	// next branch begins when one has failed.
	Concurrency int
)

// InTx makes the change in the caller's transaction: it takes place when tx commits, or not at all. Until then
// nobody else sees it: a run started so can be waited for after the commit.
//
// tx must be READ COMMITTED, Postgres's default, for all but [Client.Signal], and starts without [ReplaceActive],
// [RejectEnded] or [StartIfFailed]: a stricter one is refused.
func InTx(tx pgx.Tx) interface {
	StartOption
	ChangeOption
	RestartOption
} {
	return inTx{tx}
}

// Input records the input of a step beside its result, for people: [Client.Steps] shows it as StepAttempt.Input. v is encoded by
// the client's Codec and Sealer before each series of attempts that this process makes. The step's function does not get it,
// and a replay does not read it, so v may change with the code.
//
// If v cannot be encoded, or is larger than ClientConfig.MaxPayload, the call is wrong, and the run fails with
// [kind.BadRequest]. If the Sealer fails, the attempt does.
func Input(v any) StepOption { return stepInput{v} }

// CollectErrors lets every branch finish; what failed is in the [BranchErrors]. Without it the first error
// cancels the others, and a failed [Map] returns only zero values.
func CollectErrors() BranchOption { return collectErrors{} }

// DefaultVersion makes the handler the one for runs that name no [Version] and are executed for the first time: without it, that
// is the worker's handler of the highest version. With it a new version can be there for those that ask for it, before it
// takes all.
func DefaultVersion() HandleOption { return defaultVersion{} }

// Detached leaves a child running when its parent ends or is cancelled. It is an option of [StartChild] and [RunChild]
// alone.
func Detached() StartOption { return detached{} }

// DryRun reports what would be changed and what skipped, and changes nothing: each run is changed in a transaction that
// is rolled back.
func DryRun() interface {
	ChangeOption
	RestartOption
} {
	return dryRun{}
}

// A Reason says why a run is changed. It is kept with the event: see [Client.Events]. Control characters are replaced,
// and of more than 1 KiB the end is left out.
type Reason string

// maxReason is how many bytes of a reason are kept.
const maxReason = 1 << 10

func (r Reason) text() string { return text.Sanitize(string(r), maxReason) }

// Forget names failures that a [Client.Resume] forgets, besides those that the last attempt ended with: steps, children,
// branches and groups, as [Client.Steps] shows them: "probe", "ship/0/pack", "ship". With a branch or group go the failures
// that it failed with, and with each failure those of the branches and groups around it. A group whose Timeout has passed
// begins again, with its whole time. If a name is that of no failure, or of one that another attempt of the step was to follow,
// Resume changes nothing and returns [ErrNotFound]. So it does for a [WaitSignal] that has timed out: [Client.Fork] from it.
//
// The steps after a forgotten failure keep their recorded results, although what failed may now succeed.
func Forget(steps ...string) ChangeOption { return forgetSteps(steps) }

type forgetSteps []string

type (
	inTx           struct{ tx pgx.Tx }
	collectErrors  struct{}
	defaultVersion struct{}
	detached       struct{}
	stepInput      struct{ v any }
)

type dryRun struct{}

func (inTx) startOption()            {}
func (Queue) startOption()           {}
func (Delay) startOption()           {}
func (At) startOption()              {}
func (Priority) startOption()        {}
func (Version) startOption()         {}
func (Metadata) startOption()        {}
func (Timeout) startOption()         {}
func (detached) startOption()        {}
func (Timeout) stepOption()          {}
func (Isolation) stepOption()        {}
func (stepInput) stepOption()        {}
func (Timeout) branchOption()        {}
func (Concurrency) branchOption()    {}
func (collectErrors) branchOption()  {}
func (Version) handleOption()        {}
func (defaultVersion) handleOption() {}
func (inTx) changeOption()           {}
func (Grace) changeOption()          {}
func (Reason) changeOption()         {}
func (forgetSteps) changeOption()    {}
func (dryRun) changeOption()         {}
func (inTx) restartOption()          {}
func (Version) restartOption()       {}
func (Reason) restartOption()        {}
func (dryRun) restartOption()        {}

var (
	errNilOption = errors.New("kagzi: there is a nil option: leave it out")
	errNilTx     = errors.New("kagzi: InTx(nil): begin a transaction first")
)

// validate refuses what is no level of Postgres's, and any level for a step without a transaction.
func (i Isolation) validate(tx bool) error {
	switch {
	case !tx:
		return fmt.Errorf("kagzi: Isolation %s is for a transaction, which this step does not have: use StepTx or DoTx, or leave the option out", text.Quote(string(i)))
	case i == Isolation(pgx.ReadUncommitted):
		return errors.New("kagzi: Postgres has no READ UNCOMMITTED, and treats it as READ COMMITTED: leave Isolation out")
	case i != Isolation(pgx.ReadCommitted) && i != Isolation(pgx.RepeatableRead) && i != Isolation(pgx.Serializable):
		return fmt.Errorf("kagzi: there is no isolation level %s: give Isolation(pgx.RepeatableRead) or Isolation(pgx.Serializable)", text.Quote(string(i)))
	}
	return nil
}
