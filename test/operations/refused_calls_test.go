package operations_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/dbtest"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// A sealer that fails as long as it is locked.
type lockedSealer struct{ locked atomic.Bool }

func (s *lockedSealer) Seal(data []byte) ([]byte, error) {
	if s.locked.Load() {
		return nil, errors.New("the key server is away")
	}
	return data, nil
}
func (*lockedSealer) Open(data []byte) ([]byte, error) { return data, nil }
func (*lockedSealer) HashKey() []byte                  { return nil }

// An operation is refused, and the function goes another way. A replay, in which nothing refuses it any more, goes the
// same way. A further attempt of the run, which forgets the failure, tries it again.
func TestRefusedOperationIsRecorded(t *testing.T) {
	t.Parallel()
	told, child := topic.Define[string]("told"), kagzi.Define[string, int]("child", kagzi.Queue("elsewhere"))
	large := strings.Repeat("x", 1000)
	start := func(ctx kagzi.Context) error {
		_, err := kagzi.StartChild(ctx, "refused", child, large)
		return err
	}
	publish := func(ctx kagzi.Context) error { return topic.Publish(ctx, "refused", told.With(large)) }
	isLarge := func(err error) bool {
		return errors.Is(err, kagzi.ErrPayloadTooLarge) && errors.Is(err, kind.BadRequest)
	}
	isSealing := func(err error) bool { return strings.Contains(err.Error(), "the key server is away") }
	for name, tt := range map[string]struct {
		call  func(kagzi.Context) error
		by    string
		is    func(error) bool
		again bool // a further attempt of the run is worth it
	}{
		"ChildTooLarge":   {start, "size", isLarge, false},
		"PublishTooLarge": {publish, "size", isLarge, false},
		"ChildSealed":     {start, "sealer", isSealing, true},
		"PublishSealed":   {publish, "sealer", isSealing, true},
		"ChildIntercepted": {start, "interceptor", func(err error) bool {
			return strings.Contains(err.Error(), "no child now") && errors.Is(err, kind.Unavailable)
		}, true},
		"MapTooLarge": {func(ctx kagzi.Context) error {
			_, err := kagzi.Map(ctx, "refused", []string{large}, func(kagzi.Context, string) (int, error) {
				return 0, nil
			})
			return err
		}, "size", func(err error) bool {
			return errors.Is(err, kagzi.ErrPayloadTooLarge) && errors.Is(err, kind.Validation)
		}, false},
	} {
		for _, way := range []string{"Handled", "Returned"} {
			t.Run(name+"/"+way, func(t *testing.T) {
				t.Parallel()
				pool := dbtest.Pool(t)
				var refuses atomic.Bool
				sealer := &lockedSealer{}
				client := func(most int) *kagzi.Client {
					cfg := kagzi.ClientConfig{MaxPayload: most}
					switch tt.by {
					case "sealer":
						cfg.Sealer = sealer
					case "interceptor":
						cfg.Interceptors = []kagzi.Interceptor{{Start: func(ctx context.Context,
							calls []*kagzi.StartCall, next func(context.Context) error,
						) error {
							if refuses.Load() && calls[0].Workflow == "child" {
								return fmt.Errorf("%w: no child now", kind.Unavailable)
							}
							return next(ctx)
						}}}
					}
					return kit.NewClientWith(t, pool, cfg)
				}
				k := &kit.Kit{T: t, Ctx: kit.Context(t), Pool: pool, Client: client(1 << 20)}
				wf := kagzi.Define[int, int]("wf", kagzi.RetryPolicy{MaxAttempts: 3, Backoff: time.Hour})
				code := func(ctx kagzi.Context, _ int) (int, error) {
					err := tt.call(ctx)
					if way == "Returned" {
						return 1, err
					}
					switch {
					case err == nil:
						return 0, kagzi.Do(ctx, "let through", func(context.Context) error { return nil })
					case !tt.is(err):
						return 0, kagzi.Permanent(fmt.Errorf("another error: %w", err))
					}
					return 1, kagzi.Sleep(ctx, "the other way", time.Hour)
				}
				serve := func(c *kagzi.Client) (stop func() error) {
					w := kit.NewWorker(t, c, kagzi.WorkerConfig{})
					kagzi.Handle(w, wf, code)
					return kit.StartWorker(t, w)
				}
				run := kit.Begin(k, wf, 1)
				most := 1 << 20
				if tt.by == "size" {
					most = 500
				}
				refuses.Store(true)
				sealer.locked.Store(way == "Handled" || tt.again)
				stop := serve(client(most))
				if way == "Returned" && !tt.again {
					if failed := kit.FailureOf(k, run, kagzi.StatusFailed); !strings.Contains(failed.Message,
						"refused") {
						t.Errorf("the run failed with %v", failed)
					}
					return
				}
				if way == "Handled" {
					k.WaitStatus(run.ID(), kagzi.StatusSleeping, "timer the other way")
				} else {
					k.WaitStatus(run.ID(), kagzi.StatusPending, "retry")
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				refuses.Store(false)
				sealer.locked.Store(false)
				if way == "Handled" {
					k.Forward(run.ID())
				} else {
					k.Exec(`UPDATE kagzi.workflow_runs SET available_at = now() WHERE run_id = $1`, string(run.ID()))
				}
				serve(client(1 << 20))
				if out := kit.ResultOf(k, run); out != 1 {
					t.Errorf("the run went the other way: %d", out)
				}
				done := k.Count(`SELECT (SELECT count(*) FROM kagzi.events) + (SELECT count(*) FROM kagzi.workflow_runs
					WHERE workflow_type = 'child')`)
				if want := map[string]int{"Handled": 0, "Returned": 1}[way]; done != want {
					t.Errorf("%d times done, want %d", done, want)
				}
			})
		}
	}
}

// deep calls fn in branches whose names have so many bytes together, with their slashes.
func deep[T any](ctx kagzi.Context, n int, fn func(kagzi.Context) (T, error)) (T, error) {
	if n == 0 {
		return fn(ctx)
	}
	size := min(n-1, 255)
	if n-1-size == 1 { // nothing has one byte: a name and a slash
		size--
	}
	return kagzi.Go(ctx, strings.Repeat("b", size), func(ctx kagzi.Context) (T, error) {
		return deep(ctx, n-1-size, fn)
	}).Result(ctx)
}

// An operation whose path is too long is refused before it does anything; with one byte less, it is done.
func TestLongestPath(t *testing.T) {
	t.Parallel()
	const longest = 2000
	told, child, undo := topic.Define[string]("told"), kagzi.Define[int, int]("child"),
		kagzi.Define[int, int]("undo")
	branch := func(kagzi.Context) error { return nil }
	called := func(calls *atomic.Int64) func(context.Context) (int, error) { return kit.Once(calls, 1) }
	name := "0123456789"
	for what, tt := range map[string]struct {
		size int // of the path below the branches
		call func(ctx kagzi.Context, calls *atomic.Int64) error
	}{
		"Step": {10, func(ctx kagzi.Context, calls *atomic.Int64) error {
			_, err := kagzi.Step(ctx, name, called(calls), kagzi.UndoneBy(undo), kagzi.Limit("api"))
			return err
		}},
		"SecondStep": {12, func(ctx kagzi.Context, calls *atomic.Int64) error {
			_, err := kagzi.Step(ctx, name, func(context.Context) (int, error) { return 1, nil })
			_, err2 := kagzi.Step(ctx, name, called(calls))
			return errors.Join(err, err2)
		}},
		"Sleep": {10, func(ctx kagzi.Context, _ *atomic.Int64) error {
			return kagzi.Sleep(ctx, name, time.Millisecond)
		}},
		"Publish": {10, func(ctx kagzi.Context, _ *atomic.Int64) error {
			return topic.Publish(ctx, name, told.With("x"))
		}},
		"SetMetadata": {10, func(ctx kagzi.Context, _ *atomic.Int64) error {
			return kagzi.SetMetadata(ctx, name, kagzi.Metadata{"k": "v"})
		}},
		"RunChild": {10, func(ctx kagzi.Context, _ *atomic.Int64) error {
			c, err := kagzi.StartChild(ctx, name, child, 1)
			if err != nil {
				return err
			}
			return c.Cancel(ctx)
		}},
		"WaitSignal": {10, func(ctx kagzi.Context, _ *atomic.Int64) error {
			_, err := kagzi.WaitSignal(ctx, kagzi.DefineSignal[int](name), kagzi.Timeout(time.Millisecond))
			if errors.Is(err, kind.Timeout) {
				return nil
			}
			return err
		}},
		"Go": {10, func(ctx kagzi.Context, calls *atomic.Int64) error {
			_, err := kagzi.Go(ctx, name, func(kagzi.Context) (int, error) { return called(calls)(nil) }).Result(ctx)
			return err
		}},
		"Parallel": {12, func(ctx kagzi.Context, _ *atomic.Int64) error {
			return kagzi.Parallel(ctx, name, map[string]func(kagzi.Context) error{"a": branch, "b": branch})
		}},
		"Map": {12, func(ctx kagzi.Context, calls *atomic.Int64) error {
			_, err := kagzi.Map(ctx, name, []int{1, 2}, func(kagzi.Context, int) (int, error) {
				return called(calls)(nil)
			})
			return err
		}},
		"Race": {12, func(ctx kagzi.Context, calls *atomic.Int64) error {
			_, _, err := kagzi.Race(ctx, name, map[string]func(kagzi.Context) (int,
				error){"a": func(kagzi.Context) (int, error) { return called(calls)(nil) }})
			return err
		}},
		"Compensate": {10, func(ctx kagzi.Context, _ *atomic.Int64) error {
			kagzi.Compensate(ctx, name, undo.With(1))
			return nil
		}},
		"Patched": {10, func(ctx kagzi.Context, _ *atomic.Int64) error {
			kagzi.Patched(ctx, name)
			return nil
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			k := kit.NewWith(t, kagzi.ClientConfig{Namespace: strings.Repeat("n", 255)})
			if err := admin.New(k.Client).Limits.Set(k.Ctx, admin.StepLimit{Name: "api", MaxRunning: 1}); err != nil {
				t.Fatal(err)
			}
			var calls atomic.Int64
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			for _, idle := range []kagzi.Workflow[int, int]{child, undo} {
				kagzi.Handle(w, idle, func(kagzi.Context, int) (int, error) { return 0, nil })
			}
			kagzi.Handle(w, wf, func(ctx kagzi.Context, over int) (int, error) {
				return deep(ctx, longest-tt.size+over, func(ctx kagzi.Context) (int, error) {
					return 1, tt.call(ctx, &calls)
				})
			})
			kit.StartWorker(t, w)
			if out := kit.ResultOf(k, kit.Begin(k, wf, 0)); out != 1 {
				t.Errorf("the longest path gives %d", out)
			}
			before := calls.Load()
			failed := kit.FailureOf(k, kit.Begin(k, wf, 1), kagzi.StatusFailed)
			if failed.Kind != kind.BadRequest || !strings.Contains(failed.Message, "2001 bytes") {
				t.Errorf("the run failed with %v", failed)
			}
			if n := calls.Load(); n != before {
				t.Errorf("%d calls of the function", n-before)
			}
		})
	}
}

// The server refuses the place of one step in the line of a limit. That step fails, and the steps of other runs go on.
func TestRefusedPlaceOfALimit(t *testing.T) {
	t.Parallel()
	k, _ := loggedKit(t)
	refuse(t, k, "limit_places", "INSERT", `NEW.step_id LIKE 'refused%'`)
	if err := admin.New(k.Client).Limits.Set(k.Ctx, admin.StepLimit{Name: "api", MaxRunning: 3}); err != nil {
		t.Fatal(err)
	}
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	const n = 20
	var begun atomic.Int64
	all := make(chan struct{})
	kit.Serve(k, wf, func(ctx kagzi.Context, i int) (int, error) {
		if begun.Add(1) == n { // they ask together
			close(all)
		}
		<-all
		name := "s"
		if i == 7 {
			name = "refused"
		}
		return kagzi.Step(ctx, name, func(context.Context) (int, error) { return i, nil }, kagzi.Limit("api"),
			kit.NoRetry)
	})
	runs := kit.StartRuns(t, k.Client, wf, n)
	for i, run := range runs {
		if i == 7 {
			failed := kit.FailureOf(k, run, kagzi.StatusFailed)
			if failed.Kind != kind.Database || !strings.Contains(failed.Message, `limit "api"`) ||
				!strings.Contains(failed.Message, "poison") {
				t.Errorf("the run failed with %v", failed)
			}
			continue
		}
		kit.ResultOf(k, run)
	}
	await.True(t, "no place is left", func() bool { return k.Count(`SELECT count(*) FROM kagzi.limit_places`) == 0 })
}
