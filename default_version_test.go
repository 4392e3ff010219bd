package kagzi

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/kagzi/kagzi/internal/dbtest"
)

// TestDefaultVersion gives runs that name no version another than the highest.
func TestDefaultVersion(t *testing.T) {
	k := newKit(t)
	wf := Define[int, int]("wf", noRetry)
	code := func(version int) func(Context, int) (int, error) {
		return func(Context, int) (int, error) { return version, nil }
	}
	w := newTestWorker(t, k.c, WorkerConfig{})
	Handle(w, wf, code(1))
	Handle(w, wf, code(2), DefaultVersion(), Version(2))
	Handle(w, wf, code(3), Version(3))
	Handle(w, Define[int, int]("other"), code(1), DefaultVersion())
	Handle(w, Define[int, int]("other"), code(2), Version(2))
	stop := startWorker(t, w)
	for want, opts := range [][]StartOption{1: {Version(1)}, 2: {}, 3: {Version(3)}} {
		if want == 0 {
			continue
		}
		run := begin(k, wf, 0, opts...)
		if got := resultOf(k, run); got != want {
			t.Errorf("a run with %v was executed by version %d, want %d", opts, got, want)
		}
		if info, err := run.Info(k.ctx); err != nil || info.Version != want {
			t.Errorf("version %d, %v", info.Version, err)
		}
	}
	page, _, err := k.c.Workers(k.ctx, WorkerFilter{})
	if want := []string{"other/1", "other/2", "wf/1", "wf/2", "wf/3"}; err != nil || len(page) != 1 || !slices.Equal(page[0].Handlers, want) {
		t.Errorf("registered %+v, %v; want %q", page, err, want)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestTwoDefaultsAreAMistake(t *testing.T) {
	t.Parallel()
	w := newTestWorker(t, newTestClient(t, dbtest.Pool(t)), WorkerConfig{})
	wf := Define[int, int]("wf")
	code := func(Context, int) (int, error) { return 0, nil }
	Handle(w, wf, code, DefaultVersion())
	Handle(w, wf, code, Version(2), DefaultVersion())
	Handle(w, Define[int, int]("nil"), code, nil)
	err := w.Run(context.Background())
	mustContain(t, err, `versions 1 and 2 of workflow "wf" are both kagzi.DefaultVersion: choose one`, `handler of "nil"`, "a nil option")
	if errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
