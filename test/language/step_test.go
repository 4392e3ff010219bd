package language_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/text"
	"github.com/kagzi/kagzi/kind"
)

func TestStepsAreRememberedByName(t *testing.T) {
	// The code changes while a run of it sleeps. "c" was not there before, "b" is no more, "a" and the sleep changed
	// places, and the repeated ones keep their count.
	step := func(t *testing.T, ctx kagzi.Context, calls *sync.Map, name, v string) string {
		out, err := kagzi.Step(ctx, name, func(sctx context.Context) (string, error) {
			id := kagzi.CurrentStep(sctx).Step
			if _, again := calls.LoadOrStore(id, true); again {
				t.Errorf("step %q was executed again", id)
			}
			return v, nil
		})
		if err != nil {
			t.Error(err)
		}
		return out
	}
	k := kit.New(t)
	var calls sync.Map
	wf := kagzi.Define[struct{}, string]("wf")
	stop := kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		out := step(t, ctx, &calls, "a", "a1") + step(t, ctx, &calls, "b", "b1") + step(t, ctx, &calls, "r", "r1") +
			step(t, ctx, &calls, "r", "r2")
		return out, kagzi.Sleep(ctx, "nap", time.Hour)
	})
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	stop()
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		out := step(t, ctx, &calls, "r", "x") + step(t, ctx, &calls, "c", "c2")
		if err := kagzi.Sleep(ctx, "nap", time.Minute); err != nil {
			return "", err
		}
		return out + step(t, ctx, &calls, "r", "x") + step(t, ctx, &calls, "r", "r3") +
			step(t, ctx, &calls, "a", "x"), nil
	})
	k.Forward(run.ID())
	if got := kit.ResultOf(k, run); got != "r1c2r2r3a1" {
		t.Errorf("got %s", got)
	}
}

func TestResultsAreThoseOfTheRecord(t *testing.T) {
	k := kit.New(t)
	type hidden struct {
		Shown int
		lost  int
	}
	type saw struct {
		H hidden
		A any
		T time.Time
		N *int
		S []string
		B []byte
		E struct{}
		M map[string]any
	}
	got := replayed(k, func(ctx kagzi.Context) saw {
		var s saw
		var errs [8]error
		s.H, errs[0] = kagzi.Step(ctx, "unexported", func(context.Context) (hidden, error) { return hidden{1, 2}, nil })
		s.A, errs[1] = kagzi.Step(ctx, "int in any", func(context.Context) (any, error) { return 3, nil })
		s.T, errs[2] = kagzi.Step(ctx, "monotonic", func(context.Context) (time.Time, error) { return time.Now(), nil })
		s.N, errs[3] = kagzi.Step(ctx, "nil pointer", func(context.Context) (*int, error) { return nil, nil })
		s.S, errs[4] = kagzi.StepTx(ctx, "empty", func(context.Context, pgx.Tx) ([]string, error) {
			return []string{}, nil
		})
		s.B, errs[5] = kagzi.Step(ctx, "bytes", func(context.Context) ([]byte, error) { return []byte{0, 255}, nil })
		s.E, errs[6] = kagzi.Step(ctx, "struct", func(context.Context) (struct{}, error) { return struct{}{}, nil })
		s.M, errs[7] = kagzi.Step(ctx, "map", func(context.Context) (map[string]any, error) {
			return map[string]any{"a": []int{1}, "\x00": "\xff"}, nil
		})
		if err := errors.Join(errs[:]...); err != nil {
			t.Error(err)
		}
		return s
	})
	if got.H.lost != 0 || got.A != 3.0 || strings.Contains(got.T.String(), "m=") || got.N != nil || got.S == nil ||
		!reflect.DeepEqual(got.B, []byte{0, 255}) {
		t.Errorf("seen the first time: %+v", got)
	}
}

