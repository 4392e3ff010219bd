package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/core"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

// Queues has the limits on the runs of queues: admin.New(client).Queues. [Pauses] stops a queue.
type Queues struct{ core *core.Client }

// QueueLimits say how much of a queue's work all workers together do at once. A zero field is no limit.
//
// A run takes a slot when a worker claims it, and gives it up when it ends, sleeps or waits. With Hold it gives it up
// only when it ends. A run whose worker has died keeps its slot until another worker has it, or it ends. Limits count
// rows, not events: so no crash loses a slot, and no run starts beyond a limit. The only exception is a failover to an
// asynchronous standby that loses claims.
//
// Its JSON, and that of the other types of limits, follows the rules of [ScheduleInfo].
type QueueLimits struct {
	Queue string `json:"queue"`
	// MaxRunning is how many runs of the queue may have a slot at once.
	MaxRunning int `json:"max_running,omitempty"`
	// Rate is how often runs may take a slot: with Hold, how many start; without, also how many go on after a wait.
	Rate Rate `json:"rate,omitzero"`
	// EachKey are the limits of each [kagzi.Key] of the queue, if [Keys.Set] has set no other ones. It has no
	// Weight.
	EachKey KeyLimits `json:"each_key,omitzero"`
	// Hold lets a run keep its slot while it sleeps, waits, or is between two attempts. With one slot for each key, the
	// runs of a key then form a sequence: each begins once the one before has ended, in order of [kagzi.Priority], time
	// and start.
	Hold bool `json:"hold,omitempty"`
}

// The largest MaxRunning and Weight.
const (
	mostRunning = 1_000_000
	mostWeight  = 10_000
)

func (l QueueLimits) validate() error {
	err := errors.Join(valid.Queue(l.Queue), l.Rate.validate("QueueLimits.Rate"),
		l.EachKey.validate("QueueLimits.EachKey"))
	if l.EachKey.Weight != 0 {
		err = errors.Join(err, errors.New("kagzi: QueueLimits.EachKey has a Weight: all keys have the same one then; "+
			"give a key its own with admin.Keys.Set"))
	}
	if l.Hold && l == (QueueLimits{Queue: l.Queue, Hold: true}) {
		err = errors.Join(err, errors.New("kagzi: QueueLimits.Hold says when a run gives its slot up, and there is no "+
			"limit: give MaxRunning, Rate or EachKey, too"))
	}
	if l.MaxRunning < 0 || l.MaxRunning > mostRunning {
		err = errors.Join(err, fmt.Errorf("kagzi: QueueLimits.MaxRunning is %d: give 1 to %d, or 0 for no limit",
			l.MaxRunning, mostRunning))
	}
	return err
}

func (l QueueLimits) stored() store.QueueLimits {
	return store.QueueLimits{
		Queue: l.Queue, MaxRunning: l.MaxRunning, Rate: l.Rate.stored(), EachKey: l.EachKey.stored(), Held: l.Hold,
	}
}

func queueLimitsOf(l store.QueueLimits) QueueLimits {
	return QueueLimits{
		Queue: l.Queue, MaxRunning: l.MaxRunning, Rate: rateOf(l.Rate), EachKey: keyLimitsOf(l.EachKey), Hold: l.Held,
	}
}

// Declare is for code: call it when a program starts. It sets the limits of a queue as [Queues.Set] does, in place of
// those that the code has declared before. It does not change what [Queues.Set] has set: that stays until
// [Queues.Reset], and Declare logs so.
func (q Queues) Declare(ctx context.Context, l QueueLimits) error {
	return q.change(ctx, l, nil, func(store.Why) error {
		by, err := q.core.Store.Limits.DeclareQueue(ctx, l.stored())
		warnOfOverride(ctx, q.core, by, "queue", l.Queue)
		return err
	}, "declare")
}

// Set sets the limits of a queue, in place of those that it had; with Queue alone it removes them. It is for operators:
// no [Queues.Declare] changes what they have set. It takes [kagzi.Reason] and [kagzi.Actor].
//
// The limits of [Keys.Set] stay. The queue needs no run or worker. The next claims obey the limits. Runs under way go
// on, even if they are more than a lower MaxRunning; they count. Claims that are under way in that moment may not know
// of a new limit, and their runs may not count for up to a minute.
func (q Queues) Set(ctx context.Context, l QueueLimits, opts ...kagzi.ChangeOption) error {
	return q.change(ctx, l, opts, func(why store.Why) error {
		return q.core.Store.Limits.SetQueue(ctx, l.stored(), why)
	}, "set")
}

// Reset takes back what operators have set, in favour of what the code declares. It takes [kagzi.Reason] and
// [kagzi.Actor], and returns [kagzi.ErrNotFound] if no code declares limits of the queue.
func (q Queues) Reset(ctx context.Context, queue string, opts ...kagzi.ChangeOption) error {
	return q.change(ctx, QueueLimits{Queue: queue}, opts, func(why store.Why) error {
		return q.core.Store.Limits.ResetQueue(ctx, queue, why)
	}, "reset")
}

// change changes the limits of a queue by do.
func (q Queues) change(ctx context.Context, l QueueLimits, opts []kagzi.ChangeOption, do func(store.Why) error,
	verb string,
) error {
	err := changeLimits(ctx, q.core, opts, l.validate(), do)
	return limitsSet(ctx, q.core, l.Queue, err, verb+" the limits of queue %s", text.Quote(l.Queue))
}

// limitsSet lets workers claim by the new limits of the queue.
func limitsSet(ctx context.Context, c *core.Client, queue string, err error, what string, args ...any) error {
	if err == nil {
		err = c.Hints.Due(ctx, nil, store.DueRun{Queue: queue})
	}
	return c.FailedIf(ctx, err, what, args...)
}

// QueueInfo is a queue that has limits, and the use of them. Its Rates read as one start in the time between two.
type QueueInfo struct {
	QueueLimits
	Running int `json:"running"` // runs that have a slot, up to 10,000
	// since when the first run waits that is due, and that no limit of its key holds up; runs of keys count once a
	// worker has looked at their key
	WaitingSince time.Time `json:"waiting_since,omitzero"`
	NextStart    time.Time `json:"next_start,omitzero"` // when the Rate allows the next start, if not now
	ChangedAt    time.Time `json:"changed_at,omitzero"` // the limits

	Declared *QueueLimits `json:"declared,omitempty"` // by the code; nil: it declares none
	Override *Override    `json:"override,omitempty"` // who has set them; nil: they are as declared
}

// List returns the first thousand queues that have limits, by name.
func (q Queues) List(ctx context.Context) ([]QueueInfo, error) {
	err := q.core.Usable(ctx)
	if err == nil {
		err = q.core.CheckSchema(ctx, nil)
	}
	var rows []inspect.QueueState
	if err == nil {
		rows, err = q.core.Inspect.QueueStates(ctx, nil)
	}
	if err != nil {
		return nil, failure.Wrap(q.core.Public(ctx, err), "list the queues with limits")
	}
	infos := make([]QueueInfo, len(rows))
	for i, r := range rows {
		infos[i] = QueueInfo{
			queueLimitsOf(r.QueueLimits), r.Running, r.Since, r.NextStart, r.ChangedAt,
			declaredOf(r.Origin, queueLimitsOf), overrideOf(r.Origin),
		}
	}
	return infos, nil
}
