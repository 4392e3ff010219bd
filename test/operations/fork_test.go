package operations_test

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

// A tally has the executed steps of each run.
type tally struct {
	mu    sync.Mutex
	steps map[kagzi.RunID][]string
}

func (y *tally) note(ctx context.Context) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.steps == nil {
		y.steps = map[kagzi.RunID][]string{}
	}
	s := kagzi.CurrentStep(ctx)
	y.steps[s.Run] = append(y.steps[s.Run], s.Step)
}

// of returns the executed steps of a run, sorted.
func (y *tally) of(id kagzi.RunID) []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return slices.Sorted(slices.Values(y.steps[id]))
}

// linked runs a step whose result is the link of previous and its name.
func (y *tally) linked(ctx kagzi.Context, name, previous string, opts ...kagzi.StepOption) (string, error) {
	return kagzi.Step(ctx, name, func(ctx context.Context) (string, error) {
		y.note(ctx)
		return kit.Link(previous, name), nil
	}, opts...)
}

// journey has a step, a failure that it handles, a sleep, a Parallel, a Map, and several steps of one name.
func (y *tally) journey(ctx kagzi.Context, in string) (string, error) {
	h, err := y.linked(ctx, "first", in)
	if err != nil {
		return "", err
	}
	err = kagzi.Do(ctx, "refused", func(ctx context.Context) error {
		y.note(ctx)
		return kagzi.Permanent(errors.New("no"))
	})
	if _, ok := errors.AsType[*kagzi.StepError](err); !ok {
		return "", fmt.Errorf("refused: %w", err)
	}
	if err := kagzi.Sleep(ctx, "nap", 250*time.Millisecond); err != nil {
		return "", err
	}
	if h, err = y.linked(ctx, "second", h); err != nil {
		return "", err
	}
	var sides [2]string
	side := func(i int, h string) func(kagzi.Context) error {
		return func(ctx kagzi.Context) (err error) {
			if h, err = y.linked(ctx, "one", h); err == nil {
				sides[i], err = y.linked(ctx, "two", h)
			}
			return err
		}
	}
	if err := kagzi.Parallel(ctx, "both", map[string]func(kagzi.Context) error{
		"l": side(0, h+"l"),
		"r": side(1, h+"r"),
	}); err != nil {
		return "", err
	}
	parts, err := kagzi.Map(ctx, "ship", []string{sides[0], sides[1], h},
		func(ctx kagzi.Context, part string) (string, error) {
			part, err := y.linked(ctx, "pack", part)
			if err != nil {
				return "", err
			}
			return y.linked(ctx, "send", part)
		}, kagzi.Concurrency(1))
	if err != nil {
		return "", err
	}
	if h, err = y.linked(ctx, "last", strings.Join(parts, "")); err != nil {
		return "", err
	}
	return y.linked(ctx, "last", h)
}

var journeyWf = kagzi.Define[string, string]("journey", kit.NoRetry)

func fork(k *kit.Kit, ref kagzi.Ref, step string, opts ...admin.RestartOption) *kagzi.Run[string] {
	k.T.Helper()
	id, err := admin.New(k.Client).Runs.Fork(k.Ctx, ref, step, opts...)
	if err != nil {
		k.T.Fatal(err)
	}
	return kit.StartedBy(k.T, k.Client, id)
}

