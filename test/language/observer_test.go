package language_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/admin"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
)

// Whichever process ends a run, the client's interceptors learn of it once.
func TestInterceptorsLearnOfEnds(t *testing.T) {
	var l lines
	i := kagzi.Interceptor{Ended: func(r kagzi.EndedRun) {
		l.add("%s in %s %s %s, version %d, negative age %t, run %t", r.Workflow, r.Queue, r.Status, r.Kind, r.Version,
			r.Age < 0, r.Run != "")
	}}
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{i, {}, i}})
	wf := kagzi.Define[string, string]("wf")
	undo := kagzi.Define[string, string]("undo")
	child := kagzi.Define[string, string]("child")
	w := kit.NewWorker(t, k.Client, kit.NotifiedOnly)
	kagzi.Handle(w, undo, func(kagzi.Context, string) (string, error) { return "", nil })
	childBegun := make(chan struct{})
	kagzi.Handle(w, child, func(ctx kagzi.Context, _ string) (string, error) {
		if err := kagzi.Do(ctx, "begin", func(context.Context) error { close(childBegun); return nil }); err != nil {
			return "", err
		}
		return "", kagzi.Sleep(ctx, "long", time.Hour)
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, mode string) (string, error) {
		switch mode {
		case "fail":
			return "", errors.New("declined")
		case "sleep":
			return "", kagzi.Sleep(ctx, "long", time.Hour)
		case "parent":
			_, err := kagzi.RunChild(ctx, "kid", child, "")
			return "", err
		case "compensate":
			kagzi.Compensate(ctx, "undo", undo.With(""))
			return "", errors.New("declined")
		}
		return "", nil
	})
	kit.StartWorker(t, w)
	for _, tt := range []struct {
		mode   string
		status kagzi.Status
		act    func(kagzi.RunID)
		want   []string
	}{
		{"complete", kagzi.StatusCompleted, nil, []string{"wf in default COMPLETED , version 1"}},
		{"fail", kagzi.StatusFailed, nil, []string{"wf in default FAILED unknown, version 1"}},
		{
			"sleep", kagzi.StatusCancelled, func(id kagzi.RunID) { k.Cancel(id) },
			[]string{"wf in default CANCELLED cancelled, version 1"},
		},
		{"parent", kagzi.StatusCancelled, func(id kagzi.RunID) {
			await.Opened(t, childBegun)
			k.Cancel(id)
		}, []string{"child in default CANCELLED cancelled, version 1", "wf in default CANCELLED cancelled, version 1"}},
		{"compensate", kagzi.StatusFailed, nil, []string{
			"undo in default COMPLETED , version 1",
			"wf in default FAILED unknown, version 1",
		}},
	} {
		run := kit.Begin(k, wf, tt.mode)
		if tt.act != nil {
			k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			tt.act(run.ID())
		}
		k.WaitStatus(run.ID(), tt.status)
		var want, got []string
		for _, line := range tt.want {
			line += ", negative age false, run true"
			want = append(want, line, line)
		}
		await.True(t, tt.mode+" is told", func() bool {
			if all := l.take(); all != "" {
				got = append(got, strings.Split(all, "\n")...)
			}
			return len(got) >= len(want)
		})
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.mode, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}

	// One in the caller's transaction may not come true.
	run := kit.Begin(k, wf, "sleep", kagzi.Delay(time.Hour))
	tx, err := k.Pool.Begin(k.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Client.Cancel(k.Ctx, run.ID(), kagzi.InTx(tx)); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(k.Ctx); err != nil {
		t.Error(err)
	}
	if got := l.take(); got != "" {
		t.Errorf("a cancel that was rolled back is told: %s", got)
	}
	k.Cancel(run.ID())
	if got := l.take(); !strings.Contains(got, "wf in default CANCELLED cancelled, version 0") {
		t.Errorf("the cancel of a run that nobody executed is told as %q", got)
	}
}

