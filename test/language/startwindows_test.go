package language_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestWindowsThatAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	c := kit.NewClient(t, kit.Unreachable(t))
	ctx := t.Context()
	id, once := kagzi.ID("x"), kagzi.OncePer(time.Hour)
	typed := kagzi.Debounce{Key: "doc", Delay: time.Second}
	many, batch := kagzi.Define[[]int, int]("many"), kagzi.Batch{}
	item := func(opts ...kagzi.StartOption) error { _, err := kagzi.StartItem(ctx, c, many, 1, opts...); return err }
	start := func(opts ...kagzi.StartOption) error {
		_, err := kagzi.Start(ctx, c, kit.Noop, 1, opts...)
		return err
	}
	schedule := func(run kagzi.Call) error {
		return c.Schedule(ctx, kagzi.Schedule{Name: "s", Every: time.Hour, Run: run})
	}
	for want, err := range map[string]error{
		"OncePer without an ID":               start(once),
		"OncePer is 5 ns":                     start(id, kagzi.OncePer(5)),
		"OncePer is 0":                        start(id, kagzi.OncePer(0)),
		`OncePer takes no IfEnded`:            start(id, once, kagzi.RejectEnded),
		"OncePer takes no Message":            start(id, once, kagzi.DefineSignal[int]("s").With(1)),
		"either Debounce or OncePer":          start(typed, id, once),
		"Debounce.Key is empty":               start(kagzi.Debounce{Delay: time.Second}),
		"Debounce.Key \"a\\n\" contains":      start(kagzi.Debounce{Key: "a\n", Delay: time.Second}),
		"Debounce.Delay is 0":                 start(kagzi.Debounce{Key: "k"}),
		"Debounce.Max is 1s, less than Delay": start(kagzi.Debounce{Key: "k", Delay: time.Minute, Max: time.Second}),
		"Debounce takes no ID":                start(typed, id),
		"Debounce takes no Delay":             start(typed, kagzi.Delay(time.Second)),
		"Debounce takes no At":                start(typed, kagzi.At(time.Now())),
		"Debounce takes no Message":           start(typed, kagzi.DefineSignal[int]("s").With(1)),
		"without an ID: give a kagzi.ID, or":  start(typed, kagzi.RejectActive),
		"start them with StartItem":           start(batch),
		"an item needs a kagzi.Batch":         item(),
		"Batch.Most is 1001":                  item(kagzi.Batch{Most: 1001}),
		"Batch.Most is -1":                    item(kagzi.Batch{Most: -1}),
		"Batch.Within is 5 ns":                item(kagzi.Batch{Within: 5}),
		"Batch.Key \"\\xff\" is not valid":    item(kagzi.Batch{Key: "\xff"}),
		"an item takes no ID":                 item(batch, id),
		"an item takes no Debounce":           item(batch, typed),
		"an item takes no At":                 item(batch, kagzi.At(time.Now())),
		"run of a schedule takes no OncePer":  schedule(kit.Noop.With(1, once)),
		"run of a schedule takes no Debounce": schedule(kit.Noop.With(1, typed)),
		"run of a schedule takes no Batch":    schedule(kagzi.ItemOf(many, 1, batch)),
		"run of a schedule is no Item":        schedule(kagzi.ItemOf(many, 1)),
	} {
		kit.MustContain(t, err, want)
	}
}

// As defaults the options apply to the starts that they are for, and to no others.
func TestWindowsAsDefaults(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	once := kagzi.Define[int, int]("once", kagzi.OncePer(time.Hour))
	kit.Begin(k, once, 1)
	kit.Begin(k, once, 1)
	if first, again := kit.Begin(k, once, 1, kagzi.ID("x")),
		kit.Begin(k, once, 2, kagzi.ID("x")); again.ID() != first.ID() {
		t.Error("two runs")
	}
	many := kagzi.Define[[]int, int]("many", kagzi.Batch{Within: time.Hour})
	kit.Begin(k, many, []int{1})
	kit.Begin(k, many, []int{1})
	k.Schedule(kagzi.Schedule{Name: "once", Every: time.Hour, Run: once.With(1)})
	k.Schedule(kagzi.Schedule{Name: "many", Every: time.Hour, Run: many.With([]int{1})})

	parent := kagzi.Define[string, int]("parent")
	kagzi.Handle(w, many, func(_ kagzi.Context, in []int) (int, error) { return len(in), nil })
	kagzi.Handle(w, once, func(_ kagzi.Context, in int) (int, error) { return in, nil })
	kagzi.Handle(w, parent, func(ctx kagzi.Context, with string) (int, error) {
		if with == "option" {
			return kagzi.RunChild(ctx, "child", once, 1, kagzi.OncePer(time.Hour))
		}
		n, err := kagzi.RunChild(ctx, "child", once, 5)
		m, other := kagzi.RunChild(ctx, "other", many, []int{1, 2})
		return n + m, errors.Join(err, other)
	})
	kit.StartWorker(t, w)
	if n, err := kit.Begin(k, parent, "default").Result(k.Ctx); n != 7 || err != nil {
		t.Error(n, err)
	}
	if _, err := kit.Begin(k, parent, "option").Result(k.Ctx); kagzi.KindOf(err) != kind.BadRequest {
		t.Error(err)
	} else {
		kit.MustContain(t, err, "a child takes no OncePer")
	}
}

