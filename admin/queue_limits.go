package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/failure"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/internal/valid"
	"github.com/kagzi/kagzi/store"
	"github.com/kagzi/kagzi/store/inspect"
)

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
	// EachKey are the limits of each [kagzi.Key] of the queue, if [Client.SetKey] has set no other ones. It has no
	// Weight.
	EachKey KeyLimits `json:"each_key,omitzero"`
	// Hold lets a run keep its slot while it sleeps, waits, or is between two attempts. With one slot for each key, the
	// runs of a key then form a sequence: each begins once the one before has ended, in order of [kagzi.Priority], time
	// and start.
	Hold bool `json:"hold,omitempty"`
}

// KeyLimits are limits of a [kagzi.Key]. For [Client.SetKey], a zero field means what QueueLimits.EachKey says; there,
// it is no limit.
type KeyLimits struct {
	// MaxRunning is how many runs of the key may have a slot at once.
	MaxRunning int `json:"max_running,omitempty"`
	// Rate is how often runs of the key may take one.
	Rate Rate `json:"rate,omitzero"`
	// Weight is how many runs the key starts when it is its turn; zero means one. If all keys of a queue have more work
	// than the workers can do, a key of weight 3 starts three times as many runs as one of weight 1.
	Weight int `json:"weight,omitempty"`
}

// The largest MaxRunning and Weight.
const (
	mostRunning = 1_000_000
	mostWeight  = 10_000
)

func (l KeyLimits) validate(field string) error {
	err := l.Rate.validate(field + ".Rate")
	if l.MaxRunning < 0 || l.MaxRunning > mostRunning {
		err = errors.Join(err, fmt.Errorf("kagzi: %s.MaxRunning is %d: give 1 to %d, or 0 for no limit", field,
			l.MaxRunning, mostRunning))
	}
	if l.Weight < 0 || l.Weight > mostWeight {
		err = errors.Join(err, fmt.Errorf("kagzi: %s.Weight is %d: give 1 to %d, or 0 for 1", field, l.Weight,
			mostWeight))
	}
	return err
}

func (l QueueLimits) validate() error {
	err := errors.Join(valid.Queue(l.Queue), l.Rate.validate("QueueLimits.Rate"),
		l.EachKey.validate("QueueLimits.EachKey"))
	if l.EachKey.Weight != 0 {
		err = errors.Join(err, errors.New("kagzi: QueueLimits.EachKey has a Weight: all keys have the same one then; "+
			"give a key its own with SetKey"))
	}
	if l.MaxRunning < 0 || l.MaxRunning > mostRunning {
		err = errors.Join(err, fmt.Errorf("kagzi: QueueLimits.MaxRunning is %d: give 1 to %d, or 0 for no limit",
			l.MaxRunning, mostRunning))
	}
	return err
}

// SetQueue sets the limits of a queue, in place of those that it had; with Queue alone it removes them. The limits of
// [Client.SetKey] stay. The queue needs no run or worker. The next claims obey them. Runs under way go on, even if they
// are more than a lower MaxRunning; they count. Claims that are under way in that moment may not know of a new limit,
// and their runs may not count for up to a minute. SetQueue takes [kagzi.Reason] and [kagzi.Actor].
func (c *Client) SetQueue(ctx context.Context, l QueueLimits, opts ...kagzi.ChangeOption) error {
	cfg, err := c.limitOptions(opts)
	if err == nil {
		err = l.validate()
	}
	if err == nil {
		err = of(c).CheckSchema(ctx, nil)
	}
	if err == nil {
		err = c.core.Store.Limits.SetQueue(ctx, store.QueueLimits{
			Queue: l.Queue, MaxRunning: l.MaxRunning, Rate: l.Rate.stored(),
			EachKey: l.EachKey.stored(), Held: l.Hold,
		}, cfg.Why)
	}
	return c.limitsSet(ctx, l.Queue, err, "set the limits of queue %s", text.Quote(l.Queue))
}

// SetKey sets the limits that a key of a queue has instead of QueueLimits.EachKey, and its weight, in place of those
// that it had. The zero KeyLimits removes them. SetKey may be called before the key has a run, and before the queue has
// limits. It takes effect as [Client.SetQueue] does, with the same options.
func (c *Client) SetKey(ctx context.Context, queue string, key kagzi.Key, l KeyLimits,
	opts ...kagzi.ChangeOption,
) error {
	cfg, err := c.limitOptions(opts)
	if err == nil {
		err = errors.Join(valid.Queue(queue), valid.Key("Key", string(key)), l.validate("KeyLimits"))
	}
	if err == nil {
		err = of(c).CheckSchema(ctx, nil)
	}
	if err == nil {
		err = c.core.Store.Limits.SetKey(ctx, queue, string(key), l.stored(), cfg.Why)
	}
	return c.limitsSet(ctx, queue, err, "set the limits of key %s of queue %s", text.Quote(string(key)),
		text.Quote(queue))
}

// limitsSet lets workers claim by the new limits of the queue.
func (c *Client) limitsSet(ctx context.Context, queue string, err error, what string, args ...any) error {
	if err == nil {
		err = c.core.Hints.Due(ctx, nil, store.DueRun{Queue: queue})
	}
	return of(c).FailedIf(ctx, err, what, args...)
}