// A fork from any step executes that step and all later ones, and returns the right result.
func TestForkFromEachStep(t *testing.T) {
	k := kit.New(t)
	y := &tally{}
	kit.Serve(k, journeyWf, y.journey)
	old := kit.Begin(k, journeyWf, "in", kagzi.ID("trip"), kagzi.Metadata{"tenant": "a"})
	want := kit.ResultOf(k, old)
	all := y.of(old.ID())
	if len(all) != 15 {
		t.Fatalf("executed %q", all)
	}
	order := []string{
		"first", "refused", "second", "ship/0/pack", "ship/0/send", "ship/1/pack", "ship/1/send", "ship/2/pack",
		"ship/2/send", "last", "last#2",
	}
	cases := map[string][]string{"both/l/one": nil, "both": nil, "both/r": nil}
	for i, step := range order {
		before := order[:i]
		if i >= 3 {
			before = append([]string{"both/l/one", "both/l/two", "both/r/one", "both/r/two"}, before...)
		}
		cases[step] = slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(before, s) })
	}
	cases["nap"], cases["ship"] = cases["second"], cases["ship/0/pack"]
	for step, executed := range cases {
		run := fork(k, old.ID(), step, kagzi.ID("trip-"+step))
		if got := kit.ResultOf(k, run); got != want {
			t.Errorf("from %s: got %s, want %s", step, got, want)
		}
		got := y.of(run.ID())
		if executed != nil && !slices.Equal(got, executed) {
			t.Errorf("from %s: executed %q, want %q", step, got, executed)
		}
		// For branches that ran at the same time, it depends on their timing.
		if executed == nil {
			under := func(s string) bool { return s == step || strings.HasPrefix(s, step+"/") }
			after := slices.DeleteFunc(slices.Clone(all), func(s string) bool {
				return s == "first" || s == "refused" || s == "second"
			})
			if !slices.ContainsFunc(got, under) || slices.Contains(got, "second") || len(got) < len(order)-3 ||
				len(got) > len(after) {
				t.Errorf("from %s: executed %q", step, got)
			}
		}
		info, err := run.Info(k.Ctx)
		if nap := k.Steps(run.ID())["nap"]; len(nap) != 1 ||
			nap[0].StartedAt.Before(info.CreatedAt) == slices.Contains([]string{"first", "refused", "nap"}, step) {
			t.Errorf("from %s: it slept, or did not: %+v", step, nap)
		}
		if err != nil || info.Origin != old.ID() || info.Metadata["tenant"] != "a" || info.Attempts != 0 {
			t.Errorf("from %s: %+v, %v", step, info, err)
		}
	}
	if got := y.of(old.ID()); !slices.Equal(got, all) {
		t.Errorf("the old run has executed %q since", got[len(all):])
	}
}

// After the repair of its code, a fork of a failed run continues at the failure, and does not repeat successful steps.
func TestForkAfterARepair(t *testing.T) {
	k := kit.New(t)
	y := &tally{}
	repaired := false
	kit.Serve(k, journeyWf, func(ctx kagzi.Context, in string) (string, error) {
		h, err := y.linked(ctx, "pay", in)
		if err == nil {
			h, err = kagzi.Step(ctx, "ship", func(ctx context.Context) (string, error) {
				y.note(ctx)
				if !repaired {
					return "", errors.New("broken")
				}
				return kit.Link(h, "ship"), nil
			}, kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
		}
		return h, err
	})
	old := kit.Begin(k, journeyWf, "in", kagzi.ID("trip"))
	kit.FailureOf(k, old, kagzi.StatusFailed)
	repaired = true
	run := fork(k, kagzi.ID("trip"), "ship", kagzi.Reason("the lorry is back"))
	if got := kit.ResultOf(k, run); got != kit.Link(kit.Link("in", "pay"), "ship") {
		t.Errorf("got %s", got)
	}
	if got := y.of(run.ID()); !slices.Equal(got, []string{"ship"}) {
		t.Errorf("executed %q", got)
	}
	if steps := k.Steps(run.ID())["ship"]; len(steps) != 1 || steps[0].Attempt != 1 {
		t.Errorf("attempts %+v", steps)
	}
	// A fork can be forked: the copied steps serve as well as the originals.
	again := fork(k, run.ID(), "ship")
	if got := kit.ResultOf(k, again); got != kit.Link(kit.Link("in", "pay"), "ship") || len(y.of(again.ID())) != 1 {
		t.Errorf("got %s, executed %q", got, y.of(again.ID()))
	}
	for id, want := range map[kagzi.RunID][]admin.LogEntry{
		old.ID(): {{Event: "FORKED", Other: run.ID(), Step: "ship", Reason: "the lorry is back"}},
		run.ID(): {
			{Event: "FORKED", Other: old.ID(), Step: "ship", Reason: "the lorry is back"},
			{Event: "FORKED", Other: again.ID(), Step: "ship"},
		},
		again.ID(): {{Event: "FORKED", Other: run.ID(), Step: "ship"}},
	} {
		k.WantEvents(id, want...)
	}
}

func TestForkWithANewInputAndVersion(t *testing.T) {
	k := kit.New(t)
	y := &tally{}
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, journeyWf, y.journey)
	kagzi.Handle(w, journeyWf, func(ctx kagzi.Context, in string) (string, error) {
		h, err := y.linked(ctx, "first", in)
		if err == nil {
			h, err = y.linked(ctx, "second", h+in)
		}
		return h, err
	}, kagzi.Version(2))
	kit.StartWorker(t, w)
	old := kit.Begin(k, journeyWf, "in", kagzi.Version(1))
	kit.ResultOf(k, old)
	run := fork(k, old.ID(), "second", kagzi.Version(2), admin.NewInput("other"))
	if got := kit.ResultOf(k, run); got != kit.Link(kit.Link("in", "first")+"other", "second") {
		t.Errorf("got %s", got)
	}
	if got := y.of(run.ID()); !slices.Equal(got, []string{"second"}) {
		t.Errorf("executed %q", got)
	}
	if info, _ := run.Info(k.Ctx); info.Version != 2 || string(info.Input) != `"other"` {
		t.Errorf("%+v", info)
	}
	// A fork within a Map that had begun must have the same items.
	bad := fork(k, old.ID(), "ship/0/pack")
	kit.ResultOf(k, bad)
	k.Exec(`UPDATE kagzi.step_runs SET output = convert_to('{"items":["a", "b", "c"]}', 'UTF8') `+
		`WHERE run_id = $1 AND step_id = 'ship'`, string(old.ID()))
	bad = fork(k, old.ID(), "ship/0/pack")
	kit.MustContain(t, kit.FailureOf(k, bad, kagzi.StatusFailed), `item 0 of Map "ship"`)
}

