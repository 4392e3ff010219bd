package kagzitest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/kagzitest"
	"github.com/kagzi/kagzi/topic"
)

var (
	sigA = kagzi.DefineSignal[string]("a")
	sigB = kagzi.DefineSignal[string]("b")
	awf  = kagzi.Define[string, string]("awf", kagzi.RetryPolicy{MaxAttempts: 1})
	akid = kagzi.Define[string, string]("akid", kagzi.RetryPolicy{MaxAttempts: 1})
)

func step(ctx kagzi.Context, name string) (string, error) {
	return kagzi.Step(ctx, name, func(context.Context) (string, error) { return name, nil })
}

// Each of these is correct code: the replay after the test must report nothing.
func TestCorrectCodeReplays(t *testing.T) {
	t.Parallel()
	no := kagzi.Permanent(errors.New("no"))
	type fn = func(kagzi.Context, string) (string, error)
	for _, tt := range []struct {
		name string
		fn   fn
		send []kagzi.Message
		end  func(env *kagzitest.Env, run *kagzi.Run[string])
	}{
		{
			name: "ReadAndFail", send: []kagzi.Message{sigA.With("x")},
			fn: func(ctx kagzi.Context, _ string) (string, error) {
				v, err := kagzi.WaitSignal(ctx, sigA)
				if err != nil {
					return "", err
				}
				return "", kagzi.Permanent(errors.New(v))
			},
		},
		{
			name: "CompensateReadFail", send: []kagzi.Message{sigA.With("x")},
			fn: func(ctx kagzi.Context, _ string) (string, error) {
				kagzi.Compensate(ctx, "booking", release.With("x"))
				v, err := kagzi.WaitSignal(ctx, sigA)
				if err != nil {
					return "", err
				}
				return "", kagzi.Permanent(errors.New(v))
			},
		},
		{name: "CompensateSleepFail", fn: func(ctx kagzi.Context, _ string) (string, error) {
			kagzi.Compensate(ctx, "booking", release.With("x"))
			if err := kagzi.Sleep(ctx, "s", time.Hour); err != nil {
				return "", err
			}
			return "", no
		}},
		{name: "CompensateChildFails", fn: func(ctx kagzi.Context, _ string) (string, error) {
			kagzi.Compensate(ctx, "booking", release.With("x"))
			_, err := kagzi.RunChild(ctx, "kid", akid, "fail")
			return "", kagzi.Permanent(err)
		}},
		{name: "CompensateParallelFails", fn: func(ctx kagzi.Context, _ string) (string, error) {
			kagzi.Compensate(ctx, "booking", release.With("x"))
			return "", kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
				"a": func(ctx kagzi.Context) error { _, err := kagzi.WaitSignal(ctx, sigB); return err },
				"b": func(ctx kagzi.Context) error {
					return kagzi.Do(ctx, "x", func(context.Context) error { return no })
				},
			})
		}},
		{name: "CompensateTimeoutFails", fn: func(ctx kagzi.Context, _ string) (string, error) {
			kagzi.Compensate(ctx, "booking", release.With("x"))
			_, err := kagzi.WaitSignal(ctx, sigA, kagzi.Timeout(time.Hour))
			return "", err
		}},
		{name: "CompensatePanics", fn: func(ctx kagzi.Context, _ string) (string, error) {
			kagzi.Compensate(ctx, "booking", release.With("x"))
			if err := kagzi.Sleep(ctx, "s", time.Hour); err != nil {
				return "", err
			}
			panic("oh")
		}},
		{
			name: "RaceAllFail", send: []kagzi.Message{sigA.With("x")},
			fn: func(ctx kagzi.Context, _ string) (string, error) {
				_, _, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (string, error){
					"a": func(ctx kagzi.Context) (string, error) {
						if _, err := kagzi.WaitSignal(ctx, sigA); err != nil {
							return "", err
						}
						return "", no
					},
					"b": func(ctx kagzi.Context) (string, error) {
						if err := kagzi.Sleep(ctx, "s", time.Hour); err != nil {
							return "", err
						}
						return "", no
					},
				})
				return "", kagzi.Permanent(err)
			},
		},
		{name: "RaceTimeout", fn: func(ctx kagzi.Context, _ string) (string, error) {
			_, _, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (string, error){
				"a": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, sigA) },
			}, kagzi.Timeout(time.Hour))
			if err == nil {
				return "", errors.New("no error")
			}
			return step(ctx, "end")
		}},
		{
			name: "RaceSignalAgainstSleepThenReadAgain", send: []kagzi.Message{sigB.With("b"), sigA.With("x")},
			fn: func(ctx kagzi.Context, _ string) (string, error) {
				w, v, err := kagzi.Race(ctx, "r", map[string]func(kagzi.Context) (string, error){
					"a": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, sigA) },
					"b": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, sigB) },
				})
				if err != nil {
					return "", err
				}
				var rest string
				if w == "a" {
					rest, err = kagzi.WaitSignal(ctx, sigB)
				} else {
					rest, err = kagzi.WaitSignal(ctx, sigA)
				}
				return v + rest + ctx.Now().String(), err
			},
		},
		{
			name: "GoLeftBehind", send: []kagzi.Message{sigA.With("x")},
			fn: func(ctx kagzi.Context, _ string) (string, error) {
				f := kagzi.Go(ctx, "g", func(ctx kagzi.Context) (string, error) {
					kagzi.Go(ctx, "h", func(ctx kagzi.Context) (string, error) {
						if err := kagzi.Sleep(ctx, "s", time.Hour); err != nil {
							return "", err
						}
						return kagzi.WaitSignal(ctx, sigA)
					})
					return "g", nil
				})
				return f.Result(ctx)
			},
		},
		{name: "Patched", fn: func(ctx kagzi.Context, _ string) (string, error) {
			if !kagzi.Patched(ctx, "p") {
				return "", no
			}
			if err := kagzi.Sleep(ctx, "s", time.Hour); err != nil {
				return "", err
			}
			kagzi.Patched(ctx, "last")
			return "", no
		}},
		{name: "PatchedInBranches", fn: func(ctx kagzi.Context, _ string) (string, error) {
			_, err := kagzi.Map(ctx, "m", []string{"a", "b"}, func(ctx kagzi.Context, s string) (string, error) {
				if kagzi.Patched(ctx, "p") {
					return step(ctx, s)
				}
				return "", no
			})
			return "", err
		}},
		{
			name: "TwoAttempts", send: []kagzi.Message{sigA.With("x"), sigA.With("y")},
			fn: func(ctx kagzi.Context, _ string) (string, error) {
				v, err := kagzi.WaitSignal(ctx, sigA)
				if err != nil {
					return "", err
				}
				u, err := kagzi.WaitSignal(ctx, sigA, kagzi.Timeout(time.Minute))
				if err != nil {
					return "", err
				}
				_, err = kagzi.RunChild(ctx, "kid", akid,
					map[bool]string{true: "fail", false: "ok"}[ctx.Attempt() == 1])
				return v + u, err
			}, end: func(env *kagzitest.Env, run *kagzi.Run[string]) {
				if err := admin.New(env.Client).Runs.Resume(t.Context(), run.ID()); err != nil {
					t.Error(err)
				}
				got, err := kagzitest.Result(env, run)
				t.Log(got, err)
			},
		},
		{
			name: "ParallelCollect", send: []kagzi.Message{sigA.With("x")},
			fn: func(ctx kagzi.Context, _ string) (string, error) {
				err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
					"a": func(ctx kagzi.Context) error { _, err := kagzi.WaitSignal(ctx, sigA); return err },
					"b": func(ctx kagzi.Context) error { return no },
				}, kagzi.CollectErrors(), kagzi.Timeout(time.Hour))
				if err != nil {
					return "bad", nil
				}
				return "", nil
			},
		},
		{
			name: "CancelledBranchReads", send: []kagzi.Message{sigA.With("x")},
			fn: func(ctx kagzi.Context, _ string) (string, error) {
				err := kagzi.Parallel(ctx, "p", map[string]func(kagzi.Context) error{
					"a": func(ctx kagzi.Context) error {
						_, err := kagzi.WaitSignal(ctx, sigA)
						if err != nil {
							return err
						}
						return kagzi.Sleep(ctx, "s", 24*time.Hour)
					},
					"b": func(ctx kagzi.Context) error {
						if err := kagzi.Sleep(ctx, "s", time.Hour); err != nil {
							return err
						}
						return no
					},
				})
				if err == nil {
					return "", nil
				}
				return step(ctx, "end")
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := kagzitest.New(t)
			kagzi.Handle(env.Worker, awf, tt.fn)
			kagzi.Handle(env.Worker, release, func(ctx kagzi.Context, what string) (string, error) {
				return what, kagzi.Sleep(ctx, "notice", time.Minute)
			})
			kagzi.Handle(env.Worker, akid, func(ctx kagzi.Context, s string) (string, error) {
				if s == "fail" {
					return "", no
				}
				return s, nil
			})
			var opts []kagzi.StartOption
			for _, m := range tt.send {
				opts = append(opts, m)
			}
			run := kagzitest.Start(env, awf, "", opts...)
			env.Advance(48 * time.Hour)
			info, err := env.Client.Get(t.Context(), run.ID())
			if err != nil || !info.Status.Ended() {
				t.Fatal(info, err)
			}
			if tt.end != nil {
				tt.end(env, run)
			}
			got, err := kagzitest.Result(env, run)
			t.Log(got, err)
		})
	}
}