func TestStepError(t *testing.T) {
	t.Parallel()
	const declined kind.Kind = "card_declined"
	once := kit.NoRetry
	for _, tt := range []struct {
		name     string
		fn       func(context.Context) (any, error)
		opts     []kagzi.StepOption
		kind     kind.Kind
		text     string
		attempts int
	}{
		{
			"Plain", func(context.Context) (any, error) { return nil, errors.New("no\x00pe\xff") },
			[]kagzi.StepOption{once},
			kind.Unknown, "no\ufffdpe\ufffd", 1,
		},
		{
			"OwnKind", func(context.Context) (any, error) { return nil, fmt.Errorf("x: %w", declined) },
			[]kagzi.StepOption{once},
			declined, "x: card_declined", 1,
		},
		{
			"OwnKindIsRetried", func(context.Context) (any, error) { return nil, declined },
			[]kagzi.StepOption{kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond}},
			declined,
			"card_declined", 2,
		},
		{
			"PermanentKind", func(context.Context) (any, error) { return nil, kind.Validation }, nil, kind.Validation,
			"validation", 1,
		},
		{
			"Permanent", func(context.Context) (any, error) { return nil, kagzi.Permanent(kind.Network) }, nil,
			kind.Network, "network", 1,
		},
		{
			"PermanentTimeout", func(context.Context) (any, error) { return nil, kagzi.Permanent(kind.Timeout) }, nil,
			kind.Timeout, "timeout", 1,
		},
		{"Panic", func(context.Context) (any, error) { panic("ouch") }, nil, kind.Panic, "step_test.go", 1},
		{
			"PanicNil", func(context.Context) (any, error) { panic(nil) }, nil, //nolint:govet // on purpose
			kind.Panic, "nil", 1,
		},
		{"PanicError", func(context.Context) (any, error) { panic(errInput) }, nil, kind.Panic, "input", 1},
		{
			"PanicHuge", func(context.Context) (any, error) { panic(strings.Repeat("x", 1<<20)) }, nil, kind.Panic,
			"truncated", 1,
		},
		{"PanicEvil", func(context.Context) (any, error) { panic(evil{}) }, nil, kind.Panic, "evil", 1},
		{
			"Evil", func(context.Context) (any, error) { return nil, evil{} },
			[]kagzi.StepOption{once},
			kind.Unknown,
			"evil", 1,
		},
		{"NilMap", func(context.Context) (any, error) {
			maps.Copy(map[string]int(nil), map[string]int{"x": 1})
			return nil, nil
		}, nil, kind.Panic, "nil map", 1},
		{
			"Chan", func(context.Context) (any, error) { return make(chan int), nil }, nil, kind.Validation,
			"chan int", 1,
		},
		{"NaN", func(context.Context) (any, error) { return math.NaN(), nil }, nil, kind.Validation, "NaN", 1},
		{"PanicInEncode", func(context.Context) (any, error) { return badJSON{}, nil }, nil, kind.Panic, "bad json", 1},
		{
			"TooLarge", func(context.Context) (any, error) { return strings.Repeat("x", 4<<20), nil }, nil,
			kind.Validation, "4194306 bytes, the limit (ClientConfig.MaxPayload) is 4194304", 1,
		},
		{
			"Timeout", func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
			[]kagzi.StepOption{once, kagzi.Timeout(20 * time.Millisecond)},
			kind.Timeout, "timed out after 20ms", 1,
		},
		{
			"TimeoutRetried", func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, context.Canceled },
			[]kagzi.StepOption{
				kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond},
				kagzi.Timeout(20 * time.Millisecond),
			},
			kind.Timeout, "timed out", 2,
		},
		{
			"TimeoutCause", func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, context.Cause(ctx) },
			[]kagzi.StepOption{once, kagzi.Timeout(20 * time.Millisecond)},
			kind.Timeout, "timed out", 1,
		},
		{"TimeoutPermanent", func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, kagzi.Permanent(ctx.Err())
		}, []kagzi.StepOption{kagzi.Timeout(20 * time.Millisecond)}, kind.Timeout, "timed out", 1},
		{"OwnCancelledContext", func(ctx context.Context) (any, error) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return nil, ctx.Err()
		}, []kagzi.StepOption{kit.Soon}, kind.Unknown, "canceled", 3},
		{"OwnContextOutOfTime", func(ctx context.Context) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Microsecond)
			defer cancel()
			<-ctx.Done()
			return nil, fmt.Errorf("ask: %w", ctx.Err())
		}, []kagzi.StepOption{kit.Soon}, kind.Timeout, "deadline exceeded", 3},
		{"OwnCancelledContextPermanent", func(context.Context) (any, error) {
			return nil, kagzi.Permanent(context.Canceled)
		}, []kagzi.StepOption{kit.Soon}, kind.Unknown, "canceled", 1},
		{
			"Cancelled", func(context.Context) (any, error) { return nil, fmt.Errorf("x: %w", kind.Cancelled) },
			[]kagzi.StepOption{kit.Soon},
			kind.Cancelled, "x: cancelled", 1,
		},
		{
			"ResultAfterTheTimeout", func(ctx context.Context) (any, error) { <-ctx.Done(); return 1, nil },
			[]kagzi.StepOption{kit.Soon, kagzi.Timeout(20 * time.Millisecond)},
			kind.Timeout,
			"timed out after 20ms", 3,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := kit.New(t)
			var calls atomic.Int64
			got := replayed(k, func(ctx kagzi.Context) kagzi.StepError {
				_, err := kagzi.Step(ctx, "s", func(ctx context.Context) (any, error) {
					calls.Add(1)
					return tt.fn(ctx)
				}, tt.opts...)
				se, ok := errors.AsType[*kagzi.StepError](err)
				if !ok {
					t.Errorf("got %v", err)
					return kagzi.StepError{}
				}
				if !errors.Is(err, tt.kind) {
					t.Errorf("%v is not of kind %q", err, tt.kind)
				}
				return *se
			})
			if got.Step != "s" || got.Kind != tt.kind || got.Attempts != tt.attempts ||
				!strings.Contains(got.Message, tt.text) {
				t.Errorf("got %d attempts, kind %q, %.300q; want %d, %q, …%q…", got.Attempts, got.Kind, got.Message,
					tt.attempts, tt.kind, tt.text)
			}
			if calls.Load() != int64(tt.attempts) || len(got.Message) > text.MaxError {
				t.Errorf("%d calls, %d bytes of text", calls.Load(), len(got.Message))
			}
		})
	}
}

