package kagzi

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestBranchLeftByAWinnerReadsItsMessage has the winner of a race leave a branch behind, which reads a message and ends
// after the run was suspended. The run completes: the message was read.
func TestBranchLeftByAWinnerReadsItsMessage(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, string]("wf")
	serveWith(k, told, wf, func(ctx Context, _ struct{}) (string, error) {
		var f *Future[string]
		_, _, err := Race(ctx, "race", map[string]func(Context) (string, error){
			"x": func(ctx Context) (string, error) {
				f = Go(ctx, "c", func(ctx Context) (string, error) { return WaitSignal(ctx, approved) })
				return Step(ctx, "s", func(context.Context) (string, error) { return "x", nil })
			},
			"y": func(ctx Context) (string, error) { return WaitSignal(ctx, rejected) },
		})
		if err != nil {
			return "", err
		}
		v, err := f.Result(ctx)
		if err != nil {
			return "", err
		}
		return Step(ctx, "end", func(context.Context) (string, error) { return v, nil })
	})
	run := begin(k, wf, struct{}{})
	k.waitStatus(run.ID(), StatusSleeping)
	k.signal(run.ID(), approved.With("m1"))
	if got := resultOf(k, run); got != "m1" {
		t.Errorf("got %q", got)
	}
	if n := k.count(unread); n != 0 {
		t.Errorf("suspended: %d unread messages, it was read", n)
	}
}

// TestBranchLeftByAWinnerReadsItsMessageInMemory does so without a suspension between.
func TestBranchLeftByAWinnerReadsItsMessageInMemory(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, string]("wf")
	won := make(chan bool)
	w, _ := serveWith(k, told, wf, func(ctx Context, _ struct{}) (string, error) {
		var f *Future[string]
		_, _, err := Race(ctx, "race", map[string]func(Context) (string, error){
			"x": func(ctx Context) (string, error) {
				f = Go(ctx, "c", func(ctx Context) (string, error) {
					if err := Do(ctx, "late", func(context.Context) error { <-won; return nil }); err != nil {
						return "", err
					}
					return WaitSignal(ctx, approved)
				})
				return Step(ctx, "s", func(context.Context) (string, error) { return "x", nil })
			},
			"y": func(ctx Context) (string, error) { return WaitSignal(ctx, rejected) },
		})
		if err != nil {
			return "", err
		}
		select {
		case <-won:
		default:
			close(won)
		}
		v, err := f.Result(ctx)
		if err != nil {
			return "", err
		}
		return Step(ctx, "end", func(context.Context) (string, error) { return v, nil })
	})
	run := begin(k, wf, struct{}{}, approved.With("m1"))
	if got := resultOf(k, run); got != "m1" {
		t.Errorf("got %q", got)
	}
	if n := k.count(unread); n != 0 {
		t.Errorf("%d unread messages, it was read", n)
	}
	if err := w.Replay(k.ctx, run.ID()); err != nil {
		t.Errorf("replay: %v", err)
	}
}

