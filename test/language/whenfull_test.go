package language_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestWhenFullIsRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	c := kit.NewClient(t, kit.Unreachable(t))
	ctx := t.Context()
	key := kagzi.Key("k")
	many := kagzi.Define[[]int, int]("many", key, kagzi.RejectNew)
	start := func(opts ...kagzi.StartOption) error {
		_, err := kagzi.Start(ctx, c, kit.Noop, 1, opts...)
		return err
	}
	startMany := func(shared ...kagzi.StartOption) error {
		_, err := c.StartMany(ctx, []kagzi.Call{kit.Noop.With(1)}, shared...)
		return err
	}
	_, item := kagzi.StartItem(ctx, c, many, 1, kagzi.Batch{})
	for want, err := range map[string]error{
		`no WhenFull "x": give kagzi.WaitForSlot, RejectNew or CancelOldest`: start(key, kagzi.WhenFull("x")),
		"noop: WhenFull without a Key or Group":                              start(kagzi.RejectNew),
		"start 1 runs: WhenFull without a Key or Group":                      startMany(kagzi.CancelOldest),
		`WhenFull "reject_new" takes no Delay`: start(key, kagzi.RejectNew,
			kagzi.Delay(time.Second)),
		`WhenFull "cancel_oldest" takes no At`: start(kagzi.Group("g"), kagzi.CancelOldest, kagzi.At(time.Now())),
		`WhenFull "reject_new" takes no Debounce`: start(key, kagzi.RejectNew,
			kagzi.Debounce{Key: "d", Delay: time.Second}),
		`WhenFull "reject_new" takes no OncePer`: start(key, kagzi.RejectNew, kagzi.ID("x"), kagzi.OncePer(time.Hour)),
		`WhenFull "reject_new" takes no Batch`:   item,
		"the run of a schedule takes no WhenFull": c.Schedule(ctx, kagzi.Schedule{
			Name: "s", Every: time.Hour,
			Run: kit.Noop.With(1, key, kagzi.RejectNew),
		}),
	} {
		kit.MustContain(t, err, want)
	}
}

// As a default, the option applies to the starts that have a key, and to no child and no schedule.
func TestWhenFullAsADefault(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	if err := admin.New(k.Client).Queues.Set(k.Ctx,
		admin.QueueLimits{Queue: "default", EachKey: admin.KeyLimits{MaxRunning: 1}}); err != nil {
		t.Fatal(err)
	}
	only := kagzi.Define[int, int]("only", kagzi.RejectNew)
	kit.Begin(k, only, 1)
	kit.Begin(k, only, 1)
	kit.Begin(k, only, 1, kagzi.Key("a"))
	if _, err := kagzi.Start(k.Ctx, k.Client, only, 1, kagzi.Key("a")); !errors.Is(err, kagzi.ErrKeyFull) {
		t.Error(err)
	} else {
		kit.MustContain(t, err,
			`start only: key "a" of queue "default" is full, so nothing was started: of a limit of 1, 0 hold a slot `+
				`and 1 wait for one, each counted up to the limit: start again later, or raise the limit with `+
				`admin.Keys.Set`)
	}
	kit.Begin(k, only, 1, kagzi.Key("a"), kagzi.WaitForSlot)
	newest := kit.Begin(k, only, 1, kagzi.Key("a"), kagzi.CancelOldest)
	if info := k.InfoOf(newest); info.Status != kagzi.StatusPending {
		t.Errorf("%+v", info)
	}
	if n, err := k.Client.List(k.Ctx, kagzi.RunFilter{Key: "a", Status: []kagzi.Status{kagzi.StatusCancelled}}); err !=
		nil || len(n) != 2 {
		t.Errorf("%d were cancelled, %v", len(n), err)
	}
	k.Schedule(kagzi.Schedule{Name: "only", Every: time.Hour, Run: only.With(1, kagzi.Key("b"))})

	parent := kagzi.Define[string, int]("parent")
	kagzi.Handle(w, only, func(_ kagzi.Context, in int) (int, error) { return in, nil })
	kagzi.Handle(w, parent, func(ctx kagzi.Context, with string) (int, error) {
		if with == "option" {
			return kagzi.RunChild(ctx, "child", only, 1, kagzi.Key("c"), kagzi.RejectNew)
		}
		a, errA := kagzi.StartChild(ctx, "a", only, 1, kagzi.Key("c"))
		b, errB := kagzi.StartChild(ctx, "b", only, 2, kagzi.Key("c"))
		if err := errors.Join(errA, errB); err != nil {
			return 0, err
		}
		n, errA := a.Result(ctx)
		m, errB := b.Result(ctx)
		return n + m, errors.Join(errA, errB)
	})
	kit.StartWorker(t, w)
	if n, err := kit.Begin(k, parent, "default").Result(k.Ctx); n != 3 || err != nil {
		t.Error(n, err)
	}
	if _, err := kit.Begin(k, parent, "option").Result(k.Ctx); kagzi.KindOf(err) != kind.BadRequest {
		t.Error(err)
	} else {
		kit.MustContain(t, err, "a child takes no WhenFull")
	}
	if n, err := newest.Result(k.Ctx); n != 1 || err != nil {
		t.Error(n, err)
	}
}
