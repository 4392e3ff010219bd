package operations_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/internal/testlog"
	"github.com/kagzi/kagzi/kind"
	"github.com/kagzi/kagzi/topic"
)

// refuse lets the server refuse a row of the table if the condition holds.
func refuse(t *testing.T, k *kit.Kit, table, event, condition string) {
	t.Helper()
	k.Exec(`CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'poison'; END $$`)
	k.Exec(`CREATE TRIGGER refuse BEFORE ` + event + ` ON kagzi.` + table + ` FOR EACH ROW WHEN (` + condition +
		`) EXECUTE FUNCTION refuse()`)
}

// loggedKit returns a kit whose client logs to the buffer.
func loggedKit(t *testing.T) (*kit.Kit, *testlog.Buffer) {
	logged := &testlog.Buffer{}
	return kit.NewWith(t, kagzi.ClientConfig{Logger: logged.Logger()}), logged
}

// The server refuses a write that the function does not wait for. Whatever the function does meanwhile, the run fails,
// and nothing that follows the write is written.
func TestNothingFollowsARefusedWrite(t *testing.T) {
	t.Parallel()
	told, child := topic.Define[string]("told"), kagzi.Define[int, int]("child", kagzi.Queue("elsewhere"))
	calls := map[string]func(kagzi.Context) error{
		"Publish": func(ctx kagzi.Context) error { return topic.Publish(ctx, "refused", told.With("event")) },
		"SetMetadata": func(ctx kagzi.Context) error {
			return kagzi.SetMetadata(ctx, "refused", kagzi.Metadata{"k": "v"})
		},
		"StartChild": func(ctx kagzi.Context) error {
			_, err := kagzi.StartChild(ctx, "refused", child, 1)
			return err
		},
	}
	step := func(ctx kagzi.Context, name string, fn func()) error {
		return kagzi.Do(ctx, name, func(context.Context) error {
			fn()
			return nil
		})
	}
	const nowhere = ""
	for way, tt := range map[string]struct {
		// the point that the execution has reached when the write is sent
		until string
		code  func(ctx kagzi.Context, call func() error) error // what the function does
	}{
		"Returned": {"finish", func(_ kagzi.Context, call func() error) error { return call() }},
		"Failed": {"finish", func(_ kagzi.Context, call func() error) error {
			return errors.Join(call(), errors.New("own"))
		}},
		"FailedAtAll": {"finish", func(_ kagzi.Context, call func() error) error {
			return kagzi.Permanent(errors.Join(call(), errors.New("own")))
		}},
		"Suspended": {"suspend", func(ctx kagzi.Context, call func() error) error {
			return errors.Join(call(), kagzi.Sleep(ctx, "after", time.Hour))
		}},
		"SuspendedForAMessage": {"suspend", func(ctx kagzi.Context, call func() error) error {
			err := call()
			_, err2 := kagzi.WaitSignal(ctx, kagzi.DefineSignal[int]("after"))
			return errors.Join(err, err2)
		}},
		"Waiting": {nowhere, func(ctx kagzi.Context, call func() error) error {
			return errors.Join(call(), step(ctx, "after", func() {}))
		}},
		"Progress": {"finish", func(ctx kagzi.Context, call func() error) error {
			kagzi.SetProgress(ctx, "poison")
			return call()
		}},
		"OtherBranch": {nowhere, func(ctx kagzi.Context, call func() error) error {
			begun := make(chan struct{})
			other := kagzi.Go(ctx, "other", func(ctx kagzi.Context) (int, error) {
				return 0, step(ctx, "after", func() {
					close(begun)
					await.True(t, "the execution has stopped", func() bool { return ctx.Err() != nil })
				})
			})
			<-begun
			err := call()
			_, err2 := other.Result(ctx)
			return errors.Join(err, err2)
		}},
	} {
		for name, call := range calls {
			t.Run(way+"/"+name, func(t *testing.T) {
				t.Parallel()
				k, logged := loggedKit(t)
				refuse(t, k, "step_runs", "INSERT", `NEW.step_id = 'refused'`)
				wf := kagzi.Define[int, int]("wf", kagzi.RetryPolicy{MaxAttempts: 3, Backoff: time.Millisecond})
				w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
				open := make(chan struct{})
				if tt.until == nowhere {
					close(open)
				}
				var first atomic.Bool
				kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
					switch point {
					case "before flush":
						<-open
					case tt.until:
						if first.CompareAndSwap(false, true) {
							close(open)
						}
					}
				})
				kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
					return 1, tt.code(ctx, func() error { return call(ctx) })
				})
				kit.StartWorker(t, w)
				run := kit.Begin(k, wf, 1)
				failed := kit.FailureOf(k, run, kagzi.StatusFailed)
				if failed.Kind != kind.Database || !strings.Contains(failed.Message, "poison") ||
					!strings.Contains(failed.Message, `"refused"`) {
					t.Errorf("the run failed with %v", failed)
				}
				for step, rows := range k.Steps(run) {
					t.Errorf("step %q is recorded: %+v", step, rows)
				}
				if n := k.Count(`SELECT (SELECT count(*) FROM kagzi.events) + (SELECT count(*) FROM kagzi.workflow_runs
					WHERE workflow_type = 'child' OR metadata IS NOT NULL OR progress IS NOT NULL
					OR output IS NOT NULL)`); n != 0 {
					t.Errorf("%d things were written", n)
				}
				logged.WantLine(t, "the database refuses a write of a run", "level=ERROR", string(run.ID()),
					"refused", "poison")
			})
		}
	}
}