// In a fork, a group with a Timeout has the time that was left when the step began, and decides again.
func TestForkWithinGroupsThatWereDecided(t *testing.T) {
	t.Parallel()
	decided := map[string]func(ctx kagzi.Context, y *tally, hold func() bool) (string, error){
		"TimedOut": func(ctx kagzi.Context, y *tally, hold func() bool) (string, error) {
			err := kagzi.Parallel(ctx, "g", map[string]func(kagzi.Context) error{"a": func(ctx kagzi.Context) error {
				if _, err := y.linked(ctx, "before", ""); err != nil {
					return err
				}
				if hold() {
					return kagzi.Sleep(ctx, "long", time.Hour)
				}
				_, err := y.linked(ctx, "after", "")
				return err
			}}, kagzi.Timeout(6*time.Second))
			if errors.Is(err, kind.Timeout) {
				return "late", nil
			}
			return "in time", err
		},
		"Failed": func(ctx kagzi.Context, y *tally, hold func() bool) (string, error) {
			err := kagzi.Parallel(ctx, "g", map[string]func(kagzi.Context) error{"a": func(ctx kagzi.Context) error {
				if _, err := y.linked(ctx, "before", ""); err != nil {
					return err
				}
				return kagzi.Do(ctx, "after", func(ctx context.Context) error {
					y.note(ctx)
					if hold() {
						return kagzi.Permanent(errors.New("broken"))
					}
					return nil
				})
			}})
			if err != nil {
				return "late", nil
			}
			return "in time", nil
		},
		"Won": func(ctx kagzi.Context, y *tally, hold func() bool) (string, error) {
			_, got, err := kagzi.Race(ctx, "g",
				map[string]func(kagzi.Context) (string, error){"a": func(ctx kagzi.Context) (string, error) {
					if _, err := y.linked(ctx, "before", ""); err != nil {
						return "", err
					}
					if _, err := y.linked(ctx, "after", ""); err != nil {
						return "", err
					}
					if hold() {
						return "late", nil
					}
					return "in time", nil
				}})
			return got, err
		},
	}
	for name, fn := range decided {
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			y := &tally{}
			var hold sync.Map // by run
			kit.Serve(k, journeyWf, func(ctx kagzi.Context, in string) (string, error) {
				got, err := fn(ctx, y, func() bool { _, free := hold.Load(in); return !free })
				if err != nil {
					return "", err
				}
				_, err = y.linked(ctx, "end", got)
				return got, err
			})
			old := kit.Begin(k, journeyWf, "held")
			if got := kit.ResultOf(k, old); got != "late" {
				t.Fatalf("got %s", got)
			}
			hold.Store("free", true)
			// A fork from behind the decision keeps it; a fork from before decides again.
			if run := fork(k, old.ID(), "end", admin.NewInput("free")); kit.ResultOf(k, run) != "late" &&
				name != "Won" || !slices.Equal(y.of(run.ID()), []string{"end"}) {
				t.Errorf("from the end: executed %q", y.of(run.ID()))
			}
			if run := fork(k, old.ID(), "g/a/before", admin.NewInput("free")); kit.ResultOf(k, run) != "in time" ||
				len(y.of(run.ID())) != 3 {
				t.Errorf("from before: executed %q", y.of(run.ID()))
			}
			if name == "TimedOut" {
				return
			}
			if run := fork(k, old.ID(), "g/a/after", admin.NewInput("free")); kit.ResultOf(k, run) != "in time" ||
				!slices.Equal(y.of(run.ID()), []string{"end", "g/a/after"}) {
				t.Errorf("from after: executed %q", y.of(run.ID()))
			}
		})
	}
}

