package language_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kagzi/kagzi"
	"github.com/kagzi/kagzi/internal/await"
	"github.com/kagzi/kagzi/internal/kit"
	"github.com/kagzi/kagzi/kind"
)

func TestPoliciesThatAreRefusedBeforeAnySQL(t *testing.T) {
	t.Parallel()
	c := kit.NewClient(t, kit.Unreachable(t))
	_, err := kagzi.Start(t.Context(), c, kit.Noop, 1, kagzi.ID("x"), kagzi.IfActive("x"))
	kit.MustContain(t, err, "start noop", `no IfActive "x"`, "kagzi.ReturnActive")
	_, err = kagzi.Start(t.Context(), c, kagzi.Define[int, int]("wf", kagzi.IfEnded("x")), 1)
	kit.MustContain(t, err, "start wf", `no IfEnded "x"`, "kagzi.StartAgain")
	_, err = kagzi.Start(t.Context(), c, kit.Noop, 1, kagzi.RejectActive)
	kit.MustContain(t, err, "start noop", `IfActive "reject_active" without an ID`, "kagzi.ID")
	_, err = c.StartMany(t.Context(), []kagzi.Call{kit.Noop.With(1, kagzi.ID("x")), kit.Noop.With(1)},
		kagzi.RejectEnded)
	kit.MustContain(t, err, "call 1", `IfEnded "reject_ended" without an ID`)
	err = c.Schedule(t.Context(), kagzi.Schedule{
		Name: "s", Every: time.Hour,
		Run: kit.Noop.With(1, kagzi.ReplaceActive),
	})
	kit.MustContain(t, err, `schedule "s"`, `takes no IfActive "replace_active"`, "it has no ID", "Overlap")
}

// As defaults they are about the starts that have an ID; the last of a kind wins.
func TestPoliciesAsDefaults(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kagzi.RejectActive, kagzi.RejectEnded)
	kit.Begin(k, wf, 1)
	kit.Begin(k, wf, 1)
	first := kit.Begin(k, wf, 1, kagzi.ID("x"))
	if _, err := kagzi.Start(k.Ctx, k.Client, wf, 1, kagzi.ID("x")); !errors.Is(err, kagzi.ErrIDTaken) {
		t.Errorf("got %v", err)
	}
	if again := kit.Begin(k, wf, 1, kagzi.ID("x"), kagzi.ReturnActive); !again.Existed() || again.ID() != first.ID() {
		t.Errorf("got %+v", again)
	}
	if again := kit.Begin(k, wf, 1, kagzi.ID("x"), kagzi.IfActive("")); !again.Existed() {
		t.Errorf("got %+v", again)
	}
	k.Cancel(first.ID())
	if _, err := kagzi.Start(k.Ctx, k.Client, wf, 1, kagzi.ID("x"), kagzi.ReturnActive); !errors.Is(err,
		kagzi.ErrIDTaken) {
		t.Errorf("got %v", err)
	}
	if again := kit.Begin(k, wf, 1, kagzi.ID("x"), kagzi.StartAgain); again.Existed() {
		t.Errorf("got %+v", again)
	}
	k.Schedule(kagzi.Schedule{Name: "s", Every: time.Hour, Run: wf.With(1)})
}