var errInput = errors.New("input and output")

type badJSON struct{}

func (badJSON) MarshalJSON() ([]byte, error) { panic("bad json") }

func TestRetriesOfAStep(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		policy kagzi.RetryPolicy
		err    error
		fails  int64           // so often
		waits  []time.Duration // at least, between attempts
	}{
		{
			"Backoff",
			kagzi.RetryPolicy{MaxAttempts: 4, Backoff: 20 * time.Millisecond, NoJitter: true},
			kind.Network, 3,
			[]time.Duration{20e6, 40e6, 80e6},
		},
		{
			"Fixed",
			kagzi.RetryPolicy{MaxAttempts: 4, Backoff: 30 * time.Millisecond, Factor: 1, NoJitter: true},
			kind.Network, 3,
			[]time.Duration{30e6, 30e6, 30e6},
		},
		{"MaxBackoff", kagzi.RetryPolicy{
			MaxAttempts: 4, Backoff: 20 * time.Millisecond,
			MaxBackoff: 30 * time.Millisecond, NoJitter: true,
		}, kind.Network, 3, []time.Duration{20e6, 30e6, 30e6}},
		{
			"Jitter",
			kagzi.RetryPolicy{MaxAttempts: 3, Backoff: 40 * time.Millisecond, Factor: 1},
			kind.Network, 2,
			[]time.Duration{30e6, 30e6},
		},
		{
			"RetryAfter",
			kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond},
			kagzi.RetryAfter(kind.Validation, 60*time.Millisecond), 1,
			[]time.Duration{60e6},
		},
		{
			"Suspended",
			kagzi.RetryPolicy{MaxAttempts: 2, Backoff: 300 * time.Millisecond, NoJitter: true},
			kind.Network,
			1,
			[]time.Duration{300e6},
		},
		{
			"Forever",
			kagzi.RetryPolicy{Forever: true, Backoff: time.Millisecond, Factor: 1},
			kind.Network, 12,
			make([]time.Duration, 12),
		},
	} {
		for _, tx := range []bool{false, true} {
			t.Run(fmt.Sprint(tt.name, "/", tx), func(t *testing.T) {
				k := kit.New(t)
				wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
				var calls atomic.Int64
				fn := func(ctx context.Context) (int, error) {
					if n := calls.Add(1); n <= tt.fails {
						return 0, tt.err
					}
					return kagzi.CurrentStep(ctx).Attempt, nil
				}
				kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
					if tx {
						return kagzi.StepTx(ctx, "s", func(ctx context.Context, tx pgx.Tx) (int, error) {
							// It takes longer than the backoff: the record must not say that it began before.
							if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.05)"); err != nil {
								return 0, err
							}
							return fn(ctx)
						}, tt.policy)
					}
					return kagzi.Step(ctx, "s", fn, tt.policy)
				})
				run := kit.Begin(k, wf, struct{}{})
				if got := kit.ResultOf(k, run); int64(got) != tt.fails+1 {
					t.Errorf("succeeded in attempt %d", got)
				}
				rows := k.Steps(run.ID())["s"]
				for i, wait := range tt.waits {
					if rows[i+1].StartedAt.Before(rows[i].WakeAt) {
						t.Errorf("attempt %d began at %v, before %v", i+2, rows[i+1].StartedAt, rows[i].WakeAt)
					}
					if got := rows[i].WakeAt.Sub(rows[i].EndedAt); got < wait {
						t.Errorf("backoff %v, want at least %v", got, wait)
					}
					if rows[i].EndedAt.Before(rows[i].StartedAt) {
						t.Errorf("attempt %d: %+v", i+1, rows[i])
					}
				}
			})
		}
	}
	t.Run("WaitingHoldsNothing", func(t *testing.T) {
		k := kit.New(t)
		wf := kagzi.Define[struct{}, int]("wf")
		ended := make(chan struct{})
		kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
			defer close(ended)
			return 0, kagzi.Do(ctx, "authorize", func(context.Context) error { return kind.Network },
				kagzi.RetryPolicy{Backoff: time.Hour})
		})
		run := kit.Begin(k, wf, struct{}{})
		info := k.WaitStatus(run.ID(), kagzi.StatusSleeping)
		await.Receive(t, ended)
		if info.WaitingOn.String() != "retry authorize" || time.Until(info.AvailableAt) < 30*time.Minute ||
			info.Attempts != 0 {
			t.Errorf("got %+v", info)
		}
	})
}

