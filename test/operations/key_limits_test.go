package operations

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// A ledger counts the runs under way by name, and remembers the most.
type ledger struct {
	mu        sync.Mutex
	now, most map[string]int
}

func (l *ledger) begin(names ...string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range names {
		l.now[n]++
		l.most[n] = max(l.most[n], l.now[n])
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, n := range names {
			l.now[n]--
		}
	}
}

// Several workers, each with a pool of its own, and some of them behind a transaction pooler, execute runs with and
// without keys of two queues with limits. No step begins beyond a limit of its key, queue or group, and all runs end.
func TestLimitsOfKeysAndQueues(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	ctx := kit.Context(t)
	for _, q := range []admin.QueueLimits{
		{Queue: "a", MaxRunning: 5, EachKey: admin.KeyLimits{MaxRunning: 2}},
		{Queue: "b", EachKey: admin.KeyLimits{MaxRunning: 1}, Hold: true},
		{Queue: "c", EachKey: admin.KeyLimits{MaxRunning: 1}},
	} {
		if err := admin.New(c).Queues.Set(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.New(c).Keys.Set(ctx, "a", "key 0", admin.KeyLimits{MaxRunning: 3, Weight: 2}); err != nil {
		t.Fatal(err)
	}
	type input struct{ Queue, Key, Group string }
	wf := kagzi.Define[input, string]("limited")
	l := &ledger{now: map[string]int{}, most: map[string]int{}}
	pooler := dbtest.Pooler(t, db)
	for _, dsn := range []string{db.DSN, db.DSN, pooler, pooler} {
		pool := dbtest.OpenPool(t, dsn)
		own := kit.NewClient(t, pool)
		w := kit.NewWorker(t, own, kagzi.WorkerConfig{
			Queues:        map[string]int{"a": 1, "b": 1, "c": 2},
			MaxConcurrent: 20,
		})
		kagzi.Handle(w, wf, func(ctx kagzi.Context, in input) (string, error) {
			names := []string{"queue " + in.Queue}
			if in.Key != "" {
				names = append(names, in.Queue+" "+in.Key)
			}
			if in.Group != "" {
				names = append(names, "group "+in.Group)
			}
			work := func(ctx context.Context) error {
				defer l.begin(names...)()
				_, err := pool.Exec(ctx, `SELECT`)
				return err
			}
			if err := kagzi.Do(ctx, "first", work); err != nil {
				return "", err
			}
			if err := kagzi.Sleep(ctx, "a while", 5*time.Millisecond); err != nil {
				return "", err
			}
			return in.Key, kagzi.Do(ctx, "second", work)
		})
		kit.StartWorker(t, w)
	}
	var calls []kagzi.Call
	for i := range 240 {
		in := input{Queue: []string{"a", "b", "c", "c"}[i%4]}
		opts := []kagzi.StartOption{kagzi.Queue(in.Queue)}
		switch {
		case i%5 == 0:
		case i%7 == 0:
			in.Group = "group"
			opts = append(opts, kagzi.Group(in.Group))
		default:
			in.Key = fmt.Sprint("key ", i%3)
			opts = append(opts, kagzi.Key(in.Key))
		}
		calls = append(calls, wf.With(in, opts...))
	}
	var started []kagzi.Started
	for some := range slices.Chunk(calls, 4) { // each start makes all workers look at once
		now, err := c.StartMany(ctx, some)
		if err != nil {
			t.Fatal(err)
		}
		started = append(started, now...)
	}
	for _, s := range started {
		if _, err := kit.Find(t, c, wf, s.ID).Result(ctx); err != nil {
			t.Error(err)
		}
	}
	for name, limit := range map[string]int{
		"queue a": 5, "a key 0": 3, "a key 1": 2, "a key 2": 2, "b key 0": 1,
		"b key 1": 1, "b key 2": 1, "c key 0": 1, "c key 1": 1, "c key 2": 1, "group group": 1,
	} {
		if most := l.most[name]; most > limit || most == 0 {
			t.Errorf("%s: %d at a time, the limit is %d", name, most, limit)
		}
	}
}