// The items of a batch go through the Codec and the Sealer one by one. A restart, and a start with the ID of a restart,
// know them.
func TestSealedBatch(t *testing.T) {
	k := newSealedKit(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	many := kagzi.Define[[]string, string]("many", kagzi.Batch{Most: 2, Within: time.Hour})
	kagzi.Handle(w, many, func(_ kagzi.Context, in []string) (string, error) { return strings.Join(in, "+"), nil })
	kit.StartWorker(t, w)
	var runs []*kagzi.Run[string]
	for _, item := range []string{"a", "b"} {
		run, err := kagzi.StartItem(k.Ctx, k.Client, many, item)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	if out, err := runs[0].Result(k.Ctx); out != "a+b" || err != nil || runs[0].Existed() || !runs[1].Existed() {
		t.Error(out, err)
	}
	if info := k.InfoOf(runs[0].ID()); string(info.Input) != `["a","b"]` {
		t.Errorf("input %s", info.Input)
	}
	again, err := admin.New(k.Client).Runs.Restart(k.Ctx, runs[0].ID(), kagzi.ID("again"))
	if err != nil {
		t.Fatal(err)
	}
	run, err := kagzi.Find(k.Ctx, k.Client, many, again)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := run.Result(k.Ctx); out != "a+b" || err != nil {
		t.Error(out, err)
	}
	fork, err := admin.New(k.Client).Runs.Restart(k.Ctx, runs[0].ID(), admin.NewInput([]string{"c"}))
	if err != nil {
		t.Fatal(err)
	}
	if run, err = kagzi.Find(k.Ctx, k.Client, many, fork); err != nil {
		t.Fatal(err)
	}
	if out, err := run.Result(k.Ctx); out != "c" || err != nil {
		t.Error(out, err)
	}
}

// A handler that has no slice for a batch fails its run, as one whose items do not decode.
func TestBatchThatDoesNotDecode(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	many := kagzi.Define[[]string, int]("many", kagzi.Batch{Most: 1})
	wrong := kagzi.Define[string, int]("many")
	kagzi.Handle(w, wrong, func(kagzi.Context, string) (int, error) { return 0, nil })
	kagzi.Handle(w, kagzi.Define[[]int, int]("ints"), func(kagzi.Context, []int) (int, error) { return 0, nil })
	kit.StartWorker(t, w)
	run, err := kagzi.StartItem(k.Ctx, k.Client, many, "a")
	if err == nil {
		_, err = run.Result(k.Ctx)
	}
	kit.MustContain(t, err, "batch of 1 items", "no slice")
	run, err = kagzi.StartItem(k.Ctx, k.Client, kagzi.Define[[]string, int]("ints"), "a", kagzi.Batch{Most: 1})
	if err == nil {
		_, err = run.Result(k.Ctx)
	}
	if kagzi.KindOf(err) != kind.BadInput {
		t.Error(err)
	}
	kit.MustContain(t, err, "item 0")
}

// Workers execute what many callers start, in transactions too: each item once, in batches of at most five.
func TestBatchesOfManyCallers(t *testing.T) {
	k := kit.New(t)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	many := kagzi.Define[[]string, int]("many", kagzi.Batch{Most: 5, Within: 5 * time.Millisecond})
	var mu sync.Mutex
	var got []string
	kagzi.Handle(w, many, func(_ kagzi.Context, in []string) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if len(in) > 5 {
			t.Errorf("a batch has %d items", len(in))
		}
		got = append(got, in...)
		return len(in), nil
	})
	kit.StartWorker(t, w)
	var want []string
	var callers sync.WaitGroup
	for c := range 4 {
		for i := range 25 {
			want = append(want, fmt.Sprint(c, "-", i))
		}
		callers.Go(func() {
			for i := range 25 {
				if err := startItem(k, many, fmt.Sprint(c, "-", i), i%3 == 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d items were executed, want %d", len(got), len(want))
	}
}

// startItem starts an item, in a transaction if inTx, and waits for its batch.
func startItem(k *kit.Kit, wf kagzi.Workflow[[]string, int], item string, inTx bool) error {
	if !inTx {
		run, err := kagzi.StartItem(k.Ctx, k.Client, wf, item)
		if err == nil {
			_, err = run.Result(k.Ctx)
		}
		return err
	}
	tx, err := k.Pool.Begin(k.Ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // it may be committed
	run, err := kagzi.StartItem(k.Ctx, k.Client, wf, item, kagzi.InTx(tx))
	if err == nil {
		err = tx.Commit(k.Ctx)
	}
	if err == nil {
		_, err = run.Result(k.Ctx)
	}
	return err
}