func TestGoexitInAStepIsRecorded(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		return 0, kagzi.Do(ctx, "s", func(context.Context) error { runtime.Goexit(); return nil })
	})
	run := kit.Begin(k, wf, struct{}{})
	kit.FailureOf(k, run, kagzi.StatusFailed)
	if rows := k.Steps(run.ID())["s"]; len(rows) != 1 || rows[0].Kind != kind.Panic ||
		rows[0].Status != kagzi.StatusFailed {
		t.Errorf("got %+v", rows)
	}
}

// TestGoexitInAStepIsReplayed: the function of a step ends its goroutine, so the branch fails whatever its code does
// with errors of steps. In a replay the branch fails in the same way.
func TestGoexitInAStepIsReplayed(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf", kit.NoRetry)
	goOn := kagzi.DefineSignal[int]("go on")
	kit.ServeWith(k, kagzi.WorkerConfig{}, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		_, err := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
			_ = kagzi.Do(ctx, "exits", func(context.Context) error { runtime.Goexit(); return nil })
			return 1, nil
		}).Result(ctx)
		if _, waited := kagzi.WaitSignal(ctx, goOn); waited != nil {
			return "", waited
		}
		return fmt.Sprint(err), nil
	})
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	k.Signal(run.ID(), goOn.With(1)) // the run is replayed
	if got := kit.ResultOf(k, run); !strings.Contains(got, "Goexit") {
		t.Errorf("got %q", got)
	}
}

