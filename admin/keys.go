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

// Keys has the keys of a queue and their limits, and the groups: admin.New(client).Keys.
type Keys struct{ core *core.Client }

// KeyLimits are limits of a [kagzi.Key]. For [Keys.Set], a zero field means the value of
// QueueLimits.EachKey; there, it is no limit.
type KeyLimits struct {
	// MaxRunning is how many runs of the key may have a slot at once.
	MaxRunning int `json:"max_running,omitempty"`
	// Rate is how often runs of the key may take one.
	Rate Rate `json:"rate,omitzero"`
	// Weight is how many runs the key starts when it is its turn; zero means one. If all keys of a queue have more work
	// than the workers can do, a key of weight 3 starts three times as many runs as one of weight 1.
	Weight int `json:"weight,omitempty"`
}

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

func (l KeyLimits) stored() store.KeyLimits {
	return store.KeyLimits{MaxRunning: l.MaxRunning, Weight: l.Weight, Rate: l.Rate.stored()}
}

func keyLimitsOf(l store.KeyLimits) KeyLimits {
	return KeyLimits{MaxRunning: l.MaxRunning, Weight: l.Weight, Rate: rateOf(l.Rate)}
}

// Set sets the limits that a key of a queue has instead of QueueLimits.EachKey, and its weight, in place of those
// that it had. The zero KeyLimits removes them. Set may be called before the key has a run, and before the queue has
// limits. It takes effect as [Queues.Set] does, with the same options.
func (k Keys) Set(ctx context.Context, queue string, key kagzi.Key, l KeyLimits,
	opts ...kagzi.ChangeOption,
) error {
	cfg, err := limitOptions(k.core, opts)
	if err == nil {
		err = errors.Join(valid.Queue(queue), valid.Key("Key", string(key)), l.validate("KeyLimits"))
	}
	if err == nil {
		err = k.core.CheckSchema(ctx, nil)
	}
	if err == nil {
		err = k.core.Store.Limits.SetKey(ctx, queue, string(key), l.stored(), cfg.Why)
	}
	return limitsSet(ctx, k.core, queue, err, "set the limits of key %s of queue %s", text.Quote(string(key)),
		text.Quote(queue))
}

// A KeyFilter chooses keys of a queue for [Keys.List].
type KeyFilter struct {
	Queue  string
	Groups bool     // the groups of the namespace, which belong to no queue
	Prefix string   // of the key
	Order  KeyOrder // zero: [ByKey]
	After  string   // with ByKey, the last key of the page before
	Limit  int      // at most 1000; zero means 100
}

// A KeyOrder says which keys [Keys.List] returns first.
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

// List returns keys of a queue, or groups: those that have limits of their own, and those with runs that a worker has
// looked for. A key of a queue without workers may be missing; [kagzi.Client.List] finds its runs. A filter has a Queue
// or Groups.
func (k Keys) List(ctx context.Context, f KeyFilter) ([]KeyInfo, error) {
	err := k.core.Usable(ctx)
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
		err = k.core.CheckSchema(ctx, nil)
	}
	var rows []inspect.KeyState
	if err == nil {
		limit := f.Limit
		if limit == 0 {
			limit = 100
		}
		rows, err = k.core.Inspect.Keys(ctx, nil, inspect.KeyFilter{
			Queue: f.Queue, Prefix: f.Prefix, After: f.After,
			Order: order[f.Order], Limit: limit,
		})
	}
	if err != nil {
		return nil, failure.Wrap(k.core.Public(ctx, err), "list keys")
	}
	infos := make([]KeyInfo, len(rows))
	for i, r := range rows {
		infos[i] = KeyInfo{r.Key, keyLimitsOf(r.Limits), r.Running, r.Waiting, r.Since, r.Next}
	}
	return infos, nil
}