// TestCancelledRaceGivesBackWhatItRecorded cancels a Race from outside (a sibling of its branch fails) while a racer, which has read a message, executes a
// step that succeeds nevertheless. The step is not recorded, and what the racer read is given back: the next
// attempt of the run reads it again.
func TestCancelledRaceGivesBackWhatItRecorded(t *testing.T) {
	k := newKit(t)
	j := &journal{}
	wf := Define[struct{}, string]("wf", RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	inStep, failed := make(chan bool, 1), make(chan bool, 1)
	stepDone := make(chan bool)
	_, _ = serveWith(k, told, wf, func(ctx Context, _ struct{}) (string, error) {
		var out string
		err := Parallel(ctx, "par", map[string]func(Context) error{
			"a": func(ctx Context) error {
				_, v, err := Race(ctx, "race", map[string]func(Context) (string, error){
					"x": func(ctx Context) (string, error) {
						m, err := WaitSignal(ctx, approved)
						if err != nil {
							return "", err
						}
						got, err := Step(ctx, "handle", func(sctx context.Context) (string, error) {
							j.add("handle:" + m)
							if ctx.Attempt() == 1 {
								inStep <- true
								<-failed
								<-sctx.Done() // and succeeds nevertheless
								defer close(stepDone)
							}
							return "handled:" + m, nil
						})
						return m + " " + got, err
					},
					"y": func(ctx Context) (string, error) { return WaitSignal(ctx, rejected) },
				})
				out = v
				return err
			},
			"b": func(ctx Context) error {
				return Do(ctx, "fails", func(context.Context) error {
					if ctx.Attempt() > 1 {
						return nil
					}
					<-inStep
					defer close(failed)
					return Permanent(errors.New("no"))
				}, RetryPolicy{MaxAttempts: 1})
			},
		})
		if err != nil {
			// the message that was given back is read here
			<-stepDone
			m, e := WaitSignal(ctx, approved)
			if e != nil {
				return "", e
			}
			j.add("after:" + m)
			if e := Do(ctx, "after", func(context.Context) error { return nil }); e != nil {
				return "", e
			}
			return "", RetryAfter(err, 0) // which the next attempt forgets
		}
		return out, nil
	})
	run := begin(k, wf, struct{}{}, approved.With("m1"))
	k.signal(run.ID(), approved.With("m2"))
	got, err := run.Result(k.ctx)
	t.Logf("journal %q, result %q, %v", j, got, err)
	for id, a := range k.steps(run.ID()) {
		for _, s := range a {
			t.Log(id, s.Attempt, s.Status, string(s.Output))
		}
	}
	switch got {
	case "m1 handled:m1", "m2 handled:m2":
	case "m2 handled:m1":
		t.Error("the result of a step about m1 is given to m2, which nobody handles")
	default:
		t.Errorf("got %q, %v", got, err)
	}
}

// TestLoserGivesItsMessageBack has the loser of a race read a message, and record nothing after it, in a run that stays in
// memory or is suspended in between: who waits for it next reads it.
func TestLoserGivesItsMessageBack(t *testing.T) {
	t.Parallel()
	for _, suspend := range []bool{false, true} {
		name := "InMemory"
		if suspend {
			name = "Suspended"
		}
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			wf := Define[struct{}, string]("wf")
			third := DefineSignal[string]("third")
			begun, read, open := make(chan bool, 1), make(chan bool, 1), make(chan bool)
			serveWith(k, told, wf, func(ctx Context, _ struct{}) (string, error) {
				if !suspend { // another branch at work keeps the run in memory
					Go(ctx, "busy", func(ctx Context) (int, error) {
						return 0, Do(ctx, "s", func(context.Context) error { begun <- true; <-open; return nil })
					})
				}
				winner, _, err := Race(ctx, "race", map[string]func(Context) (string, error){
					"both": func(ctx Context) (string, error) {
						m, err := WaitSignal(ctx, approved)
						if err != nil {
							return "", err
						}
						select {
						case read <- true:
						default:
						}
						n, err := WaitSignal(ctx, third)
						return m + n, err
					},
					"no": func(ctx Context) (string, error) { return WaitSignal(ctx, rejected) },
				})
				if err != nil {
					return "", err
				}
				m, err := WaitSignal(ctx, approved, Timeout(2*time.Second))
				return winner + " " + m, err
			})
			run := begin(k, wf, struct{}{}, approved.With("m1"))
			if suspend {
				k.waitStatus(run.ID(), StatusSleeping)
			} else {
				<-begun
				<-read
			}
			k.signal(run.ID(), rejected.With("r"))
			if !suspend {
				time.AfterFunc(time.Second, func() { close(open) })
			}
			got, err := run.Result(k.ctx)
			if got != "no m1" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// TestLoserGivesItsMessageBackAfterADrain drains the worker while the loser executes a step, which is not recorded.
func TestLoserGivesItsMessageBackAfterADrain(t *testing.T) {
	k := newKit(t)
	wf := Define[struct{}, string]("wf")
	begun := make(chan bool, 10)
	fn := func(ctx Context, _ struct{}) (string, error) {
		winner, _, err := Race(ctx, "race", map[string]func(Context) (string, error){
			"a": func(ctx Context) (string, error) {
				m, err := WaitSignal(ctx, approved)
				if err != nil {
					return "", err
				}
				return m, Do(ctx, "handle", func(ctx context.Context) error {
					begun <- true
					<-ctx.Done()
					return ctx.Err()
				})
			},
			"no": func(ctx Context) (string, error) { return WaitSignal(ctx, rejected) },
		})
		if err != nil {
			return "", err
		}
		m, err := WaitSignal(ctx, approved, Timeout(2*time.Second))
		return winner + " " + m, err
	}
	cfg := told
	cfg.DrainTimeout = time.Millisecond
	_, stop := serveWith(k, cfg, wf, fn)
	run := begin(k, wf, struct{}{}, approved.With("m1"))
	<-begun
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	serveWith(k, told, wf, fn)
	<-begun
	k.signal(run.ID(), rejected.With("r"))
	got, err := run.Result(k.ctx)
	if got != "no m1" {
		t.Errorf("got %q, %v", got, err)
	}
}
