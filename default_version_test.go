package kagzi_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestDefaultVersion gives runs that name no version another than the highest.
func TestDefaultVersion(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	code := func(version int) func(kagzi.Context, int) (int, error) {
		return func(kagzi.Context, int) (int, error) { return version, nil }
	}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, wf, code(1))
	kagzi.Handle(w, wf, code(2), kagzi.DefaultVersion(), kagzi.Version(2))
	kagzi.Handle(w, wf, code(3), kagzi.Version(3))
	kagzi.Handle(w, kagzi.Define[int, int]("other"), code(1), kagzi.DefaultVersion())
	kagzi.Handle(w, kagzi.Define[int, int]("other"), code(2), kagzi.Version(2))
	stop := kit.StartWorker(t, w)
	for want, opts := range [][]kagzi.StartOption{1: {kagzi.Version(1)}, 2: {}, 3: {kagzi.Version(3)}} {
		if want == 0 {
			continue
		}
		run := kit.Begin(k, wf, 0, opts...)
		if got := kit.ResultOf(k, run); got != want {
			t.Errorf("a run with %v was executed by version %d, want %d", opts, got, want)
		}
		if info, err := run.Info(k.Ctx); err != nil || info.Version != want {
			t.Errorf("version %d, %v", info.Version, err)
		}
	}
	page, _, err := admin.New(k.Client).Workers.List(k.Ctx, admin.WorkerFilter{})
	if want := []string{"other/1", "other/2", "wf/1", "wf/2", "wf/3"}; err != nil || len(page) != 1 ||
		!slices.Equal(page[0].Handlers, want) {
		t.Errorf("registered %+v, %v; want %q", page, err, want)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestTwoDefaultsAreAMistake(t *testing.T) {
	t.Parallel()
	w := kit.NewWorker(t, kit.NewClient(t, dbtest.Pool(t)), kagzi.WorkerConfig{})
	wf := kagzi.Define[int, int]("wf")
	code := func(kagzi.Context, int) (int, error) { return 0, nil }
	kagzi.Handle(w, wf, code, kagzi.DefaultVersion())
	kagzi.Handle(w, wf, code, kagzi.Version(2), kagzi.DefaultVersion())
	kagzi.Handle(w, kagzi.Define[int, int]("nil"), code, nil)
	err := w.Run(context.Background())
	kit.MustContain(t, err, `versions 1 and 2 of workflow "wf" are both kagzi.DefaultVersion: choose one`,
		`handler of "nil"`, "a nil option")
	if errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