// TestAResultThatDoesNotDecodeFailsTheStep has results be encoded that their own type cannot decode. Recorded, they
// would set the run aside each time it is executed.
func TestAResultThatDoesNotDecodeFailsTheStep(t *testing.T) {
	k := kit.New(t)
	type holder struct{ Err error }
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		check := func(err error, says ...string) {
			if !errors.Is(err, kind.Validation) {
				t.Errorf("got %v", err)
			}
			kit.MustContain(t, err, says...)
		}
		none, err := kagzi.Step(ctx, "none", func(context.Context) (error, error) { return nil, nil })
		if none != nil || err != nil {
			t.Errorf("got %v, %v", none, err)
		}
		_, err = kagzi.Step(ctx, "text", func(context.Context) (error, error) { return errors.New("x"), nil })
		check(err, "*errors.errorString cannot be encoded", "its content would be lost", "1 attempt)")
		shown := &url.Error{Op: "get"}
		_, err = kagzi.Step(ctx, "error", func(context.Context) (error, error) { return shown, nil })
		check(err, `step "error": the result: a`, "*url.Error", "does not decode into error", "a concrete type",
			"1 attempt)")
		_, err = kagzi.StepTx(ctx, "tx", func(context.Context, pgx.Tx) (error, error) { return shown, nil })
		check(err, "a concrete type")
		_, err = kagzi.Step(ctx, "field", func(context.Context) (holder, error) { return holder{errors.New("x")}, nil })
		check(err, ".holder", "a type that decodes what it encodes")
		return 0, nil
	})
}

func TestBadStepCalls(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, int]("wf")
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (int, error) {
		fn := func(context.Context) error { t.Error("called"); return nil }
		for name, says := range map[string]string{
			"": "empty", "a/b": "'/'", "x#2": "'#'", strings.Repeat("x", 300): "300 bytes", "a\x00b": "U+0000",
			"\xff": "UTF-8", "a\nb": "U+000A",
		} {
			kit.MustContain(t, kagzi.Do(ctx, name, fn), "step", says)
			kit.MustContain(t, kagzi.DoTx(ctx, name, func(context.Context, pgx.Tx) error { return nil }), "step", says)
			kit.MustContain(t, kagzi.Sleep(ctx, name, time.Hour), "sleep", says)
		}
		kit.MustContain(t, kagzi.Do(ctx, "s", nil), `"s"`, "nil")
		kit.MustContain(t, kagzi.DoTx(ctx, "s", nil), "nil")
		_, err := kagzi.Step[int](ctx, "s", nil)
		kit.MustContain(t, err, "nil")
		_, err = kagzi.StepTx[int](ctx, "s", nil)
		kit.MustContain(t, err, "nil")
		kit.MustContain(t, kagzi.Do(ctx, "s", fn, kagzi.Timeout(30)), "timeout", "30 ns", "30*time.Second")
		kit.MustContain(t, kagzi.Do(ctx, "s", fn, kagzi.Timeout(0)), "timeout is 0")
		kit.MustContain(t, kagzi.Do(ctx, "s", fn, kagzi.Timeout(-time.Second)), "negative")
		kit.MustContain(t, kagzi.Do(ctx, "s", fn, kagzi.RetryPolicy{MaxAttempts: -1}), "MaxAttempts")
		kit.MustContain(t, kagzi.Do(ctx, "s", fn, kagzi.RetryPolicy{Backoff: 5}, kagzi.Timeout(7)), "Backoff", "7 ns")
		kit.MustContain(t, kagzi.Do(ctx, "s", fn, nil), "nil option")
		kit.MustContain(t, kagzi.Do(nil, "s", fn), "Context is nil")
		return 0, kagzi.Do(ctx, "last of a kind wins", func(ctx context.Context) error {
			if at, ok := ctx.Deadline(); !ok || time.Until(at) < time.Minute {
				t.Errorf("deadline %v", at)
			}
			return nil
		}, kagzi.Timeout(time.Second), kagzi.Timeout(time.Hour))
	})
	run := kit.Begin(k, wf, struct{}{})
	kit.FailureOf(k, run, kagzi.StatusFailed)
	if n := len(k.Steps(run.ID())); n != 1 {
		t.Errorf("%d steps are recorded; want only the good one", n)
	}
}

