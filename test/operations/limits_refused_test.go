package operations

import (
	"testing"
	"time"

	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// Limits that must be mistakes are refused, and change nothing.
func TestLimitsOfQueuesAreRefused(t *testing.T) {
	t.Parallel()
	db := dbtest.Database(t)
	c := kit.NewClient(t, db.Pool)
	ctx := kit.Context(t)
	for says, l := range map[string]admin.QueueLimits{
		"the queue's name is empty": {MaxRunning: 1},
		"MaxRunning is -1":          {Queue: "q", MaxRunning: -1},
		"EachKey.MaxRunning is -1":  {Queue: "q", EachKey: admin.KeyLimits{MaxRunning: -1}},
		"EachKey has a Weight":      {Queue: "q", EachKey: admin.KeyLimits{Weight: 2}},
		"Rate.Starts is -1":         {Queue: "q", Rate: admin.Rate{Starts: -1}},
		"EachKey.Rate.Starts is -1": {Queue: "q", EachKey: admin.KeyLimits{Rate: admin.Rate{Starts: -1}}},
		"take more than a year":     {Queue: "q", Rate: admin.Rate{Starts: 1, Per: 300 * 24 * time.Hour, Burst: 3}},
	} {
		kit.MustContain(t, admin.New(c).Queues.Set(ctx, l), says)
	}
	kit.MustContain(t, admin.New(c).Keys.Set(ctx, "q", "", admin.KeyLimits{}), "Key is empty")
	kit.MustContain(t, admin.New(c).Keys.Set(ctx, "q", "k", admin.KeyLimits{Weight: -1}), "Weight is -1")
	for says, f := range map[string]admin.KeyFilter{
		"no Queue":          {},
		"belongs to no":     {Queue: "q", Groups: true},
		"order is \"size\"": {Queue: "q", Order: "size"},
		"Limit is 1001":     {Queue: "q", Limit: 1001},
		"only that one":     {Queue: "q", Order: admin.Fullest, After: "k"},
		`queue "a\x00"`:     {Queue: "a\x00"},
		`Prefix "a\xff"`:    {Queue: "q", Prefix: "a\xff"},
		`After "a\x00"`:     {Groups: true, After: "a\x00"},
	} {
		_, err := admin.New(c).Keys.List(ctx, f)
		kit.MustContain(t, err, says)
	}
	_, err := admin.New(c).Limits.List(ctx, "a\x00", 1)
	kit.MustContain(t, err, `limit "a\x00" contains`)
	kit.MustContain(t, admin.New(c).Limits.Delete(ctx, ""), "the limit's name is empty")
	if n := dbtest.QueryOne[int](t, db.Pool, `SELECT (SELECT count(*) FROM kagzi.queues) + (SELECT count(*)
		FROM kagzi.run_keys)`); n != 0 {
		t.Errorf("%d rows", n)
	}
}
