package language_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
)

// TestBranchLeftByAWinnerReadsItsMessage has the winner of a race leave a branch behind, which reads a message and ends
// after the run was suspended. The run completes: the message was read.
func TestBranchLeftByAWinnerReadsItsMessage(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		var f *kagzi.Future[string]
		_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
			"x": func(ctx kagzi.Context) (string, error) {
				f = kagzi.Go(ctx, "c", func(ctx kagzi.Context) (string, error) {
					return kagzi.WaitSignal(ctx, kit.Approved)
				})
				return kagzi.Step(ctx, "s", func(context.Context) (string, error) { return "x", nil })
			},
			"y": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, kit.Rejected) },
		})
		if err != nil {
			return "", err
		}
		v, err := f.Result(ctx)
		if err != nil {
			return "", err
		}
		return kagzi.Step(ctx, "end", func(context.Context) (string, error) { return v, nil })
	})
	run := kit.Begin(k, wf, struct{}{})
	k.WaitStatus(run.ID(), kagzi.StatusSleeping)
	k.Signal(run.ID(), kit.Approved.With("m1"))
	if got := kit.ResultOf(k, run); got != "m1" {
		t.Errorf("got %q", got)
	}
	if n := k.Count(unread); n != 0 {
		t.Errorf("suspended: %d unread messages, it was read", n)
	}
}

// TestBranchLeftByAWinnerReadsItsMessageInMemory does so without a suspension between.
func TestBranchLeftByAWinnerReadsItsMessageInMemory(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	won := make(chan bool)
	w, _ := kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		var f *kagzi.Future[string]
		_, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
			"x": func(ctx kagzi.Context) (string, error) {
				f = kagzi.Go(ctx, "c", func(ctx kagzi.Context) (string, error) {
					if err := kagzi.Do(ctx, "late", func(context.Context) error {
						await.Opened(t, won)
						return nil
					}); err != nil {
						return "", err
					}
					return kagzi.WaitSignal(ctx, kit.Approved)
				})
				return kagzi.Step(ctx, "s", func(context.Context) (string, error) { return "x", nil })
			},
			"y": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, kit.Rejected) },
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
		return kagzi.Step(ctx, "end", func(context.Context) (string, error) { return v, nil })
	})
	run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("m1"))
	if got := kit.ResultOf(k, run); got != "m1" {
		t.Errorf("got %q", got)
	}
	if n := k.Count(unread); n != 0 {
		t.Errorf("%d unread messages, it was read", n)
	}
	if err := w.Replay(k.Ctx, run.ID()); err != nil {
		t.Errorf("replay: %v", err)
	}
}