// The code changes at its end after old code completed a run. The new code is correct, because it uses Patched.
func TestReplayOfPatchedAtTheEnd(t *testing.T) {
	t.Parallel()
	env := kagzitest.New(t, kagzitest.Config{NoReplay: "the code changes"})
	old := func(ctx kagzi.Context, _ string) (string, error) { return step(ctx, "a") }
	kagzi.Handle(env.Worker, awf, old)
	run := kagzitest.Start(env, awf, "")
	if _, err := kagzitest.Result(env, run); err != nil {
		t.Fatal(err)
	}
	n := kagzitest.Replay(t, env.Client, awf, func(ctx kagzi.Context, _ string) (string, error) {
		a, err := step(ctx, "a")
		if err == nil && kagzi.Patched(ctx, "p") {
			_, err = step(ctx, "b")
		}
		return a, err
	}, kagzi.RunFilter{})
	t.Log(n)
}

// Whatever replays the run, the replay at the test's end too, its events are published once.
func TestEventsArePublishedOnce(t *testing.T) {
	t.Parallel()
	about := topic.Define[int]("topic")
	env := kagzitest.New(t, kagzitest.Config{})
	publishes := func(ctx kagzi.Context, _ string) (string, error) {
		for i := range 3 {
			if err := topic.Publish(ctx, "tell", about.With(i)); err != nil {
				return "", err
			}
			if err := kagzi.Sleep(ctx, "nap", time.Hour); err != nil {
				return "", err
			}
		}
		return "", topic.Publish(ctx, "tell", about.With(3))
	}
	kagzi.Handle(env.Worker, awf, publishes)
	if _, err := kagzitest.Result(env, kagzitest.Start(env, awf, "")); err != nil {
		t.Fatal(err)
	}
	kagzitest.Replay(t, env.Client, awf, publishes, kagzi.RunFilter{})
	n := 0
	for e, err := range topic.Events(t.Context(), env.Client, about, 0) {
		if err != nil || e.Payload != n {
			t.Errorf("event %d is %d, %v", n, e.Payload, err)
		}
		n++
	}
	if n != 4 {
		t.Errorf("%d events", n)
	}
}