func TestCurrentStep(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, []kagzi.StepInfo]("wf")
	var infos []kagzi.StepInfo
	kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) ([]kagzi.StepInfo, error) {
		for range 2 {
			if _, err := kagzi.Go(ctx, "b", func(ctx kagzi.Context) (int, error) {
				return 0, kagzi.Do(ctx, "s", func(ctx context.Context) error {
					infos = append(infos, kagzi.CurrentStep(ctx))
					if kagzi.CurrentStep(ctx).Attempt == 1 {
						return kind.Network
					}
					return nil
				}, kagzi.RetryPolicy{Backoff: time.Millisecond})
			}).Result(ctx); err != nil {
				return nil, err
			}
		}
		return infos, nil
	})
	run := kit.Begin(k, wf, struct{}{})
	got := kit.ResultOf(k, run)
	want := []kagzi.StepInfo{
		{Run: run.ID(), Workflow: "wf", Step: "b/s", Attempt: 1, Key: string(run.ID()) + "/b/s"},
		{Run: run.ID(), Workflow: "wf", Step: "b/s", Attempt: 2, Key: string(run.ID()) + "/b/s"},
		{Run: run.ID(), Workflow: "wf", Step: "b#2/s", Attempt: 1, Key: string(run.ID()) + "/b#2/s"},
		{Run: run.ID(), Workflow: "wf", Step: "b#2/s", Attempt: 2, Key: string(run.ID()) + "/b#2/s"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if !reflect.DeepEqual(kagzi.CurrentStep(context.Background()), kagzi.StepInfo{}) {
		t.Error("there is no step outside of one")
	}
}

func TestPayloadLimitOfTheClient(t *testing.T) {
	t.Parallel()
	k := kit.NewWith(t, kagzi.ClientConfig{MaxPayload: 100})
	wf := kagzi.Define[string, int]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(ctx kagzi.Context, in string) (int, error) {
		_, err := kagzi.Step(ctx, "fits", func(context.Context) (string, error) { return strings.Repeat("x", 98), nil })
		if err != nil {
			return 0, err
		}
		_, err = kagzi.Step(ctx, "large", func(context.Context) (string, error) { return strings.Repeat("x", 99), nil })
		return 0, err
	})
	kit.MustContain(t, kit.FailureOf(k, kit.Begin(k, wf, strings.Repeat("x", 98)), kagzi.StatusFailed), `"large"`,
		"101 bytes", "100")
	_, err := kagzi.Start(k.Ctx, k.Client, wf, strings.Repeat("x", 99))
	if !errors.Is(err, kagzi.ErrPayloadTooLarge) {
		t.Errorf("got %v", err)
	}
	kit.MustContain(t, err, "101", "100", `"wf"`)
}