func TestForkRefuses(t *testing.T) {
	k := kit.New(t)
	y := &tally{}
	stop := kit.Serve(k, journeyWf, func(ctx kagzi.Context, in string) (string, error) {
		h, err := y.linked(ctx, "pay", in)
		if err == nil && in == "wait" {
			err = kagzi.Sleep(ctx, "long", time.Hour)
		}
		return h, err
	})
	old := kit.Begin(k, journeyWf, "in", kagzi.ID("trip"))
	kit.ResultOf(k, old)
	waiting := kit.Begin(k, journeyWf, "wait")
	k.WaitStatus(waiting.ID(), kagzi.StatusSleeping)
	stop()
	rows := func() int {
		return k.Count(`SELECT (SELECT count(*) FROM kagzi.workflow_runs) + (SELECT count(*)
			FROM kagzi.step_runs) + (SELECT count(*) FROM kagzi.run_events)`)
	}
	before := rows()
	other := kit.NewClientWith(t, k.Pool, kagzi.ClientConfig{Namespace: "other"})
	for name, tt := range map[string]struct {
		c    *kagzi.Client
		ref  kagzi.Ref
		step string
		want error
		says string
	}{
		"AnUnknownStep":     {k.Client, old.ID(), "ship", kagzi.ErrNotFound, "no such step"},
		"AStepNeverReached": {k.Client, kagzi.ID("trip"), "long", kagzi.ErrNotFound, "no such step"},
		"APartOfAName":      {k.Client, old.ID(), "pa", kagzi.ErrNotFound, "no such step"},
		"ANameNoStepHas":    {k.Client, old.ID(), "pay\x00", kagzi.ErrNotFound, "no such step"},
		"AnActiveRun":       {k.Client, waiting.ID(), "pay", kagzi.ErrRunActive, "not over"},
		"AnUnknownRun":      {k.Client, kagzi.ID("x"), "pay", kagzi.ErrNotFound, "run not found"},
		"AnothersRun":       {other, old.ID(), "pay", kagzi.ErrNotFound, "run not found"},
	} {
		if id, err := admin.New(tt.c).Runs.Fork(k.Ctx, tt.ref, tt.step); !errors.Is(err, tt.want) ||
			!strings.Contains(err.Error(), tt.says) || id != "" {
			t.Errorf("%s: %q, %v", name, id, err)
		}
	}
	_, err := admin.New(k.Client).Runs.Fork(k.Ctx, old.ID(), "ship")
	kit.MustContain(t, err, "fork "+string(old.ID()), `"ship"`, "Client.Steps")
	_, err = admin.New(k.Client).Runs.Fork(k.Ctx, old.ID(), "")
	kit.MustContain(t, err, "the step is empty", "admin.Runs.Restart")
	for _, own := range []string{"#other", "ship/0/#patched:change", "ship/0/pack#compensation"} {
		_, err = admin.New(k.Client).Runs.Fork(k.Ctx, old.ID(), own)
		kit.MustContain(t, err, "is a record of Kagzi's own")
	}
	k.Exec(`UPDATE kagzi.workflow_runs SET outcome = '{}' WHERE run_id = $1`, string(old.ID()))
	if _, err = admin.New(k.Client).Runs.Fork(k.Ctx, old.ID(), "pay"); !errors.Is(err, admin.ErrCompensated) {
		t.Errorf("a compensated run: %v", err)
	}
	if after := rows(); after != before {
		t.Errorf("refused forks left %d rows", after-before)
	}
	if _, err := admin.New(k.Client).Runs.Restart(k.Ctx, old.ID()); err != nil {
		t.Errorf("a compensated run: %v", err)
	}
}