// stored returns the rate as the store knows it.
func (r Rate) stored() store.Rate {
	if r.Starts == 0 {
		return store.Rate{}
	}
	return store.Rate{Interval: r.every(), Burst: max(r.Burst, 1)}
}

// rateOf is the inverse of stored: one start in the time between two.
func rateOf(r store.Rate) Rate {
	if r.Interval == 0 {
		return Rate{}
	}
	return Rate{Starts: 1, Per: r.Interval, Burst: r.Burst}
}

func (l KeyLimits) stored() store.KeyLimits {
	return store.KeyLimits{MaxRunning: l.MaxRunning, Weight: l.Weight, Rate: l.Rate.stored()}
}

func keyLimitsOf(l store.KeyLimits) KeyLimits {
	return KeyLimits{MaxRunning: l.MaxRunning, Weight: l.Weight, Rate: rateOf(l.Rate)}
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

// Queues returns the first thousand queues that have limits, by name.
func (c *Client) Queues(ctx context.Context) ([]QueueInfo, error) {
	err := of(c).Usable(ctx)
	if err == nil {
		err = of(c).CheckSchema(ctx, nil)
	}
	var rows []inspect.QueueState
	if err == nil {
		rows, err = c.core.Inspect.QueueStates(ctx, nil)
	}
	if err != nil {
		return nil, failure.Wrap(of(c).Public(ctx, err), "list the queues with limits")
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

// A KeyFilter chooses keys of a queue for [Client.Keys].
type KeyFilter struct {
	Queue  string
	Groups bool     // the groups of the namespace, which belong to no queue
	Prefix string   // of the key
	Order  KeyOrder // zero: [ByKey]
	After  string   // with ByKey, the last key of the page before
	Limit  int      // at most 1000; zero means 100
}

// A KeyOrder says which keys [Client.Keys] returns first.
type KeyOrder string

// The orders of keys.
const (
	ByKey   KeyOrder = "key"
	Fullest KeyOrder = "fullest" // those with the most slots, of some hundred that have slots
	// those whose first run has been due for the longest time, of some hundred that have due runs
	LongestWaiting KeyOrder = "longest_waiting"
)

// KeyInfo is a key of a queue, or a group, and the use of its limits.
type KeyInfo struct {
	Key    string    `json:"key"`
	Limits KeyLimits `json:"limits"` // its own
	// runs that have a slot; Running and Waiting count up to 20,000 / KeyFilter.Limit, within 20 and 1,000: 200 by
	// default
	Running      int       `json:"running"`
	Waiting      int       `json:"waiting"`                // runs that are due and wait for a slot
	WaitingSince time.Time `json:"waiting_since,omitzero"` // since when the first of these is due
	// when a claim looks at the key next; zero if it waits for an event, such as the end of a run
	NextLook time.Time `json:"next_look,omitzero"`
}

// Keys returns keys of a queue, or groups: those that have limits of their own, and those with runs that a worker has
// looked for. A key of a queue without workers may be missing; [kagzi.Client.List] finds its runs. A filter has a Queue
// or Groups.
func (c *Client) Keys(ctx context.Context, f KeyFilter) ([]KeyInfo, error) {
	err := of(c).Usable(ctx)
	order := map[KeyOrder]inspect.KeyOrder{
		"": inspect.ByName, ByKey: inspect.ByName, Fullest: inspect.Fullest,
		LongestWaiting: inspect.LongestWaiting,
	}
	_, known := order[f.Order]
	switch {
	case err != nil:
	case f.Groups && f.Queue != "":
		err = errors.New("kagzi: there are a Queue and Groups: a group belongs to no queue; give one of them")
	case !f.Groups && f.Queue == "":
		err = errors.New("kagzi: the filter has no Queue: give the queue of the keys, or Groups")
	case !known:
		err = fmt.Errorf("kagzi: the order is %s: give ByKey, Fullest or LongestWaiting", text.Quote(string(f.Order)))
	case f.After != "" && order[f.Order] != inspect.ByName:
		err = errors.New("kagzi: there is an After with another order than ByKey: only that one has pages")
	case f.Limit < 0 || f.Limit > 1000:
		err = fmt.Errorf("kagzi: the Limit is %d: give 1 to 1000, or 0 for 100", f.Limit)
	default:
		for _, n := range []struct{ field, name string }{{"queue", f.Queue}, {"Prefix", f.Prefix}, {"After", f.After}} {
			if n.name != "" {
				err = errors.Join(err, valid.Name(n.field, n.name))
			}
		}
	}
	if err == nil {
		err = of(c).CheckSchema(ctx, nil)
	}
	var rows []inspect.KeyState
	if err == nil {
		limit := f.Limit
		if limit == 0 {
			limit = 100
		}
		rows, err = c.core.Inspect.Keys(ctx, nil, inspect.KeyFilter{
			Queue: f.Queue, Prefix: f.Prefix, After: f.After,
			Order: order[f.Order], Limit: limit,
		})
	}
	if err != nil {
		return nil, failure.Wrap(of(c).Public(ctx, err), "list keys")
	}
	infos := make([]KeyInfo, len(rows))
	for i, r := range rows {
		infos[i] = KeyInfo{r.Key, keyLimitsOf(r.Limits), r.Running, r.Waiting, r.Since, r.Next}
	}
	return infos, nil
}