// A worker stops while a write of its run is refused: the run fails, and is not given back.
func TestRefusedWriteAtADrain(t *testing.T) {
	t.Parallel()
	k, _ := loggedKit(t)
	refuse(t, k, "step_runs", "INSERT", `NEW.step_id = 'refused'`)
	wf := kagzi.Define[int, int]("wf")
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{DrainTimeout: 50 * time.Millisecond})
	begun, ended := make(chan struct{}), make(chan struct{})
	kit.Failpoint(t, w, func(point string, _ uuid.UUID) {
		if point == "before flush" {
			<-ended
		}
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		return 1, errors.Join(kagzi.SetMetadata(ctx, "refused", kagzi.Metadata{"k": "v"}),
			kagzi.Do(ctx, "s", func(ctx context.Context) error {
				close(begun)
				<-ctx.Done()
				close(ended)
				return ctx.Err()
			}))
	})
	stop := kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 1)
	<-begun
	if err := stop(); err != nil {
		t.Error(err)
	}
	if info := k.InfoOf(run); info.Status != kagzi.StatusFailed || info.Kind != kind.Database {
		t.Errorf("the run is %s: %s", info.Status, info.Error)
	}
}

// The end of a run is refused. The run fails, and its child, which is under way, is cancelled.
func TestRefusedSuspensionCancelsChildren(t *testing.T) {
	t.Parallel()
	k, _ := loggedKit(t)
	refuse(t, k, "workflow_runs", "UPDATE", `NEW.status = 'SLEEPING'`)
	wf, child := kagzi.Define[int, int]("wf"), kagzi.Define[int, int]("child", kagzi.Queue("elsewhere"))
	kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) { return kagzi.RunChild(ctx, "child", child, 1) })
	run := kit.Begin(k, wf, 1)
	failed := kit.FailureOf(k, run, kagzi.StatusFailed)
	kit.MustContain(t, failed, "the run's end cannot be recorded", "poison")
	if failed.Kind != kind.Database {
		t.Errorf("the run failed with %v", failed)
	}
	if info := k.ChildOf(run.ID(), "child"); info.Status != kagzi.StatusCancelled {
		t.Errorf("the child is %s", info.Status)
	}
}