func TestARefusalNamesTheRun(t *testing.T) {
	k := kit.New(t)
	run := kit.Begin(k, kit.Noop, 1, kagzi.ID("x"))
	_, err := kagzi.Start(k.Ctx, k.Client, kit.Noop, 1, kagzi.ID("x"), kagzi.RejectActive)
	if !errors.Is(err, kagzi.ErrIDTaken) || errors.Is(err, kagzi.ErrIDConflict) ||
		kagzi.KindOf(err) != kind.BadRequest {
		t.Errorf("got %v", err)
	}
	kit.MustContain(t, err, `ID "x" is that of run `+string(run.ID())+` of workflow "noop", which is PENDING`)
	_, err = kagzi.Start(k.Ctx, k.Client, kit.Noop, 2, kagzi.ID("x"), kagzi.RejectActive)
	if !errors.Is(err, kagzi.ErrIDTaken) || !errors.Is(err, kagzi.ErrIDConflict) {
		t.Errorf("another input: %v", err)
	}
	is := func(err error, want string) {
		t.Helper()
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	is(err, `kagzi: start noop: ID "x" is that of run `+string(run.ID())+
		` of workflow "noop", which is PENDING and was started with another input`)
	_, err = kagzi.Start(k.Ctx, k.Client, kit.Noop, 2, kagzi.ID("x"))
	is(err, `kagzi: start noop: ID "x" is held by run `+string(run.ID())+
		` of workflow "noop", which was started with another input: give that input to get that run, or another ID `+
		`to start another`)
	_, err = kagzi.Start(k.Ctx, k.Client, kagzi.Define[int, int]("another"), 1, kagzi.ID("x"), kagzi.ReplaceActive)
	if errors.Is(err, kagzi.ErrIDTaken) || !errors.Is(err, kagzi.ErrIDConflict) {
		t.Errorf("another workflow: %v", err)
	}
	is(err, `kagzi: start another: ID "x" is held by run `+string(run.ID())+
		` of workflow "noop": give the other workflow's run an ID of its own`)
}

// Each call has its own policies, and a refusal starts none of them.
func TestStartManyWithPolicies(t *testing.T) {
	k := kit.New(t)
	old := kit.Begin(k, kit.Noop, 1, kagzi.ID("a"))
	kit.Begin(k, kit.Noop, 1, kagzi.ID("b"))
	calls := []kagzi.Call{
		kit.Noop.With(2, kagzi.ID("a"), kagzi.ReplaceActive), kit.Noop.With(1, kagzi.ID("b")),
		kit.Noop.With(3, kagzi.ID("c"), kagzi.RejectEnded), kit.Noop.With(1, kagzi.ID("b2"), kagzi.RejectActive),
	}
	if _, err := k.Client.StartMany(k.Ctx, append(calls, kit.Noop.With(1, kagzi.ID("d"))),
		kagzi.RejectActive); !errors.Is(err, kagzi.ErrIDTaken) {
		t.Errorf("b under the policy that all share: %v", err)
	}
	if info, _ := old.Info(k.Ctx); info.Status != kagzi.StatusPending {
		t.Errorf("replaced by a call that was refused: %+v", info)
	}
	started, err := k.Client.StartMany(k.Ctx, calls)
	if err != nil || started[0].Existed || !started[1].Existed || started[2].Existed || started[3].Existed {
		t.Fatalf("got %+v, %v", started, err)
	}
	kit.FailureOf(k, old, kagzi.StatusCancelled)
}

// Sixteen start the same again and again, while the run completes at once.
func TestRejectEndedRaces(t *testing.T) {
	k := kit.New(t)
	kit.Serve(k, kit.Noop, kit.Odd)
	for round := range 5 {
		id := kagzi.ID(fmt.Sprintf("x-%d", round))
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for {
					run, err := kagzi.Start(k.Ctx, k.Client, kit.Noop, 1, id, kagzi.RejectEnded)
					if errors.Is(err, kagzi.ErrIDTaken) {
						return // it is over
					}
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := run.Result(k.Ctx); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if n := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE external_id = $1`, string(id)); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
	}
}

// The execution of a run that is replaced ends by the announcement: the worker does not poll.
func TestReplaceActiveEndsTheExecution(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"SameClient", "AnotherClient", "InTx", "Many"} {
		t.Run(way, func(t *testing.T) {
			k := kit.New(t)
			wf := kagzi.Define[int, int]("wf", kagzi.ID("x"))
			inStep, ended := make(chan struct{}), make(chan error, 1)
			worker := k.Client
			if way != "SameClient" { // another process: it learns by NOTIFY alone
				worker = kit.NewClient(t, k.Pool)
			}
			cfg := kagzi.WorkerConfig{
				Heartbeat: 10 * time.Minute, StaleAfter: 30 * time.Minute,
				LeaseTimeout: time.Hour,
			}
			w := kit.NewWorker(t, worker, cfg)
			kagzi.Handle(w, wf, func(ctx kagzi.Context, n int) (int, error) {
				if n != 1 {
					return n, nil
				}
				return 0, kagzi.Do(ctx, "wait", func(ctx context.Context) error {
					close(inStep)
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return nil
				})
			})
			kit.StartWorker(t, w)
			kit.WaitListening(t, k.Pool, 1)
			old := kit.Begin(k, wf, 1)
			await.Receive(t, inStep)
			var id kagzi.RunID
			switch way {
			case "InTx":
				tx := k.CallersTx()
				id = kit.Begin(k, wf, 2, kagzi.ReplaceActive, kagzi.InTx(tx)).ID()
				kit.CommitTx(t, tx)
			case "Many":
				started, err := k.Client.StartMany(k.Ctx, []kagzi.Call{
					kit.Noop.With(1, kagzi.Queue("none")),
					wf.With(2, kagzi.ReplaceActive),
				})
				if err != nil {
					t.Fatal(err)
				}
				id = started[1].ID
			default:
				id = kit.Begin(k, wf, 2, kagzi.ReplaceActive).ID()
			}
			select {
			case err := <-ended:
				// a step that a busy machine has run for a second finds at its record that the run has another lease
				if !errors.Is(err, kind.Cancelled) && !errors.Is(err, kagzi.ErrLeaseLost) {
					t.Errorf("cause %v", err)
				}
			case <-k.Ctx.Done():
				t.Fatal("the replaced run is executed still")
			}
			kit.FailureOf(k, old, kagzi.StatusCancelled)
			run, err := kagzi.Find(k.Ctx, k.Client, wf, kagzi.ID("x"))
			if err != nil || run.ID() != id {
				t.Fatalf("the ID is that of %+v, %v; want %s", run, err, id)
			}
			if got := kit.ResultOf(k, run); got != 2 {
				t.Errorf("result %d", got)
			}
		})
	}
}

// Of many that replace each other one is left, and that one completes.
func TestReplaceActiveRaces(t *testing.T) {
	k := kit.New(t)
	wf := kagzi.Define[int, int]("wf", kagzi.ID("x"), kagzi.ReplaceActive)
	release := make(chan struct{})
	kit.Serve(k, wf, func(ctx kagzi.Context, n int) (int, error) {
		return kagzi.Step(ctx, "wait", func(ctx context.Context) (int, error) {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return n, ctx.Err()
		})
	})
	const n = 16
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for range 3 {
				if _, err := kagzi.Start(k.Ctx, k.Client, wf, i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'CANCELLED'`); got != 3*n-1 {
		t.Errorf("%d runs were replaced, want %d", got, 3*n-1)
	}
	last, err := kagzi.Find(k.Ctx, k.Client, wf, kagzi.ID("x")) // the active one
	if err != nil {
		t.Fatal(err)
	}
	close(release)
	kit.ResultOf(k, last)
	if got := k.Count(`SELECT count(*) FROM kagzi.workflow_runs WHERE status = 'COMPLETED'`); got != 1 {
		t.Errorf("%d runs completed, want 1", got)
	}
}
