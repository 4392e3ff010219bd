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
	if l.MaxRunning < 0 || l.MaxRunning > mostRunning {
		err = errors.Join(err, fmt.Errorf("kagzi: QueueLimits.MaxRunning is %d: give 1 to %d, or 0 for no limit",
			l.MaxRunning, mostRunning))
	}
	return err
}

// Set sets the limits of a queue, in place of those that it had; with Queue alone it removes them. The limits of
// [Keys.Set] stay. The queue needs no run or worker. The next claims obey them. Runs under way go on, even if they
// are more than a lower MaxRunning; they count. Claims that are under way in that moment may not know of a new limit,
// and their runs may not count for up to a minute. Set takes [kagzi.Reason] and [kagzi.Actor].
func (q Queues) Set(ctx context.Context, l QueueLimits, opts ...kagzi.ChangeOption) error {
	cfg, err := limitOptions(q.core, opts)
	if err == nil {
		err = l.validate()
	}
	if err == nil {
		err = q.core.CheckSchema(ctx, nil)
	}
	if err == nil {
		err = q.core.Store.Limits.SetQueue(ctx, store.QueueLimits{
			Queue: l.Queue, MaxRunning: l.MaxRunning, Rate: l.Rate.stored(),
			EachKey: l.EachKey.stored(), Held: l.Hold,
		}, cfg.Why)
	}
	return limitsSet(ctx, q.core, l.Queue, err, "set the limits of queue %s", text.Quote(l.Queue))
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
			QueueLimits{
				Queue: r.Queue, MaxRunning: r.MaxRunning, Rate: rateOf(r.Rate), EachKey: keyLimitsOf(r.EachKey),
				Hold: r.Held,
			},
			r.Running, r.Since, r.NextStart, r.ChangedAt,
		}
	}
	return infos, nil
}