// TestCancelledRaceGivesBackWhatItRecorded cancels a Race from outside (a sibling of its branch fails) while a racer,
// which has read a message, executes a step that succeeds nevertheless. The step is not recorded, and what the racer
// read is given back: the next attempt of the run reads it again.
func TestCancelledRaceGivesBackWhatItRecorded(t *testing.T) {
	k := kit.New(t)
	j := &kit.Journal{}
	wf := kagzi.Define[struct{}, string]("wf", kagzi.RetryPolicy{MaxAttempts: 2, Backoff: time.Millisecond})
	inStep, failed := make(chan bool, 1), make(chan bool, 1)
	stepDone := make(chan bool)
	_, _ = kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
		var out string
		err := kagzi.Parallel(ctx, "par", map[string]func(kagzi.Context) error{
			"a": func(ctx kagzi.Context) error {
				_, v, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
					"x": func(ctx kagzi.Context) (string, error) {
						m, err := kagzi.WaitSignal(ctx, kit.Approved)
						if err != nil {
							return "", err
						}
						got, err := kagzi.Step(ctx, "handle", func(sctx context.Context) (string, error) {
							j.Add("handle:" + m)
							if ctx.Attempt() == 1 {
								inStep <- true
								await.Opened(t, failed)
								<-sctx.Done() // and succeeds nevertheless
								defer close(stepDone)
							}
							return "handled:" + m, nil
						})
						return m + " " + got, err
					},
					"y": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, kit.Rejected) },
				})
				out = v
				return err
			},
			"b": func(ctx kagzi.Context) error {
				return kagzi.Do(ctx, "fails", func(context.Context) error {
					if ctx.Attempt() > 1 {
						return nil
					}
					await.Opened(t, inStep)
					defer close(failed)
					return kagzi.Permanent(errors.New("no"))
				}, kagzi.RetryPolicy{MaxAttempts: 1})
			},
		})
		if err != nil {
			// the message that was given back is read here
			await.Opened(t, stepDone)
			m, e := kagzi.WaitSignal(ctx, kit.Approved)
			if e != nil {
				return "", e
			}
			j.Add("after:" + m)
			if e := kagzi.Do(ctx, "after", func(context.Context) error { return nil }); e != nil {
				return "", e
			}
			return "", kagzi.RetryAfter(err, 0) // which the next attempt forgets
		}
		return out, nil
	})
	run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("m1"))
	k.Signal(run.ID(), kit.Approved.With("m2"))
	got, err := run.Result(k.Ctx)
	t.Logf("journal %q, result %q, %v", j, got, err)
	for id, a := range k.Steps(run.ID()) {
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

// The loser of a race reads a message, and records nothing after it, in a run that stays in memory or is suspended in
// between. The next wait for the message reads it.
func TestLoserGivesItsMessageBack(t *testing.T) {
	t.Parallel()
	for _, suspend := range []bool{false, true} {
		name := "InMemory"
		if suspend {
			name = "Suspended"
		}
		t.Run(name, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[struct{}, string]("wf")
			third := kagzi.DefineSignal[string]("third")
			begun, read, open := make(chan bool, 1), make(chan bool, 1), make(chan bool)
			kit.ServeWith(k, kit.NotifiedOnly, wf, func(ctx kagzi.Context, _ struct{}) (string, error) {
				if !suspend { // another branch at work keeps the run in memory
					kagzi.Go(ctx, "busy", func(ctx kagzi.Context) (int, error) {
						return 0, kagzi.Do(ctx, "s", func(context.Context) error {
							begun <- true
							await.Opened(t, open)
							return nil
						})
					})
				}
				winner, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
					"both": func(ctx kagzi.Context) (string, error) {
						m, err := kagzi.WaitSignal(ctx, kit.Approved)
						if err != nil {
							return "", err
						}
						select {
						case read <- true:
						default:
						}
						n, err := kagzi.WaitSignal(ctx, third)
						return m + n, err
					},
					"no": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, kit.Rejected) },
				})
				if err != nil {
					return "", err
				}
				m, err := kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(time.Minute))
				return winner + " " + m, err
			})
			run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("m1"))
			if suspend {
				k.WaitStatus(run.ID(), kagzi.StatusSleeping)
			} else {
				await.Receive(t, begun)
				await.Receive(t, read)
			}
			k.Signal(run.ID(), kit.Rejected.With("r"))
			if !suspend {
				time.AfterFunc(time.Second, func() { close(open) })
			}
			got, err := run.Result(k.Ctx)
			if got != "no m1" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// TestLoserGivesItsMessageBackAfterADrain drains the worker while the loser executes a step, which is not recorded.
func TestLoserGivesItsMessageBackAfterADrain(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[struct{}, string]("wf")
	begun := make(chan bool, 10)
	fn := func(ctx kagzi.Context, _ struct{}) (string, error) {
		winner, _, err := kagzi.Race(ctx, "race", map[string]func(kagzi.Context) (string, error){
			"a": func(ctx kagzi.Context) (string, error) {
				m, err := kagzi.WaitSignal(ctx, kit.Approved)
				if err != nil {
					return "", err
				}
				return m, kagzi.Do(ctx, "handle", func(ctx context.Context) error {
					begun <- true
					<-ctx.Done()
					return ctx.Err()
				})
			},
			"no": func(ctx kagzi.Context) (string, error) { return kagzi.WaitSignal(ctx, kit.Rejected) },
		})
		if err != nil {
			return "", err
		}
		m, err := kagzi.WaitSignal(ctx, kit.Approved, kagzi.Timeout(time.Minute))
		return winner + " " + m, err
	}
	cfg := kit.NotifiedOnly
	cfg.DrainTimeout = time.Millisecond
	_, stop := kit.ServeWith(k, cfg, wf, fn)
	run := kit.Begin(k, wf, struct{}{}, kit.Approved.With("m1"))
	await.Receive(t, begun)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	kit.ServeWith(k, kit.NotifiedOnly, wf, fn)
	await.Receive(t, begun)
	k.Signal(run.ID(), kit.Rejected.With("r"))
	got, err := run.Result(k.Ctx)
	if got != "no m1" {
		t.Errorf("got %q, %v", got, err)
	}
}