// Flushes are told, also to those behind an interceptor that panics.
func TestInterceptorsLearnOfFlushes(t *testing.T) {
	var l lines
	var logged testlog.Buffer
	k := kit.NewWith(t, kagzi.ClientConfig{Logger: logged.Logger(), Interceptors: []kagzi.Interceptor{
		{Flushed: func(kagzi.Flush) { panic("boom") }, Ended: func(kagzi.EndedRun) { panic("bang") }},
		{Flushed: func(f kagzi.Flush) {
			l.add("%d runs, %d writes, took time %t, %v", f.Runs, f.Writes, f.Took > 0, f.Err)
		}, Ended: func(r kagzi.EndedRun) { l.add("%s", r.Status) }},
	}})
	kit.Complete(k, func(ctx kagzi.Context) (int, error) {
		return kagzi.Step(ctx, "step", func(context.Context) (int, error) { return 1, nil })
	})
	// A result may be known before the worker has told of it.
	var got string
	await.True(t, "the end is told", func() bool {
		got = strings.Trim(got+"\n"+l.take(), "\n")
		return strings.Contains(got, "COMPLETED")
	})
	if want := "1 runs, 2 writes, took time true, <nil>\nCOMPLETED"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	for _, panicked := range []string{"panic: boom", "panic: bang"} {
		if !strings.Contains(logged.String(), panicked) {
			t.Errorf("the log lacks %q: %s", panicked, logged.String())
		}
	}
}

// An Execute learns whether another attempt of the run follows.
func TestInterceptorsLearnOfRetries(t *testing.T) {
	var l lines
	i := kagzi.Interceptor{Execute: func(ctx context.Context, e kagzi.Execution, next next) error {
		err := next(ctx)
		l.add("attempt %d retried %t %s %v, old enough %t", e.Attempt, errors.Is(err, kagzi.ErrRetried),
			kagzi.KindOf(err), err, e.Age >= e.Waited)
		return err
	}}
	k := kit.NewWith(t, kagzi.ClientConfig{Interceptors: []kagzi.Interceptor{i}})
	wf := kagzi.Define[bool, string]("wf", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	serveOn(k, kit.NotifiedOnly, wf, func(_ kagzi.Context, permanent bool) (string, error) {
		if permanent {
			return "", kagzi.Permanent(errors.New("declined"))
		}
		return "", errors.New("away")
	})
	kit.FailureOf(k, kit.Begin(k, wf, false), kagzi.StatusFailed)
	if got, want := l.take(), "attempt 1 retried true unknown away, old enough true\nattempt 2 retried false unknown "+
		"away, old enough true"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	kit.FailureOf(k, kit.Begin(k, wf, true), kagzi.StatusFailed)
	if got, want := l.take(), "attempt 1 retried false unknown declined, old enough true"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestLocalWorkers(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[string, string]("wf")
	begun, goOn := make(chan struct{}), make(chan struct{})
	stop := serveOn(k, kagzi.WorkerConfig{MaxConcurrent: 3}, wf, func(ctx kagzi.Context, _ string) (string, error) {
		return kagzi.Step(ctx, "step", func(context.Context) (string, error) {
			close(begun)
			await.Opened(t, goOn)
			return "", nil
		})
	})
	run := kit.Begin(k, wf, "")
	await.Receive(t, begun)
	all := admin.New(k.Client).Workers.Local()
	if len(all) != 1 || all[0].Slots != 3 || all[0].Free != 2 || all[0].Waiting != 0 ||
		fmt.Sprint(all[0].Queues) != "[default]" {
		t.Errorf("workers %+v", all)
	}
	if info := kit.Only(t, k.Client, admin.WorkerFilter{}); len(all) == 1 && info.ID != all[0].ID {
		t.Errorf("the worker is %s in the registry, and %s in the process", info.ID, all[0].ID)
	}
	close(goOn)
	kit.ResultOf(k, run)
	await.True(t, "the slot is free", func() bool { return admin.New(k.Client).Workers.Local()[0].Free == 3 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	if all := admin.New(k.Client).Workers.Local(); len(all) > 0 {
		t.Errorf("the worker has stopped: %+v", all)
	}
}
