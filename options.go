package kagzi

import (
	"encoding/json"
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

type (
	inTx           struct{ tx pgx.Tx }
	collectErrors  struct{}
	defaultVersion struct{}
	detached       struct{}
	stepInput      struct{ v any }
)

// Detached leaves a child running when its parent ends or is cancelled. It is an option of [StartChild] and [RunChild]
// alone.
func Detached() StartOption { return detached{} }

func (inTx) startOption()     {}
func (ID) startOption()       {}
func (Queue) startOption()    {}
func (Delay) startOption()    {}
func (At) startOption()       {}
func (Priority) startOption() {}
func (Version) startOption()  {}
func (Metadata) startOption() {}
func (Timeout) startOption()  {}
func (detached) startOption() {}

func (Timeout) stepOption()   {}
func (Isolation) stepOption() {}
func (stepInput) stepOption() {}

func (Timeout) branchOption()       {}
func (Concurrency) branchOption()   {}
func (collectErrors) branchOption() {}

func (Version) handleOption()        {}
func (defaultVersion) handleOption() {}

func (inTx) changeOption()  {}
func (Grace) changeOption() {}

func (inTx) restartOption()    {}
func (Version) restartOption() {}
func (ID) restartOption()      {}

// startConfig is what a start's options say.
type startConfig struct {
	id       ID
	queue    string // empty: not given
	delay    time.Duration
	at       time.Time
	priority int // zero: not given
	version  int
	timeout  time.Duration
	metadata json.RawMessage
	policy   json.RawMessage
	messages []Message // all that were given, in their order
	tx       pgx.Tx
	ifActive IfActive
	ifEnded  IfEnded
	detached bool

	inputHash []byte // of the input: set by newRun
}

// startOptions validates opts; the last of a kind wins, but for messages.
func startOptions(opts []StartOption) (startConfig, error) {
	var cfg startConfig
	var errs []error
	check := func(err error) { errs = append(errs, err) }
	for _, o := range opts {
		switch o := o.(type) {
		case ID:
			cfg.id = o
			check(validateExternalID(string(o)))
		case Queue:
			cfg.queue = string(o)
			check(validateQueue(string(o)))
		case Delay:
			cfg.delay, cfg.at = time.Duration(o), time.Time{}
			check(validateDuration("delay", time.Duration(o)))
		case At:
			cfg.at, cfg.delay = time.Time(o), 0
			if cfg.at.IsZero() {
				check(errors.New("kagzi: At is the zero time: leave the option out"))
			}
			check(validateTime("At", cfg.at))
		case Priority:
			cfg.priority = int(o)
			check(validatePriority(int(o)))
		case Version:
			cfg.version = int(o)
			check(validateVersion(int(o)))
		case Metadata:
			check(validateMetadata(o))
			cfg.metadata, _ = json.Marshal(o) // a map of strings always encodes
		case Timeout:
			cfg.timeout = time.Duration(o)
			check(validateTimeout("timeout", time.Duration(o)))
		case RetryPolicy:
			check(o.validate())
			cfg.policy, _ = json.Marshal(o) // one that is valid always encodes
		case IfActive:
			cfg.ifActive = o
			check(o.validate())
		case IfEnded:
			cfg.ifEnded = o
			check(o.validate())
		case Message:
			cfg.messages = append(cfg.messages, o)
			check(o.validate())
		case inTx:
			cfg.tx = o.tx
			if o.tx == nil {
				check(errNilTx)
			}
		case detached:
			cfg.detached = true
		case nil:
			check(errNilOption)
		}
	}
	if end := cfg.at.Add(cfg.timeout).UTC(); validateTime("At", cfg.at) == nil && end.Year() > 9999 {
		check(fmt.Errorf("kagzi: At %s and timeout %v together end in the year %d: the last is 9999", cfg.at.Format(time.RFC3339), cfg.timeout, end.Year()))
	}
	return cfg, errors.Join(errs...)
}

var (
	errNilOption = errors.New("kagzi: there is a nil option: leave it out")
	errNilTx     = errors.New("kagzi: InTx(nil): begin a transaction first")
)

// stepConfig is what a step's options say.
type stepConfig struct {
	timeout   time.Duration
	policy    RetryPolicy
	isolation Isolation // of its transaction, if it has one; empty: not given
	undoneBy  undoneBy
	input     *stepInput // nil: not given
}

// stepOptions validates opts, of a step with a transaction if tx is true; the last of a kind wins.
func stepOptions(opts []StepOption, tx bool) (stepConfig, error) {
	var cfg stepConfig
	var err error
	for _, o := range opts {
		switch o := o.(type) {
		case Timeout:
			cfg.timeout = time.Duration(o)
			err = errors.Join(err, validateTimeout("timeout", time.Duration(o)))
		case RetryPolicy:
			cfg.policy = o
			err = errors.Join(err, o.validate())
		case Isolation:
			cfg.isolation = o
			err = errors.Join(err, o.validate(tx))
		case undoneBy:
			cfg.undoneBy = o
		case stepInput:
			cfg.input = &o
		case nil:
			err = errors.Join(err, errNilOption)
		}
	}
	cfg.policy = cfg.policy.withDefaults()
	return cfg, err
}

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

// branchConfig is what a group's options say.
type branchConfig struct {
	timeout     time.Duration
	concurrency int
	collect     bool
}

func branchOptions(opts []BranchOption) (branchConfig, error) {
	var cfg branchConfig
	var err error
	for _, o := range opts {
		switch o := o.(type) {
		case Timeout:
			cfg.timeout = time.Duration(o)
			err = errors.Join(err, validateTimeout("timeout", time.Duration(o)))
		case Concurrency:
			cfg.concurrency = int(o)
			if o < 1 {
				err = errors.Join(err, fmt.Errorf("kagzi: concurrency %d: give at least 1, or leave the option out", int(o)))
			}
		case collectErrors:
			cfg.collect = true
		case nil:
			err = errors.Join(err, errNilOption)
		}
	}
	return cfg, err
}

// waitTimeout returns the timeout that a wait was given, zero if there is none.
func waitTimeout(given []Timeout) (time.Duration, error) {
	switch len(given) {
	case 0:
		return 0, nil
	case 1:
		return time.Duration(given[0]), validateTimeout("timeout", time.Duration(given[0]))
	}
	return 0, fmt.Errorf("kagzi: there are %d timeouts: give one", len(given))
}

// changeConfig is what a change's options say.
type changeConfig struct {
	tx     pgx.Tx
	reason string
	grace  time.Duration // zero: not given
	forget []string
	dry    bool
}

// takes says which options a verb takes besides those that each takes.
type takes uint

const (
	takesReason takes = 1 << iota
	takesGrace
	takesForget
	takesDryRun
	takesNewRun        // ID and NewInput, which are of one new run
	takesCompensations // InheritCompensations
)

// changeOptions validates opts, and refuses those that the change does not take; the last of a kind wins, but Forgets add up.
func changeOptions(opts []ChangeOption, verb takes) (changeConfig, error) {
	var cfg changeConfig
	var errs []error
	check := func(err error) { errs = append(errs, err) }
	need := func(option takes, refusal string) {
		if verb&option == 0 {
			check(errors.New("kagzi: " + refusal))
		}
	}
	for _, o := range opts {
		switch o := o.(type) {
		case inTx:
			cfg.tx = o.tx
			if o.tx == nil {
				check(errNilTx)
			}
		case Reason:
			cfg.reason = o.text()
			need(takesReason, "a message takes no Reason: put it into the payload, or leave it out")
		case Grace:
			cfg.grace = time.Duration(o)
			check(validateTimeout("grace", cfg.grace))
			need(takesGrace, "Grace is for Cancel and CancelAll, which wait for steps under way: leave it out")
		case forgetSteps:
			cfg.forget = append(cfg.forget, o...)
			for _, step := range o {
				check(validateStepID(step))
			}
			need(takesForget, "Forget is for Resume and ResumeAll, which try failures again: leave it out")
		case dryRun:
			cfg.dry = true
			need(takesDryRun, dryRunOfOne)
		case nil:
			check(errNilOption)
		}
	}
	return cfg, errors.Join(errs...)
}

// dryRunOfOne refuses a DryRun of a change that is about no filter.
const dryRunOfOne = "DryRun is for the verbs that take a RunFilter, such as CancelAll: leave it out, or call one of these with a filter"

// changeTx is changeOptions for what has no events to keep a reason with.
func changeTx(opts []ChangeOption) (pgx.Tx, error) {
	cfg, err := changeOptions(opts, takesReason)
	return cfg.tx, err
}