// TestForkOfALongRun has 2,000 steps copied by one statement.
func TestForkOfALongRun(t *testing.T) {
	k := kit.New(t)
	const n = 2000
	y := &tally{}
	wf := kagzi.Define[int, int]("long")
	old := kit.Begin(k, wf, 1).ID()
	k.Exec(`UPDATE kagzi.workflow_runs SET status = 'COMPLETED', available_at = NULL, started_at = now(),
		finished_at = now(), version = 1 WHERE run_id = $1`, string(old))
	k.Exec(`INSERT INTO kagzi.step_runs (run_id, step_id, attempt_number, namespace_id, status, step_kind, run_attempt,
		first_attempt, output, started_at, finished_at)
		SELECT $1, 'step-' || i, 1, 'default', 'COMPLETED', 'FUNCTION', 1, 1, convert_to(i::text, 'UTF8'),
			r.created_at - interval '1 hour' + i * interval '1 ms',
				r.created_at - interval '1 hour' + i * interval '1 ms' + interval '900 us'
		FROM generate_series(0, $2::int - 1) AS i, kagzi.workflow_runs r WHERE r.run_id = $1`, string(old), n)
	begun := time.Now()
	run := fork(k, old, fmt.Sprint("step-", n-2))
	t.Logf("forking took %v", time.Since(begun).Round(time.Millisecond))
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) {
		sum := 0
		for i := range n {
			v, err := kagzi.Step(ctx, fmt.Sprint("step-", i), func(ctx context.Context) (int, error) {
				y.note(ctx)
				return i, nil
			})
			if err != nil {
				return 0, err
			}
			sum += v
		}
		return sum, nil
	})
	k.WaitStatus(run.ID(), kagzi.StatusCompleted)
	if got := y.of(run.ID()); !slices.Equal(got, []string{"step-1998", "step-1999"}) {
		t.Errorf("executed %d steps, %.60q", len(got), got)
	}
	if info, _ := run.Info(k.Ctx); string(info.Output) != fmt.Sprint(n*(n-1)/2) {
		t.Errorf("got %s", info.Output)
	}
}

// TestForkAtOneOfSeveralWaits: a run reads messages that were all there, so the records of its waits have the same
// time. The fork keeps those before its step only.
func TestForkAtOneOfSeveralWaits(t *testing.T) {
	k := kit.New(t)
	mail := kagzi.DefineSignal[int]("mail")
	wf := kagzi.Define[struct{}, string]("wf", mail.With(1), mail.With(2), mail.With(3), mail.With(4))
	stop := kit.Serve(k, wf, func(ctx kagzi.Context, _ struct{}) (read string, err error) {
		for range 4 {
			n, err := kagzi.WaitSignal(ctx, mail)
			if err != nil {
				return "", err
			}
			read += fmt.Sprint(n)
		}
		return read, nil
	})
	run := kit.Begin(k, wf, struct{}{})
	if got := kit.ResultOf(k, run); got != "1234" {
		t.Fatalf("INVALID: got %q", got)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	fork, err := admin.New(k.Client).Runs.Fork(k.Ctx, run.ID(), "mail#3")
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for step := range k.Steps(fork) {
		kept = append(kept, step)
	}
	if slices.Sort(kept); !slices.Equal(kept, []string{"mail", "mail#2"}) {
		t.Errorf("the fork keeps %v", kept)
	}
}