// Whatever the server refuses of a failure, the run ends with a text that it can store.
func TestFailureWhoseTextIsRefused(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]func(kagzi.Context) error{
		"Own":   func(kagzi.Context) error { return errors.New("10 €") },
		"Panic": func(kagzi.Context) error { panic("10 €") },
		"OfAStep": func(ctx kagzi.Context) error {
			return kagzi.Do(ctx, "10 €", func(context.Context) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, logged := loggedKit(t)
			refuse(t, k, "workflow_runs", "UPDATE", `NEW.error LIKE '%€%'`)
			k.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON kagzi.step_runs FOR EACH ROW
				WHEN (NEW.step_id LIKE '%€%') EXECUTE FUNCTION refuse()`)
			wf := kagzi.Define[int, int]("wf", kit.NoRetry)
			kit.Serve(k, wf, func(ctx kagzi.Context, _ int) (int, error) { return 1, code(ctx) })
			failed := kit.FailureOf(k, kit.Begin(k, wf, 1), kagzi.StatusFailed)
			if failed.Kind != kind.Database || !strings.Contains(failed.Message, "SQLSTATE P0001") ||
				strings.ContainsFunc(failed.Message, func(r rune) bool { return r > 127 || r == '"' }) {
				t.Errorf("the run failed with %v", failed)
			}
			logged.WantLine(t, "the database refuses the text of a run's failure", "level=ERROR", "10 €")
		})
	}
}

// The server refuses every end of a run. The worker keeps the run and tries again, Health says so, and the run ends
// after the repair.
func TestEndThatIsRefusedIsTriedAgain(t *testing.T) {
	t.Parallel()
	k, logged := loggedKit(t)
	refuse(t, k, "workflow_runs", "UPDATE", `NEW.status = 'FAILED'`)
	wf := kagzi.Define[int, int]("wf", kit.NoRetry)
	kit.Serve(k, wf, func(kagzi.Context, int) (int, error) { return 0, errors.New("own") })
	run := kit.Begin(k, wf, 1)
	logged.WantLine(t, "the database refuses an operation of the worker",
		"flush what some runs have recorded", "poison")
	if info := k.InfoOf(run); info.Status != kagzi.StatusRunning {
		t.Errorf("the run is %s", info.Status)
	}
	k.Exec(`DROP TRIGGER refuse ON kagzi.workflow_runs`)
	kit.MustContain(t, kit.FailureOf(k, run, kagzi.StatusFailed), "P0001")
}

// What the steps of a run have done is undone after a refused write: also by the step whose record is refused, and by
// one of another branch that ends after it.
func TestRefusedWriteIsCompensated(t *testing.T) {
	t.Parallel()
	k, _ := loggedKit(t)
	refuse(t, k, "step_runs", "INSERT",
		`NEW.step_id IN ('own/refused', 'other/after') AND NEW.status = 'COMPLETED' AND NEW.step_kind = 'FUNCTION'`)
	wf, undo := kagzi.Define[int, int]("wf", kit.NoRetry), kagzi.Define[string, int]("undo")
	undone := make(chan string, 2)
	w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
	kagzi.Handle(w, undo, func(ctx kagzi.Context, what string) (int, error) {
		return 0, kagzi.Do(ctx, "undo", func(context.Context) error {
			undone <- what
			return nil
		})
	})
	kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
		begun := make(chan struct{})
		other := kagzi.Go(ctx, "other", func(ctx kagzi.Context) (string, error) {
			return kagzi.Step(ctx, "after", func(ctx context.Context) (string, error) {
				close(begun)
				await.True(t, "the execution has stopped", func() bool { return ctx.Err() != nil })
				return "after", nil
			}, kagzi.UndoneBy(undo))
		})
		own := kagzi.Go(ctx, "own", func(ctx kagzi.Context) (string, error) {
			return kagzi.Step(ctx, "refused", func(context.Context) (string, error) {
				<-begun
				return "refused", nil
			}, kagzi.UndoneBy(undo))
		})
		_, err := own.Result(ctx)
		_, err2 := other.Result(ctx)
		return 0, errors.Join(err, err2)
	})
	kit.StartWorker(t, w)
	run := kit.Begin(k, wf, 1)
	kit.MustContain(t, kit.FailureOf(k, run, kagzi.StatusFailed), "own/refused", "poison")
	for _, want := range []string{"after", "refused"} { // the last one first
		if got := await.Receive(t, undone); got != want {
			t.Errorf("%q was undone, want %q", got, want)
		}
	}
}

// A run is cancelled while one of its writes is refused: it ends as cancelled, after its compensations.
func TestCancelBesideARefusedWrite(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"CancelFirst", "RefusalFirst"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			k, _ := loggedKit(t)
			refuse(t, k, "step_runs", "INSERT", `NEW.step_id = 'refused'`)
			wf, undo := kagzi.Define[int, int]("wf"), kagzi.Define[string, int]("undo")
			w := kit.NewWorker(t, k.Client, kagzi.WorkerConfig{})
			kagzi.Handle(w, undo, func(kagzi.Context, string) (int, error) { return 0, nil })
			point := map[string]string{"CancelFirst": "before flush", "RefusalFirst": "finish"}[order]
			var armed atomic.Bool
			hung, release := kit.HangAt(t, w, point, armed.Load)
			kagzi.Handle(w, wf, func(ctx kagzi.Context, _ int) (int, error) {
				kagzi.Compensate(ctx, "c", undo.With("it"))
				armed.Store(true)
				if err := kagzi.SetMetadata(ctx, "refused", kagzi.Metadata{"k": "v"}); err != nil {
					return 0, err
				}
				return 1, kagzi.Sleep(ctx, "nap", time.Hour)
			})
			kit.StartWorker(t, w)
			run := kit.Begin(k, wf, 1)
			<-hung
			k.Cancel(run)
			release()
			kit.FailureOf(k, run, kagzi.StatusCancelled)
			if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE workflow_type = 'undo'
				AND status = 'COMPLETED'`); n != 1 {
				t.Errorf("%d compensations ran", n)
			}
			if n := k.Count(`SELECT count(*) FROM kagzi.step_runs WHERE step_kind <> 'COMPENSATION'`); n != 0 {
				t.Errorf("%d steps are recorded", n)
			}
		})
	}
}
